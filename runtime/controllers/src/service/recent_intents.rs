//! What a cloud was asked for of late, and may still show.
//!
//! Clouds are eventually consistent: a read shows an earlier state, and a write whose answer got lost takes effect after the
//! next call. A change that is reverted meanwhile looks as if nothing had to be written, and the state in between stays. So
//! where the same was asked for before, and something else since, the cloud's answer is not final.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::Duration;

use tokio::time::Instant;

/// How long a cloud may show what it was asked for before. The gate finishes a write within a minute after its call has
/// ended, and the write shows everywhere within half a minute.
const CLOUD_LAG: Duration = Duration::from_secs(90);

/// How many former intents are remembered: what alternates does so between few states.
const MAX_FORMER: usize = 8;

/// The intent that nothing is to exist.
pub(super) const NOTHING: u64 = 0;

/// Tells intents apart, within this process.
pub(super) fn digest(intent: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    intent.hash(&mut hasher);
    hasher.finish()
}

/// What was asked for of late, as digests.
#[derive(Debug)]
pub(super) struct RecentIntents {
    /// What was last asked for; none where another process did that, and so it isn't known.
    last: Option<u64>,
    /// What was asked for before, and until when the cloud may show it.
    former: VecDeque<(Option<u64>, Instant)>,
    /// Whether the cloud has confirmed the last intent. Until then it may still show any former one, regardless of its age.
    is_confirmed: bool,
}

impl RecentIntents {
    /// Nothing was asked for; or it isn't known what, where something may exist.
    pub(super) fn new(may_exist: bool) -> Self {
        Self { last: (!may_exist).then_some(NOTHING), former: VecDeque::new(), is_confirmed: false }
    }

    /// Whether no former intent is remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.former.is_empty()
    }

    /// Forgets what the cloud can't show any more.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.is_confirmed {
            self.former.retain(|(_, until)| *until > now);
        }
    }

    /// A call begins that asks for this.
    pub(super) fn on_call_started(&mut self, intent: u64, now: Instant) {
        self.expire(now);
        let last = self.last.replace(intent);
        if last == Some(intent) {
            return;
        }
        self.is_confirmed = false;
        self.former.retain(|(former, _)| *former != last);
        self.former.push_back((last, now + CLOUD_LAG));
        if self.former.len() > MAX_FORMER {
            self.former.pop_front();
        }
    }

    /// The call has ended. Confirmed or not, it took effect at some moment until now, or will within the lag.
    pub(super) fn on_call_ended(&mut self, is_confirmed: bool, now: Instant) {
        self.is_confirmed |= is_confirmed;
        let others = self.former.iter_mut().filter(|(former, _)| former.is_none() || *former != self.last);
        others.for_each(|(_, until)| *until = now + CLOUD_LAG);
    }

    /// Until when the cloud may show an earlier state that looks like the last intent, although it was asked for something
    /// else in between; none where that can't be. An unknown intent may have been the same, unless the last one replaced it
    /// directly.
    pub(super) fn stale_until(&self) -> Option<Instant> {
        let is_between = self.former.len() > 1;
        let mut same = self.former.iter().filter(|(former, _)| match former {
            Some(_) => *former == self.last,
            None => is_between,
        });
        same.next().map(|(_, until)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Until when the last answer may be stale, after calls of a second each that begin ten seconds apart.
    fn stale_after(may_exist: bool, asked: &[u64]) -> Option<Duration> {
        let (start, mut intents) = (Instant::now(), RecentIntents::new(may_exist));
        for (at, intent) in (0..).step_by(10).zip(asked) {
            intents.on_call_started(*intent, start + Duration::from_secs(at));
            intents.on_call_ended(true, start + Duration::from_secs(at + 1));
        }
        intents.stale_until().map(|until| until - start)
    }

    #[test]
    fn an_answer_may_be_stale_where_the_same_was_asked_for_before_something_else() {
        let seconds = |seconds| Some(Duration::from_secs(seconds) + CLOUD_LAG);
        for (name, may_exist, asked, until) in [
            ("a first call", false, [1].as_slice(), None),
            ("the same again", false, &[1, 1, 1], None),
            ("always something else", false, &[1, 2, 3], None),
            ("there and back", false, &[1, 2, 1], seconds(11)),
            ("and again", false, &[1, 2, 1, 1], seconds(11)),
            ("there and back by two steps", false, &[1, 2, 3, 1], seconds(21)),
            ("there, back and there", false, &[1, 2, 1, 2], seconds(21)),
            ("removed and made again", false, &[1, NOTHING, 1], seconds(11)),
            ("made and removed", false, &[1, NOTHING], seconds(1)),
            ("a first call where something may exist", true, &[1], None),
            ("the same again where something may have existed", true, &[1, 1], None),
            ("what may have existed", true, &[1, 2], seconds(11)),
        ] {
            assert_eq!(stale_after(may_exist, asked), until, "{name}");
        }
    }

    #[test]
    fn a_former_state_may_show_until_another_one_is_confirmed() {
        let start = Instant::now();
        for (is_confirmed, until) in [(true, None), (false, Some(start + CLOUD_LAG * 3 + CLOUD_LAG))] {
            let mut intents = RecentIntents::new(true);
            intents.on_call_started(1, start);
            intents.on_call_ended(is_confirmed, start);
            intents.on_call_started(1, start + CLOUD_LAG * 2);
            intents.on_call_started(2, start + CLOUD_LAG * 3);
            intents.on_call_ended(true, start + CLOUD_LAG * 3);
            assert_eq!(intents.stale_until(), until);
        }
    }

    #[test]
    fn an_old_intent_can_not_show_and_only_a_few_are_remembered() {
        let (start, mut intents) = (Instant::now(), RecentIntents::new(false));
        intents.on_call_started(1, start);
        intents.on_call_started(2, start);
        intents.on_call_ended(true, start);
        intents.on_call_started(1, start + CLOUD_LAG);
        assert_eq!(intents.stale_until(), None);
        for intent in 0..1000 {
            intents.on_call_started(intent, start + CLOUD_LAG);
        }
        assert_eq!(intents.former.len(), MAX_FORMER);
    }
}
