//! Lists in pages, for all kinds of resources. All pages of a listing show the moment of its first page.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::history::{History, Revision};
use crate::refusal::Refusal;

/// The most items of a page.
pub const MAX_PAGE_ITEMS: usize = 1_000;

/// A page ends after this many bytes, regardless of its limit. A thousand load balancers of 5,000 machines would otherwise be
/// a response of 60 MB.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// A kind of resources that can be listed.
pub trait Listable {
    /// The field of the list in the response.
    const PLURAL: &'static str;

    /// Its name.
    fn name(&self) -> &str;

    /// The approximate length of a long item in the response, in bytes; 0 for items that are always short.
    fn length(&self) -> usize {
        0
    }
}

/// Which page of a list is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The most items of the page; 100 by default, at most [`MAX_PAGE_ITEMS`].
    pub limit: Option<usize>,
    /// The cursor of this page, from the previous page.
    pub cursor: Option<String>,
    /// Only the item of exactly this name.
    pub name: Option<String>,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items, in the order of their creation.
    pub items: Vec<Arc<T>>,
    /// The cursor of the next page; `None` on the last page.
    pub next: Option<String>,
}

impl<T: Listable + Serialize> Serialize for Page<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { items, next } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(T::PLURAL, items)?;
        if let Some(next) = next {
            map.serialize_entry("next", next)?;
        }
        map.end()
    }
}

impl Listing {
    /// The page at a moment; without one, at the oldest moment that is kept. A cursor continues at the moment of the first
    /// page.
    ///
    /// # Errors
    /// [`Refusal::CursorExpired`] where that moment is forgotten, and [`Refusal::Invalid`] for an invalid limit or
    /// cursor.
    pub(super) fn page<T: Listable>(
        &self,
        history: &History<T>,
        moment: Option<Duration>,
    ) -> Result<Page<T>, Refusal> {
        let limit = self.page_limit()?;
        let Cursor { revision, after } = match &self.cursor {
            None => Cursor { revision: history.revision_at(moment), after: 0 },
            Some(text) => Cursor::remembered(text, history)?,
        };
        let wanted = |(_, thing): &(u64, &Arc<T>)| self.name.as_ref().is_none_or(|name| name == thing.name());
        let mut rest = history.after(after, revision).filter(wanted);
        let mut items = Vec::new();
        let (mut last, mut length) = (after, 0);
        for (number, thing) in rest.by_ref().take(limit) {
            items.push(Arc::clone(thing));
            last = number;
            length += thing.length();
            if length > MAX_PAGE_BYTES {
                break;
            }
        }
        let next = rest.next().map(|_| Cursor { revision, after: last }.to_string());
        Ok(Page { items, next })
    }

    fn page_limit(&self) -> Result<usize, Refusal> {
        let limit = self.limit.unwrap_or(100);
        if (1..=MAX_PAGE_ITEMS).contains(&limit) {
            Ok(limit)
        } else {
            Err(Refusal::Invalid(format!("limit is {limit}; it must be from 1 to {MAX_PAGE_ITEMS}")))
        }
    }
}

/// Where a listing continues: the revision that it shows, and the number after which the next page begins.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    revision: Revision,
    after: u64,
}

impl Cursor {
    fn remembered<T>(text: &str, history: &History<T>) -> Result<Self, Refusal> {
        let cursor = Self::parse(text).filter(|cursor| cursor.revision <= history.newest());
        let cursor = cursor.ok_or_else(|| Refusal::Invalid(format!("invalid cursor {text:?}")))?;
        if cursor.revision < history.oldest() {
            return Err(Refusal::CursorExpired(text.to_owned()));
        }
        Ok(cursor)
    }

    fn parse(text: &str) -> Option<Self> {
        let (revision, after) = text.strip_prefix('c')?.split_once('-')?;
        Some(Self { revision: revision.parse().ok()?, after: after.parse().ok()? })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "c{}-{}", self.revision, self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Listable for String {
        const PLURAL: &'static str = "strings";

        fn name(&self) -> &str {
            self
        }

        fn length(&self) -> usize {
            if self == "s2" { MAX_PAGE_BYTES + 1 } else { 1 }
        }
    }

    fn history() -> History<String> {
        let mut history = History::default();
        for number in 1..=5_u64 {
            history.change(Duration::from_secs(number), number, Some(Arc::new(format!("s{number}"))));
        }
        history
    }

    #[test]
    fn the_pages_of_a_listing_show_the_moment_of_the_first() {
        let mut history = history();
        let mut listing = Listing { limit: Some(3), ..Listing::default() };
        let mut seen = Vec::new();
        loop {
            let page = listing.page(&history, Some(Duration::from_secs(4))).unwrap();
            seen.extend(page.items.iter().map(|item| String::clone(item)));
            history.change(Duration::from_secs(9), 4, None);
            let Some(next) = page.next else { break };
            listing.cursor = Some(next);
        }
        assert_eq!(seen, ["s1", "s2", "s3", "s4"]);
    }

    #[test]
    fn a_page_that_becomes_too_long_ends_and_has_a_next_page() {
        let mut listing = Listing::default();
        let names = |page: &Page<String>| page.items.iter().map(ToString::to_string).collect::<Vec<_>>();
        let first = listing.page(&history(), Some(Duration::from_secs(9))).unwrap();
        assert_eq!(names(&first), ["s1", "s2"]);
        listing.cursor = first.next;
        let second = listing.page(&history(), Some(Duration::from_secs(9))).unwrap();
        assert_eq!((names(&second), second.next), (["s3", "s4", "s5"].map(str::to_owned).to_vec(), None));
    }

    #[test]
    fn invalid_limits_and_cursors_are_refused_and_expired_cursors_are_told_apart() {
        let mut history = history();
        history.forget(Duration::from_secs(3));
        let page = |limit, cursor: Option<&str>| {
            let listing = Listing { limit, cursor: cursor.map(str::to_owned), name: None };
            listing.page(&history, None).map_or_else(|refusal| refusal.code(), |_| "done")
        };
        for (limit, expected) in [(0, "invalid"), (1, "done"), (1_000, "done"), (1_001, "invalid")] {
            assert_eq!(page(Some(limit), None), expected, "limit {limit}");
        }
        for cursor in ["", "c", "c3", "3-1", "c3-x", "c6-1"] {
            assert_eq!(page(None, Some(cursor)), "invalid", "cursor {cursor:?}");
        }
        assert_eq!(page(None, Some("c2-1")), "cursor-expired");
        assert_eq!(page(None, Some("c3-1")), "done");
    }

    #[test]
    fn a_name_filters_exactly_and_a_page_has_its_items_in_the_field_of_their_kind() {
        let page = |name: &str| {
            let listing = Listing { name: Some(name.to_owned()), ..Listing::default() };
            serde_json::to_value(listing.page(&history(), Some(Duration::from_secs(9))).unwrap()).unwrap()
        };
        assert_eq!(page("s4"), serde_json::json!({"strings": ["s4"]}));
        assert_eq!(page("s"), serde_json::json!({"strings": []}));
    }
}
