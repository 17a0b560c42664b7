//! The calls about resources with long operations, written once for all kinds. A kind implements [`Managed`] with what is
//! special about it.

use std::sync::Arc;
use std::time::Duration;

use super::World;
use super::listing::{Listing, Page};
use super::resource::{Ended, Resource, ResourceKind, Resources};
use super::write::{DeleteResult, Precondition, Write, WriteResult};
use crate::refusal::Refusal;

/// A kind of resources with long operations.
pub trait Managed: ResourceKind + Clone + PartialEq {
    /// The body of a write.
    type New;

    /// Whether a write must have a precondition.
    const REQUIRES_PRECONDITION: bool = false;

    /// All resources of the kind.
    fn all(world: &World) -> &Resources<Self>;

    /// All resources of the kind, for changes.
    fn all_mut(world: &mut World) -> &mut Resources<Self>;

    /// Refuses a body that is invalid regardless of the existing resources of the kind.
    fn check(world: &World, new: &Self::New) -> Result<(), Refusal>;

    /// Makes the new state of the resource of this name, and takes what it needs, such as addresses, from the world. Takes
    /// nothing where it is refused.
    fn compose(world: &mut World, name: &str, new: Self::New) -> Result<Self, Refusal>;

    /// Refuses a deletion that isn't possible.
    fn check_deletion(_world: &World, _name: &str) -> Result<(), Refusal> {
        Ok(())
    }

    /// Frees what is no longer needed after an operation has ended.
    fn ended(world: &mut World, ended: &Ended<Self>);

    /// Adds what other resources know about this one.
    fn shown(_world: &World, resource: Arc<Resource<Self>>) -> Arc<Resource<Self>> {
        resource
    }
}

impl World {
    /// One resource in its current state.
    pub fn read<T: Managed>(&mut self, now: Duration, name: &str) -> Result<Arc<Resource<T>>, Refusal> {
        self.advance(now);
        self.present(name)
    }

    /// One page of a kind of resources, as [`World::list`] shows machines.
    pub fn page<T: Managed>(
        &mut self,
        now: Duration,
        listing: &Listing,
        lag: Duration,
    ) -> Result<Page<Resource<T>>, Refusal> {
        let moment = self.moment(now, lag);
        let Page { items, next } = listing.page(T::all(self).history(), moment)?;
        let items = items.into_iter().map(|it| T::shown(self, it)).collect();
        Ok(Page { items, next })
    }

    /// Creates or changes a resource. Does nothing where it already is as written.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] first, then errors of the precondition, then [`Refusal::Busy`], then conflicts with other resources.
    pub fn write<T: Managed>(
        &mut self,
        now: Duration,
        name: &str,
        new: T::New,
        write: &Write,
    ) -> Result<WriteResult<T>, Refusal> {
        self.advance(now);
        check_label(T::NOUN, name)?;
        T::check(self, &new)?;
        if T::REQUIRES_PRECONDITION && write.precondition == Precondition::None {
            return Err(Refusal::PreconditionRequired(T::NOUN));
        }
        let now = self.now;
        T::all_mut(self).admit(now, name, write)?;
        let spec = T::compose(self, name, new)?;
        let written = T::all_mut(self).write(now, name, spec, write.write_faults);
        self.advance(now);
        Ok(written.now(self.present(name)?))
    }

    /// Deletes a resource, or begins to.
    pub fn remove<T: Managed>(
        &mut self,
        now: Duration,
        name: &str,
        write: &Write,
    ) -> Result<DeleteResult<T>, Refusal> {
        self.advance(now);
        let now = self.now;
        T::all(self).present(name)?;
        T::all_mut(self).admit(now, name, write)?;
        T::check_deletion(self, name)?;
        T::all_mut(self).delete(now, name, write.write_faults)?;
        self.advance(now);
        Ok(self.present(name).map_or(DeleteResult::Deleted, DeleteResult::Started))
    }

    /// Ends the operations that are due on a kind of resources.
    pub(super) fn finish_due<T: Managed>(&mut self) {
        let now = self.now;
        for ended in T::all_mut(self).finish_due(now) {
            T::ended(self, &ended);
        }
    }

    fn present<T: Managed>(&self, name: &str) -> Result<Arc<Resource<T>>, Refusal> {
        T::all(self).present(name).map(|it| T::shown(self, it))
    }
}

/// Checks that a name is a DNS label.
pub(super) fn check_label(noun: &str, name: &str) -> Result<(), Refusal> {
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    if bytes.len() <= 63 && bytes.iter().all(inner) && outer(bytes.first()) && outer(bytes.last()) {
        return Ok(());
    }
    Err(Refusal::Invalid(format!(
        "invalid {noun} name {name:?}: expected up to 63 of a-z, 0-9 and -, with a letter or a digit at both ends"
    )))
}
