//! The order of the scenes, and the end of the demo: after the last scene, by Ctrl-C, or by a failure.

use std::process::ExitCode;

use clap::Parser;
use pileus_dev::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::guide;
use crate::scenes::instances::{self, INTERVALS, MINIMUM_AGE};
use crate::scenes::misbehaving::{self, LOOP, TRAP};
use crate::scenes::routes::{self, CLUSTER_CIDR};
use crate::scenes::{self, breaker, hand_over, joining, services, swaps, throttled};
use crate::steps::Steps;

/// The exit code that shells give a program that was ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Show what Pileus does, with a real API server and a simulated cloud, and remove everything afterwards
#[derive(Debug, Parser)]
#[command(name = "demo", version)]
pub(crate) struct Arguments {
    /// Leave everything running at the end, until Ctrl-C, and print commands to try
    #[arg(long)]
    keep: bool,
}

/// Runs the demo. Everything that it has started is gone when this returns.
pub(crate) async fn run(arguments: Arguments) -> ExitCode {
    let stop = match stop_signal() {
        Ok(stop) => stop,
        Err(error) => return failed(&error.to_string()),
    };
    let mut steps =
        Steps::new("Pileus: a cloud-controller-manager whose providers are sandboxed WebAssembly components");
    let ended = tokio::select! {
        biased;
        () = stop => None,
        ended = run_scenes(arguments.keep, &mut steps) => Some(ended),
    };
    match ended {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => failed(&error.to_string()),
        None => {
            eprintln!("\ndemo: stopped");
            if steps.has_printed_summary() {
                return ExitCode::SUCCESS;
            }
            steps.print_summary("Shown so far,");
            ExitCode::from(INTERRUPTED)
        }
    }
}

fn failed(why: &str) -> ExitCode {
    eprintln!("\ndemo failed: {why}");
    ExitCode::FAILURE
}

/// Resolves on Ctrl-C or SIGTERM. From this call on they no longer kill the process.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let [mut interrupt, mut terminate]: [Signal; 2] =
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

async fn run_scenes(keep: bool, steps: &mut Steps) -> Result<(), Error> {
    let stage = scenes::set_up(steps).await?;
    let (endpoint, port) = (format!("endpoint: {}", stage.cloud.http.url("")), stage.cloud.port());
    let good = scenes::good(&endpoint, &port);

    scenes::inspect(steps, &stage, good).await?;
    let replicas = joining::join(steps, &stage, good).await?;
    hand_over::hand_over(steps, &stage, replicas).await?.stop().await?;
    joining::leave_waiting(&stage, &scenes::waiting()).await?;
    let old_enough = Instant::now() + MINIMUM_AGE;
    misbehaving::contain(steps, &stage, &LOOP).await?;
    misbehaving::contain(steps, &stage, &TRAP).await?;
    misbehaving::deny(steps, &stage, &endpoint).await?;
    misbehaving::protect_identity(steps, &stage).await?;
    throttled::drain(steps, &stage).await?;
    let [status, monitor] = INTERVALS;
    let pileus = joining::recover(steps, &stage, good, &[status, monitor, CLUSTER_CIDR]).await?;
    instances::follow(steps, &stage, &pileus).await?;
    routes::create(steps, &stage, &pileus).await?;
    services::create(steps, &stage, &pileus).await?;
    services::change(steps, &stage, &pileus).await?;
    swaps::swap(steps, &stage, &pileus).await?;
    swaps::hold(steps, &stage, &pileus, &endpoint).await?;
    // Most of the minute that all Nodes need has passed with the scenes above.
    instances::delete(steps, &stage, &pileus, old_enough).await?;
    services::delete(steps, &stage, &pileus).await?;
    let vanished = breaker::vanish(steps, &stage, &pileus).await?;
    breaker::release(steps, &stage, &pileus, &vanished).await?;
    joining::trickle(steps, &stage, &pileus).await?;

    steps.print_summary("Shown");
    if keep {
        guide::explore(&stage, &pileus).await?;
        std::future::pending::<()>().await;
    }
    guide::go_on()?;
    pileus.stop().await
}
