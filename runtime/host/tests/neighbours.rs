//! Calls of an honest guest beside guests that misbehave: all honest calls are answered, none waits until a guest is stopped,
//! and the memory is freed. The test is a program of its own because it measures its own memory.
//!
//! More guests misbehave at once than there are threads to run them. So if one of them held its thread until its limit, or
//! if all of them ran before an honest call, most honest calls would be late. The test compares the median of the honest
//! calls with the median of quiet calls in between, with room for one epoch tick. The bench (`make bench`) shows the 99th
//! percentile: here it would fail whenever the machine has other work.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "shared with the tests of the sandbox, which use all of it")]
#[path = "sandbox/fixture.rs"]
mod fixture;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fixture::{engine, hostile, node};
use pileus_cloud::{Answer, Purpose};
use pileus_host::{Guest, Limits};
use tokio::task::JoinSet;

const MISBEHAVIORS: [&str; 12] = [
    "loop",
    "recurse",
    "grow",
    "trap",
    "panic",
    "sleep",
    "stdout-flood",
    "log-flood",
    "misaligned",
    "huge-answer",
    "random-flood",
    "handles",
];

/// The CPU time of a guest: how long it would delay others if nothing made it yield.
const CPU: Duration = Duration::from_millis(300);

/// Honest calls beside each misbehavior, one every 20 ms.
const CALLS: usize = 20;
const PACE: Duration = Duration::from_millis(20);

/// An epoch tick: how long a guest may hold a thread before others run.
const TICK: Duration = Duration::from_millis(10);

/// The memory that the process may keep after a second round of misbehaviors: fragments of the allocator's heap. The pool
/// already keeps half a megabyte of each of its memories after the first round.
const MAX_GROWTH: u64 = 16 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn row_18_honest_calls_are_answered_beside_every_misbehavior_and_memory_is_freed() {
    let engine = engine();
    let honest = hostile(&engine, "echo", Limits::default()).await;
    let mut guests = Vec::new();
    for misbehavior in MISBEHAVIORS {
        let limits = Limits { cpu: CPU, lookup_hard: 2 * CPU, ..Limits::default() };
        guests.push((misbehavior, hostile(&engine, misbehavior, limits).await));
    }
    for (misbehavior, guest) in &guests {
        let misbehaving = Misbehaving::start(guest);
        honest_calls(&honest, 1).await;
        misbehaving.stop(misbehavior).await;
    }
    let before = resident();
    let (mut quiet, mut beside) = (Vec::new(), Vec::new());
    for (misbehavior, guest) in &guests {
        quiet.extend(honest_calls(&honest, CALLS / 2).await);
        let misbehaving = Misbehaving::start(guest);
        let mut times = honest_calls(&honest, CALLS).await;
        misbehaving.stop(misbehavior).await;
        times.sort_unstable();
        let median = times[times.len() / 2];
        assert!(
            median < CPU / 2,
            "beside {misbehavior}, half of the honest calls took longer than {median:?}"
        );
        beside.extend(times);
    }
    let after = resident();
    quiet.sort_unstable();
    beside.sort_unstable();
    println!("honest calls, quiet: {}; beside misbehaviors: {}", spread(&quiet), spread(&beside));
    let bound = 2 * quiet[quiet.len() / 2] + TICK;
    assert!(
        beside[beside.len() / 2] < bound,
        "quiet: {}; beside misbehaviors: {}",
        spread(&quiet),
        spread(&beside)
    );
    println!("resident: {} kB before, {} kB after", before >> 10, after >> 10);
    assert!(after < before + MAX_GROWTH, "{} MiB before, {} MiB after", before >> 20, after >> 20);
}

async fn lookup(honest: &Guest) -> Duration {
    let started = Instant::now();
    let answers = honest.lookup_once(Purpose::Initialise, &[node("a")]).await;
    let took = started.elapsed();
    let Ok(Ok(answers)) = answers else { panic!("an honest call failed: {answers:?}") };
    let [Ok(Answer::Found(found))] = answers.as_slice() else { panic!("no answer: {answers:?}") };
    assert_eq!(found.provider_id.as_str(), "hostile://a");
    took
}

async fn honest_calls(honest: &Guest, calls: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..calls {
        times.push(lookup(honest).await);
        tokio::time::sleep(PACE).await;
    }
    times
}

/// Repeated calls of a guest that misbehaves.
struct Misbehaving {
    calls: JoinSet<()>,
    stop: Arc<AtomicBool>,
    faults: Arc<AtomicU32>,
}

impl Misbehaving {
    fn start(guest: &Arc<Guest>) -> Self {
        let (stop, faults) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let mut calls = JoinSet::new();
        for _ in 0..=std::thread::available_parallelism().unwrap().get() {
            let (guest, stop, faults) = (Arc::clone(guest), Arc::clone(&stop), Arc::clone(&faults));
            calls.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let ended = guest.lookup_once(Purpose::Refresh, &[node("b"), node("c")]).await;
                    assert!(ended.is_err(), "{ended:?}");
                    faults.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { calls, stop, faults }
    }

    async fn stop(self, misbehavior: &str) {
        self.stop.store(true, Ordering::Relaxed);
        self.calls.join_all().await;
        assert!(self.faults.load(Ordering::Relaxed) > 0, "{misbehavior} caused no fault");
    }
}

/// The median and the 99th percentile of sorted times.
fn spread(times: &[Duration]) -> String {
    let of = |percent: usize| *times.get((times.len() - 1) * percent / 100).unwrap();
    format!("median {:?}, p99 {:?}", of(50), of(99))
}

/// The resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
