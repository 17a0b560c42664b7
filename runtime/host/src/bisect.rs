//! Decides which parts of a failed batch to repeat, until the item that the provider fails at stands alone with an error of
//! its own and all other items have outcomes. Pure.
//!
//! Larger parts come first, so that most items have an outcome early and few are left if the search ends early. Where a
//! first half succeeds, the second half must hold the failing item: it isn't repeated as a whole, but in halves. Where a
//! call ran out of time, its halves get half its deadlines, because a provider that hangs uses up all the time that it
//! gets. The other items lose nothing by that: the gate ends their requests in time for the provider to answer `pending`.

use std::collections::VecDeque;
use std::ops::Range;

use crate::fault::Fault;

/// How many parts of one failed call are repeated at most. Finding one failing item among 5,000 takes 24.
pub(crate) const MAX_REPEATS: u32 = 32;

/// Bounds how short the deadlines of a part become: 2.5 s of 20 s, which is several times what a cloud takes for a read of
/// one resource.
const MAX_DEADLINE_DIVISOR: u32 = 8;

/// A part of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// The positions of its items in the batch; never empty.
    pub(crate) items: Range<usize>,
    /// What the deadlines of a whole call are divided by for this part.
    pub(crate) deadline_divisor: u32,
    /// The fault of the call that it is a half of.
    pub(crate) cause: Fault,
    /// Whether it is a first half, whose second half is next.
    is_first: bool,
}

/// The search for the items that a provider fails at.
#[derive(Debug)]
pub(crate) struct Bisection {
    pending: VecDeque<Part>,
    repeats: u32,
}

impl Bisection {
    /// Begins after a call about this many items, at least two, has failed.
    pub(crate) fn new(items: usize, fault: Fault) -> Self {
        let mut bisection = Self { pending: VecDeque::new(), repeats: 0 };
        bisection.split(Part { items: 0..items, deadline_divisor: 1, cause: fault, is_first: false });
        bisection
    }

    /// The part to repeat next. `None` where no part is left, or [`MAX_REPEATS`] parts were repeated.
    pub(crate) fn next_part(&mut self) -> Option<Part> {
        if self.repeats == MAX_REPEATS {
            return None;
        }
        let part = self.pending.pop_front()?;
        self.repeats += 1;
        Some(part)
    }

    /// The call about the part returned outcomes.
    pub(crate) fn on_success(&mut self, part: &Part) {
        if part.is_first
            && let Some(second) = self.pending.pop_front_if(|second| second.items.len() > 1)
        {
            self.split(second);
        }
    }

    /// The call about the part failed, caused by the provider. A part of one item isn't split: that item is a failing one.
    pub(crate) fn on_fault(&mut self, part: Part, fault: Fault) {
        if part.items.len() > 1 {
            self.split(Part { cause: fault, ..part });
        }
    }

    /// The parts that were not repeated.
    pub(crate) fn into_pending(self) -> impl Iterator<Item = Part> {
        self.pending.into_iter()
    }

    /// Adds the halves of a part behind all pending parts, which are no smaller. The second half is the larger one, because
    /// it is the one that may not have to be repeated as a whole.
    fn split(&mut self, part: Part) {
        let Part { items: Range { start, end }, deadline_divisor, cause, is_first: _ } = part;
        let middle = start.midpoint(end);
        let timed_out = matches!(cause, Fault::Deadline { .. });
        let deadline_divisor = if timed_out {
            deadline_divisor.saturating_mul(2).min(MAX_DEADLINE_DIVISOR)
        } else {
            deadline_divisor
        };
        for (items, is_first) in [(start..middle, true), (middle..end, false)] {
            self.pending.push_back(Part { items, deadline_divisor, cause: cause.clone(), is_first });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// The result of each item, in order: `Ok` if it has an outcome, else whether it was repeated alone.
    type Results = Vec<Result<(), bool>>;

    /// Calls a provider that fails with this fault whenever a failing item is in a part. Also returns the number of repeats
    /// and the parts.
    fn search(items: usize, failing: &BTreeSet<usize>, fault: &Fault) -> (Results, u32, Vec<Part>) {
        let mut results: Vec<Option<Result<(), bool>>> = vec![None; items];
        let mut repeated = Vec::new();
        let mut set = |part: &Part, result| {
            for position in part.items.clone() {
                assert_eq!(results[position].replace(result), None, "item {position} has two results");
            }
        };
        let mut bisection = Bisection::new(items, fault.clone());
        while let Some(part) = bisection.next_part() {
            repeated.push(part.clone());
            if failing.range(part.items.clone()).next().is_none() {
                set(&part, Ok(()));
                bisection.on_success(&part);
            } else {
                if part.items.len() == 1 {
                    set(&part, Err(true));
                }
                bisection.on_fault(part, fault.clone());
            }
        }
        for part in bisection.into_pending() {
            set(&part, Err(false));
        }
        let results = results.into_iter().map(|result| result.expect("every item has a result")).collect();
        (results, u32::try_from(repeated.len()).unwrap(), repeated)
    }

    fn exhausted() -> Fault {
        Fault::Exhausted("it was".to_owned())
    }

    #[test]
    fn one_failing_item_anywhere_among_5000_is_found_within_24_repeats() {
        let repeats = |failing| {
            let mut bisection = Bisection::new(5_000, exhausted());
            while let Some(part) = bisection.next_part() {
                if part.items.contains(&failing) {
                    bisection.on_fault(part, exhausted());
                } else {
                    bisection.on_success(&part);
                }
            }
            assert_eq!(bisection.pending, []);
            bisection.repeats
        };
        assert_eq!((0..5_000).map(repeats).max(), Some(24));
    }

    #[test]
    fn two_items_are_repeated_one_by_one() {
        for (failing, results) in [
            (vec![], vec![Ok(()), Ok(())]), // it failed once and never again
            (vec![0], vec![Err(true), Ok(())]),
            (vec![1], vec![Ok(()), Err(true)]),
            (vec![0, 1], vec![Err(true), Err(true)]),
        ] {
            let found = search(2, &failing.iter().copied().collect(), &exhausted());
            assert_eq!((found.0, found.1), (results, 2), "{failing:?}");
        }
    }

    #[test]
    fn larger_parts_come_first_so_that_many_failing_items_leave_few_without_an_outcome() {
        let spread = (0..8).map(|number| number * 600).collect();
        let (results, repeats, repeated) = search(5_000, &spread, &exhausted());
        assert_eq!(repeats, MAX_REPEATS);
        assert!(repeated.is_sorted_by_key(|part| std::cmp::Reverse(part.items.len().next_power_of_two())));
        let answered = results.iter().filter(|result| result.is_ok()).count();
        assert!(answered > 3_000, "{answered}");
    }

    #[test]
    fn only_parts_of_a_call_that_timed_out_have_shorter_deadlines_and_never_less_than_an_eighth() {
        let timed_out = Fault::Deadline { limit: Duration::from_secs(20), unanswered: None };
        let divisors = |fault| {
            let repeated = search(64, &BTreeSet::from([0]), &fault).2;
            let with_failing = repeated.iter().filter(|part| part.items.start == 0);
            with_failing.map(|part| part.deadline_divisor).collect::<Vec<_>>()
        };
        assert_eq!(divisors(timed_out), [2, 4, 8, 8, 8, 8]);
        assert_eq!(divisors(exhausted()), [1; 6]);
    }

    proptest! {
        #[test]
        fn one_failing_item_stands_alone_and_all_others_have_outcomes(
            (items, failing) in (2_usize..=5_000).prop_flat_map(|items| (Just(items), 0..items)),
        ) {
            let (results, repeats, _) = search(items, &BTreeSet::from([failing]), &exhausted());
            prop_assert!(repeats <= MAX_REPEATS);
            for (position, result) in results.iter().enumerate() {
                prop_assert_eq!(*result, if position == failing { Err(true) } else { Ok(()) });
            }
        }

        #[test]
        fn any_failing_items_end_the_search_in_time_with_one_result_for_each_item(
            items in 2_usize..=5_000,
            failing in proptest::collection::btree_set(0_usize..5_000, 0..40),
        ) {
            let (results, repeats, _) = search(items, &failing, &exhausted());
            prop_assert!(repeats <= MAX_REPEATS);
            prop_assert_eq!(results.len(), items);
            let is_wrong = |(position, result): (usize, &Result<(), bool>)| failing.contains(&position) == result.is_ok();
            prop_assert!(!results.iter().enumerate().any(|it| is_wrong(it) && *it.1 != Err(false)));
        }
    }
}
