//! The `pileus` program.

use std::process::ExitCode;

use pileus::cli::Pileus;
use tikv_jemallocator::Jemalloc;

/// A leader's memory grows by a page of a list here and a batch of answers there, and glibc keeps of that what it can't give
/// back in one piece: a fifth more at the peak of 5,000 Nodes that join, a quarter more ever after. How it is set up stands
/// in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    // kube, hyper and our dialler share one TLS implementation; it must be chosen before the first connection.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("pileus: another TLS implementation is installed already");
        return ExitCode::FAILURE;
    }
    let arguments: Vec<_> = std::env::args_os().collect();
    match Pileus::read(&arguments).and_then(pileus::run) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("pileus: {error}");
            error.exit_code()
        }
    }
}
