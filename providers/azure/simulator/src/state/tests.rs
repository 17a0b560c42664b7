//! The cloud as clients use it: what each request does, and what is refused with which status and code.

mod compute;
mod fixture;
mod identity;
mod manager;
mod network;
