//! What a cloud was asked for of late, which it may show still.
//!
//! Clouds are eventually consistent: a read shows what was there a while ago, and a write whose answer got lost takes effect
//! after the next call. What changes and changes back meanwhile then looks as it should be: nothing is written, and what was
//! between stays. So where the same was asked for before, and something else since, an answer is not the last word.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::Duration;

use tokio::time::Instant;

/// How long a cloud may show what it was asked for before. A write whose call has ended is finished within a minute, and
/// shows everywhere within half a minute (the gate's own terms).
const LAG: Duration = Duration::from_secs(90);

/// How much is remembered: what goes back and forth does so between few states.
const KEPT: usize = 8;

/// What is asked for where there is to be nothing.
pub(super) const NOTHING: u64 = 0;

/// What tells things that are asked for apart, in this process alone.
pub(super) fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// What was asked for, told apart by digests.
#[derive(Debug)]
pub(super) struct RecentIntents {
    /// What was last asked for; none where that was before we began, and so isn't known.
    last: Option<u64>,
    /// What was asked for before that, and until when it may show.
    former: VecDeque<(Option<u64>, Instant)>,
    /// Whether the cloud has confirmed what was last asked for. Before that, whatever was there may be there still, however
    /// long ago it was asked for.
    is_confirmed: bool,
}

impl RecentIntents {
    /// Nothing has been asked for, unless somebody else has that we know nothing of.
    pub(super) fn new(may_exist: bool) -> Self {
        Self { last: (!may_exist).then_some(NOTHING), former: VecDeque::new(), is_confirmed: false }
    }

    /// Whether the cloud has been asked for nothing, as far as is remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.former.is_empty()
    }

    /// What can show no more is forgotten.
    pub(super) fn forgets(&mut self, now: Instant) {
        if self.is_confirmed {
            self.former.retain(|(_, until)| *until > now);
        }
    }

    /// A call begins that asks for this.
    pub(super) fn begins(&mut self, what: u64, now: Instant) {
        self.forgets(now);
        let last = self.last.replace(what);
        if last == Some(what) {
            return;
        }
        self.is_confirmed = false;
        self.former.retain(|(former, _)| *former != last);
        self.former.push_back((last, now + LAG));
        if self.former.len() > KEPT {
            self.former.pop_front();
        }
    }

    /// The call has ended, confirmed or however: it took effect at any moment until now, or will within the lag.
    pub(super) fn ends(&mut self, is_confirmed: bool, now: Instant) {
        self.is_confirmed |= is_confirmed;
        let others = self.former.iter_mut().filter(|(former, _)| former.is_none() || *former != self.last);
        others.for_each(|(_, until)| *until = now + LAG);
    }

    /// Until when the cloud may show what was last asked for although it was asked for something else since. What isn't
    /// known may have been the same, unless that took its place.
    pub(super) fn may_be_old(&self) -> Option<Instant> {
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

    /// Until when the last answer may be old, after calls that each take a second and begin ten seconds apart.
    fn after(may_exist: bool, asked: &[u64]) -> Option<Duration> {
        let (start, mut trail) = (Instant::now(), RecentIntents::new(may_exist));
        for (at, what) in (0..).step_by(10).zip(asked) {
            trail.begins(*what, start + Duration::from_secs(at));
            trail.ends(true, start + Duration::from_secs(at + 1));
        }
        trail.may_be_old().map(|until| until - start)
    }

    #[test]
    fn an_answer_may_be_old_where_the_same_was_asked_for_before_something_else() {
        let seconds = |seconds| Some(Duration::from_secs(seconds) + LAG);
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
            ("a first call where something may be", true, &[1], None),
            ("the same again where something may have been", true, &[1, 1], None),
            ("what may have been there", true, &[1, 2], seconds(11)),
        ] {
            assert_eq!(after(may_exist, asked), until, "{name}");
        }
    }

    #[test]
    fn what_was_there_may_show_until_something_else_is_confirmed() {
        let start = Instant::now();
        for (is_confirmed, until) in [(true, None), (false, Some(start + LAG * 3 + LAG))] {
            let mut trail = RecentIntents::new(true);
            trail.begins(1, start);
            trail.ends(is_confirmed, start);
            trail.begins(1, start + LAG * 2);
            trail.begins(2, start + LAG * 3);
            trail.ends(true, start + LAG * 3);
            assert_eq!(trail.may_be_old(), until);
        }
    }

    #[test]
    fn what_was_asked_for_long_ago_shows_no_more_and_only_a_few_things_are_remembered() {
        let (start, mut trail) = (Instant::now(), RecentIntents::new(false));
        trail.begins(1, start);
        trail.begins(2, start);
        trail.ends(true, start);
        trail.begins(1, start + LAG);
        assert_eq!(trail.may_be_old(), None);
        for what in 0..1000 {
            trail.begins(what, start + LAG);
        }
        assert_eq!(trail.former.len(), KEPT);
    }
}
