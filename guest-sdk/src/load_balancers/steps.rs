//! The steps of a call's changes, in clouds where a Service needs several resources and documents in an order: an address, then
//! its part of a load balancer, then rules of a firewall. Additions take the steps forwards and removals backwards. A change
//! that waits for the cloud, or has failed, takes no further step. It doesn't affect the others.
//!
//! [`Steps::turns`] returns the order in which a call takes the steps. Each turn is one of two kinds:
//!
//! - [`Steps::resources`] and [`Steps::things`] write resources one by one.
//! - [`Steps::document`] edits a document that Services share for all changes at once, and writes it once.
//!
//! ```
//! # use std::collections::HashMap;
//! # use pileus_guest::http::Collection;
//! # use pileus_guest::operation::{Status, Written};
//! # use pileus_guest::{Error, Ingress, Resource, Service, ServiceCall, ServiceOutcome, ServiceReport, SharedDocument, Steps};
//! # async fn change<Balancer: SharedDocument<D>, Address: Resource<D> + serde::de::DeserializeOwned, D>(
//! #     call: &ServiceCall, url: &str, addresses: Collection<Address>,
//! #     name: fn(&Address) -> Option<&str>, value: fn(&Address) -> String, desired: fn(&Service) -> Result<D, Error>,
//! #     put: impl AsyncFn(&str, &D, Option<&Address>) -> Result<Written<Address>, Error>,
//! #     delete: impl AsyncFn(&str, Option<&Address>) -> Result<Status, Error>,
//! #     poll: impl AsyncFn(&str) -> Result<Status, Error>,
//! # ) -> Result<Vec<ServiceOutcome>, Error> {
//! let mut steps = Steps::new(call, &["address", "balancer"], desired);
//! steps.poll(poll).await;
//! let mut found = addresses.read_many(steps.free_uids(), name).await?;
//! for turn in steps.turns("balancer") {
//!     match turn.step {
//!         "address" => steps.resources(turn, &mut found, &put, &delete).await,
//!         _ => steps.document::<Balancer>(turn, url, |_| true).await,
//!     }
//! }
//! steps.report(&found, |address, _| ServiceReport::new([Ingress::ip(value(address))]));
//! Ok(steps.outcomes())
//! # }
//! ```

mod document;
mod note;
mod resource;

use std::collections::{BTreeMap, HashMap};

pub use document::SharedDocument;
use note::Note;
pub use resource::Resource;

use super::{ServiceCall, ServiceChange, ServiceOutcome, ServiceProgress, ServiceReport};
use crate::operation::Status;
use crate::{Error, Service, map_concurrently};

/// A change of a call, and what its Service asks for.
pub struct Task<'a, D> {
    /// The change.
    pub change: &'a ServiceChange,
    /// What the Service asks for. None if something is to be removed.
    pub desired: Option<D>,
    note: Note<'a>,
    /// None while the task is free to take further steps.
    outcome: Option<ServiceOutcome>,
    /// What the Service is told, see [`Steps::report`].
    pub report: ServiceReport,
}

impl<'a, D> Task<'a, D> {
    /// The UID of the Service, see [`ServiceChange::service_uid`].
    pub fn uid(&self) -> &'a str {
        self.change.service_uid()
    }

    /// Whether something is to be removed.
    pub const fn is_removal(&self) -> bool {
        self.change.is_removal()
    }

    /// Whether the task has waited for this step in an earlier call, according to its note. Then a failure of the step that
    /// the cloud shows is this task's, and is reported. Without a note the step is tried again.
    pub fn has_waited_for(&self, step: &str) -> bool {
        self.note.is_at(step, self.is_removal())
    }

    /// Ends or continues the task after a step of this status.
    fn on_status(&mut self, step: &'static str, status: Result<Status, Error>) {
        match status {
            Ok(Status::Succeeded) => {}
            Ok(Status::Running(progress)) => {
                let progress = self.note.next(step, self.is_removal(), progress);
                self.outcome = Some(Ok(progress.into()));
            }
            Ok(Status::Failed(error)) | Err(error) => self.outcome = Some(Err(error)),
        }
    }
}

/// One turn of a call: a step for all tasks, or for those in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The step.
    pub step: &'static str,
    of: Direction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Additions,
    Removals,
    Both,
}

impl From<&'static str> for Turn {
    /// A turn for all tasks, for a cloud with one step.
    fn from(step: &'static str) -> Self {
        Self { step, of: Direction::Both }
    }
}

impl Turn {
    const fn is_of<D>(self, task: &Task<'_, D>) -> bool {
        match self.of {
            Direction::Additions => !task.is_removal(),
            Direction::Removals => task.is_removal(),
            Direction::Both => true,
        }
    }
}

/// How far each change of a call has come, step by step.
pub struct Steps<'a, D> {
    names: &'static [&'static str],
    tasks: Vec<Task<'a, D>>,
}

impl<'a, D> Steps<'a, D> {
    /// The changes of a call, which take the steps of these names. The names are part of notes, so they have no space.
    /// `desired` computes what a Service asks for. Its error is the outcome of the change.
    pub fn new(
        call: &'a ServiceCall,
        names: &'static [&'static str],
        desired: impl Fn(&'a Service) -> Result<D, Error>,
    ) -> Self {
        let task = |change: &'a ServiceChange| {
            let (desired, outcome) = match change.service().map(&desired).transpose() {
                Ok(desired) => (desired, None),
                Err(error) => (None, Some(Err(error))),
            };
            let note = Note::read(change.resume.as_deref());
            Task { change, desired, note, outcome, report: ServiceReport::default() }
        };
        Self { names, tasks: call.changes.iter().map(task).collect() }
    }

    /// The order of a call's turns: removals backwards and additions forwards to the step `together`, which all take at once,
    /// and then on. Choose the document that is the most expensive to write, so that a call writes it once.
    pub fn turns(&self, together: &'static str) -> Vec<Turn> {
        let middle = self.names.iter().position(|name| *name == together).unwrap_or_default();
        let (before, after) = self.names.split_at(middle);
        let after = after.get(1..).unwrap_or_default();
        let turn = |of| move |step: &&'static str| Turn { step, of };
        let (removals, additions) = (Direction::Removals, Direction::Additions);
        let first = after.iter().rev().map(turn(removals)).chain(before.iter().map(turn(additions)));
        let last = after.iter().map(turn(additions)).chain(before.iter().rev().map(turn(removals)));
        first.chain([Turn::from(together)]).chain(last).collect()
    }

    /// The tasks that are free to take further steps.
    pub fn free(&self) -> impl Iterator<Item = &Task<'a, D>> {
        self.tasks.iter().filter(|task| task.outcome.is_none())
    }

    /// The same, to add to what their Services ask for what an earlier step has found out.
    pub fn free_mut(&mut self) -> impl Iterator<Item = &mut Task<'a, D>> {
        self.tasks.iter_mut().filter(|task| task.outcome.is_none())
    }

    /// The UIDs of the Services whose tasks are free.
    pub fn free_uids(&self) -> std::vec::IntoIter<&'a str> {
        self.free().map(Task::uid).collect::<Vec<_>>().into_iter()
    }

    /// Asks how the operations are that the notes of the last call name, each once. Call it before anything is read: a change
    /// whose operation is running waits, and costs no other request. The reason of an operation that has failed is the
    /// outcome of its changes.
    pub async fn poll(&mut self, poll: impl AsyncFn(&str) -> Result<Status, Error>) {
        let mut addresses: Vec<_> = self.free().filter_map(|task| task.note.address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let polled = map_concurrently(addresses.iter().copied(), &poll).await;
        let (polled, names): (HashMap<_, _>, _) = (addresses.into_iter().zip(polled).collect(), self.names);
        for task in self.free_mut() {
            let Some(status) = task.note.address.and_then(|address| polled.get(address)) else { continue };
            if let Some(step) = task.note.step_of(names) {
                task.on_status(step, status.clone());
            }
        }
    }

    /// Answers that another controller serves these Services. Ask the cloud before that for a removal, because the Service may
    /// have changed: the host believes no removal without an answer of the cloud.
    pub fn leave_elsewhere(&mut self, is_elsewhere: impl Fn(&ServiceChange) -> bool) {
        for task in self.free_mut().filter(|task| is_elsewhere(task.change)) {
            task.outcome = Some(Ok(ServiceProgress::Elsewhere));
        }
    }

    /// Takes a step for resources that are written one by one, and that several changes may share. `keys` names the resources
    /// of a task. `work` takes the step for one of them, on behalf of all tasks that name it, and returns its status: once
    /// for each key. Keys of removals alone come first, because others may need what they free.
    ///
    /// A task goes on when all its resources have succeeded. A status that has failed is the outcome of the tasks: return it
    /// only if one of them [has waited for it](Task::has_waited_for), and try again otherwise.
    pub async fn things<K: Ord>(
        &mut self,
        turn: impl Into<Turn>,
        keys: impl Fn(&Task<'a, D>) -> Vec<K>,
        work: impl AsyncFn(&K, &[&Task<'a, D>]) -> Result<Status, Error>,
    ) {
        let turn = turn.into();
        let mut rows_by_key = BTreeMap::<K, Vec<usize>>::new();
        for (row, task) in self.tasks_of(turn) {
            for key in keys(task) {
                rows_by_key.entry(key).or_default().push(row);
            }
        }
        let is_removal =
            |rows: &[usize]| rows.iter().all(|row| self.tasks.get(*row).is_some_and(Task::is_removal));
        let (removals, rest): (Vec<_>, Vec<_>) = rows_by_key.iter().partition(|(_, rows)| is_removal(rows));
        let take_step = async |(key, rows): (&K, &Vec<usize>)| {
            let tasks: Vec<_> = rows.iter().filter_map(|row| self.tasks.get(*row)).collect();
            (rows.clone(), work(key, &tasks).await)
        };
        let mut results = map_concurrently(removals, &take_step).await;
        results.extend(map_concurrently(rest, &take_step).await);
        for (rows, status) in results {
            for row in rows {
                // Of several resources of a task, an error decides before one that is in progress.
                let Some(task) = self.tasks.get_mut(row) else { continue };
                if !matches!(task.outcome, Some(Err(_))) && !matches!(status, Ok(Status::Succeeded)) {
                    task.on_status(turn.step, status.clone());
                }
            }
        }
    }

    /// Sets what the Services are told, from their resources. Call it after the step from which on the ingress works: a change
    /// that waits in a later step reports it already.
    pub fn report<R>(
        &mut self,
        found: &HashMap<String, Result<R, Error>>,
        report: impl Fn(&R, &'a Service) -> ServiceReport,
    ) {
        for task in self.free_mut() {
            if let (Some(service), Some(Ok(resource))) = (task.change.service(), found.get(task.uid())) {
                task.report = report(resource, service);
            }
        }
    }

    /// The outcomes of the changes, in their order. Those that are still free are complete.
    pub fn outcomes(self) -> Vec<ServiceOutcome> {
        let outcome = |task: Task<'a, D>| match task.outcome {
            None => Ok(ServiceProgress::Done(task.report)),
            Some(Ok(ServiceProgress::InProgress(progress, _))) => {
                Ok(ServiceProgress::InProgress(progress, task.report))
            }
            Some(outcome) => outcome,
        };
        self.tasks.into_iter().map(outcome).collect()
    }

    /// The free tasks of a turn, with their places.
    fn tasks_of(&self, turn: Turn) -> impl Iterator<Item = (usize, &Task<'a, D>)> {
        self.tasks.iter().enumerate().filter(move |(_, task)| task.outcome.is_none() && turn.is_of(task))
    }
}

#[cfg(test)]
mod tests;
