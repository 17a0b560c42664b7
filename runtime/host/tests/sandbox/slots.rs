//! More calls than slots: all calls end, urgent calls don't wait for others, and no call leaks its slot.

use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{Answer, Error, ErrorKind, Instances as _, Purpose};
use pileus_host::{Fault, Guest, Limits};
use tokio::task::JoinSet;

use crate::fixture::{engine, hostile, node, nodes};

const SLOTS: usize = 64;

/// Ten calls for each slot.
const CALLS: usize = 10 * SLOTS;

fn with_hard_deadline(hard: Duration) -> Limits {
    Limits { lookup_hard: hard, ..Limits::default() }
}

/// The result of a lookup of one Node.
type LookupResult = Result<Result<Answer, Error>, Fault>;

async fn lookup(guest: &Guest, purpose: Purpose) -> LookupResult {
    let answers = guest.lookup_once(purpose, &[node("a")]).await?;
    Ok(answers.map_or_else(Err, |mut answers| answers.remove(0)))
}

fn start_calls(guest: &Arc<Guest>, purpose: Purpose, calls: usize) -> JoinSet<LookupResult> {
    let mut started = JoinSet::new();
    for _ in 0..calls {
        let guest = Arc::clone(guest);
        started.spawn(async move { lookup(&guest, purpose).await });
    }
    started
}

/// Waits until a call of this purpose gets no slot, unless one that holds a slot ends before.
async fn until_full(guest: &Guest, purpose: Purpose, holders: &mut JoinSet<LookupResult>) -> Option<Fault> {
    while holders.try_join_next().is_none() {
        // After any other result, some of them have not begun yet.
        if let Err(fault @ Fault::NoSlot(_)) = lookup(guest, purpose).await {
            return Some(fault);
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_calls_for_each_slot_all_end_and_so_do_later_calls() {
    let echo = hostile(&engine(), "echo", with_hard_deadline(Duration::from_mins(1))).await;
    for purpose in [Purpose::Initialise, Purpose::Refresh] {
        let mut calls = start_calls(&echo, purpose, CALLS);
        let mut ended = 0;
        while let Some(end) = calls.join_next().await {
            assert!(matches!(end.unwrap(), Ok(Ok(Answer::Found(_)))), "{purpose:?}");
            ended += 1;
        }
        assert_eq!(ended, CALLS);
        assert!(matches!(lookup(&echo, purpose).await, Ok(Ok(Answer::Found(_)))), "{purpose:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_refreshes_that_hang_do_not_delay_urgent_calls() {
    let engine = engine();
    let sleeper = hostile(&engine, "sleep", with_hard_deadline(Duration::from_mins(1))).await;
    let echo = hostile(&engine, "echo", with_hard_deadline(Duration::from_secs(20))).await;
    let mut calls = start_calls(&sleeper, Purpose::Refresh, CALLS);
    let quick = hostile(&engine, "echo", with_hard_deadline(Duration::from_millis(100))).await;
    let full = until_full(&quick, Purpose::Refresh, &mut calls).await;
    assert!(full.is_some(), "refreshes take all the slots that they may");
    for purpose in [Purpose::Initialise, Purpose::Confirm] {
        let answer = lookup(&echo, purpose).await;
        assert!(matches!(answer, Ok(Ok(Answer::Found(_)))), "{purpose:?}: {answer:?}");
    }
    assert!(calls.try_join_next().is_none(), "no slot came free meanwhile: all of them hang for a minute");
    calls.shutdown().await;
    assert!(
        matches!(lookup(&echo, Purpose::Refresh).await, Ok(Ok(Answer::Found(_)))),
        "slots are free again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_a_slot_does_not_shorten_the_call() {
    let engine = engine();
    let long = Duration::from_secs(3);
    let sleeper = hostile(&engine, "sleep", with_hard_deadline(long)).await;
    // It sleeps for 600 ms in all.
    let napper = hostile(&engine, "nap", with_hard_deadline(long + Duration::from_millis(400))).await;
    let mut sleepers = start_calls(&sleeper, Purpose::Initialise, SLOTS);
    let quick = hostile(&engine, "echo", with_hard_deadline(Duration::from_millis(1))).await;
    until_full(&quick, Purpose::Initialise, &mut sleepers).await;
    let answer = lookup(&napper, Purpose::Initialise).await;
    assert!(matches!(answer, Ok(Ok(Answer::Found(_)))), "up to 3 s for a slot, 600 ms of naps: {answer:?}");
    while let Some(end) = sleepers.join_next().await {
        assert_eq!(end.unwrap().unwrap_err(), Fault::Deadline { limit: long, unanswered: None });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_a_slot_fails_and_dropped_calls_release_theirs() {
    let engine = engine();
    let timeout = Duration::from_secs(2);
    let echo = hostile(&engine, "echo", with_hard_deadline(timeout)).await;
    let sleeper = hostile(&engine, "sleep", with_hard_deadline(Duration::from_mins(1))).await;
    let mut asleep = start_calls(&sleeper, Purpose::Initialise, SLOTS);
    let refused = until_full(&echo, Purpose::Initialise, &mut asleep).await;
    assert_eq!(refused, Some(Fault::NoSlot(timeout)));
    let error = echo.lookup(Purpose::Initialise, &nodes("a", 5)).await.unwrap_err();
    assert_eq!(
        error.kind,
        ErrorKind::Unavailable(None),
        "not caused by the provider, so nothing is repeated"
    );
    asleep.shutdown().await;
    assert!(
        matches!(lookup(&echo, Purpose::Initialise).await, Ok(Ok(Answer::Found(_)))),
        "the slots are free"
    );
}
