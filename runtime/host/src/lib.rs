//! Runs a provider, a third-party WebAssembly component, in a sandbox that grants it nothing but requests through the gate.
//!
//! One call, from a controller to the cloud and back:
//!
//! ```text
//!   a controller calls pileus_cloud::{Instances, LoadBalancers, Routes}
//!        │
//!   guest/{instances,load_balancers,routes}.rs   converts the batch (convert.rs), makes the call
//!        │ CallOptions: provider, function, limits, urgency, deadlines
//!   call.rs       waits for a slot (slots.rs), starts the deadlines, runs the guest in a task
//!        │
//!   sandbox.rs    a fresh store: memory, tables, CPU time (cpu.rs) and handles are limited
//!        │
//!   the guest ── wasi:http ──▶ egress.rs ──▶ pileus-gate ──▶ the cloud
//!        │    └─ logging, call ─▶ imports.rs, guest_log.rs
//!        ▼
//!   one outcome for each item (convert.rs), or a Fault for the whole call (fault.rs)
//!        │ after a Fault that the provider caused:
//!   guest/repeat.rs, bisect.rs   repeats the batch in halves until the failing item stands alone
//!        │ for what is missing: absent instances, lists, deletions
//!   evidence.rs   doubts answers that rest on no answer of the cloud, and asks again about those
//!   freshness.rs  doubts lookups that rest on cached data that is too old, and looks those up again
//! ```
//!
//! Before that, a component is loaded once: `component.rs` checks its imports and exports, `code.rs` gets its native code
//! from `code_cache.rs` or from `compiler.rs`, `description.rs` and `settings.rs` call `describe` and `configure` and check
//! the answers.
//!
//! `swap` decides which release of a provider serves which call (pure), and `serving.rs` is where calls of controllers go
//! through that decision.
//!
//! Three lifetimes isolate providers from each other: an [`Engine`] lives as long as the process, a [`Component`] as long
//! as a version of a provider is loaded, and a sandbox for one call. No state of a guest outlives its call.

mod bindings;
mod bisect;
mod call;
mod change_deadline;
mod code;
mod code_cache;
mod compiler;
mod component;
mod config;
mod convert;
mod cpu;
mod declaration;
mod description;
mod egress;
mod engine;
mod error;
mod evidence;
mod fault;
mod freshness;
mod guest;
mod guest_log;
mod imports;
mod limits;
mod metadata_key;
mod metrics;
mod retained;
mod sandbox;
mod sanitize;
mod serving;
mod settings;
mod slots;
pub mod swap;
mod unanswered;

pub use code::CodeOrigin;
pub use code_cache::CodeCache;
pub use compiler::Compiler;
pub use compiler::child::compiler_main;
pub use component::{CONTRACT_VERSION, Capability, Component};
pub use declaration::Declaration;
pub use description::{Annotation, CallShape, Description, ServiceFacts};
pub use engine::Engine;
pub use error::{CompilerFailure, Error};
pub use fault::Fault;
pub use guest::Guest;
pub use limits::Limits;
pub use metrics::Metrics;
pub use sanitize::{is_control, sanitize};
pub use serving::Serving;
pub use settings::{CredentialHint, PublishedLimit, RequestedEndpoint, Settings};
