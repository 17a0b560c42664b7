//! Documents of the cloud in which many Services have a part each, as a load balancer has a frontend for each, or a firewall
//! its rules. All parts of a call are one write. A Service has an object of its own beside its part, an address for one, which
//! comes before the part and goes after it.
//!
//! A provider reads the document, makes a [`Wish`] of each change, has the parts written by [`edit`], and then the objects by
//! [`settle`]:
//!
//! ```
//! # use pileus_guest::http::{Collection, Document, HeaderMap, Page};
//! # use pileus_guest::operation::State;
//! # use pileus_guest::shared::{self, Parts};
//! # use pileus_guest::{Error, Object, Outcomes, Service, ServiceCall, ServiceProgress};
//! # async fn change<Balancer: Parts<Addresses::Item, Goal>, Addresses: Page<Item: Object<Goal>>, Goal>(
//! #     call: &ServiceCall, url: &str, addresses: Collection<Addresses>,
//! #     name: fn(&Addresses::Item) -> &str, goal: fn(&Service) -> Result<Goal, Error>,
//! #     write: impl AsyncFn(&str, &Goal) -> Result<(Addresses::Item, HeaderMap), Error>,
//! #     delete: impl AsyncFn(&str) -> Result<State, Error>,
//! # ) -> Result<Outcomes<ServiceProgress>, Error> {
//! let document = Document::<Balancer>::read(url).await?;
//! let state = document.value.as_ref().map(|balancer| balancer.state(&document.written));
//! if let Some(waiting) = call.under_way(state) {
//!     return Ok(waiting);
//! }
//! let found = addresses.named(call.names(), name).await?;
//! let wishes = call.wishes(&found, goal);
//! let told = shared::edit(document, &wishes).await;
//! Ok(shared::settle(&wishes, told, write, delete).await)
//! # }
//! ```
//!
//! Where the parts are in two documents, both are edited, and what is told of a wish is what the one that is less far says.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::wish::{Object, Wish};
use super::{ServiceCall, ServiceProgress};
use crate::http::{Document, Edit, HeaderMap};
use crate::operation::{self, AGAIN, SHARED, State, WRITTEN};
use crate::{Error, Outcome, Outcomes, Service, removals_first};

/// A document with a part for each of many Services, under the name that
/// [`ServiceChange::name`](crate::ServiceChange::name) tells. `T` is the object that a Service has besides, `G` what it wants.
/// The default is a document without parts.
pub trait Parts<T, G>: Default + DeserializeOwned + Serialize {
    /// How the cloud is getting on with it. `written` are the headers of the answer to the write that it came with, see
    /// [`Document::written`].
    fn state(&self, written: &HeaderMap) -> State;

    /// Whether there is a part of this name.
    fn has(&self, name: &str) -> bool;

    /// Whether a part is there as it is wanted, and so is all that it needs of the rest.
    fn is_as(&self, part: &Part<'_, T, G>) -> bool;

    /// Puts a part in, and brings up to date what it needs of the rest. There is no part of its name: one that isn't as it is
    /// wanted has been taken out.
    fn put(&mut self, part: &Part<'_, T, G>);

    /// Takes a part out.
    fn take(&mut self, name: &str);

    /// Whether no part is left, so that the document is deleted. One that stays without parts says no.
    fn is_empty(&self) -> bool;
}

/// A part as it is wanted.
#[derive(Debug)]
pub struct Part<'a, T, G> {
    /// Its name.
    pub name: &'a str,
    /// What its Service wants.
    pub goal: &'a G,
    /// The object that its Service has, as it should be.
    pub object: &'a T,
}

/// What to do about one part.
enum Turn<'a, T, G> {
    /// Nothing: this is how far it is, none where its Service's object has its turn.
    Keep(Outcome<Option<ServiceProgress>>),
    Put(Part<'a, T, G>),
    Take(&'a str),
}

impl ServiceCall {
    /// What to answer while the cloud is at a document that Services share, where all changes wait for that and need nothing
    /// else; none where there is something to do. `state` is how the cloud is getting on with it.
    pub fn under_way(&self, state: Option<State>) -> Option<Outcomes<ServiceProgress>> {
        let state = state.filter(|state| matches!(state, State::Running(_)))?;
        let resumes = || self.changes.iter().map(|change| change.resume.as_deref());
        if !resumes().all(|resume| operation::is_at(SHARED, resume)) {
            return None;
        }
        resumes().map(|resume| state.clone().answer_at(SHARED, resume).transpose()).collect()
    }
}

/// Edits the document for wishes, in one write, and tells how far the part of each is: none where its object has its turn, as
/// it isn't there yet, or should go now that the part is gone.
///
/// A change that waits for a write which the cloud could not finish is told so, if what was written for it is seen.
pub async fn edit<D: Parts<T, G>, T: Object<G>, G>(
    document: Document<D>,
    wishes: &[Wish<'_, T, G>],
) -> Outcomes<Option<ServiceProgress>> {
    document.edit(wishes, edit_parts).await
}

/// Sees to the objects of those wishes of which [`edit`] told nothing, and tells what became of all, removals first.
/// `write` and `delete` are as in [`Wish::settle`].
pub async fn settle<T: Object<G>, G>(
    wishes: &[Wish<'_, T, G>],
    told: Outcomes<Option<ServiceProgress>>,
    write: impl AsyncFn(&str, &G) -> Result<(T, HeaderMap), Error>,
    delete: impl AsyncFn(&str) -> Result<State, Error>,
) -> Outcomes<ServiceProgress> {
    let steps: Vec<_> = wishes.iter().zip(told).collect();
    let next = async |(wish, told): &(&Wish<'_, T, G>, Outcome<Option<ServiceProgress>>)| match told {
        Ok(None) => wish.next(&write, &delete, part_comes_next).await,
        Ok(Some(progress)) => Ok(progress.clone()),
        Err(error) => Err(error.clone()),
    };
    removals_first(&steps, |(wish, _)| wish.is_removal(), next).await
}

fn part_comes_next<T>(_: &T, _: &Service) -> ServiceProgress {
    ServiceProgress::in_progress_with(AGAIN, WRITTEN)
}

fn edit_parts<D: Parts<T, G>, T: Object<G>, G>(
    document: &mut Document<D>,
    wishes: &[Wish<'_, T, G>],
) -> Vec<Edit<Option<ServiceProgress>>> {
    let state = document.value.as_ref().map_or(State::Ended, |value| value.state(&document.written));
    let state = state.about(document.subject());
    let mut value = document.value.take().unwrap_or_default();
    // All are judged by what is there now: a part that is put in may bring up to date what others need too.
    let turns: Vec<_> = wishes.iter().map(|wish| turn(&value, &state, wish)).collect();
    let edit = |turn| {
        match turn {
            Turn::Keep(told) => return Edit::Kept(told),
            Turn::Put(part) => {
                value.take(part.name);
                value.put(&part);
            }
            Turn::Take(name) => value.take(name),
        }
        Edit::Changed
    };
    let edits = turns.into_iter().map(edit).collect();
    document.value = Some(value).filter(|value| !value.is_empty());
    edits
}

fn turn<'a, D: Parts<T, G>, T: Object<G>, G>(
    value: &D,
    state: &State,
    wish: &'a Wish<'_, T, G>,
) -> Turn<'a, T, G> {
    let has_part = value.has(wish.name());
    // Only what is seen of the last write has waited for it.
    let waits = |is_seen: bool| {
        let resume = wish.resume().filter(|_| is_seen && operation::is_at(SHARED, wish.resume()));
        state.clone().answer_at(SHARED, resume)
    };
    match wish.goal() {
        Err(error) => Turn::Keep(Err(error.clone())),
        // What was written may not hold yet, or may have failed. An object that is being deleted is past that, whatever is
        // written for others.
        Ok(None) if !has_part && (wish.is_leaving() || *state == State::Ended) => Turn::Keep(Ok(None)),
        Ok(None) => match waits(!has_part) {
            Ok(None) => Turn::Take(wish.name()),
            told => Turn::Keep(told),
        },
        Ok(Some((service, goal))) => {
            let Some(object) = wish.settled(goal) else { return Turn::Keep(Ok(None)) };
            let part = Part { name: wish.name(), goal, object };
            match waits(has_part) {
                Ok(None) if has_part && *state == State::Ended && value.is_as(&part) => {
                    Turn::Keep(Ok(Some(object.done(service))))
                }
                Ok(None) => Turn::Put(part),
                told => Turn::Keep(told),
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unnecessary_wraps, reason = "outcomes are compared as they come")]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::load_balancers::wish::tests::{Stage, Thing, call, failed, service, thing, waits};
    use crate::testing::{self, Exchange, Host};
    use crate::{Ingress, ServiceAction};

    const URL: &str = "http://cloud.test/shared";

    /// A shared thing: the size of each part, and whether the cloud is at it.
    #[derive(Debug, Default, Deserialize, Serialize)]
    struct Shared {
        sizes: BTreeMap<String, u32>,
        #[serde(default, skip_serializing)]
        is_busy: bool,
        #[serde(default, skip_serializing)]
        has_failed: bool,
    }

    impl Parts<Thing, u32> for Shared {
        fn state(&self, written: &HeaderMap) -> State {
            match (self.is_busy, self.has_failed) {
                (true, _) => Stage::Busy.state(written),
                (_, true) => Stage::Failed.state(written),
                _ => State::Ended,
            }
        }

        fn has(&self, name: &str) -> bool {
            self.sizes.contains_key(name)
        }

        fn is_as(&self, part: &Part<'_, Thing, u32>) -> bool {
            self.sizes.get(part.name) == Some(part.goal)
        }

        fn put(&mut self, part: &Part<'_, Thing, u32>) {
            assert_eq!(self.sizes.insert(part.name.to_owned(), part.object.size), None);
        }

        fn take(&mut self, name: &str) {
            self.sizes.remove(name);
        }

        fn is_empty(&self) -> bool {
            self.sizes.is_empty()
        }
    }

    fn there(exchange: Exchange, sizes: &[(&str, u32)], stage: Stage) -> Exchange {
        let sizes: BTreeMap<_, _> = sizes.iter().copied().collect();
        let (is_busy, has_failed) = (stage == Stage::Busy, stage == Stage::Failed);
        exchange
            .json(json!({"sizes": sizes, "is_busy": is_busy, "has_failed": has_failed}))
            .header("etag", "e")
    }

    fn read(sizes: &[(&str, u32)], stage: Stage) -> Exchange {
        there(testing::get(URL), sizes, stage)
    }

    fn put(sizes: &[(&str, u32)], stage: Stage) -> Exchange {
        there(testing::put(URL), sizes, stage).header("operation-location", "/7")
    }

    fn ensure(uid: &str) -> ServiceAction {
        ServiceAction::Ensure(service(uid))
    }

    fn remove(uid: &str) -> ServiceAction {
        ServiceAction::Delete(service(uid))
    }

    fn done(uid: &str) -> Outcome<ServiceProgress> {
        Ok(ServiceProgress::done([Ingress::hostname(uid)]))
    }

    /// What is told of changes, where each Service wants size 2 and these objects are found.
    fn settle(
        exchanges: Vec<Exchange>,
        changes: &[(ServiceAction, Option<&str>)],
        found: &[(&str, Thing)],
    ) -> Outcomes<ServiceProgress> {
        let host = exchanges.into_iter().fold(Host::new(), Host::exchange);
        let (call, found): (_, HashMap<_, _>) =
            (call(changes), found.iter().map(|(name, thing)| ((*name).to_owned(), Ok(*thing))).collect());
        let write = async |_: &str, size: &u32| Ok((thing(*size, Stage::Ended), HeaderMap::new()));
        host.run(async {
            let wishes = call.wishes(&found, |_| Ok(2));
            let told = edit(Document::<Shared>::read(URL).await.unwrap(), &wishes).await;
            super::settle(&wishes, told, write, async |_: &str| Ok(State::Ended)).await
        })
    }

    #[test]
    fn the_object_comes_before_the_part() {
        let new = [(ensure("a"), None)];
        let objects = [None, Some(thing(1, Stage::Ended)), Some(thing(2, Stage::Busy))];
        for object in objects {
            let found: Vec<_> = object.map(|object| ("a", object)).into_iter().collect();
            assert_eq!(settle(vec![read(&[], Stage::Ended)], &new, &found), [waits(WRITTEN)], "{object:?}");
        }
        let found = [("a", thing(2, Stage::Ended))];
        let other = Err(Error::conflict(format!(
            "{URL} isn't as it was written: others keep changing it, or the cloud made something else of it"
        )));
        let rows = [(Stage::Ended, done("a")), (Stage::Busy, waits("shared /7")), (Stage::Failed, other)];
        for (becomes, expected) in rows {
            let exchanges = vec![read(&[("x", 1)], Stage::Ended), put(&[("x", 1), ("a", 2)], becomes)];
            assert_eq!(settle(exchanges, &new, &found), [expected], "{becomes:?}");
        }
    }

    #[test]
    fn all_parts_of_a_call_are_one_write_and_what_is_so_already_is_told() {
        let changes = ["a", "b", "c"].map(|uid| (ensure(uid), None));
        let found = ["a", "b", "c"].map(|uid| (uid, thing(2, Stage::Ended)));
        let before = read(&[("a", 2), ("b", 1)], Stage::Ended);
        let exchanges = vec![before, put(&[("a", 2), ("b", 2), ("c", 2)], Stage::Busy)];
        let told = settle(exchanges, &changes, &found);
        assert_eq!(told, [done("a"), waits("shared /7"), waits("shared /7")]);
    }

    #[test]
    fn the_object_goes_after_the_part() {
        let (busy, ended, gone) = (Stage::Busy, Stage::Ended, || Ok(ServiceProgress::gone()));
        let found = [("a", thing(2, ended))];
        let has_part = || read(&[("a", 2), ("x", 1)], ended);
        let rows = [
            ("the part goes", None, vec![has_part(), put(&[("x", 1)], busy)], waits("shared /7")),
            ("both go at once", None, vec![has_part(), put(&[("x", 1)], ended)], gone()),
            ("the write is under way", Some("shared /7"), vec![read(&[("x", 1)], busy)], waits("shared /7")),
            ("the write has ended", Some("shared"), vec![read(&[("x", 1)], ended)], gone()),
            ("the write has failed", Some("shared"), vec![read(&[("x", 1)], Stage::Failed)], failed(URL)),
            (
                "a note of another version is as good as none",
                Some("frontend"),
                vec![read(&[("x", 1)], Stage::Failed), put(&[("x", 1)], busy)],
                waits("shared /7"),
            ),
            ("it waits for no write for others", Some("deleted"), vec![read(&[("x", 1)], busy)], gone()),
        ];
        for (name, note, exchanges, expected) in rows {
            assert_eq!(settle(exchanges, &[(remove("a"), note)], &found), [expected], "{name}");
        }
        let last =
            vec![read(&[("a", 2)], ended), testing::delete(URL).status(204), testing::get(URL).status(404)];
        assert_eq!(settle(last, &[(remove("a"), None)], &found), [gone()]);
    }

    #[test]
    fn a_failure_is_told_to_who_waited_for_it_and_the_write_made_again_for_others() {
        let found = [("a", thing(2, Stage::Ended)), ("b", thing(2, Stage::Ended))];
        let changes = [(ensure("a"), Some("shared /7")), (ensure("b"), Some("shared"))];
        let before = read(&[("a", 2)], Stage::Failed);
        let told = settle(vec![before, put(&[("a", 2), ("b", 2)], Stage::Busy)], &changes, &found);
        assert_eq!(told, [failed(URL), waits("shared /7")], "what b waited for is not seen");
    }

    #[test]
    fn a_call_that_waits_for_the_document_alone_needs_nothing_else() {
        let waiting = |notes: [Option<&str>; 2], state| {
            let [a, b] = notes;
            call(&[(ensure("a"), a), (remove("b"), b)]).under_way(state)
        };
        let busy = || Some(State::busy());
        let both = [Some("shared /7"), Some("shared")];
        assert_eq!(waiting(both, busy()), Some(vec![waits("shared /7"), waits("shared")]));
        for (notes, state) in [
            (both, Some(State::Ended)),
            (both, None),
            ([Some("shared"), Some("written")], busy()),
            ([None, Some("shared")], busy()),
        ] {
            assert_eq!(waiting(notes, state), None, "{notes:?}");
        }
    }
}
