//! The effect of a misbehaving provider on well-behaved calls: 50 calls a second, alone and beside as many bad calls as
//! there are processors, alternating so that both run under the same conditions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pileus_cloud::{Instances, Purpose};
use pileus_dev::artifact;
use pileus_host::{Compiler, Component, Engine, Limits};
use pileus_loader::{Loader, TrustPolicy};
use tokio::task::JoinSet;

use crate::Failure;
use crate::calls::{nodes, provider};
use crate::report::{Samples, heading, note, row, time};

const MISDEEDS: [&str; 8] =
    ["loop", "recurse", "grow", "panic", "sleep", "log-flood", "huge-answer", "random-flood"];

/// Honest calls, and the time between them.
const CALLS: usize = 100;
const PACE: Duration = Duration::from_millis(20);

/// Measures honest calls beside each misdeed.
pub(crate) async fn measure() -> Result<(), Failure> {
    let engine = Engine::start(None, Compiler::InProcess)?;
    let path = artifact::component("hostile-provider")?;
    let verified = Loader::read_file(&path, &TrustPolicy::default()).await?;
    let honest = provider(Component::load(&engine, verified.clone()).await?, "{}", Limits::default()).await?;
    honest_calls(&honest).await?;
    heading(
        "50 honest calls a second beside a misdeed",
        &["quiet p99", "beside p99", "beside median", "target"],
    );
    for misdeed in MISDEEDS {
        let limits = Limits { lookup_hard: Duration::from_secs(5), ..Limits::default() };
        let component = Component::load(&engine, verified.clone()).await?;
        let configuration = format!(r#"{{"behaviour": "{misdeed}"}}"#);
        let hostile = provider(component, &configuration, limits).await?;
        let quiet = honest_calls(&honest).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let bad = misbehave(&hostile, &stop);
        let beside = honest_calls(&honest).await?;
        stop.store(true, Ordering::Relaxed);
        bad.join_all().await;
        let target = 2 * quiet.percentile(99);
        row(misdeed, &[quiet.percentile(99), beside.percentile(99), beside.median(), target].map(time));
    }
    note("a guest that computes holds its thread for up to 10 ms before others have their turn");
    Ok(())
}

fn misbehave(hostile: &Arc<dyn Instances>, stop: &Arc<AtomicBool>) -> JoinSet<()> {
    let mut calls = JoinSet::new();
    for _ in 0..std::thread::available_parallelism().map_or(2, std::num::NonZero::get) {
        let (hostile, stop) = (Arc::clone(hostile), Arc::clone(stop));
        calls.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let _fails = hostile.lookup(Purpose::Refresh, &nodes(1)).await;
            }
        });
    }
    calls
}

async fn honest_calls(honest: &Arc<dyn Instances>) -> Result<Samples, Failure> {
    let mut samples = Samples::default();
    for _ in 0..CALLS {
        let started = Instant::now();
        honest.lookup(Purpose::Initialise, &nodes(1)).await.map_err(|error| error.message)?;
        samples.push(started.elapsed());
        tokio::time::sleep(PACE).await;
    }
    Ok(samples)
}
