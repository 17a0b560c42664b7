//! The calls about everything whose writes take their time, each written once for all kinds of it: what is a kind's own
//! is said by the kind.

use std::sync::Arc;
use std::time::Duration;

use super::World;
use super::listing::{Listing, Page};
use super::resource::{Ended, Kind, Resource, Resources};
use super::write::{Deleted, Guard, Write, Written};
use crate::refusal::Refusal;

/// What is a kind's own.
pub trait Managed: Kind + Clone + PartialEq {
    /// What a caller asks for.
    type New;

    /// Whether a write must say for which state of the thing it was made.
    const NEEDS_GUARD: bool = false;

    /// All of the kind.
    fn all(world: &World) -> &Resources<Self>;

    /// All of the kind, to be changed.
    fn all_mut(world: &mut World) -> &mut Resources<Self>;

    /// Refuses what is wrong whatever is there of the kind.
    fn check(world: &World, new: &Self::New) -> Result<(), Refusal>;

    /// What the thing of this name becomes, with everything else that this takes from the world; nothing is taken where it
    /// is refused.
    fn compose(world: &mut World, name: &str, new: Self::New) -> Result<Self, Refusal>;

    /// Refuses a deletion that can't be.
    fn check_deletion(_world: &World, _name: &str) -> Result<(), Refusal> {
        Ok(())
    }

    /// An operation has ended: gives back what is no longer needed.
    fn ended(world: &mut World, ended: &Ended<Self>);

    /// Adds what others know of the thing.
    fn shown(_world: &World, resource: Arc<Resource<Self>>) -> Arc<Resource<Self>> {
        resource
    }
}

impl World {
    /// One thing as it is now.
    pub fn read<T: Managed>(&mut self, now: Duration, name: &str) -> Result<Arc<Resource<T>>, Refusal> {
        self.advance(now);
        self.present(name)
    }

    /// One page of a kind of things, as [`World::list`] shows machines.
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

    /// Makes a thing, changes it, or finds it as it is asked for.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] first, then what concerns the guard, then [`Refusal::Busy`], then what contradicts other things.
    pub fn write<T: Managed>(
        &mut self,
        now: Duration,
        name: &str,
        new: T::New,
        write: &Write,
    ) -> Result<Written<T>, Refusal> {
        self.advance(now);
        check_label(T::NOUN, name)?;
        T::check(self, &new)?;
        if T::NEEDS_GUARD && write.guard == Guard::None {
            return Err(Refusal::Unguarded(T::NOUN));
        }
        let now = self.now;
        T::all_mut(self).admit(now, name, write)?;
        let goal = T::compose(self, name, new)?;
        let written = T::all_mut(self).write(now, name, goal, write.luck);
        self.advance(now);
        Ok(written.now(self.present(name)?))
    }

    /// Removes a thing, or begins to.
    pub fn remove<T: Managed>(
        &mut self,
        now: Duration,
        name: &str,
        write: &Write,
    ) -> Result<Deleted<T>, Refusal> {
        self.advance(now);
        let now = self.now;
        T::all(self).present(name)?;
        T::all_mut(self).admit(now, name, write)?;
        T::check_deletion(self, name)?;
        T::all_mut(self).delete(now, name, write.luck)?;
        self.advance(now);
        Ok(self.present(name).map_or(Deleted::Gone, Deleted::Begun))
    }

    /// Ends the operations on a kind of things that are due.
    pub(super) fn settle<T: Managed>(&mut self) {
        let now = self.now;
        for ended in T::all_mut(self).settle(now) {
            T::ended(self, &ended);
        }
    }

    fn present<T: Managed>(&self, name: &str) -> Result<Arc<Resource<T>>, Refusal> {
        T::all(self).present(name).map(|it| T::shown(self, it))
    }
}

/// Names are parts of DNS names.
pub(super) fn check_label(noun: &str, name: &str) -> Result<(), Refusal> {
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    if bytes.len() <= 63 && bytes.iter().all(inner) && outer(bytes.first()) && outer(bytes.last()) {
        return Ok(());
    }
    Err(Refusal::Invalid(format!(
        "{noun} name {name:?} is no part of a DNS name: up to 63 of a-z, 0-9 and -, with a letter or a digit at both ends"
    )))
}
