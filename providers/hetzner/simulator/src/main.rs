//! The process: listens, prints its address in one line, and serves until it gets SIGTERM or SIGINT.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use hetzner_cloud::arguments::Arguments;
use hetzner_cloud::server::{Error, serve};
use simulated_cloud::server::{Error as ListenError, listen, stop_signal};

async fn run(arguments: Arguments) -> Result<(), Error> {
    let stop = stop_signal()?;
    let listener = listen(arguments.listen).await?;
    let address = listener.local_addr().map_err(ListenError::Start)?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "hetzner cloud on http://{address}/v1")
        .and_then(|()| stdout.flush())
        .map_err(ListenError::Start)?;
    serve(listener, arguments.settings(), stop).await
}

#[tokio::main]
async fn main() -> ExitCode {
    let Err(error) = run(Arguments::parse()).await else { return ExitCode::SUCCESS };
    let _ = writeln!(std::io::stderr(), "hetzner-cloud: {error}");
    ExitCode::FAILURE
}
