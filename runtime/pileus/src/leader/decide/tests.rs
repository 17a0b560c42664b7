mod model;

use std::time::Duration;

use super::*;

const HOUR: u64 = 3_600_000;

fn at(milliseconds: u64) -> BootTime {
    BootTime(Duration::from_millis(milliseconds))
}

fn candidate(identity: &str) -> Candidate {
    Candidate {
        identity: identity.to_owned(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

fn held(holder: &str, seconds: i32) -> LeaseRecord {
    LeaseRecord { holder: holder.to_owned(), seconds, transitions: 7, ..LeaseRecord::default() }
}

/// The observation of `a` after reading this at 1 s, without jitter.
fn read(found: Option<LeaseRecord>) -> Observation {
    let mut known = Observation::none(at(0));
    known.on_read(found.map(|record| ("5".to_owned(), record)), &candidate("a"), at(1_000), 0.0);
    known
}

/// The observation of `a` after becoming leader by a write that it sent at 1 s.
fn leader() -> Observation {
    let mut known = read(None);
    known.on_write(at(1_000), "6".to_owned(), held("a", 15), &candidate("a"));
    known
}

fn next(known: &Observation, now: u64) -> ElectionAction {
    decide(known, &candidate("a"), at(now), Timestamp::UNIX_EPOCH)
}

/// The earliest time at which `a` takes the Lease without reading it again.
fn free_from(known: &Observation) -> BootTime {
    known.free_from(&candidate("a"))
}

fn taken_by_a(transitions: i32) -> LeaseRecord {
    let epoch = Some(Timestamp::UNIX_EPOCH);
    LeaseRecord { acquired: epoch, renewed: epoch, transitions, ..held("a", 15) }
}

#[test]
fn a_candidate_reads_first_and_takes_a_free_lease() {
    let update =
        |transitions| ElectionAction::Update { version: "5".to_owned(), record: taken_by_a(transitions) };
    assert_eq!(next(&Observation::none(at(0)), 0), ElectionAction::Read);
    assert_eq!(next(&read(None), 1_000), ElectionAction::Create(taken_by_a(0)));
    assert_eq!(next(&read(Some(held("", 1))), 1_000), update(8), "properly released");
    for (name, record, free) in [
        ("held by another", held("b", 15), 16_000),
        ("held for longer by another", held("b", 60), 61_000),
        ("held by another client of the same name", held("a", 15), 16_000),
        ("without a holder, but not released", held("", 15), 16_000),
        ("with a duration that is too short", held("b", 1), 16_000),
        ("with a duration of zero", held("b", 0), 16_000),
        ("with a negative duration", held("b", -5), 16_000),
        ("without a record", LeaseRecord::default(), 16_000),
        ("with a duration of years", held("b", i32::MAX), 1_000 + HOUR),
    ] {
        let known = read(Some(record.clone()));
        assert_eq!(free_from(&known), at(free), "{name}");
        assert_eq!(next(&known, 1_000), ElectionAction::Wait(at(3_000)), "{name}");
        assert_eq!(next(&known, 3_000), ElectionAction::Read, "{name}: a read each retry period");
        assert_eq!(next(&known, free - 1), ElectionAction::Read, "{name}");
        assert_eq!(next(&known, free), update(record.transitions + 1), "{name}");
    }
}

#[test]
fn only_a_change_of_the_record_counts_as_a_renewal() {
    let candidate = candidate("a");
    let mut known = read(Some(held("b", 15)));
    known.on_read(Some(("6".to_owned(), held("b", 15))), &candidate, at(9_000), 0.0);
    assert_eq!(free_from(&known), at(16_000), "only the metadata has changed");
    let renewed = LeaseRecord { renewed: Some(Timestamp::UNIX_EPOCH), ..held("b", 15) };
    known.on_read(Some(("7".to_owned(), renewed)), &candidate, at(9_000), 0.0);
    assert_eq!(free_from(&known), at(24_000));
    known.on_watch_event("8", None, &candidate, at(10_000), 0.0);
    assert_eq!(free_from(&known), at(25_000), "a deleted lease is waited out");
    assert_eq!(next(&known, 25_000), ElectionAction::Create(taken_by_a(0)));
}

#[test]
fn a_release_is_noticed_at_once_and_stale_events_are_ignored() {
    let candidate = candidate("a");
    let mut known = read(Some(held("b", 15)));
    for stale in ["4", "5"] {
        known.on_watch_event(stale, Some(held("", 1)), &candidate, at(1_500), 0.5);
    }
    assert_eq!(free_from(&known), at(16_000));
    known.on_watch_event("6", Some(held("", 1)), &candidate, at(2_000), 0.5);
    assert_eq!(next(&known, 2_000), ElectionAction::Wait(at(2_100)), "spread over a tenth of a retry period");
    assert!(matches!(next(&known, 2_100), ElectionAction::Update { .. }));
}

#[test]
fn a_leader_renews_each_retry_period_and_gives_up_after_the_renew_deadline() {
    let candidate = candidate("a");
    let mut known = leader();
    assert_eq!(next(&known, 1_000), ElectionAction::Wait(at(3_000)));
    let record = LeaseRecord { renewed: Some(Timestamp::UNIX_EPOCH), ..held("a", 15) };
    let renewal = ElectionAction::Update { version: "6".to_owned(), record };
    assert_eq!(next(&known, 3_000), renewal, "neither acquire time nor transitions change");
    known.on_failure(&candidate, at(3_000), 1.0);
    assert_eq!(next(&known, 3_000), ElectionAction::Wait(at(5_000)), "without jitter");
    assert_eq!(next(&known, 5_000), ElectionAction::Read);
    known.on_failure(&candidate, at(10_000), 1.0);
    assert_eq!(next(&known, 10_000), ElectionAction::Wait(at(11_000)), "not beyond its end");
    assert_eq!(next(&known, 10_999), ElectionAction::Wait(at(11_000)));
    assert_eq!(
        next(&known, 11_000),
        ElectionAction::StepDown(Loss::Expired),
        "counted from the time of sending"
    );
}

#[test]
fn a_leader_steps_down_for_another_holder_and_recreates_a_deleted_lease() {
    let candidate = candidate("a");
    for name in ["b", ""] {
        let mut known = leader();
        known.on_watch_event("7", Some(held(name, 15)), &candidate, at(1_500), 0.0);
        assert_eq!(next(&known, 1_500), ElectionAction::StepDown(Loss::Taken(name.to_owned())));
    }
    let mut known = leader();
    known.on_watch_event("7", None, &candidate, at(1_500), 0.0);
    assert_eq!(next(&known, 1_500), ElectionAction::Create(taken_by_a(0)));
    let mut known = leader();
    known.on_watch_event("7", Some(held("a", 1)), &candidate, at(1_500), 0.0);
    let record = LeaseRecord { renewed: Some(Timestamp::UNIX_EPOCH), ..held("a", 15) };
    assert_eq!(
        next(&known, 1_500),
        ElectionAction::Update { version: "7".to_owned(), record },
        "corrected at once"
    );
    known.on_conflict();
    assert_eq!(next(&known, 1_500), ElectionAction::Read);
}

#[test]
fn a_release_keeps_the_transitions_and_only_a_leader_releases() {
    let candidate = candidate("a");
    let Some(ElectionAction::Update { version, record }) =
        release(&leader(), &candidate, Timestamp::UNIX_EPOCH)
    else {
        panic!("a leader releases")
    };
    let epoch = Some(Timestamp::UNIX_EPOCH);
    assert_eq!(
        (version.as_str(), record),
        ("6", LeaseRecord { acquired: epoch, renewed: epoch, ..held("", 1) })
    );
    assert_eq!(release(&read(Some(held("a", 15))), &candidate, Timestamp::UNIX_EPOCH), None);
    let mut taken = leader();
    taken.on_watch_event("7", Some(held("b", 15)), &candidate, at(1_500), 0.0);
    assert_eq!(release(&taken, &candidate, Timestamp::UNIX_EPOCH), None);
}
