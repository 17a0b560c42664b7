//! The process: listens, prints its address in one line, and serves until it gets SIGTERM or SIGINT.

use std::io::Write as _;
use std::process::ExitCode;

use azure_simulator::arguments::Arguments;
use azure_simulator::server::{Error, Server};
use clap::Parser as _;
use simulated_cloud::server::{Error as ListenError, stop_signal};

async fn run(arguments: Arguments) -> Result<(), Error> {
    let stop = stop_signal()?;
    let server = Server::start(&arguments).await?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", server.greeting()).and_then(|()| stdout.flush()).map_err(ListenError::Start)?;
    server.serve(stop).await;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let Err(error) = run(Arguments::parse()).await else { return ExitCode::SUCCESS };
    let _ = writeln!(std::io::stderr(), "azure-simulator: {error}");
    ExitCode::FAILURE
}
