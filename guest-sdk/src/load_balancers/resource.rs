//! The cloud's resource for one Service: a load balancer, or the address of a shared one. The SDK decides when to read, to
//! write, to delete and to wait, which is the same in every cloud. A provider says what exists, what the Service asks for,
//! and how to write it.

use super::{ServiceChange, ServiceOutcome, ServiceProgress};
use crate::http::HeaderMap;
use crate::operation::{self, DELETED, Status, WRITTEN};
use crate::{Error, Service, map_removals_first};

/// A resource that the cloud has for one Service, as it was read. `D` is the desired state that the Service asks for.
pub trait Resource<D> {
    /// The status of the cloud's last operation on the resource. `headers` are the response headers of the write that
    /// returned it, which may name an operation ([`operation::from_headers`]). Empty if it was read.
    fn status(&self, headers: &HeaderMap) -> Status;

    /// Whether the resource is as the Service asks for. Only called if the last operation succeeded, including a write of
    /// this call. Compare values by meaning: a value that the cloud returns in another spelling would otherwise be
    /// written again each time.
    fn matches(&self, desired: &D) -> bool;

    /// What to report for the Service once the resource matches.
    fn report(&self, service: &Service) -> ServiceProgress;
}

/// The change of one resource: what the Service asks for, and what the cloud has.
/// [`ServiceCall::resource_changes`](crate::ServiceCall::resource_changes) makes one for each change of a call.
pub struct ResourceChange<'a, R, D> {
    change: &'a ServiceChange,
    desired: Result<Option<(&'a Service, D)>, Error>,
    resource: Option<&'a R>,
}

impl<'a, R: Resource<D>, D> ResourceChange<'a, R, D> {
    pub(super) fn new(
        change: &'a ServiceChange,
        found: Option<&'a Result<R, Error>>,
        desired: impl FnOnce(&'a Service) -> Result<D, Error>,
    ) -> Self {
        let desired = |service| desired(service).map(|desired| (service, desired));
        match found.map(Result::as_ref).transpose() {
            Ok(resource) => Self { change, desired: change.service().map(desired).transpose(), resource },
            Err(error) => Self { change, desired: Err(error.clone()), resource: None },
        }
    }

    /// Takes the next step for each resource, removals first. It waits for the cloud, writes what doesn't match, deletes
    /// what should go, or reports that the change is complete.
    ///
    /// `write` creates or replaces the resource of a name, and returns the cloud's version of it with the response headers.
    /// `delete` deletes it, and returns the status of the deletion. A resource that wasn't found is deleted too, because a
    /// list may lack what was created a moment ago; only after an earlier deletion it isn't.
    ///
    /// A failed operation is reported to the change that waited for it; without a note the change is tried again. If a
    /// write succeeds with another result than desired, that is a conflict.
    pub async fn reconcile(
        changes: &[Self],
        write: impl AsyncFn(&str, &D) -> Result<(R, HeaderMap), Error>,
        delete: impl AsyncFn(&str) -> Result<Status, Error>,
    ) -> Vec<ServiceOutcome> {
        let take_step = async |change: &Self| change.take_step(&write, &delete, R::report).await;
        map_removals_first(changes, Self::is_removal, take_step).await
    }

    /// Takes the next step for the resource. `report` returns the progress once the resource matches.
    pub(super) async fn take_step(
        &self,
        write: impl AsyncFnOnce(&str, &D) -> Result<(R, HeaderMap), Error>,
        delete: impl AsyncFnOnce(&str) -> Result<Status, Error>,
        report: impl Fn(&R, &Service) -> ServiceProgress,
    ) -> ServiceOutcome {
        match &self.desired {
            Err(error) => Err(error.clone()),
            Ok(None) => self.remove(delete).await,
            Ok(Some((service, desired))) => {
                self.ensure(desired, write, |resource| report(resource, service)).await
            }
        }
    }

    async fn ensure(
        &self,
        desired: &D,
        write: impl AsyncFnOnce(&str, &D) -> Result<(R, HeaderMap), Error>,
        report: impl Fn(&R) -> ServiceProgress,
    ) -> ServiceOutcome {
        if let Some(progress) = self.progress_at(WRITTEN)? {
            return Ok(progress);
        }
        if let Some(resource) = self.matching(desired) {
            return Ok(report(resource));
        }
        let (written, headers) = write(self.name(), desired).await?;
        match written.status(&headers).context(self.name()).progress_at(WRITTEN, Some(WRITTEN))? {
            Some(progress) => Ok(progress),
            None if written.matches(desired) => Ok(report(&written)),
            // Reported as done, every call would write it again, and the user would never learn of it.
            None => {
                let message = "was written, but the cloud changed what was written";
                Err(Error::conflict(format!("{} {message}", self.name())))
            }
        }
    }

    async fn remove(&self, delete: impl AsyncFnOnce(&str) -> Result<Status, Error>) -> ServiceOutcome {
        if let Some(progress) = self.progress_at(DELETED)? {
            return Ok(progress);
        }
        if self.resource.is_none() && operation::is_at(DELETED, self.resume()) {
            return Ok(ServiceProgress::gone());
        }
        let status = delete(self.name()).await?.context(self.name());
        Ok(status.progress_at(DELETED, Some(DELETED))?.unwrap_or_else(ServiceProgress::gone))
    }

    /// The progress to report before anything is done, if an operation on the resource is running or has failed.
    fn progress_at(&self, step: &str) -> Result<Option<ServiceProgress>, Error> {
        let status = self.resource.map_or(Status::Succeeded, |resource| resource.status(&HeaderMap::new()));
        status.context(self.name()).progress_at(step, self.resume())
    }

    /// The resource, if it is as desired.
    pub(super) fn matching(&self, desired: &D) -> Option<&'a R> {
        let matches = |resource: &&R| {
            resource.status(&HeaderMap::new()) == Status::Succeeded && resource.matches(desired)
        };
        self.resource.filter(matches)
    }

    /// What the Service asks for, or None if the resource should go. The error says why nothing can be done.
    pub(super) const fn desired(&self) -> Result<Option<&(&'a Service, D)>, &Error> {
        match &self.desired {
            Ok(desired) => Ok(desired.as_ref()),
            Err(error) => Err(error),
        }
    }

    /// Whether the resource is gone, or its deletion had begun at the last call.
    pub(super) fn is_being_deleted(&self) -> bool {
        self.resource.is_none() || operation::is_at(DELETED, self.resume())
    }

    pub(super) const fn name(&self) -> &'a str {
        self.change.resource_name()
    }

    pub(super) fn resume(&self) -> Option<&'a str> {
        self.change.resume.as_deref()
    }

    pub(super) const fn is_removal(&self) -> bool {
        self.change.is_removal()
    }
}

#[cfg(test)]
pub(super) mod tests;
