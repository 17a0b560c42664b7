//! Tests of the sandbox with third-party components: a hostile provider, whose behaviors are everything that a guest can do
//! wrong, and bytes that must not be loaded at all. The components and the engine are real; the clouds are small servers.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod attacks;
mod bisect;
mod bodies;
mod calls;
#[expect(dead_code, reason = "shared with the tests of the gate, which use all of it")]
#[path = "../../../gate/tests/wire/cloud.rs"]
mod cloud;
mod code_cache;
mod compiler;
mod deadline;
mod evidence;
mod fixture;
mod loading;
mod services;
mod serving;
mod slots;
mod tables;
