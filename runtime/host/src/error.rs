//! Why a component could not be loaded. Failures of later calls are a [`Fault`].

use std::process::ExitStatus;
use std::time::Duration;

use pileus_gate::Problem;

use crate::fault::Fault;

/// A component that can't be used, or a machine that can't run any component.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The wasm engine doesn't start on this machine.
    #[error("the wasm engine does not start: {0}; it reserves address space for {slots} calls, so check `ulimit -v`", slots = crate::limits::SLOTS)]
    Engine(String),
    /// The bytes aren't WebAssembly.
    #[error(
        "this is not WebAssembly (it starts with {start}); expected the .wasm file that `cargo build --target wasm32-wasip2` makes"
    )]
    NotWasm {
        /// How they start.
        start: String,
    },
    /// The bytes are a core module, not a component.
    #[error(
        "this is a core WebAssembly module, not a component; build it for wasm32-wasip2, or wrap it with `wasm-tools component new`"
    )]
    CoreModule,
    /// The component is invalid, or it needs more than a call may have.
    #[error("the component does not compile: {0}")]
    Invalid(String),
    /// The compiler's process can't be started on this machine.
    #[error("the compiler's process can't be run: {0}; check that this machine allows one more process")]
    CompilerSpawn(std::io::Error),
    /// The compiler failed on the component.
    #[error("the component does not compile: {0}")]
    CompilerFailed(CompilerFailure),
    /// The component was built for another version of the contract.
    #[error(
        "the component speaks pileus:provider@{found}, this host accepts {accepted}; rebuild it with a pileus-guest of that version"
    )]
    Version {
        /// The component's version.
        found: String,
        /// The versions that the host accepts.
        accepted: &'static str,
    },
    /// The component exports no `info`, so it is not a provider.
    #[error("the component exports no pileus:provider/info, so it is not a provider; it exports: {exports}")]
    NoProvider {
        /// What the component exports instead.
        exports: String,
    },
    /// The component exports `info`, but no capability.
    #[error(
        "the component exports no capability; a provider exports info and at least one of instances, local-instance, load-balancers, routes"
    )]
    NoCapability,
    /// The component imports an interface that the host doesn't offer.
    #[error("the component imports interfaces that this host does not offer: {}; a provider may import WASI 0.2 and pileus:provider", first_of(.0))]
    UnknownImports(Vec<String>),
    /// An import or export has another type than in the contract.
    #[error("the component does not fit the contract: {0}")]
    Mismatch(String),
    /// A call of `describe` or `configure` failed.
    #[error("the provider's {function} {fault}")]
    Info {
        /// The function that was called.
        function: &'static str,
        /// How the call failed.
        fault: Fault,
    },
    /// The provider's description of itself is invalid.
    #[error("the provider's description is invalid: {0}")]
    Description(String),
    /// The provider doesn't accept its configuration. The problems are the provider's own words, with paths in
    /// `spec.configuration`.
    #[error("the provider does not accept its configuration:{}", Problem::list(.0))]
    Configuration(Vec<Problem>),
    /// The settings that the provider returned for the gate are invalid.
    #[error("the provider's settings are invalid:{}", Problem::list(.0))]
    Settings(Vec<Problem>),
}

impl Error {
    pub(crate) fn engine(error: &wasmtime::Error) -> Self {
        Self::Engine(error.root_cause().to_string())
    }
}

/// How the compiler's process failed. A component that causes this is broken or hostile, or far larger than others.
#[derive(Debug, thiserror::Error)]
pub enum CompilerFailure {
    /// It was stopped at its timeout.
    #[error("the compiler was stopped because it took longer than {} s", .timeout.as_secs())]
    TimedOut {
        /// How long it may take.
        timeout: Duration,
    },
    /// It crashed, or ran out of memory.
    #[error(
        "the compiler ended with {status}: {}; it may use {} s of CPU time, and {} GiB of memory where the machine and the container's limit allow it",
        if .stderr.is_empty() { "it wrote no error" } else { .stderr },
        crate::limits::COMPILE_CPU.as_secs(),
        crate::limits::COMPILE_MEMORY >> 30
    )]
    Crashed {
        /// Its exit code, or the signal that ended it.
        status: ExitStatus,
        /// What it wrote to standard error, on one line.
        stderr: String,
    },
}

/// Lists the first names, because a component may have a million.
pub(crate) fn first_of(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown = names.get(..SHOWN).unwrap_or(names).join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
