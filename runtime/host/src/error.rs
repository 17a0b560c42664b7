//! Why a component could not be loaded. What goes wrong in a call later is a [`Fault`].

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use pileus_gate::Problem;

use crate::fault::Fault;

/// A component that can't be used, or a machine that can't run any.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine doesn't start on this machine.
    #[error("the wasm engine does not start: {0}; it reserves address space for {slots} calls, so check `ulimit -v`", slots = crate::limits::SLOTS)]
    Engine(String),
    /// The file can't be read.
    #[error("can't read the component {}: {source}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is larger than any component should be.
    #[error("the component has {size} bytes, at most {limit} are read")]
    TooLarge {
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// It isn't WebAssembly.
    #[error(
        "this is not WebAssembly (it starts with {start}); expected the .wasm file that `cargo build --target wasm32-wasip2` makes"
    )]
    NotWasm {
        /// How it starts.
        start: String,
    },
    /// It is a core module, not a component.
    #[error(
        "this is a core WebAssembly module, not a component; build it for wasm32-wasip2, or wrap it with `wasm-tools component new`"
    )]
    CoreModule,
    /// It is a component, but not a valid one, or it needs more than any call may have.
    #[error("the component does not compile: {0}")]
    Invalid(String),
    /// The compiler's process can't be run on this machine.
    #[error("the compiler's process can't be run: {0}; check that this machine lets one more process start")]
    Compiler(std::io::Error),
    /// The compiler didn't get through the component.
    #[error("the component does not compile: {0}")]
    CompilerEnded(CompilerEnd),
    /// It is for another version of the contract.
    #[error(
        "the component speaks pileus:provider@{found}, this host accepts {accepted}; rebuild it with a pileus-guest of that version"
    )]
    Version {
        /// Which it speaks.
        found: String,
        /// Which the host accepts.
        accepted: &'static str,
    },
    /// It exports no `info`, so it is no provider.
    #[error("the component exports no pileus:provider/info, so it is not a provider; it exports: {exports}")]
    NoProvider {
        /// What it exports instead.
        exports: String,
    },
    /// It exports `info`, but nothing that it could do.
    #[error(
        "the component exports no capability; a provider exports info and at least one of instances, local-instance, load-balancers, routes"
    )]
    NoCapability,
    /// It imports what the host doesn't offer.
    #[error("the component imports what this host does not offer: {}; a provider may import WASI 0.2 and pileus:provider", some_of(.0))]
    UnknownImports(Vec<String>),
    /// An import or export has another type than the contract says.
    #[error("the component does not fit the contract: {0}")]
    Mismatch(String),
    /// `describe` or `configure` brought no answer.
    #[error("the provider's {function} {fault}")]
    Info {
        /// Which function.
        function: &'static str,
        /// What became of it.
        fault: Fault,
    },
    /// The provider says something about itself that can't be.
    #[error("the provider describes itself wrongly: {0}")]
    Description(String),
    /// The provider doesn't accept its configuration, in its own words, by paths in `spec.configuration`.
    #[error("the provider does not accept its configuration:{}", Problem::list(.0))]
    Configuration(Vec<Problem>),
    /// What the provider wants from the gate can't be.
    #[error("the provider's settings are wrong:{}", Problem::list(.0))]
    Settings(Vec<Problem>),
}

impl Error {
    pub(crate) fn engine(error: &wasmtime::Error) -> Self {
        Self::Engine(error.root_cause().to_string())
    }
}

/// How the compiler's process ended without code. A component that does this to it is broken or hostile, or far larger
/// than others.
#[derive(Debug, thiserror::Error)]
pub enum CompilerEnd {
    /// It was stopped.
    #[error("the compiler was stopped as it took longer than {} s", .limit.as_secs())]
    OutOfTime {
        /// How long it may take.
        limit: Duration,
    },
    /// It crashed, or got no more memory.
    #[error(
        "the compiler ended with {status}: {}; it may use {} s of processor time, and {} GiB of memory where the machine and the container's limit have it",
        if .last_words.is_empty() { "it said nothing" } else { .last_words },
        crate::limits::COMPILE_CPU.as_secs(),
        crate::limits::COMPILE_MEMORY >> 30
    )]
    Crashed {
        /// With which exit code, or by which signal.
        status: ExitStatus,
        /// What it said last, on one line.
        last_words: String,
    },
}

/// Names in a row, of which a component may have a million.
pub(crate) fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown = names.get(..SHOWN).unwrap_or(names).join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
