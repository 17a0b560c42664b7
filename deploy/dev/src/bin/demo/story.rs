//! The order of the steps, what they add up to, and how it all ends: by itself, by Ctrl-C, or by a failure.

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use pileus_dev::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::guide;
use crate::page::{self, Steps, Tone, row, seconds};
use crate::pileus::Probes;
use crate::scenes::{self, Cost, Villain, counted};

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

const LOOP: Villain = Villain {
    headline: "A provider that never returns",
    why: "Each call has a budget of processor time. A loop uses up its own, and nobody else notices.",
    name: "looping",
    behaviour: "loop",
    result: "cpu",
};

const TRAP: Villain = Villain {
    headline: "A provider that crashes",
    why: "Each call gets a fresh sandbox. A crash ends that sandbox; the process around it doesn't notice.",
    name: "trapping",
    behaviour: "trap",
    result: "trap",
};

/// What the summary is about.
struct Figures {
    three: Cost,
    looped: Probes,
    trapped: Probes,
    ungranted: u64,
    waited: Cost,
}

/// Performs the demo. Whatever it has started is gone when this returns.
pub(crate) async fn perform(arguments: Arguments) -> ExitCode {
    let stop = match stop() {
        Ok(stop) => stop,
        Err(error) => return failed(&error.to_string()),
    };
    let is_over = Cell::new(false);
    let ended = tokio::select! {
        biased;
        () = stop => {
            eprintln!("\ndemo: stopped");
            return if is_over.get() { ExitCode::SUCCESS } else { ExitCode::from(INTERRUPTED) };
        }
        ended = play(arguments.keep, &is_over) => ended,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error.to_string()),
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

async fn play(keep: bool, is_over: &Cell<bool>) -> Result<(), Error> {
    let begun = Instant::now();
    let mut steps =
        Steps::new("Pileus: a cloud-controller-manager whose providers are sandboxed WebAssembly components");
    let stage = scenes::set_up(&mut steps).await?;
    let (endpoint, port) = (format!("endpoint: {}", stage.cloud.web.url("")), stage.cloud.port());
    let good = scenes::good(&endpoint, &port);

    scenes::inspect(&mut steps, &stage, good).await?;
    let (pileus, three) = scenes::join(&mut steps, &stage, good).await?;
    pileus.stop().await?;
    scenes::leave_waiting(&stage, &scenes::waiting()).await?;
    let looped = scenes::suffer(&mut steps, &stage, &LOOP).await?;
    let trapped = scenes::suffer(&mut steps, &stage, &TRAP).await?;
    let ungranted = scenes::deny(&mut steps, &stage, &endpoint).await?;
    let (pileus, waited) = scenes::recover(&mut steps, &stage, good).await?;

    let figures = Figures { three, looped, trapped, ungranted, waited };
    summarise(&figures, begun);
    if keep {
        guide::show(&stage, &pileus)?;
        is_over.set(true);
        std::future::pending::<()>().await;
    }
    pileus.stop().await
}

fn summarise(figures: &Figures, begun: Instant) {
    let Figures { three, looped, trapped, ungranted, waited } = figures;
    let probes = looped.count + trapped.count;
    let slowest = seconds(looped.slowest.max(trapped.slowest));
    let good = |name: &str, text: String| row(name, Tone::Good, text);
    page::heading(&format!("Shown in {}", seconds(begun.elapsed())));
    page::table(&[
        good(
            &format!("{} nodes", three.nodes),
            format!("initialised within {} by {}", seconds(three.took), counted(three.reads)),
        ),
        good("1 loop, 1 trap", format!("stopped; {probes} of {probes} probes answered, within {slowest}")),
        good("1 missing grant", format!("{ungranted} requests reached the cloud")),
        good(
            &format!("{} nodes", waited.nodes),
            format!(
                "initialised {} after the good provider's return by {}",
                seconds(waited.took),
                counted(waited.reads)
            ),
        ),
    ]);
    page::heading("What next");
    page::table(&[
        command("make demo KEEP=1", "the same, and it stays up to look around in"),
        command("make test", "all that every change must pass"),
        command("less providers/simulated/component/src/lib.rs", "the provider that you have just seen"),
    ]);
}

pub(crate) fn command(text: &str, about: &str) -> Vec<page::Cell> {
    vec![Tone::Strong.cell(text), Tone::Quiet.cell(about)]
}
