//! What a call about many things comes to for each of them, when writes are refused: who asks about all together learns
//! which writes were wanted, and not for whom. So whatever isn't settled by the first call is asked about again in parts,
//! until each stands alone or it is certain that a part wants nothing. Pure: asking is the caller's affair.

use std::collections::{HashMap, HashSet};

use pileus_cloud::Error;
use pileus_gate::{WantedWrite, WantedWrites};

/// What a provider says of one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Under,
    Elsewhere,
    Failed(Error),
}

/// What one thing comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is as it should be: the provider wanted no write for it.
    Settled,
    /// The provider wants these writes, and others that follow from their answers. Where it shares a write with others,
    /// that one is among [`Told::together`].
    Writes(Vec<WantedWrite>),
    /// The cloud is at it; the provider wanted no write.
    UnderWay,
    /// It is somebody else's to serve.
    Elsewhere,
    /// The provider can't, and wanted no write.
    Failed(String),
    /// The provider wants writes, but time ran out before they were told apart from those for others.
    Unclear,
}

/// A write that isn't for one thing alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Together {
    /// It, as it was wanted for all.
    pub(crate) write: WantedWrite,
    /// For which things, by their place; none where that couldn't be told.
    pub(crate) by: Vec<usize>,
}

/// What all things come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// One verdict each, in their order.
    pub(crate) verdicts: Vec<Verdict>,
    /// What is written once for several.
    pub(crate) together: Vec<Together>,
    /// How many writes there were beside these, too many to be kept.
    pub(crate) left_out: usize,
}

/// Things that are being told apart.
#[derive(Debug)]
pub(super) struct Apart {
    verdicts: Vec<Option<Verdict>>,
    /// What is still to be asked about, the next one last.
    open: Vec<Part>,
    /// The writes of calls about several, as the first calls wanted them.
    of_all: Vec<WantedWrite>,
    left_out: usize,
}

/// Some of the things, to ask about in one call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// They, by their places.
    pub(super) things: Vec<usize>,
    /// Whether nobody has asked about them before.
    pub(super) is_new: bool,
}

impl Apart {
    /// So many things, of which so many fit into one call.
    pub(super) fn new(count: usize, largest: usize) -> Self {
        let all: Vec<_> = (0..count).collect();
        let part = |things: &[usize]| Part { things: things.to_vec(), is_new: true };
        let open = all.chunks(largest.max(1)).map(part).rev().collect();
        Self { verdicts: vec![None; count], open, of_all: Vec::new(), left_out: 0 }
    }

    /// What to ask about next; none when all is told.
    pub(super) fn next(&mut self) -> Option<Part> {
        self.open.pop()
    }

    /// What the provider said about a part, one outcome each or an error about all, and the writes that it wanted.
    pub(super) fn came(&mut self, part: &Part, outcomes: Result<Vec<Outcome>, Error>, writes: WantedWrites) {
        let Part { things, is_new } = part;
        let WantedWrites { list: writes, left_out } = writes;
        let outcomes = outcomes.unwrap_or_else(|error| vec![Outcome::Failed(error); things.len()]);
        if *is_new {
            self.left_out += left_out;
        }
        if writes.is_empty() {
            for (thing, outcome) in things.iter().zip(outcomes) {
                self.settle(*thing, without_writes(outcome));
            }
        } else if let [thing] = things.as_slice() {
            self.settle(*thing, Verdict::Writes(writes));
        } else {
            self.split(things, outcomes, writes.len());
            if *is_new {
                self.of_all.extend(writes);
            }
        }
    }

    /// Divides a part for which something was to be written.
    fn split(&mut self, things: &[usize], outcomes: Vec<Outcome>, writes: usize) {
        let is_open = |outcome: &Outcome| matches!(outcome, Outcome::Under | Outcome::Failed(_));
        let mut rest: Vec<_> = things.iter().copied().zip(outcomes).collect();
        // What is done although a write was refused needed none, unless that holds for all: somebody wanted it.
        if rest.iter().any(|(_, outcome)| is_open(outcome)) {
            for (thing, outcome) in rest.extract_if(.., |(_, outcome)| !is_open(outcome)) {
                self.settle(thing, without_writes(outcome));
            }
        }
        // As many writes as things: each seems to have its own. Else most of them wait for a few.
        let size = if writes >= rest.len() { 1 } else { rest.len().div_ceil(2) };
        let part = |part: &[(usize, Outcome)]| Part {
            things: part.iter().map(|(thing, _)| *thing).collect(),
            is_new: false,
        };
        self.open.extend(rest.chunks(size).map(part).rev());
    }

    fn settle(&mut self, thing: usize, verdict: Verdict) {
        if let Some(told) = self.verdicts.get_mut(thing) {
            *told = Some(verdict);
        }
    }

    /// What all come to. What hasn't been asked about to the end stays unclear.
    pub(super) fn told(self) -> Told {
        let Self { verdicts, open: _, of_all, left_out } = self;
        let mut verdicts: Vec<_> =
            verdicts.into_iter().map(|verdict| verdict.unwrap_or(Verdict::Unclear)).collect();
        let mut by: HashMap<Key, Vec<usize>> = HashMap::new();
        for (thing, verdict) in verdicts.iter().enumerate() {
            let Verdict::Writes(writes) = verdict else { continue };
            for write in writes {
                let by = by.entry(key(write)).or_default();
                if by.last() != Some(&thing) {
                    by.push(thing);
                }
            }
        }
        let mut shared = HashSet::new();
        let mut together = Vec::new();
        for write in of_all {
            let by = by.get(&key(&write)).map(Vec::as_slice).unwrap_or_default();
            if by.len() != 1 && shared.insert(key(&write)) {
                together.push(Together { write, by: by.to_vec() });
            }
        }
        for verdict in &mut verdicts {
            if let Verdict::Writes(writes) = verdict {
                writes.retain(|write| !shared.contains(&key(write)));
            }
        }
        Told { verdicts, together, left_out }
    }
}

/// By which two writes are the same: what they write to, and not with what.
type Key = (String, String);

fn key(write: &WantedWrite) -> Key {
    (write.method.clone(), write.url.clone())
}

fn without_writes(outcome: Outcome) -> Verdict {
    match outcome {
        Outcome::Done => Verdict::Settled,
        Outcome::Under => Verdict::UnderWay,
        Outcome::Elsewhere => Verdict::Elsewhere,
        Outcome::Failed(error) => Verdict::Failed(error.message),
    }
}

#[cfg(test)]
mod tests {
    use pileus_cloud::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    /// What a thing is in truth.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Truth {
        Settled,
        /// It lacks something of its own.
        Own,
        /// It stands in a document with others, and is as it should be there.
        InDocument,
        /// It stands in a document with others, and isn't as it should be.
        Document,
        UnderWay,
        Elsewhere,
        Refused,
    }
    use Truth::{Document, Elsewhere, InDocument, Own, Refused, Settled, UnderWay};

    /// What a provider does when a write is refused.
    #[derive(Debug, Clone, Copy)]
    enum Temper {
        GoesOn,
        GivesUp,
        /// It gives up all of the call.
        Fails,
    }

    fn write(to: &str) -> WantedWrite {
        WantedWrite { method: "PUT".to_owned(), url: to.to_owned(), body: "{}".into(), body_size: 2 }
    }

    fn refused() -> Error {
        Error::new(ErrorKind::Unavailable, "held back")
    }

    /// What a provider answers about some things.
    fn ask(
        truths: &[Truth],
        things: &[usize],
        temper: Temper,
    ) -> (Result<Vec<Outcome>, Error>, WantedWrites) {
        let truth = |thing: &usize| truths[*thing];
        let writes_document = things.iter().any(|thing| truth(thing) == Document);
        let mut list = Vec::new();
        let outcome = |thing: &usize, list: &mut Vec<WantedWrite>| match truth(thing) {
            _ if matches!(temper, Temper::GivesUp) && !list.is_empty() => Outcome::Failed(refused()),
            Own => {
                list.push(write(&format!("/{thing}")));
                Outcome::Failed(refused())
            }
            Document | InDocument if writes_document => {
                if !list.contains(&write("/document")) {
                    list.push(write("/document"));
                }
                Outcome::Failed(refused())
            }
            Settled | InDocument | Document => Outcome::Done,
            UnderWay => Outcome::Under,
            Elsewhere => Outcome::Elsewhere,
            Refused => Outcome::Failed(Error::new(ErrorKind::Invalid, "no")),
        };
        let outcomes: Vec<_> = things.iter().map(|thing| outcome(thing, &mut list)).collect();
        let fails = matches!(temper, Temper::Fails) && !list.is_empty();
        (if fails { Err(refused()) } else { Ok(outcomes) }, WantedWrites { list, left_out: 0 })
    }

    /// What is told of these, and how many calls that took.
    fn tell(truths: &[Truth], largest: usize, temper: Temper) -> (Told, usize) {
        let (mut apart, mut calls) = (Apart::new(truths.len(), largest), 0);
        while let Some(part) = apart.next() {
            calls += 1;
            assert!(part.things.len() <= largest);
            let (outcomes, writes) = ask(truths, &part.things, temper);
            apart.came(&part, outcomes, writes);
        }
        (apart.told(), calls)
    }

    fn verdict(thing: usize, truth: Truth, is_shared: bool) -> Verdict {
        match truth {
            Settled | InDocument => Verdict::Settled,
            Own => Verdict::Writes(vec![write(&format!("/{thing}"))]),
            Document => Verdict::Writes(if is_shared { Vec::new() } else { vec![write("/document")] }),
            UnderWay => Verdict::UnderWay,
            Elsewhere => Verdict::Elsewhere,
            Refused => Verdict::Failed("no".to_owned()),
        }
    }

    fn truths() -> impl Strategy<Value = Vec<Truth>> {
        let one = proptest::sample::select(vec![
            Settled, Settled, Settled, Own, InDocument, Document, UnderWay, Elsewhere, Refused,
        ]);
        proptest::collection::vec(one, 0..40)
    }

    proptest! {
        #[test]
        fn each_thing_comes_to_what_it_is_however_the_provider_takes_a_refusal(
            truths in truths(),
            largest in 1_usize..40,
            temper in proptest::sample::select(vec![Temper::GoesOn, Temper::GivesUp, Temper::Fails]),
        ) {
            let (told, calls) = tell(&truths, largest, temper);
            let of_document: Vec<_> =
                (0..truths.len()).filter(|thing| truths[*thing] == Document).collect();
            let is_shared = told.together.iter().any(|shared| shared.write == write("/document"));
            let expected: Vec<_> =
                truths.iter().enumerate().map(|(thing, truth)| verdict(thing, *truth, is_shared)).collect();
            prop_assert_eq!(&told.verdicts, &expected);
            if is_shared {
                prop_assert_eq!(&told.together, &[Together { write: write("/document"), by: of_document }]);
            }
            prop_assert!(calls <= truths.len().div_ceil(largest) + 2 * truths.len());
        }
    }

    #[test]
    fn what_needs_nothing_costs_no_call_of_its_own() {
        let settled = vec![Settled; 1_000];
        assert_eq!(tell(&settled, 1_000, Temper::GoesOn).1, 1);
        let mut one = settled;
        one[617] = Own;
        let (told, calls) = tell(&one, 1_000, Temper::GoesOn);
        assert_eq!((told.verdicts[617].clone(), calls), (Verdict::Writes(vec![write("/617")]), 2));
        let mut document = vec![InDocument; 1_000];
        document[617] = Document;
        let (told, calls) = tell(&document, 1_000, Temper::GoesOn);
        assert_eq!(told.verdicts[617], Verdict::Writes(vec![write("/document")]));
        assert!(calls <= 21, "{calls}");
    }

    #[test]
    fn what_is_written_once_for_many_is_told_once() {
        let (told, calls) = tell(&[Document; 10], 10, Temper::GoesOn);
        assert_eq!(told.verdicts, vec![Verdict::Writes(Vec::new()); 10]);
        assert_eq!(told.together, [Together { write: write("/document"), by: (0..10).collect() }]);
        assert!(calls < 20, "{calls}");
        // A write that only all of them together need.
        let (mut apart, part) = (Apart::new(2, 2), WantedWrites { list: vec![write("/a")], left_out: 3 });
        let both = apart.next().unwrap();
        apart.came(&both, Ok(vec![Outcome::Done; 2]), part);
        while let Some(part) = apart.next() {
            apart.came(&part, Ok(vec![Outcome::Done]), WantedWrites::default());
        }
        let nobodys = Together { write: write("/a"), by: Vec::new() };
        let expected = Told { verdicts: vec![Verdict::Settled; 2], together: vec![nobodys], left_out: 3 };
        assert_eq!(apart.told(), expected);
    }

    #[test]
    fn who_was_not_asked_about_to_the_end_is_unclear() {
        let mut apart = Apart::new(3, 3);
        let part = apart.next().unwrap();
        let (outcomes, writes) = ask(&[Own, Settled, Own], &part.things, Temper::GoesOn);
        apart.came(&part, outcomes, writes);
        let Told { verdicts, together, .. } = apart.told();
        assert_eq!(verdicts, [Verdict::Unclear, Verdict::Settled, Verdict::Unclear]);
        assert_eq!(together.len(), 2);
    }
}
