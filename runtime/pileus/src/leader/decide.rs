//! Decides the next action of a candidate in the election. Pure: time is an argument.
//!
//! The semantics are those of client-go. A holder renews the Lease each retry period and gives up after the renew
//! deadline. Other candidates take over after they have seen the record unchanged for its lease duration, by their own
//! clocks; the times in the record are informational. Every write names the version that it replaces, so the API server
//! refuses one of two concurrent writes. Some rules are stricter, because people and other programs write Leases too:
//!
//! - A candidate leads only after a write of its own was accepted, never because the Lease has its name.
//! - Only a properly released Lease (no holder, a duration of 1 s, as client-go writes it) is taken at once. A Lease
//!   without a holder, or one that was deleted, is waited out as if it were held, because its holder may not know yet.
//! - A lease duration shorter than the candidate's own counts as the candidate's own, one longer than an hour as an hour.
//! - A holder whose Lease is deleted creates a new one. A holder that finds another name in it stops leading.
//!
//! One gap remains: a candidate that has never seen a Lease takes a missing one at once. If a Lease is deleted and a
//! replica starts before the holder has created a new one, which takes a round trip, two replicas lead until the old
//! one notices.

use jiff::Timestamp;

use super::observation::{Candidate, LeaseRecord, LeaseState, Observation, RELEASED};
use super::term::BootTime;

/// The next action of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ElectionAction {
    /// Do nothing until this time.
    Wait(BootTime),
    /// Read the Lease.
    Read,
    /// Create the Lease.
    Create(LeaseRecord),
    /// Replace this version of the Lease.
    Update {
        /// The version to replace.
        version: String,
        /// The new record.
        record: LeaseRecord,
    },
    /// Stop leading.
    StepDown(Loss),
}

/// Why a leader stops leading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The Lease was not renewed in time.
    Expired,
    /// The Lease has another holder, or none.
    Taken(String),
}

/// The next action at time `now` of the candidate's own clock. `wall` only goes into the record.
pub(crate) fn decide(
    observation: &Observation,
    candidate: &Candidate,
    now: BootTime,
    wall: Timestamp,
) -> ElectionAction {
    match observation.led_since {
        Some(sent) => renew(observation, candidate, sent, now, wall),
        None => acquire(observation, candidate, now, wall),
    }
}

fn renew(
    known: &Observation,
    candidate: &Candidate,
    sent: BootTime,
    now: BootTime,
    wall: Timestamp,
) -> ElectionAction {
    let end = sent + candidate.renew_deadline;
    if now >= end {
        return ElectionAction::StepDown(Loss::Expired);
    }
    match &known.lease {
        LeaseState::Present { record, .. } if record.holder != candidate.identity => {
            ElectionAction::StepDown(Loss::Taken(record.holder.clone()))
        }
        _ if now < known.due => ElectionAction::Wait(known.due.min(end)),
        _ if known.is_stale => ElectionAction::Read,
        LeaseState::Present { version, record } => {
            let seconds = candidate.seconds();
            let record = LeaseRecord { seconds, renewed: Some(wall), ..record.clone() };
            ElectionAction::Update { version: version.clone(), record }
        }
        LeaseState::Unknown | LeaseState::Absent | LeaseState::Gone(_) => {
            ElectionAction::Create(candidate.record(0, wall))
        }
    }
}

fn acquire(known: &Observation, candidate: &Candidate, now: BootTime, wall: Timestamp) -> ElectionAction {
    if now < known.due {
        return ElectionAction::Wait(known.due);
    }
    if known.is_stale || now < known.free_from(candidate) {
        return ElectionAction::Read;
    }
    match &known.lease {
        LeaseState::Unknown => ElectionAction::Read,
        LeaseState::Absent | LeaseState::Gone(_) => ElectionAction::Create(candidate.record(0, wall)),
        LeaseState::Present { version, record } => {
            let record = candidate.record(record.transitions.saturating_add(1), wall);
            ElectionAction::Update { version: version.clone(), record }
        }
    }
}

/// The write with which a leader releases the Lease, if it may still hold it.
pub(crate) fn release(known: &Observation, candidate: &Candidate, wall: Timestamp) -> Option<ElectionAction> {
    match &known.lease {
        LeaseState::Present { version, record }
            if known.led_since.is_some() && record.holder == candidate.identity =>
        {
            let record = LeaseRecord {
                holder: String::new(),
                seconds: RELEASED,
                acquired: Some(wall),
                renewed: Some(wall),
                transitions: record.transitions,
            };
            Some(ElectionAction::Update { version: version.clone(), record })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
