//! The `pileus` program.

use std::process::ExitCode;

use pileus::cli::Pileus;

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
