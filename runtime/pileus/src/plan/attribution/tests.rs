use pileus_cloud::ErrorKind;
use proptest::prelude::*;

use super::*;

/// What is true of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Truth {
    Settled,
    /// Its own resource is missing.
    Own,
    /// It shares a document with others, which is right about it.
    InDocument,
    /// It shares a document with others, which is wrong about it.
    Document,
    InProgress,
    Elsewhere,
    Refused,
}
use Truth::{Document, Elsewhere, InDocument, InProgress, Own, Refused, Settled};

/// What a provider does when a write is refused.
#[derive(Debug, Clone, Copy)]
enum OnRefusal {
    Continues,
    Stops,
    /// It fails the whole call.
    FailsAll,
}

fn write(to: &str) -> WantedWrite {
    WantedWrite { method: "PUT".to_owned(), url: to.to_owned(), body: "{}".into(), body_size: 2 }
}

fn refused() -> Error {
    Error::new(ErrorKind::Unavailable(None), "held back")
}

/// Answers as a provider does.
fn call(
    truths: &[Truth],
    items: &[usize],
    on_refusal: OnRefusal,
) -> (Result<Vec<ItemOutcome>, Error>, WantedWrites) {
    let truth = |item: &usize| truths[*item];
    let writes_document = items.iter().any(|item| truth(item) == Document);
    let mut list = Vec::new();
    let outcome = |item: &usize, list: &mut Vec<WantedWrite>| match truth(item) {
        _ if matches!(on_refusal, OnRefusal::Stops) && !list.is_empty() => ItemOutcome::Failed(refused()),
        Own => {
            list.push(write(&format!("/{item}")));
            ItemOutcome::Failed(refused())
        }
        Document | InDocument if writes_document => {
            if !list.contains(&write("/document")) {
                list.push(write("/document"));
            }
            ItemOutcome::Failed(refused())
        }
        Settled | InDocument | Document => ItemOutcome::Done,
        InProgress => ItemOutcome::InProgress,
        Elsewhere => ItemOutcome::Elsewhere,
        Refused => ItemOutcome::Failed(Error::new(ErrorKind::Invalid, "no")),
    };
    let outcomes: Vec<_> = items.iter().map(|item| outcome(item, &mut list)).collect();
    let fails = matches!(on_refusal, OnRefusal::FailsAll) && !list.is_empty();
    (if fails { Err(refused()) } else { Ok(outcomes) }, WantedWrites { list, left_out: 0 })
}

/// Runs an attribution to its end, and counts the calls.
fn attribute(truths: &[Truth], largest: usize, on_refusal: OnRefusal) -> (Attributed, usize) {
    let (mut attribution, mut calls) = (Attribution::new(truths.len(), largest), 0);
    while let Some(batch) = attribution.next() {
        calls += 1;
        assert!(batch.items.len() <= largest);
        let (outcomes, writes) = call(truths, &batch.items, on_refusal);
        attribution.record(&batch, outcomes, writes);
    }
    (attribution.finish(), calls)
}

fn result(item: usize, truth: Truth, is_shared: bool) -> DryRunResult {
    match truth {
        Settled | InDocument => DryRunResult::Settled,
        Own => DryRunResult::Writes(vec![write(&format!("/{item}"))]),
        Document => DryRunResult::Writes(if is_shared { Vec::new() } else { vec![write("/document")] }),
        InProgress => DryRunResult::InProgress,
        Elsewhere => DryRunResult::Elsewhere,
        Refused => DryRunResult::Failed("no".to_owned()),
    }
}

fn truths() -> impl Strategy<Value = Vec<Truth>> {
    let one = proptest::sample::select(vec![
        Settled, Settled, Settled, Own, InDocument, Document, InProgress, Elsewhere, Refused,
    ]);
    proptest::collection::vec(one, 0..40)
}

proptest! {
    #[test]
    fn each_item_gets_its_own_result_however_the_provider_reacts_to_a_refused_write(
        truths in truths(),
        largest in 1_usize..40,
        on_refusal in proptest::sample::select(vec![OnRefusal::Continues, OnRefusal::Stops, OnRefusal::FailsAll]),
    ) {
        let (attributed, calls) = attribute(&truths, largest, on_refusal);
        let of_document: Vec<_> =
            (0..truths.len()).filter(|item| truths[*item] == Document).collect();
        let is_shared = attributed.shared_writes.iter().any(|shared| shared.write == write("/document"));
        let expected: Vec<_> =
            truths.iter().enumerate().map(|(item, truth)| result(item, *truth, is_shared)).collect();
        prop_assert_eq!(&attributed.results, &expected);
        if is_shared {
            prop_assert_eq!(&attributed.shared_writes, &[SharedWrite { write: write("/document"), items: of_document }]);
        }
        prop_assert!(calls <= truths.len().div_ceil(largest) + 2 * truths.len());
    }
}

#[test]
fn settled_items_cost_no_call_of_their_own() {
    let settled = vec![Settled; 1_000];
    assert_eq!(attribute(&settled, 1_000, OnRefusal::Continues).1, 1);
    let mut one = settled;
    one[617] = Own;
    let (attributed, calls) = attribute(&one, 1_000, OnRefusal::Continues);
    assert_eq!((attributed.results[617].clone(), calls), (DryRunResult::Writes(vec![write("/617")]), 2));
    let mut document = vec![InDocument; 1_000];
    document[617] = Document;
    let (attributed, calls) = attribute(&document, 1_000, OnRefusal::Continues);
    assert_eq!(attributed.results[617], DryRunResult::Writes(vec![write("/document")]));
    assert!(calls <= 21, "{calls}");
}

#[test]
fn a_write_for_many_items_is_reported_once() {
    let (attributed, calls) = attribute(&[Document; 10], 10, OnRefusal::Continues);
    assert_eq!(attributed.results, vec![DryRunResult::Writes(Vec::new()); 10]);
    assert_eq!(
        attributed.shared_writes,
        [SharedWrite { write: write("/document"), items: (0..10).collect() }]
    );
    assert!(calls < 20, "{calls}");
    // A write that the provider wants only when it is called about both.
    let mut attribution = Attribution::new(2, 2);
    let writes = WantedWrites { list: vec![write("/a")], left_out: 3 };
    let both = attribution.next().unwrap();
    attribution.record(&both, Ok(vec![ItemOutcome::Done; 2]), writes);
    while let Some(batch) = attribution.next() {
        attribution.record(&batch, Ok(vec![ItemOutcome::Done]), WantedWrites::default());
    }
    let unattributable = SharedWrite { write: write("/a"), items: Vec::new() };
    let expected = Attributed {
        results: vec![DryRunResult::Settled; 2],
        shared_writes: vec![unattributable],
        left_out: 3,
    };
    assert_eq!(attribution.finish(), expected);
}

#[test]
fn an_item_in_a_batch_that_was_not_sent_is_unattributed() {
    let mut attribution = Attribution::new(3, 3);
    let batch = attribution.next().unwrap();
    let (outcomes, writes) = call(&[Own, Settled, Own], &batch.items, OnRefusal::Continues);
    attribution.record(&batch, outcomes, writes);
    let Attributed { results, shared_writes, .. } = attribution.finish();
    assert_eq!(results, [DryRunResult::Unattributed, DryRunResult::Settled, DryRunResult::Unattributed]);
    assert_eq!(shared_writes.len(), 2);
}
