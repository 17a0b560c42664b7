//! Honest calls beside each misdeed: all are answered, none waits for a guest to be stopped, and the memory that was taken
//! comes back. A program of its own, as it measures its own memory.
//!
//! More guests misbehave at once than there are threads to run them. So if one of them held its thread until its limit,
//! or if all had their turns before an honest call had its own, most honest calls would be late, and that is what is
//! asserted: of the middle one, against the middle one of quiet calls in between, with room for one tick. The slowest of
//! a hundred is for the bench to show (`make bench`): it would fail here whenever the machine has other work.

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

const MISDEEDS: [&str; 12] = [
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

/// How long a guest that computes may hold back others, if nothing made it yield.
const CPU: Duration = Duration::from_millis(300);

/// Honest calls beside each misdeed, one each 20 ms.
const CALLS: usize = 20;
const PACE: Duration = Duration::from_millis(20);

/// How long a guest may hold a thread before others have their turn.
const TICK: Duration = Duration::from_millis(10);

/// What the process may have kept of a round of misdeeds, when it has been through another before: pieces of the
/// allocator's heap. What the pool keeps of its memories, half a megabyte of each, it has kept the first time.
const KEPT: u64 = 16 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn row_18_honest_calls_are_answered_beside_every_misdeed_and_memory_comes_back() {
    let engine = engine();
    let honest = hostile(&engine, "echo", Limits::default()).await;
    let mut guests = Vec::new();
    for misdeed in MISDEEDS {
        let limits = Limits { cpu: CPU, lookup_hard: 2 * CPU, ..Limits::default() };
        guests.push((misdeed, hostile(&engine, misdeed, limits).await));
    }
    for (misdeed, guest) in &guests {
        let culprits = Culprits::start(guest);
        honest_calls(&honest, 1).await;
        culprits.stop(misdeed).await;
    }
    let before = resident();
    let (mut quiet, mut beside) = (Vec::new(), Vec::new());
    for (misdeed, guest) in &guests {
        quiet.extend(honest_calls(&honest, CALLS / 2).await);
        let culprits = Culprits::start(guest);
        let mut times = honest_calls(&honest, CALLS).await;
        culprits.stop(misdeed).await;
        times.sort_unstable();
        let median = times[times.len() / 2];
        assert!(median < CPU / 2, "beside {misdeed}, half of the honest calls took longer than {median:?}");
        beside.extend(times);
    }
    let after = resident();
    quiet.sort_unstable();
    beside.sort_unstable();
    println!("honest calls, quiet: {}; beside misdeeds: {}", spread(&quiet), spread(&beside));
    let bound = 2 * quiet[quiet.len() / 2] + TICK;
    assert!(
        beside[beside.len() / 2] < bound,
        "quiet: {}; beside misdeeds: {}",
        spread(&quiet),
        spread(&beside)
    );
    println!("resident: {} kB before, {} kB after", before >> 10, after >> 10);
    assert!(after < before + KEPT, "{} MiB before, {} MiB after", before >> 20, after >> 20);
}

async fn lookup(honest: &Guest) -> Duration {
    let started = Instant::now();
    let answers = honest.lookup_or_fault(Purpose::Initialise, &[node("a")]).await;
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

/// Calls of a guest that misbehaves, again and again.
struct Culprits {
    calls: JoinSet<()>,
    stop: Arc<AtomicBool>,
    faults: Arc<AtomicU32>,
}

impl Culprits {
    fn start(guest: &Arc<Guest>) -> Self {
        let (stop, faults) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let mut calls = JoinSet::new();
        for _ in 0..=std::thread::available_parallelism().unwrap().get() {
            let (guest, stop, faults) = (Arc::clone(guest), Arc::clone(&stop), Arc::clone(&faults));
            calls.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let ended = guest.lookup_or_fault(Purpose::Refresh, &[node("b"), node("c")]).await;
                    assert!(ended.is_err(), "{ended:?}");
                    faults.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { calls, stop, faults }
    }

    async fn stop(self, misdeed: &str) {
        self.stop.store(true, Ordering::Relaxed);
        self.calls.join_all().await;
        assert!(self.faults.load(Ordering::Relaxed) > 0, "{misdeed} did no harm that was noticed");
    }
}

/// Of times that are sorted.
fn spread(times: &[Duration]) -> String {
    let of = |percent: usize| *times.get((times.len() - 1) * percent / 100).unwrap();
    format!("median {:?}, p99 {:?}", of(50), of(99))
}

/// The memory of this process that is in the machine's, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
