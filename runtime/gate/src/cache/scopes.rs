//! Where changes are in progress or were just made. A cloud shows a change some time after it was made, and its answers
//! until then must not be stored.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than a cloud takes until all of its front ends show a change. Azure's resource manager and the lists of EC2
/// take seconds, seldom 20.
pub(crate) const SETTLING: Duration = Duration::from_secs(30);

/// Fewer scopes than this are not worth searching for settled ones.
const FEW: usize = 64;

/// The part of the cloud that a request reads or changes. None is everything.
pub(crate) type Scope = Option<Arc<str>>;

/// The changes of one provider, by scope.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    /// Changes of any scope.
    any: Changes,
    /// Changes of everything.
    all: Changes,
    of: HashMap<Arc<str>, Changes>,
    /// How many unsettled scopes the last search left.
    swept: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Changes {
    under_way: usize,
    settled: Option<Instant>,
}

impl Changes {
    fn ended(&mut self, settled: Instant) {
        self.under_way = self.under_way.saturating_sub(1);
        self.settled = self.settled.max(Some(settled));
    }

    fn are_settled(&self, now: Instant) -> bool {
        self.under_way == 0 && self.settled.is_none_or(|settled| now >= settled)
    }
}

impl Scopes {
    pub(crate) fn began(&mut self, scope: &Scope) {
        for changes in self.concerned(scope) {
            changes.under_way += 1;
        }
    }

    pub(crate) fn ended(&mut self, scope: &Scope, now: Instant) {
        for changes in self.concerned(scope) {
            changes.ended(now + SETTLING);
        }
        // A provider chooses the names of scopes; settled ones are forgotten. They are searched for once their number
        // has doubled, so that many changes do not cause a search each.
        if self.of.len() > 2 * self.swept.max(FEW) {
            self.of.retain(|_, changes| !changes.are_settled(now));
            self.swept = self.of.len();
        }
    }

    /// Whether an answer requested now shows all changes that were made.
    pub(crate) fn are_settled(&self, scope: &Scope, now: Instant) -> bool {
        match scope {
            None => self.any.are_settled(now),
            Some(scope) => {
                let own = self.of.get(scope).is_none_or(|changes| changes.are_settled(now));
                own && self.all.are_settled(now)
            }
        }
    }

    fn concerned(&mut self, scope: &Scope) -> [&mut Changes; 2] {
        let Self { any, all, of, swept: _ } = self;
        let own = match scope {
            None => all,
            Some(scope) => of.entry(scope.clone()).or_default(),
        };
        [any, own]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(name: &str) -> Scope {
        (!name.is_empty()).then(|| name.into())
    }

    #[test]
    fn a_scope_is_settled_half_a_minute_after_the_last_change_of_it_or_of_everything() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let rows = [
            // The scope of the change, that of the read, and whether the change affects the read.
            ("a", "a", true),
            ("a", "b", false),
            ("a", "", true),
            ("", "a", true),
            ("", "", true),
        ];
        for (changed, read, concerns) in rows {
            let (changed, read, name) = (scope(changed), scope(read), format!("{changed} {read}"));
            let mut scopes = Scopes::default();
            assert!(scopes.are_settled(&read, at(0)), "{name}");
            scopes.began(&changed);
            scopes.began(&changed);
            scopes.ended(&changed, at(1));
            assert_eq!(scopes.are_settled(&read, at(100)), !concerns, "{name}: one is in flight");
            scopes.ended(&changed, at(101));
            assert_eq!(scopes.are_settled(&read, at(130)), !concerns, "{name}: just made");
            assert!(scopes.are_settled(&read, at(131)), "{name}");
        }
    }

    #[test]
    fn settled_scopes_are_forgotten() {
        let now = Instant::now();
        let mut scopes = Scopes::default();
        let change = |scopes: &mut Scopes, name: u32, now| {
            let scope = scope(&name.to_string());
            scopes.began(&scope);
            scopes.ended(&scope, now);
        };
        (0..1000).for_each(|name| change(&mut scopes, name, now));
        (0..2000).for_each(|name| change(&mut scopes, name, now + SETTLING));
        assert!(scopes.of.len() <= 2000, "{}", scopes.of.len());
        (2000..6000).for_each(|name| change(&mut scopes, name, now + 3 * SETTLING));
        let old = |name: u32| scopes.of.contains_key(name.to_string().as_str());
        assert!((0..2000).all(|name| !old(name)) && old(5999));
    }
}
