//! What is to become of the thing that the cloud has for one Service alone: a load balancer, or the address of one that is
//! shared. When to look, to write, to delete and to wait is the same in every cloud. An author says what there is, what the
//! Service wants, and how it is written.

use super::{ServiceChange, ServiceProgress};
use crate::http::HeaderMap;
use crate::operation::{self, DELETED, State, WRITTEN};
use crate::{Error, Outcome, Outcomes, Service, removals_first};

/// A thing that the cloud has for one Service alone, as the cloud tells of it. `G` is what the Service wants of it.
pub trait Object<G> {
    /// How the cloud is getting on with it. `written` are the headers of the answer to the write that it came with, in which
    /// some clouds name an operation ([`operation::begun`]); empty where it was read.
    fn state(&self, written: &HeaderMap) -> State;

    /// Whether it is as the Service wants it. Only asked where the cloud has ended well what it did last, a write of this call
    /// too. What the cloud gives back in words of its own must compare as what it means, or it is written at each look.
    fn is_as(&self, goal: &G) -> bool;

    /// What to tell of the Service, where it is as it should be.
    fn done(&self, service: &Service) -> ServiceProgress;
}

/// What one change is about: a Service, what that wants, and what the cloud has for it. A call makes them:
/// [`ServiceCall::wishes`](crate::ServiceCall::wishes).
pub struct Wish<'a, T, G> {
    change: &'a ServiceChange,
    goal: Result<Option<(&'a Service, G)>, Error>,
    object: Option<&'a T>,
}

impl<'a, T: Object<G>, G> Wish<'a, T, G> {
    pub(super) fn new(
        change: &'a ServiceChange,
        found: Option<&'a Result<T, Error>>,
        goal: impl FnOnce(&'a Service) -> Result<G, Error>,
    ) -> Self {
        let wanted = |service| goal(service).map(|goal| (service, goal));
        match found.map(Result::as_ref).transpose() {
            Ok(object) => Self { change, goal: change.service().map(wanted).transpose(), object },
            Err(error) => Self { change, goal: Err(error.clone()), object: None },
        }
    }

    /// Does the next thing for each wish, removals first: waits for the cloud, writes what isn't as it should be, deletes what
    /// should go, or tells that all is so.
    ///
    /// `write` creates or replaces the object of a name, and tells what the cloud made of it and the headers of its answer;
    /// `delete` deletes it, and tells how that is getting on. What wasn't found is deleted all the same, as a list may lack
    /// what was made a moment ago, but for what was deleted before. A failure of the cloud's is told to the change that waited
    /// for it; without a note it is tried again. That a write has ended and come to something else is a conflict.
    pub async fn settle(
        wishes: &[Self],
        write: impl AsyncFn(&str, &G) -> Result<(T, HeaderMap), Error>,
        delete: impl AsyncFn(&str) -> Result<State, Error>,
    ) -> Outcomes<ServiceProgress> {
        let settle = async |wish: &Self| wish.next(&write, &delete, T::done).await;
        removals_first(wishes, Self::is_removal, settle).await
    }

    /// Does the next thing for the object. Where that is there, `done` tells the rest.
    pub(super) async fn next(
        &self,
        write: impl AsyncFnOnce(&str, &G) -> Result<(T, HeaderMap), Error>,
        delete: impl AsyncFnOnce(&str) -> Result<State, Error>,
        done: impl Fn(&T, &Service) -> ServiceProgress,
    ) -> Outcome<ServiceProgress> {
        match &self.goal {
            Err(error) => Err(error.clone()),
            Ok(None) => self.remove(delete).await,
            Ok(Some((service, goal))) => self.ensure(goal, write, |object| done(object, service)).await,
        }
    }

    async fn ensure(
        &self,
        goal: &G,
        write: impl AsyncFnOnce(&str, &G) -> Result<(T, HeaderMap), Error>,
        done: impl Fn(&T) -> ServiceProgress,
    ) -> Outcome<ServiceProgress> {
        if let Some(progress) = self.waits_at(WRITTEN)? {
            return Ok(progress);
        }
        if let Some(object) = self.settled(goal) {
            return Ok(done(object));
        }
        let (written, headers) = write(self.name(), goal).await?;
        match written.state(&headers).about(self.name()).answer_at(WRITTEN, Some(WRITTEN))? {
            Some(progress) => Ok(progress),
            None if written.is_as(goal) => Ok(done(&written)),
            // Told as done it would be written again by every call, and the user never know.
            None => {
                let message = "was written, but the cloud made something else of it";
                Err(Error::conflict(format!("{} {message}", self.name())))
            }
        }
    }

    async fn remove(
        &self,
        delete: impl AsyncFnOnce(&str) -> Result<State, Error>,
    ) -> Outcome<ServiceProgress> {
        if let Some(progress) = self.waits_at(DELETED)? {
            return Ok(progress);
        }
        if self.object.is_none() && operation::is_at(DELETED, self.resume()) {
            return Ok(ServiceProgress::gone());
        }
        let progress = delete(self.name()).await?.about(self.name()).answer_at(DELETED, Some(DELETED))?;
        Ok(progress.unwrap_or_else(ServiceProgress::gone))
    }

    /// What to answer before anything is done.
    fn waits_at(&self, step: &str) -> Outcome<Option<ServiceProgress>> {
        let state = self.object.map_or(State::Ended, |object| object.state(&HeaderMap::new()));
        state.about(self.name()).answer_at(step, self.resume())
    }

    /// The object, where it is as it should be.
    pub(super) fn settled(&self, goal: &G) -> Option<&'a T> {
        let is_settled = |object: &&T| object.state(&HeaderMap::new()) == State::Ended && object.is_as(goal);
        self.object.filter(is_settled)
    }

    /// What the Service wants, none where all should go; or why nothing can be done.
    pub(super) const fn goal(&self) -> Result<Option<&(&'a Service, G)>, &Error> {
        match &self.goal {
            Ok(goal) => Ok(goal.as_ref()),
            Err(error) => Err(error),
        }
    }

    /// Whether its object is gone, or was being deleted when it was last looked at.
    pub(super) fn is_leaving(&self) -> bool {
        self.object.is_none() || operation::is_at(DELETED, self.resume())
    }

    pub(super) const fn name(&self) -> &'a str {
        self.change.name()
    }

    pub(super) fn resume(&self) -> Option<&'a str> {
        self.change.resume.as_deref()
    }

    pub(super) const fn is_removal(&self) -> bool {
        self.change.is_removal()
    }
}

#[cfg(test)]
#[expect(clippy::unnecessary_wraps, reason = "outcomes are compared as they come")]
pub(super) mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;

    use Stage::{Busy, Ended, Failed};

    use super::*;
    use crate::testing::Host;
    use crate::{ErrorKind, Ingress, Owned, ServiceAction, ServiceCall};

    /// A thing of a cloud, of which a Service wants a size.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(in super::super) struct Thing {
        pub(in super::super) size: u32,
        pub(in super::super) stage: Stage,
    }

    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub(in super::super) enum Stage {
        #[default]
        Ended,
        Busy,
        Failed,
    }

    impl Stage {
        pub(in super::super) fn state(self, written: &HeaderMap) -> State {
            match self {
                Self::Ended => State::Ended,
                Self::Busy => State::Running(operation::begun(written)),
                Self::Failed => State::failed(None),
            }
        }
    }

    impl Object<u32> for Thing {
        fn state(&self, written: &HeaderMap) -> State {
            self.stage.state(written)
        }

        fn is_as(&self, size: &u32) -> bool {
            self.size == *size
        }

        fn done(&self, service: &Service) -> ServiceProgress {
            ServiceProgress::done([Ingress::hostname(&service.uid)])
        }
    }

    pub(in super::super) fn service(uid: &str) -> Service {
        Service { uid: uid.to_owned(), ..Service::default() }
    }

    pub(in super::super) fn call(changes: &[(ServiceAction, Option<&str>)]) -> ServiceCall {
        let change = |(action, note): &(ServiceAction, Option<&str>)| ServiceChange {
            resume: note.map(str::to_owned),
            ..ServiceChange::from(action.clone())
        };
        ServiceCall { changes: changes.iter().map(change).collect(), ..ServiceCall::default() }
    }

    pub(in super::super) fn thing(size: u32, stage: Stage) -> Thing {
        Thing { size, stage }
    }

    pub(in super::super) fn waits(note: &str) -> Outcome<ServiceProgress> {
        Ok(ServiceProgress::in_progress_with(operation::AGAIN, note))
    }

    pub(in super::super) fn failed(what: &str) -> Outcome<ServiceProgress> {
        let message = "the cloud could not finish what it began: it doesn't say why";
        Err(Error::unavailable(message).about(what))
    }

    /// What is told of a change to size 2, and what was done.
    fn settle(
        action: ServiceAction,
        note: Option<&str>,
        found: Option<Result<Thing, Error>>,
        makes: &Result<(Thing, HeaderMap), Error>,
        deletes: &State,
    ) -> (Outcome<ServiceProgress>, Vec<String>) {
        let call = call(&[(action, note)]);
        let found: HashMap<_, _> = found.into_iter().map(|found| ("u".to_owned(), found)).collect();
        let done = RefCell::new(Vec::new());
        let write = async |name: &str, size: &u32| {
            done.borrow_mut().push(format!("write {name} {size}"));
            makes.clone()
        };
        let delete = async |name: &str| {
            done.borrow_mut().push(format!("delete {name}"));
            Ok(deletes.clone())
        };
        let wishes = call.wishes(&found, |_| Ok(2));
        let told = Host::new().run(Wish::settle(&wishes, write, delete));
        (told.into_iter().next().unwrap(), done.into_inner())
    }

    #[test]
    fn an_object_is_written_where_it_is_not_as_it_is_wanted_and_nothing_is_under_way() {
        let done = || Ok(ServiceProgress::done([Ingress::hostname("u")]));
        let rows = [
            ("new", None, None, Ended, done(), true),
            ("new, takes time", None, None, Busy, waits("written /7"), true),
            ("new, fails at once", None, None, Failed, failed("u"), true),
            ("as wanted", None, Some((2, Ended)), Ended, done(), false),
            ("another size", None, Some((1, Ended)), Busy, waits("written /7"), true),
            ("busy", None, Some((1, Busy)), Ended, waits("written"), false),
            (
                "busy, its operation known",
                Some("written /6"),
                Some((2, Busy)),
                Ended,
                waits("written /6"),
                false,
            ),
            ("failed before", None, Some((2, Failed)), Ended, done(), true),
            ("failed meanwhile", Some("written"), Some((2, Failed)), Ended, failed("u"), false),
        ];
        for (name, note, found, becomes, expected, is_written) in rows {
            let headers: HeaderMap =
                [(http::HeaderName::from_static("operation-location"), "/7".parse().unwrap())]
                    .into_iter()
                    .collect();
            let found = found.map(|(size, stage)| Ok(thing(size, stage)));
            let action = ServiceAction::Ensure(service("u"));
            let told = settle(action, note, found, &Ok((thing(2, becomes), headers)), &State::Ended);
            let writes = if is_written { vec!["write u 2".to_owned()] } else { Vec::new() };
            assert_eq!(told, (expected, writes), "{name}");
        }
    }

    #[test]
    fn what_the_cloud_makes_something_else_of_is_not_told_as_done() {
        let (action, makes) = (ServiceAction::Ensure(service("u")), Ok((thing(3, Ended), HeaderMap::new())));
        let (told, done) = settle(action, None, None, &makes, &State::Ended);
        assert_eq!((told.unwrap_err().kind, done.len()), (ErrorKind::Conflict, 1));
    }

    #[test]
    fn an_object_is_deleted_until_the_cloud_has_nothing_left() {
        let gone = || Ok(ServiceProgress::gone());
        let begun = State::busy;
        let rows = [
            ("there, takes time", None, Some(Ended), begun(), waits("deleted"), true),
            ("there, at once", None, Some(Ended), State::Ended, gone(), true),
            ("busy", None, Some(Busy), State::Ended, waits("deleted"), false),
            ("failed before", None, Some(Failed), begun(), waits("deleted"), true),
            ("failed meanwhile", Some("deleted"), Some(Failed), State::Ended, failed("u"), false),
            ("not seen", None, None, State::Ended, gone(), true),
            ("not seen, written before", Some("written"), None, begun(), waits("deleted"), true),
            ("not seen, deleted before", Some("deleted /7"), None, begun(), gone(), false),
        ];
        for (name, note, found, deletes, expected, is_deleted) in rows {
            let orphan = Owned { name: "u".to_owned(), ..Owned::default() };
            for action in [ServiceAction::Delete(service("u")), ServiceAction::RemoveOrphan(orphan)] {
                let found = found.map(|stage| Ok(thing(1, stage)));
                let told = settle(action, note, found, &Err(Error::broken("written")), &deletes);
                let deletions = if is_deleted { vec!["delete u".to_owned()] } else { Vec::new() };
                assert_eq!(told, (expected.clone(), deletions), "{name}");
            }
        }
    }

    #[test]
    fn nothing_is_done_where_something_could_not_be_found_out() {
        let found = HashMap::from([
            ("u".to_owned(), Err(Error::denied("read"))),
            ("v".to_owned(), Ok(thing(2, Ended))),
        ]);
        let actions = ["u", "v"].map(|uid| (ServiceAction::Ensure(service(uid)), None));
        let call = call(&actions);
        let wishes = call.wishes(&found, |_| Err::<u32, _>(Error::invalid("wrong")));
        let write = async |_: &str, _: &u32| Err(Error::broken("written"));
        let told =
            Host::new().run(Wish::settle(&wishes, write, async |_: &str| Err(Error::broken("deleted"))));
        let kinds: Vec<_> = told.into_iter().map(|told| told.unwrap_err().kind).collect();
        assert_eq!(kinds, [ErrorKind::Denied, ErrorKind::Invalid]);
    }
}
