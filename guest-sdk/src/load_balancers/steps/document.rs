//! A step over a document that many Services share: a load balancer with a frontend for each Service, or a firewall with rules
//! for each. It is read once, edited for all tasks of a turn, and written once.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Steps, Task, Turn};
use crate::http::{Document, Edit};
use crate::operation::Status;
use crate::{Error, ServiceChange};

/// A document with parts for many Services. `D` is what a Service asks for. The default is a document without parts.
///
/// A part has no fixed form: it may be a frontend of the Service's name, or an address in a rule that Services share. What the
/// document holds for Services that aren't in the call stays as it is.
pub trait SharedDocument<D>: Default + DeserializeOwned + Serialize {
    /// The status of the cloud's last operation on the document, as the document shows it. Succeeded if it shows none.
    fn status(&self) -> Status;

    /// Whether the document is as a task wants it: it has the part that the Service asks for and all that the part needs, or
    /// no part if the task is a removal or the Service has no part here.
    fn matches(&self, task: &Task<'_, D>) -> bool;

    /// Makes the document as a task wants it. An earlier part of the Service is replaced.
    fn apply(&mut self, task: &Task<'_, D>);

    /// Whether no part is left, so that the document is deleted. The default keeps a document without parts.
    fn is_empty(&self) -> bool {
        false
    }
}

impl<D> Steps<'_, D> {
    /// Takes a step over the document at a URL, with one write for all tasks of the turn that it concerns. Tasks that it doesn't
    /// concern go on. If it concerns none of them, it isn't read.
    ///
    /// A failed operation that the document shows is reported to the tasks that waited for it, if the document shows their
    /// write; for the others the document is written again. If another client writes in between, or the cloud rejects the
    /// document, see [`Document::edit`].
    pub async fn document<T: SharedDocument<D>>(
        &mut self,
        turn: impl Into<Turn>,
        url: impl Into<String>,
        concerns: impl Fn(&ServiceChange) -> bool,
    ) {
        let (turn, names) = (turn.into(), self.names);
        let rows: Vec<_> =
            self.tasks_of(turn).filter(|(_, task)| concerns(task.change)).map(|(row, _)| row).collect();
        let tasks: Vec<_> = rows.iter().filter_map(|row| self.tasks.get(*row)).collect();
        if tasks.is_empty() {
            return;
        }
        let edit =
            |document: &mut Document<T>, tasks: &[&Task<'_, D>]| edit(document, turn.step, names, tasks);
        let outcomes = match Document::read(url).await {
            Ok(document) => document.edit(&tasks, edit).await,
            Err(error) => tasks.iter().map(|_| Err(error.clone())).collect(),
        };
        for (row, status) in rows.into_iter().zip(outcomes) {
            if let Some(task) = self.tasks.get_mut(row) {
                task.on_status(turn.step, status);
            }
        }
    }

    /// Ends the call early where all its tasks wait for a write of this document that is still in progress, and the cloud names
    /// no operation that could be [polled](Self::poll). Call it before anything else is read.
    pub async fn wait_for_document<T: SharedDocument<D>>(
        &mut self,
        step: &'static str,
        url: impl Into<String>,
    ) {
        if self.free().next().is_none() || !self.free().all(|task| task.has_waited_for(step)) {
            return;
        }
        // If it can't be read, the step itself reports the error.
        let document = Document::<T>::read(url).await.ok().and_then(|document| document.value);
        let Some(status @ Status::Running(_)) = document.map(|value| value.status()) else { return };
        for task in self.free_mut() {
            task.on_status(step, Ok(status.clone()));
        }
    }
}

fn edit<T: SharedDocument<D>, D>(
    document: &mut Document<T>,
    step: &str,
    names: &[&'static str],
    tasks: &[&Task<'_, D>],
) -> Vec<Edit<Status>> {
    let shown = document.value.as_ref().map_or(Status::Succeeded, SharedDocument::status);
    let status = document.begun.clone().map_or(shown, Status::Running).context(document.subject());
    let mut value = document.value.take().unwrap_or_default();
    // Compare for all tasks before the first edit: one may also update what others need.
    let kept: Vec<_> =
        tasks.iter().map(|task| keep(&value, &status, document.is_written, step, names, task)).collect();
    let edits = kept.into_iter().zip(tasks).map(|(kept, task)| {
        kept.map_or_else(
            || {
                value.apply(task);
                Edit::Changed
            },
            Edit::Unchanged,
        )
    });
    let edits = edits.collect();
    document.value = Some(value).filter(|value| !value.is_empty());
    edits
}

/// The status of a task for which the document stays as it is. None if it has to be changed.
fn keep<T: SharedDocument<D>, D>(
    value: &T,
    status: &Status,
    is_written: bool,
    step: &str,
    names: &[&'static str],
    task: &Task<'_, D>,
) -> Option<Result<Status, Error>> {
    let matches = value.matches(task);
    match status {
        // The write on which this task's later step rests has succeeded before. What is written for others doesn't matter.
        _ if matches && task.note.is_after(step, names, task.is_removal()) => Some(Ok(Status::Succeeded)),
        Status::Running(_) => Some(Ok(status.clone())),
        // A task has waited for the last write only if the document shows what it wrote.
        Status::Failed(error) if matches && (is_written || task.has_waited_for(step)) => {
            Some(Err(error.clone()))
        }
        Status::Succeeded if matches => Some(Ok(Status::Succeeded)),
        Status::Failed(_) | Status::Succeeded => None,
    }
}
