//! The `pileus` program.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// A leader allocates pages of lists and batches of answers, which glibc keeps where it can't return them in one piece:
/// a fifth more memory at the peak of 5,000 joining Nodes, and a quarter more afterwards. `.cargo/config.toml`
/// configures jemalloc.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    // kube, hyper and the gate share one TLS implementation, which must be installed before the first connection.
    let arguments: Vec<_> = std::env::args_os().collect();
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        return pileus::fail(
            &arguments,
            "can't install the TLS implementation: another one is installed already",
        );
    }
    pileus::main(&arguments)
}
