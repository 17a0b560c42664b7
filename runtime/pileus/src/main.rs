//! The `pileus` program.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    // kube, hyper and our dialler share one TLS implementation; it must be chosen before the first connection.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("pileus: another TLS implementation is installed already");
        return ExitCode::FAILURE;
    }
    match pileus::run(pileus::cli::Pileus::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("pileus: {error}");
            error.exit_code()
        }
    }
}
