//! Lists in pages: the one way in which everything that the cloud has is listed. All pages of a listing show the moment
//! of its first page.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::history::{History, Revision};
use crate::refusal::Refusal;

/// The most things that one page shows.
pub const LARGEST_PAGE: usize = 1_000;

/// A page that has become longer than this, in bytes, ends, whatever its limit: a thousand load balancers of 5,000 machines
/// would else be an answer of 60 MB.
const LONGEST_PAGE: usize = 8 << 20;

/// What can be listed.
pub trait Listed {
    /// What many of them are called in the answer.
    const PLURAL: &'static str;

    /// Its name.
    fn name(&self) -> &str;

    /// About how long what it shows may become, in bytes; 0 for what is always short.
    fn length(&self) -> usize {
        0
    }
}

/// Which page of which list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The most things on the page, 100 unless given, at most [`LARGEST_PAGE`].
    pub limit: Option<usize>,
    /// Where the page before ended.
    pub cursor: Option<String>,
    /// Only the thing of exactly this name.
    pub name: Option<String>,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The things, in the order in which they were made.
    pub items: Vec<Arc<T>>,
    /// The cursor of the next page; none on the last one.
    pub next: Option<String>,
}

impl<T: Listed + Serialize> Serialize for Page<T> {
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
    /// The page of what was there at a moment; without one, of the oldest that is remembered. A cursor goes on with the
    /// moment of the first page.
    ///
    /// # Errors
    /// [`Refusal::CursorExpired`] where that moment is forgotten, and [`Refusal::Invalid`] for a limit or a cursor that
    /// can't be.
    pub(super) fn page<T: Listed>(
        &self,
        history: &History<T>,
        moment: Option<Duration>,
    ) -> Result<Page<T>, Refusal> {
        let limit = self.page_limit()?;
        let Cursor { revision, behind } = match &self.cursor {
            None => Cursor { revision: history.revision_at(moment), behind: 0 },
            Some(text) => Cursor::remembered(text, history)?,
        };
        let wanted = |(_, thing): &(u64, &Arc<T>)| self.name.as_ref().is_none_or(|name| name == thing.name());
        let mut rest = history.behind(behind, revision).filter(wanted);
        let mut items = Vec::new();
        let (mut last, mut length) = (behind, 0);
        for (number, thing) in rest.by_ref().take(limit) {
            items.push(Arc::clone(thing));
            last = number;
            length += thing.length();
            if length > LONGEST_PAGE {
                break;
            }
        }
        let next = rest.next().map(|_| Cursor { revision, behind: last }.to_string());
        Ok(Page { items, next })
    }

    fn page_limit(&self) -> Result<usize, Refusal> {
        let limit = self.limit.unwrap_or(100);
        if (1..=LARGEST_PAGE).contains(&limit) {
            Ok(limit)
        } else {
            Err(Refusal::Invalid(format!("limit is {limit}, it goes from 1 to {LARGEST_PAGE}")))
        }
    }
}

/// Where a listing goes on: the moment that it shows, and the number behind which the next page begins.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    revision: Revision,
    behind: u64,
}

impl Cursor {
    fn remembered<T>(text: &str, history: &History<T>) -> Result<Self, Refusal> {
        let cursor = Self::parse(text).filter(|cursor| cursor.revision <= history.newest());
        let cursor =
            cursor.ok_or_else(|| Refusal::Invalid(format!("cursor {text:?} is none of this cloud's")))?;
        if cursor.revision < history.oldest() {
            return Err(Refusal::CursorExpired(text.to_owned()));
        }
        Ok(cursor)
    }

    fn parse(text: &str) -> Option<Self> {
        let (revision, behind) = text.strip_prefix('c')?.split_once('-')?;
        Some(Self { revision: revision.parse().ok()?, behind: behind.parse().ok()? })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "c{}-{}", self.revision, self.behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Listed for String {
        const PLURAL: &'static str = "strings";

        fn name(&self) -> &str {
            self
        }

        fn length(&self) -> usize {
            if self == "s2" { LONGEST_PAGE + 1 } else { 1 }
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
    fn a_page_that_has_become_too_long_ends_and_has_a_next_one() {
        let mut listing = Listing::default();
        let names = |page: &Page<String>| page.items.iter().map(ToString::to_string).collect::<Vec<_>>();
        let first = listing.page(&history(), Some(Duration::from_secs(9))).unwrap();
        assert_eq!(names(&first), ["s1", "s2"]);
        listing.cursor = first.next;
        let second = listing.page(&history(), Some(Duration::from_secs(9))).unwrap();
        assert_eq!((names(&second), second.next), (["s3", "s4", "s5"].map(str::to_owned).to_vec(), None));
    }

    #[test]
    fn limits_and_cursors_that_can_not_be_are_refused_and_forgotten_ones_are_told_apart() {
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
    fn a_name_filters_to_that_name_exactly_and_a_page_has_its_things_under_their_name() {
        let page = |name: &str| {
            let listing = Listing { name: Some(name.to_owned()), ..Listing::default() };
            serde_json::to_value(listing.page(&history(), Some(Duration::from_secs(9))).unwrap()).unwrap()
        };
        assert_eq!(page("s4"), serde_json::json!({"strings": ["s4"]}));
        assert_eq!(page("s"), serde_json::json!({"strings": []}));
    }
}
