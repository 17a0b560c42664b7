//! The sandbox against components that somebody else wrote: one that does everything wrong that a guest can do, and
//! bytes that shouldn't have been loaded at all. Real components in the real engine; of clouds there is only a slow one.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod attacks;
mod bodies;
mod calls;
#[expect(dead_code, reason = "shared with the tests of the gate, which use all of it")]
#[path = "../../../gate/tests/wire/cloud.rs"]
mod cloud;
mod compiled;
mod compiler;
mod deadline;
mod fixture;
mod halves;
mod loading;
mod services;
mod slots;
mod spans;
mod tables;
