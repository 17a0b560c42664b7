//! The calls with a cloud that never answers. Their deadlines are short, because waiting shows nothing more.

use std::pin::Pin;
use std::time::Duration;

use pileus_cloud::Target;
use pileus_host::Limits;
use tokio::time::Instant;

use super::super::cloud::CloudMode;
use super::super::facts::Facts;
use super::Caller;

/// The shortest soft deadline of such a call.
const SHORT_DEADLINE: Duration = Duration::from_secs(2);

/// How many times as long as the same call to a cloud that refuses each request the soft deadline is. Before it the provider
/// has to start and to send its requests, which takes long on a busy machine.
const MARGIN: u32 = 4;

/// The soft and the hard deadline of a call that takes this time with a cloud that refuses each request. The time from the one
/// to the other is that of lookups in [`Limits::default`], on which providers rely; changes have more, but need no more.
fn deadlines(refused: Duration) -> (Duration, Duration) {
    let normal = Limits::default();
    let soft = (refused * MARGIN).clamp(SHORT_DEADLINE, normal.lookup_soft);
    (soft, soft + normal.lookup_hard.saturating_sub(normal.lookup_soft))
}

/// How long a call takes. It is pinned, since its future has some kilobytes.
async fn time(call: Pin<Box<impl Future>>) -> Duration {
    let started = Instant::now();
    call.await;
    started.elapsed()
}

impl Caller {
    /// Makes one call of each capability with a cloud that never answers.
    pub(super) async fn silence(
        mut self,
        nodes: &[Target],
        facts: &mut Facts,
        progress: &mut dyn FnMut(&str),
    ) {
        let (mode, refuses) = (CloudMode::Silence, CloudMode::Forbidden);
        let mut report = |(_, hard): (Duration, Duration)| {
            progress(&format!("calling the provider with {}, for up to {} s", mode.as_str(), hard.as_secs()));
        };
        if let Some(lookups) = &mut facts.lookups {
            // One such wait is enough.
            if let Some((purpose, about)) = self.fault_subjects(lookups.known.as_ref()).into_iter().next() {
                lookups.deadlines =
                    deadlines(time(Box::pin(self.call_lookup(refuses, purpose, about.clone()))).await);
                report(lookups.deadlines);
                self = self.with_deadlines(lookups.deadlines);
                lookups.faults.push((mode, vec![self.call_lookup(mode, purpose, about).await]));
            }
        }
        if let Some(changes) = &mut facts.load_balancers {
            changes.deadlines = deadlines(time(Box::pin(self.services_fault(refuses))).await);
            report(changes.deadlines);
            self = self.with_deadlines(changes.deadlines);
            changes.faults.push(self.services_fault(mode).await);
        }
        if let Some(changes) = &mut facts.routes {
            changes.deadlines = deadlines(time(Box::pin(self.routes_fault(refuses, nodes))).await);
            report(changes.deadlines);
            self = self.with_deadlines(changes.deadlines);
            changes.faults.push(self.routes_fault(mode, nodes).await);
        }
    }

    fn with_deadlines(self, (soft, hard): (Duration, Duration)) -> Self {
        let guest = self.guest.with_limits(Limits {
            lookup_soft: soft,
            lookup_hard: hard,
            change_soft: soft,
            load_balancers_soft: soft,
            change_hard: hard,
            load_balancers_hard: hard,
            ..Limits::default()
        });
        Self { guest, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadlines_grow_with_the_time_that_the_machine_needs_for_a_call() {
        let normal = Limits::default();
        let rows = [(0, 2_000), (300, 2_000), (1_000, 4_000), (2_500, 10_000), (60_000, 10_000)];
        for (refused, soft) in rows {
            let (soft_deadline, hard_deadline) = deadlines(Duration::from_millis(refused));
            assert_eq!(soft_deadline, Duration::from_millis(soft), "{refused} ms");
            assert_eq!(
                hard_deadline.saturating_sub(soft_deadline),
                normal.lookup_hard.saturating_sub(normal.lookup_soft),
                "{refused} ms"
            );
        }
    }
}
