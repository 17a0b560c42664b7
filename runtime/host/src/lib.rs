//! Runs a provider, a WebAssembly component that somebody else wrote, so that it can do its work and nothing else.
//!
//! ```text
//!   controllers                       the cloud
//!       │ pileus_cloud::Instances        ▲
//!   guest.rs ── freshness.rs, halves.rs  │ pileus-gate
//!       │ call.rs: slot, store, clocks   │
//!   sandbox.rs ── component ── wasi:http ── egress.rs
//! ```
//!
//! Three lifetimes keep things apart: an [`Engine`] lives as long as the process, a [`Component`] as long as a version
//! of a provider is loaded, and a sandbox for one call. Nothing that a guest does outlives its call.

mod bindings;
mod call;
mod compiled;
mod compiler;
mod component;
mod cpu;
mod description;
mod digest;
mod egress;
mod engine;
mod error;
mod fault;
mod freshness;
mod guest;
mod guest_log;
mod halves;
mod imports;
mod limits;
mod metrics;
mod native;
mod one_line;
mod sandbox;
mod settings;
mod slots;
mod turns;
mod wire;

pub use compiled::CompiledCode;
pub use compiler::Compiler;
pub use compiler::child::compile_child;
pub use component::{CONTRACT, Capability, Component, read};
pub use description::{Annotation, CallShape, Description, ServiceFacts};
pub use digest::Digest;
pub use engine::Engine;
pub use error::{CompilerEnd, Error};
pub use fault::Fault;
pub use guest::Guest;
pub use limits::Limits;
pub use metrics::Metrics;
pub use native::Code;
pub use one_line::{is_obeyed, one_line};
pub use settings::{PublishedLimit, Settings, Wish};
