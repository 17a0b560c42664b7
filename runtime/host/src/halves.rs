//! What to ask next after a call about many Nodes has failed for the provider's fault: halves, and halves of those, until
//! the Node that it fails at stands alone with an error of its own, and its neighbours have answers.
//!
//! Larger parts come first, so that most Nodes have an answer early and whatever ends the search leaves few. Where a first
//! half was answered, the second must hold the culprit: it isn't asked as a whole, but in its halves. And a half has half
//! the time where the whole ran out of it, as a provider that hangs takes all that it gets; nothing is lost by that for the
//! others, whose requests the gate ends in time for the provider to answer `pending`.

use std::collections::VecDeque;
use std::ops::Range;

use crate::fault::Fault;

/// How often parts of one failed call are asked about. One culprit among 5,000 takes 24.
pub(crate) const REPEATS: u32 = 32;

/// The least time of a part, as a fraction of a call's: 2.5 s of 20, several times what a cloud takes for a direct read.
const LEAST_TIME: u32 = 8;

/// A part of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// The places of its things in the batch; never empty.
    pub(crate) items: Range<usize>,
    /// How many times less time than a call it has.
    pub(crate) haste: u32,
    /// What became of the call that it was a part of.
    pub(crate) because: Fault,
    /// Its other half is next.
    is_first: bool,
}

/// The search for the Nodes that a provider fails at.
#[derive(Debug)]
pub(crate) struct Halves {
    waiting: VecDeque<Part>,
    repeats: u32,
}

impl Halves {
    /// Begins after a call about this many Nodes, at least two, has failed.
    pub(crate) fn of(items: usize, fault: Fault) -> Self {
        let mut halves = Self { waiting: VecDeque::new(), repeats: 0 };
        halves.split(Part { items: 0..items, haste: 1, because: fault, is_first: false });
        halves
    }

    /// What to ask about next; `None` where nothing is left to ask about or it was asked often enough.
    pub(crate) fn next(&mut self) -> Option<Part> {
        if self.repeats == REPEATS {
            return None;
        }
        let part = self.waiting.pop_front()?;
        self.repeats += 1;
        Some(part)
    }

    /// The part has its answers.
    pub(crate) fn answered(&mut self, part: &Part) {
        if part.is_first
            && let Some(other) = self.waiting.pop_front_if(|other| other.items.len() > 1)
        {
            self.split(other);
        }
    }

    /// The call about the part failed for the provider's fault. One of a single Node has no halves: that is a culprit.
    pub(crate) fn failed(&mut self, part: Part, fault: Fault) {
        if part.items.len() > 1 {
            self.split(Part { because: fault, ..part });
        }
    }

    /// What has not been asked about.
    pub(crate) fn rest(self) -> impl Iterator<Item = Part> {
        self.waiting.into_iter()
    }

    /// Puts the halves of a part behind all that wait, which are no smaller. The second is the larger one, as it is the
    /// one that may not have to be asked about.
    fn split(&mut self, part: Part) {
        let Part { items: Range { start, end }, haste, because, is_first: _ } = part;
        let middle = start.midpoint(end);
        let is_late = matches!(because, Fault::Deadline { .. });
        let haste = if is_late { haste.saturating_mul(2).min(LEAST_TIME) } else { haste };
        for (items, is_first) in [(start..middle, true), (middle..end, false)] {
            self.waiting.push_back(Part { items, haste, because: because.clone(), is_first });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// What became of each Node, in order: `Ok` if it was answered, else whether it was asked about alone.
    type Ends = Vec<Result<(), bool>>;

    /// Asks a provider that fails with this fault whenever a culprit is among the Nodes; also how often it was asked.
    fn search(nodes: usize, culprits: &BTreeSet<usize>, fault: &Fault) -> (Ends, u32, Vec<Part>) {
        let mut ends: Vec<Option<Result<(), bool>>> = vec![None; nodes];
        let mut asked = Vec::new();
        let mut settle = |part: &Part, end| {
            for place in part.items.clone() {
                assert_eq!(ends[place].replace(end), None, "node {place} was settled twice");
            }
        };
        let mut halves = Halves::of(nodes, fault.clone());
        while let Some(part) = halves.next() {
            asked.push(part.clone());
            if culprits.range(part.items.clone()).next().is_none() {
                settle(&part, Ok(()));
                halves.answered(&part);
            } else {
                if part.items.len() == 1 {
                    settle(&part, Err(true));
                }
                halves.failed(part, fault.clone());
            }
        }
        for part in halves.rest() {
            settle(&part, Err(false));
        }
        let ends = ends.into_iter().map(|end| end.expect("every node has an end")).collect();
        (ends, u32::try_from(asked.len()).unwrap(), asked)
    }

    fn exhausted() -> Fault {
        Fault::Exhausted("it was".to_owned())
    }

    #[test]
    fn one_culprit_anywhere_among_5000_is_found_within_24_repeats() {
        let repeats = |culprit| {
            let mut halves = Halves::of(5_000, exhausted());
            while let Some(part) = halves.next() {
                if part.items.contains(&culprit) {
                    halves.failed(part, exhausted());
                } else {
                    halves.answered(&part);
                }
            }
            assert_eq!(halves.waiting, []);
            halves.repeats
        };
        assert_eq!((0..5_000).map(repeats).max(), Some(24));
    }

    #[test]
    fn two_nodes_are_asked_about_one_by_one() {
        for (culprits, ends) in [
            (vec![], vec![Ok(()), Ok(())]), // it failed once and never again
            (vec![0], vec![Err(true), Ok(())]),
            (vec![1], vec![Ok(()), Err(true)]),
            (vec![0, 1], vec![Err(true), Err(true)]),
        ] {
            let found = search(2, &culprits.iter().copied().collect(), &exhausted());
            assert_eq!((found.0, found.1), (ends, 2), "{culprits:?}");
        }
    }

    #[test]
    fn larger_parts_come_first_so_that_many_culprits_leave_few_nodes_without_an_answer() {
        let spread = (0..8).map(|number| number * 600).collect();
        let (ends, repeats, asked) = search(5_000, &spread, &exhausted());
        assert_eq!(repeats, REPEATS);
        assert!(asked.is_sorted_by_key(|part| std::cmp::Reverse(part.items.len().next_power_of_two())));
        let answered = ends.iter().filter(|end| end.is_ok()).count();
        assert!(answered > 3_000, "{answered}");
    }

    #[test]
    fn only_a_part_of_what_ran_out_of_time_has_less_of_it_and_never_less_than_an_eighth() {
        let late = Fault::Deadline { limit: Duration::from_secs(20) };
        let hastes = |fault| {
            let asked = search(64, &BTreeSet::from([0]), &fault).2;
            let of_culprit = asked.iter().filter(|part| part.items.start == 0);
            of_culprit.map(|part| part.haste).collect::<Vec<_>>()
        };
        assert_eq!(hastes(late), [2, 4, 8, 8, 8, 8]);
        assert_eq!(hastes(exhausted()), [1; 6]);
    }

    proptest! {
        #[test]
        fn one_culprit_stands_alone_and_all_its_neighbours_are_answered(
            (nodes, culprit) in (2_usize..=5_000).prop_flat_map(|nodes| (Just(nodes), 0..nodes)),
        ) {
            let (ends, repeats, _) = search(nodes, &BTreeSet::from([culprit]), &exhausted());
            prop_assert!(repeats <= REPEATS);
            for (place, end) in ends.iter().enumerate() {
                prop_assert_eq!(*end, if place == culprit { Err(true) } else { Ok(()) });
            }
        }

        #[test]
        fn any_culprits_end_the_search_in_time_with_one_end_for_each_node(
            nodes in 2_usize..=5_000,
            culprits in proptest::collection::btree_set(0_usize..5_000, 0..40),
        ) {
            let (ends, repeats, _) = search(nodes, &culprits, &exhausted());
            prop_assert!(repeats <= REPEATS);
            prop_assert_eq!(ends.len(), nodes);
            let wronged = |(place, end): (usize, &Result<(), bool>)| culprits.contains(&place) == end.is_ok();
            prop_assert!(!ends.iter().enumerate().any(|it| wronged(it) && *it.1 != Err(false)));
        }
    }
}
