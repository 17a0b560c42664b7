//! More calls than there are slots: all end, urgent ones don't wait for others, and none takes a slot with it.

use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{Answer, Error, ErrorKind, Instances as _, Purpose};
use pileus_host::{Fault, Guest, Limits};
use tokio::task::JoinSet;

use crate::fixture::{engine, hostile, node, nodes};

/// Slots, and ten calls for each.
const SLOTS: usize = 64;
const STORM: usize = 10 * SLOTS;

fn patient(hard: Duration) -> Limits {
    Limits { lookup_hard: hard, ..Limits::default() }
}

/// What became of a lookup of one Node.
type Ended = Result<Result<Answer, Error>, Fault>;

async fn lookup(guest: &Guest, purpose: Purpose) -> Ended {
    let answers = guest.lookup_or_fault(purpose, &[node("a")]).await?;
    Ok(answers.map_or_else(Err, |mut answers| answers.remove(0)))
}

fn storm(guest: &Arc<Guest>, purpose: Purpose, calls: usize) -> JoinSet<Ended> {
    let mut storm = JoinSet::new();
    for _ in 0..calls {
        let guest = Arc::clone(guest);
        storm.spawn(async move { lookup(&guest, purpose).await });
    }
    storm
}

/// Waits until a call of this purpose gets no slot, unless one that holds a slot ends before.
async fn until_full(guest: &Guest, purpose: Purpose, holders: &mut JoinSet<Ended>) -> Option<Fault> {
    while holders.try_join_next().is_none() {
        // Any other end says that some of them have not begun yet.
        if let Err(fault @ Fault::NoSlot(_)) = lookup(guest, purpose).await {
            return Some(fault);
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_calls_for_each_slot_all_end_and_so_do_later_ones() {
    let echo = hostile(&engine(), "echo", patient(Duration::from_mins(1))).await;
    for purpose in [Purpose::Initialise, Purpose::Refresh] {
        let mut storm = storm(&echo, purpose, STORM);
        let mut ended = 0;
        while let Some(end) = storm.join_next().await {
            assert!(matches!(end.unwrap(), Ok(Ok(Answer::Found(_)))), "{purpose:?}");
            ended += 1;
        }
        assert_eq!(ended, STORM);
        assert!(matches!(lookup(&echo, purpose).await, Ok(Ok(Answer::Found(_)))), "{purpose:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_refreshes_that_hang_does_not_stand_before_whoever_waits() {
    let engine = engine();
    let sleeper = hostile(&engine, "sleep", patient(Duration::from_mins(1))).await;
    let echo = hostile(&engine, "echo", patient(Duration::from_secs(20))).await;
    let mut storm = storm(&sleeper, Purpose::Refresh, STORM);
    let impatient = hostile(&engine, "echo", patient(Duration::from_millis(100))).await;
    let full = until_full(&impatient, Purpose::Refresh, &mut storm).await;
    assert!(full.is_some(), "the storm takes all that it may");
    for purpose in [Purpose::Initialise, Purpose::Confirm] {
        let answer = lookup(&echo, purpose).await;
        assert!(matches!(answer, Ok(Ok(Answer::Found(_)))), "{purpose:?}: {answer:?}");
    }
    assert!(storm.try_join_next().is_none(), "no slot came free meanwhile: all of them hang for a minute");
    storm.shutdown().await;
    assert!(
        matches!(lookup(&echo, Purpose::Refresh).await, Ok(Ok(Answer::Found(_)))),
        "slots are free again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_a_slot_does_not_shorten_the_call() {
    let engine = engine();
    let long = Duration::from_secs(3);
    let sleeper = hostile(&engine, "sleep", patient(long)).await;
    // It sleeps for 600 ms in all.
    let napper = hostile(&engine, "nap", patient(long + Duration::from_millis(400))).await;
    let mut sleepers = storm(&sleeper, Purpose::Initialise, SLOTS);
    let impatient = hostile(&engine, "echo", patient(Duration::from_millis(1))).await;
    until_full(&impatient, Purpose::Initialise, &mut sleepers).await;
    let answer = lookup(&napper, Purpose::Initialise).await;
    assert!(matches!(answer, Ok(Ok(Answer::Found(_)))), "up to 3 s for a slot, 600 ms of naps: {answer:?}");
    while let Some(end) = sleepers.join_next().await {
        assert_eq!(end.unwrap().unwrap_err(), Fault::Deadline { limit: long });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_gets_no_slot_says_so_and_dropped_calls_give_theirs_back() {
    let engine = engine();
    let patience = Duration::from_secs(2);
    let echo = hostile(&engine, "echo", patient(patience)).await;
    let sleeper = hostile(&engine, "sleep", patient(Duration::from_mins(1))).await;
    let mut asleep = storm(&sleeper, Purpose::Initialise, SLOTS);
    let refused = until_full(&echo, Purpose::Initialise, &mut asleep).await;
    assert_eq!(refused, Some(Fault::NoSlot(patience)));
    let error = echo.lookup(Purpose::Initialise, &nodes("a", 5)).await.unwrap_err();
    assert_eq!(
        error.kind,
        ErrorKind::Unavailable,
        "no fault of the provider's, so nothing to look for in halves"
    );
    asleep.shutdown().await;
    assert!(
        matches!(lookup(&echo, Purpose::Initialise).await, Ok(Ok(Answer::Found(_)))),
        "the slots are free"
    );
}
