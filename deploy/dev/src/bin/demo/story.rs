//! The order of the scenes, and how it all ends: by itself, by Ctrl-C, or by a failure.

use std::process::ExitCode;

use clap::Parser;
use pileus_dev::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::guide;
use crate::scenes::machines::{self, AGE, OFTEN};
use crate::scenes::routes::{self, RANGES};
use crate::scenes::trouble::{self, LOOP, TRAP};
use crate::scenes::{self, joining, services, throttled};
use crate::steps::Steps;

/// What a shell says of a program that Ctrl-C has ended.
const INTERRUPTED: u8 = 130;

/// Shows what Pileus does, with a real API server and a simulated cloud, and leaves nothing behind.
#[derive(Debug, Parser)]
#[command(name = "demo", version)]
pub(crate) struct Arguments {
    /// Leave everything running at the end, until Ctrl-C, and say how to look at it
    #[arg(long)]
    keep: bool,
}

/// Performs the demo. Whatever it has started is gone when this returns.
pub(crate) async fn perform(arguments: Arguments) -> ExitCode {
    let stop = match stop() {
        Ok(stop) => stop,
        Err(error) => return failed(&error.to_string()),
    };
    let mut steps =
        Steps::new("Pileus: a cloud-controller-manager whose providers are sandboxed WebAssembly components");
    let ended = tokio::select! {
        biased;
        () = stop => None,
        ended = play(arguments.keep, &mut steps) => Some(ended),
    };
    match ended {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => failed(&error.to_string()),
        None => {
            eprintln!("\ndemo: stopped");
            if steps.are_over() {
                return ExitCode::SUCCESS;
            }
            steps.sum_up("Shown so far,");
            ExitCode::from(INTERRUPTED)
        }
    }
}

fn failed(why: &str) -> ExitCode {
    eprintln!("\ndemo failed: {why}");
    ExitCode::FAILURE
}

/// What resolves on Ctrl-C or SIGTERM. From this call on they don't kill the process.
fn stop() -> std::io::Result<impl Future<Output = ()>> {
    let [mut interrupt, mut terminate]: [Signal; 2] =
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

async fn play(keep: bool, steps: &mut Steps) -> Result<(), Error> {
    let stage = scenes::set_up(steps).await?;
    let (endpoint, port) = (format!("endpoint: {}", stage.cloud.web.url("")), stage.cloud.port());
    let good = scenes::good(&endpoint, &port);

    scenes::inspect(steps, &stage, good).await?;
    let replicas = joining::join(steps, &stage, good).await?;
    joining::hand_over(steps, &stage, replicas).await?.stop().await?;
    joining::leave_waiting(&stage, &scenes::waiting()).await?;
    let grown_up = Instant::now() + AGE;
    trouble::suffer(steps, &stage, &LOOP).await?;
    trouble::suffer(steps, &stage, &TRAP).await?;
    trouble::deny(steps, &stage, &endpoint).await?;
    trouble::refuse(steps, &stage).await?;
    throttled::drain(steps, &stage).await?;
    let [status, monitor] = OFTEN;
    let pileus = joining::recover(steps, &stage, good, &[status, monitor, RANGES]).await?;
    machines::follow(steps, &stage, &pileus).await?;
    routes::carry(steps, &stage, &pileus).await?;
    services::publish(steps, &stage, &pileus).await?;
    services::narrow(steps, &stage, &pileus).await?;
    // All Nodes need that age, and it comes while the scenes above pass: what is left is waited for here.
    machines::go(steps, &stage, &pileus, grown_up).await?;
    services::remove(steps, &stage, &pileus).await?;
    let vanished = machines::vanish(steps, &stage, &pileus).await?;
    machines::release(steps, &stage, &pileus, &vanished).await?;
    joining::trickle(steps, &stage, &pileus).await?;

    steps.sum_up("Shown");
    if keep {
        guide::look_around(&stage, &pileus)?;
        std::future::pending::<()>().await;
    }
    guide::next()?;
    pileus.stop().await
}
