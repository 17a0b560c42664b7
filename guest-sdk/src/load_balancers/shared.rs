//! Resources of the cloud that many Services share: a load balancer with a frontend for each Service, or a firewall with
//! rules for each. All parts of a call are written at once. Each Service also has a resource of its own, such as an
//! address, which is created before its part and deleted after it.
//!
//! A provider reads the shared document and the Services' own resources, updates the parts with [`update_parts`], and then
//! reconciles the own resources with [`reconcile`]:
//!
//! ```
//! # use pileus_guest::http::{Collection, Document, HeaderMap, Page};
//! # use pileus_guest::operation::Status;
//! # use pileus_guest::shared::{self, SharedResource};
//! # use pileus_guest::{Error, Resource, Service, ServiceCall, ServiceOutcome};
//! # async fn change<Balancer: SharedResource<Addresses::Item, D>, Addresses: Page<Item: Resource<D>>, D>(
//! #     call: &ServiceCall, url: &str, addresses: Collection<Addresses>,
//! #     name: fn(&Addresses::Item) -> &str, desired: fn(&Service) -> Result<D, Error>,
//! #     write: impl AsyncFn(&str, &D) -> Result<(Addresses::Item, HeaderMap), Error>,
//! #     delete: impl AsyncFn(&str) -> Result<Status, Error>,
//! # ) -> Result<Vec<ServiceOutcome>, Error> {
//! let document = Document::<Balancer>::read(url).await?;
//! let status = document.value.as_ref().map(|balancer| balancer.status(&document.write_headers));
//! if let Some(waiting) = call.waiting_outcomes(status) {
//!     return Ok(waiting);
//! }
//! let found = addresses.read_many(call.resource_names(), name).await?;
//! let changes = call.resource_changes(&found, desired);
//! let parts = shared::update_parts(document, &changes).await;
//! Ok(shared::reconcile(&changes, parts, write, delete).await)
//! # }
//! ```
//!
//! If the parts are in two documents, update both. The outcome of a part is then that of the document that is less far.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::resource::{Resource, ResourceChange};
use super::{ServiceCall, ServiceOutcome, ServiceProgress};
use crate::http::{Document, Edit, HeaderMap};
use crate::operation::{self, POLL_INTERVAL, SHARED, Status, WRITTEN};
use crate::{Error, Service, map_removals_first};

/// A resource with a part for each of many Services. A part is named by
/// [`ServiceChange::resource_name`](crate::ServiceChange::resource_name). `R` is the Service's own resource, `D` the desired
/// state. The default is a resource without parts.
pub trait SharedResource<R, D>: Default + DeserializeOwned + Serialize {
    /// The status of the cloud's last operation on the resource. `headers` are the response headers of the write that
    /// returned it, see [`Document::write_headers`].
    fn status(&self, headers: &HeaderMap) -> Status;

    /// Whether there is a part of this name.
    fn has_part(&self, name: &str) -> bool;

    /// Whether a part is as desired, and so is everything else that it needs.
    fn matches(&self, part: &Part<'_, R, D>) -> bool;

    /// Adds a part, and updates everything else that it needs. There is no part of its name: one that doesn't match has
    /// been removed before.
    fn add_part(&mut self, part: &Part<'_, R, D>);

    /// Removes a part.
    fn remove_part(&mut self, name: &str);

    /// Whether no part is left, so that the resource is deleted. Return false for one that stays without parts.
    fn is_empty(&self) -> bool;
}

/// A desired part.
#[derive(Debug)]
pub struct Part<'a, R, D> {
    /// Its name.
    pub name: &'a str,
    /// What its Service asks for.
    pub desired: &'a D,
    /// The Service's own resource, which is as desired.
    pub resource: &'a R,
}

/// What to do about one part.
enum PartAction<'a, R, D> {
    /// Keep it. No progress means that the Service's own resource comes next.
    Keep(Result<Option<ServiceProgress>, Error>),
    /// Add it, in place of a part of the same name.
    Put(Part<'a, R, D>),
    /// Remove it.
    Remove(&'a str),
}

impl ServiceCall {
    /// The outcomes of a call whose changes all wait for a shared resource that is being updated. None if there is something
    /// else to do. `status` is the status of the shared resource, if it exists.
    pub fn waiting_outcomes(&self, status: Option<Status>) -> Option<Vec<ServiceOutcome>> {
        let status = status.filter(|status| matches!(status, Status::Running(_)))?;
        let notes = || self.changes.iter().map(|change| change.resume.as_deref());
        if !notes().all(|note| operation::is_at(SHARED, note)) {
            return None;
        }
        notes().map(|note| status.clone().progress_at(SHARED, note).transpose()).collect()
    }
}

/// Updates the parts of the document for all changes in one write, and returns the progress of each part. A part
/// has no progress if the Service's own resource comes next: it doesn't exist yet, or should go now that the part is gone.
///
/// A change that waited for a write which the cloud could not finish gets that error, if the document shows its write.
pub async fn update_parts<S: SharedResource<R, D>, R: Resource<D>, D>(
    document: Document<S>,
    changes: &[ResourceChange<'_, R, D>],
) -> Vec<Result<Option<ServiceProgress>, Error>> {
    document.edit(changes, edit_parts).await
}

/// Reconciles the Services' own resources after [`update_parts`], and returns the outcomes of the changes, removals first.
/// It takes a step for each part without progress. `write` and `delete` are as in [`ResourceChange::reconcile`].
pub async fn reconcile<R: Resource<D>, D>(
    changes: &[ResourceChange<'_, R, D>],
    parts: Vec<Result<Option<ServiceProgress>, Error>>,
    write: impl AsyncFn(&str, &D) -> Result<(R, HeaderMap), Error>,
    delete: impl AsyncFn(&str) -> Result<Status, Error>,
) -> Vec<ServiceOutcome> {
    let steps: Vec<_> = changes.iter().zip(parts).collect();
    let take_step =
        async |(change, part): &(&ResourceChange<'_, R, D>, Result<Option<ServiceProgress>, Error>)| {
            match part {
                Ok(None) => change.take_step(&write, &delete, wait_for_part).await,
                Ok(Some(progress)) => Ok(progress.clone()),
                Err(error) => Err(error.clone()),
            }
        };
    map_removals_first(&steps, |(change, _)| change.is_removal(), take_step).await
}

fn wait_for_part<R>(_: &R, _: &Service) -> ServiceProgress {
    ServiceProgress::in_progress_with(POLL_INTERVAL, WRITTEN)
}

fn edit_parts<S: SharedResource<R, D>, R: Resource<D>, D>(
    document: &mut Document<S>,
    changes: &[ResourceChange<'_, R, D>],
) -> Vec<Edit<Option<ServiceProgress>>> {
    let status =
        document.value.as_ref().map_or(Status::Succeeded, |value| value.status(&document.write_headers));
    let status = status.context(document.subject());
    let mut value = document.value.take().unwrap_or_default();
    // Plan all parts before the first edit: adding one may also update what other parts need.
    let actions: Vec<_> = changes.iter().map(|change| plan_part(&value, &status, change)).collect();
    let edit = |action| {
        match action {
            PartAction::Keep(outcome) => return Edit::Unchanged(outcome),
            PartAction::Put(part) => {
                value.remove_part(part.name);
                value.add_part(&part);
            }
            PartAction::Remove(name) => value.remove_part(name),
        }
        Edit::Changed
    };
    let edits = actions.into_iter().map(edit).collect();
    document.value = Some(value).filter(|value| !value.is_empty());
    edits
}

fn plan_part<'a, S: SharedResource<R, D>, R: Resource<D>, D>(
    value: &S,
    status: &Status,
    change: &'a ResourceChange<'_, R, D>,
) -> PartAction<'a, R, D> {
    let has_part = value.has_part(change.name());
    // A change has waited for the last write only if the document shows what the change wrote.
    let progress = |is_seen: bool| {
        let resume = change.resume().filter(|_| is_seen && operation::is_at(SHARED, change.resume()));
        status.clone().progress_at(SHARED, resume)
    };
    match change.desired() {
        Err(error) => PartAction::Keep(Err(error.clone())),
        // The removal of the part may not be in effect yet, or may have failed. Once the own resource is being deleted,
        // that no longer matters, even if the shared resource is written for others.
        Ok(None) if !has_part && (change.is_being_deleted() || *status == Status::Succeeded) => {
            PartAction::Keep(Ok(None))
        }
        Ok(None) => match progress(!has_part) {
            Ok(None) => PartAction::Remove(change.name()),
            waiting => PartAction::Keep(waiting),
        },
        Ok(Some((service, desired))) => {
            let Some(resource) = change.matching(desired) else { return PartAction::Keep(Ok(None)) };
            let part = Part { name: change.name(), desired, resource };
            match progress(has_part) {
                Ok(None) if has_part && *status == Status::Succeeded && value.matches(&part) => {
                    PartAction::Keep(Ok(Some(resource.report(service))))
                }
                Ok(None) => PartAction::Put(part),
                waiting => PartAction::Keep(waiting),
            }
        }
    }
}

#[cfg(test)]
mod tests;
