//! A step for the resource that the cloud has for one Service: a load balancer, or the address of a shared one. The SDK decides
//! when to write, to delete and to wait, which is the same in every cloud. A provider says what exists, what the Service asks
//! for, and how to write it.

use std::cell::RefCell;
use std::collections::HashMap;

use super::{Steps, Task, Turn};
use crate::Error;
use crate::operation::{InProgress, Status, Written};

/// A resource that the cloud has for one Service, as it was read. `D` is what the Service asks for.
pub trait Resource<D> {
    /// The status of the cloud's last operation on the resource, as the resource shows it. Succeeded if it shows none.
    fn status(&self) -> Status;

    /// Whether the resource is as the Service asks for. Only called if the last operation succeeded, including a write of
    /// this call. Compare values by meaning: a value that the cloud returns in another spelling would otherwise be
    /// written again each time.
    fn matches(&self, desired: &D) -> bool;
}

impl<'a, D> Steps<'a, D> {
    /// Takes a step for each task's own resource: waits for the cloud, writes what doesn't match, or deletes what should go.
    ///
    /// `found` holds the existing resources by the UIDs of their Services, see
    /// [`Collection::read_many`](crate::http::Collection::read_many). What is written is put there. An error there is the
    /// outcome of its task.
    ///
    /// `write` creates or changes the resource of a Service. It gets what exists, and may take one of several steps: it is
    /// called again, by a later call, until the resource matches. `delete` deletes it, and returns the status of the deletion.
    /// A resource that wasn't found is deleted too, because a list may lack what was created a moment ago; only after an
    /// earlier deletion it isn't.
    ///
    /// A failed operation that the resource shows is reported to the task that waited for it; without a note the resource is
    /// written again. If the cloud returns the whole resource after a write, and it doesn't match, that is a conflict.
    pub async fn resources<R: Resource<D>>(
        &mut self,
        turn: impl Into<Turn>,
        found: &mut HashMap<String, Result<R, Error>>,
        write: impl AsyncFn(&str, &D, Option<&R>) -> Result<Written<R>, Error>,
        delete: impl AsyncFn(&str, Option<&R>) -> Result<Status, Error>,
    ) {
        let turn = turn.into();
        let new = RefCell::new(Vec::new());
        let known = &*found;
        let work = async |uid: &&'a str, tasks: &[&Task<'a, D>]| {
            let (Some(task), resource) = (tasks.first(), known.get(*uid)) else {
                return Ok(Status::Succeeded);
            };
            let resource = resource.map(Result::as_ref).transpose().map_err(Clone::clone)?;
            let status = resource.map_or(Status::Succeeded, Resource::status).context(uid);
            match (status, &task.desired) {
                (Status::Failed(error), _) if task.has_waited_for(turn.step) => Err(error),
                (status @ Status::Running(_), _) => Ok(status),
                (_, None) if resource.is_none() && task.has_waited_for(turn.step) => Ok(Status::Succeeded),
                (_, None) => Ok(delete(uid, resource).await?.context(uid)),
                (Status::Succeeded, Some(desired)) if resource.is_some_and(|it| it.matches(desired)) => {
                    Ok(Status::Succeeded)
                }
                (_, Some(desired)) => {
                    let written = write(uid, desired, resource).await?;
                    let (status, resource) = written_status(uid, desired, written)?;
                    new.borrow_mut().extend(resource.map(|resource| ((*uid).to_owned(), Ok(resource))));
                    Ok(status)
                }
            }
        };
        self.things(turn, |task| vec![task.uid()], work).await;
        found.extend(new.into_inner());
    }
}

fn written_status<R: Resource<D>, D>(
    uid: &str,
    desired: &D,
    written: Written<R>,
) -> Result<(Status, Option<R>), Error> {
    let resource = match written {
        Written::Step(progress) => return Ok((Status::Running(progress), None)),
        Written::Gone => return Ok((Status::Running(InProgress::soon()), None)),
        Written::Whole(resource) => resource,
    };
    let status = resource.status().context(uid);
    if status == Status::Succeeded && !resource.matches(desired) {
        // Reported as done, every call would write it again, and the user would never learn of it.
        return Err(Error::conflict(format!("{uid} was written, but the cloud changed what was written")));
    }
    Ok((status, Some(resource)))
}
