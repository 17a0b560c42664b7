//! The status in words and conditions, for the operator and for Kubernetes tools. Pure.

use jiff::Timestamp;

use super::lead::Facts;
use super::status::{Candidate, Condition, ConditionKind, Phase, Release, Status};
use super::step::Stage;

/// What keeps the provider from what the spec asks for, in words.
pub(super) fn problem(facts: &Facts<'_>, status: &Status) -> Option<String> {
    if let Some(why) = facts.invalid_spec {
        return Some(invalid_spec(why));
    }
    if let Some(refusal) = facts.refusal {
        return Some(refusal.to_owned());
    }
    let error_of = |release: Release| facts.replica.holding(release).and_then(|holding| holding.job.error());
    if let Some(error) = status.active_release().and_then(error_of) {
        let advice = match status.candidate {
            Some(_) if facts.replica.serving.is_none() => {
                "; an order to swap puts the candidate in its place"
            }
            _ => "",
        };
        return Some(format!("the active release can't be prepared: {error}{advice}"));
    }
    if facts.open_order(status).is_some() {
        let error = status.previous_release().and_then(error_of).unwrap_or("it is being prepared");
        return Some(format!("the rollback waits for the previous release: {error}"));
    }
    let resolution = facts.leader.resolution.as_ref();
    if let Some(error) = resolution.and_then(|resolution| resolution.job.error()) {
        return Some(format!("can't resolve what the spec follows: {error}"));
    }
    if let Some(candidate) = &status.candidate {
        let dry_run = facts.leader.dry_run.as_ref().filter(|known| known.candidate == candidate.release);
        let error = error_of(candidate.release).or_else(|| dry_run.and_then(|dry_run| dry_run.job.error()));
        if let Some(error) = error {
            return Some(format!("the candidate can't be prepared: {error}"));
        }
        return (candidate.phase == Phase::Held).then(|| held(candidate));
    }
    let rejection = status.rejection(facts.wanted(status)?)?;
    Some(format!("{} is rejected until the spec changes: {}", name(rejection.release), rejection.why))
}

fn invalid_spec(why: &str) -> String {
    format!("the spec is invalid and not in use: {why}")
}

/// The status of a leader that has read no spec yet but an invalid one. All else stays.
pub(super) fn with_invalid_spec(status: &Status, why: &str, now: Timestamp) -> Status {
    let mut next = status.clone();
    let degraded = condition(status, ConditionKind::Degraded, true, invalid_spec(why), now);
    next.conditions.retain(|condition| condition.kind != ConditionKind::Degraded);
    next.conditions.push(degraded);
    next
}

fn held(candidate: &Candidate) -> String {
    let found = candidate.differences.clone().unwrap_or_default();
    format!(
        "{} is held: it answers {} lookups differently and wants {} writes for what is settled; order a swap to accept this",
        name(candidate.release),
        found.lookups,
        found.writes
    )
}

/// A release in a message.
fn name(release: Release) -> String {
    format!("release {} with settings {}", release.component.short(), release.settings.short())
}

/// The problem that a status shows.
pub(super) fn degraded(status: &Status) -> Option<&String> {
    let mut conditions = status.conditions.iter();
    let shown = conditions.find(|condition| condition.kind == ConditionKind::Degraded && condition.holds);
    shown.map(|condition| &condition.message)
}

/// The conditions of a status. The time of a condition changes only with the condition.
pub(super) fn conditions(facts: &Facts<'_>, status: &Status, problem: Option<String>) -> Vec<Condition> {
    let mut found = Vec::new();
    if let Some(subject) = status.candidate_release().or(status.active_release()) {
        let stages = [
            (ConditionKind::Fetched, Stage::Fetch),
            (ConditionKind::Verified, Stage::Verify),
            (ConditionKind::Compiled, Stage::Compile),
            (ConditionKind::Compatible, Stage::Check),
        ];
        let holding = facts.replica.holding(subject);
        for (kind, stage) in stages {
            let holds = holding.is_some_and(|holding| holding.has_passed(stage));
            let error =
                holding.filter(|holding| holding.stage == stage).and_then(|holding| holding.job.error());
            found.push((kind, holds, error.map_or_else(|| name(subject), str::to_owned)));
        }
    }
    let active = status.active_release();
    let is_ready = active.is_some() && facts.replica.serving == active && facts.refusal.is_none();
    let message = active.map_or_else(|| "no release is active yet".to_owned(), name);
    found.push((ConditionKind::Ready, is_ready, facts.refusal.map_or(message, str::to_owned)));
    let is_moving = status.candidate.as_ref().is_some_and(|candidate| candidate.phase != Phase::Held);
    found.push((ConditionKind::Progressing, is_moving && status.may_swap(), progress(status)));
    found.push((ConditionKind::Degraded, problem.is_some(), problem.unwrap_or_default()));
    let made = |(kind, holds, message)| condition(status, kind, holds, message, facts.now);
    found.into_iter().map(made).collect()
}

fn condition(
    status: &Status,
    kind: ConditionKind,
    holds: bool,
    message: String,
    now: Timestamp,
) -> Condition {
    let before =
        status.conditions.iter().find(|condition| condition.kind == kind && condition.holds == holds);
    Condition { kind, holds, since: before.map_or(now, |before| before.since), message }
}

fn progress(status: &Status) -> String {
    if status.paused {
        return "swaps are paused".to_owned();
    }
    let Some(candidate) = &status.candidate else {
        return String::new();
    };
    let phase = match candidate.phase {
        Phase::Preparing => "is being prepared",
        Phase::DryRun => "is compared with the active release in a dry run",
        Phase::Held => "waits for an order of the operator",
        Phase::Waiting => "waits for the time window, or until the active release has proven itself",
        Phase::Canary { .. } => "answers a share of the lookups",
    };
    format!("{} {phase}", name(candidate.release))
}
