//! Whose the load balancer of a Service is. Pure: one table.
//!
//! A finalizer proves nothing, since other controllers use the same one. Only these reasons make a load balancer ours to
//! delete: the Service asked us for it while this process watched, this process has begun to delete it, or the cloud's own
//! list names the Service's UID and our cluster's UID. That list never counts against a live Service of another class or provider:
//! the object may belong to that class's controller, `loadBalancerClasses` may lack the class, or the default may have moved to
//! another provider, see `scope.rs`.
//!
//! The next state, by state and event. `us`, `other` and `nothing` say from which controller the Service asks for a load
//! balancer at that moment (see [`Demand`]). `·` means that the state stays, `*` that the list counts: from then on the
//! cloud is believed to have something for the Service.
//!
//! ```text
//!                │ Observed                    │ Listed                      │ Delete-  │ Delete-   │ Released
//!                │ us     other    nothing     │ other          us, nothing  │ Started  │ Confirmed │ us    other, nothing
//! ───────────────┼─────────────────────────────┼─────────────────────────────┼──────────┼───────────┼─────────────────────
//! Unclaimed      │ Ours   ·        ·           │ Listed         Leftover*    │ Leftover │ ·         │ Ours  ·
//! Listed         │ Ours*  ·        Leftover*   │ ·              Leftover*    │ ·        │ Leftover  │ Ours  ·
//! Leftover       │ Ours   ·        ·           │ Listed         ·*           │ ·        │ ·         │ Ours  Unclaimed
//! Ours           │ ·      ·        ·           │ OursAndListed  ·*           │ ·        │ ·         │ ·     Unclaimed
//! OursAndListed  │ Ours*  ·        Ours*       │ ·              Ours*        │ ·        │ Ours      │ Ours  Listed
//! ```

use super::scope::ServiceScope;
use crate::facts::service::ServiceFacts;

/// From which provider or controller a Service asks for a load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Demand {
    /// From us.
    Ours,
    /// From another provider, or from the controller of another class.
    Other,
    /// From none: it has another type, is being deleted, or is gone.
    Nothing,
}

impl Demand {
    /// What a Service asks for that exists.
    pub(super) fn of(facts: &ServiceFacts, scope: &ServiceScope) -> Self {
        if !facts.is_load_balancer || facts.is_deleting {
            Self::Nothing
        } else if scope.is_of_other(facts) {
            Self::Other
        } else {
            Self::Ours
        }
    }
}

/// Whose the load balancer of a Service is, as far as this process has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    /// Nothing says that it is ours.
    Unclaimed,
    /// The cloud's list names it as ours, but its Service is a live one of another class: a conflict. It stays.
    Listed,
    /// Ours to delete, unless its Service is a live one of another class.
    Leftover,
    /// Ours to delete regardless of its class: its Service asked us for it while this process watched.
    Ours,
    /// As [`Self::Ours`], and the cloud's list names it although its Service is a live one of another class by now.
    OursAndListed,
}

/// What changes the ownership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnershipEvent {
    /// The Service was observed, or observed to be gone, and asks for this.
    Observed(Demand),
    /// The cloud's list names it, while the Service asks for this.
    Listed(Demand),
    /// A call begins that deletes it.
    DeleteStarted,
    /// The cloud has confirmed that it is gone.
    DeleteConfirmed,
    /// Our finalizer was removed, while the Service asks for this.
    Released(Demand),
}

impl Ownership {
    /// The state after an event: the table of this module, row by row.
    pub(super) const fn next(self, event: OwnershipEvent) -> Self {
        use Demand::{Nothing, Other};
        use OwnershipEvent::{DeleteConfirmed, DeleteStarted, Listed, Observed, Released};
        match self {
            Self::Unclaimed => match event {
                Observed(Demand::Ours) | Released(Demand::Ours) => Self::Ours,
                Listed(Other) => Self::Listed,
                Listed(Demand::Ours | Nothing) | DeleteStarted => Self::Leftover,
                Observed(_) | Released(_) | DeleteConfirmed => Self::Unclaimed,
            },
            Self::Listed => match event {
                Observed(Demand::Ours) | Released(Demand::Ours) => Self::Ours,
                Observed(Nothing) | Listed(Demand::Ours | Nothing) | DeleteConfirmed => Self::Leftover,
                Observed(Other) | Listed(Other) | DeleteStarted | Released(_) => Self::Listed,
            },
            Self::Leftover => match event {
                Observed(Demand::Ours) | Released(Demand::Ours) => Self::Ours,
                Listed(Other) => Self::Listed,
                Released(_) => Self::Unclaimed,
                Observed(_) | Listed(_) | DeleteStarted | DeleteConfirmed => Self::Leftover,
            },
            Self::Ours => match event {
                Listed(Other) => Self::OursAndListed,
                Released(Other | Nothing) => Self::Unclaimed,
                Observed(_) | Listed(_) | DeleteStarted | DeleteConfirmed | Released(_) => Self::Ours,
            },
            Self::OursAndListed => match event {
                Observed(Other) | Listed(Other) | DeleteStarted => Self::OursAndListed,
                Released(Other | Nothing) => Self::Listed,
                Observed(_) | Listed(_) | DeleteConfirmed | Released(_) => Self::Ours,
            },
        }
    }

    /// Whether with this event the cloud's list counts, so that the cloud is believed to have something of ours.
    pub(super) const fn counts_list(self, event: OwnershipEvent) -> bool {
        match event {
            OwnershipEvent::Listed(Demand::Ours | Demand::Nothing) => true,
            OwnershipEvent::Observed(Demand::Ours | Demand::Nothing) => self.is_listed(),
            _ => false,
        }
    }

    /// Whether the Service asked us for a load balancer while this process watched, and it wasn't released since.
    pub(super) const fn is_ours(self) -> bool {
        matches!(self, Self::Ours | Self::OursAndListed)
    }

    /// Whether the cloud's list names it, which doesn't count yet.
    pub(super) const fn is_listed(self) -> bool {
        matches!(self, Self::Listed | Self::OursAndListed)
    }

    /// Whether it is ours to delete, while the Service asks for this.
    pub(super) const fn may_delete(self, demand: Demand) -> bool {
        match self {
            Self::Ours | Self::OursAndListed => true,
            Self::Leftover => !matches!(demand, Demand::Other),
            Self::Unclaimed | Self::Listed => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ownership::{Leftover, Listed, Ours, OursAndListed, Unclaimed};

    const DEMANDS: [Demand; 3] = [Demand::Ours, Demand::Other, Demand::Nothing];

    /// All events, in the order of the table's columns.
    fn events() -> Vec<OwnershipEvent> {
        let observed = DEMANDS.map(OwnershipEvent::Observed);
        let listed = DEMANDS.map(OwnershipEvent::Listed);
        let deleted = [OwnershipEvent::DeleteStarted, OwnershipEvent::DeleteConfirmed];
        let released = DEMANDS.map(OwnershipEvent::Released);
        [&observed[..], &listed, &deleted, &released].concat()
    }

    #[test]
    fn every_event_in_every_state_leads_to_the_state_of_the_table() {
        #[rustfmt::skip]
        let table = [
            (Unclaimed, [
                Ours, Unclaimed, Unclaimed, Leftover, Listed, Leftover, Leftover, Unclaimed, Ours, Unclaimed, Unclaimed,
            ]),
            (Listed, [
                Ours, Listed, Leftover, Leftover, Listed, Leftover, Listed, Leftover, Ours, Listed, Listed,
            ]),
            (Leftover, [
                Ours, Leftover, Leftover, Leftover, Listed, Leftover, Leftover, Leftover, Ours, Unclaimed, Unclaimed,
            ]),
            (Ours, [
                Ours, Ours, Ours, Ours, OursAndListed, Ours, Ours, Ours, Ours, Unclaimed, Unclaimed,
            ]),
            (OursAndListed, [
                Ours, OursAndListed, Ours, Ours, OursAndListed, Ours, OursAndListed, Ours, Ours, Listed, Listed,
            ]),
        ];
        for (state, expected) in table {
            assert_eq!(events().len(), expected.len());
            for (event, expected) in events().into_iter().zip(expected) {
                assert_eq!(state.next(event), expected, "{state:?}, {event:?}");
            }
        }
    }

    #[test]
    fn a_list_counts_once_and_never_against_a_live_service_of_another_class() {
        for state in [Unclaimed, Listed, Leftover, Ours, OursAndListed] {
            for event in events() {
                let is_of_other = matches!(
                    event,
                    OwnershipEvent::Listed(Demand::Other) | OwnershipEvent::Observed(Demand::Other)
                );
                let counts = state.counts_list(event);
                assert!(!(counts && is_of_other), "{state:?}, {event:?}");
                assert!(!(counts && state.next(event).is_listed()), "{state:?}, {event:?}: once");
                if matches!(event, OwnershipEvent::Observed(_)) {
                    assert_eq!(counts, state.is_listed() && !is_of_other, "{state:?}, {event:?}");
                }
            }
        }
    }

    #[test]
    fn only_a_service_that_asked_us_may_lose_its_load_balancer_while_another_class_has_it() {
        for (state, expected) in [
            (Unclaimed, [false; 3]),
            (Listed, [false; 3]),
            (Leftover, [true, false, true]),
            (Ours, [true; 3]),
            (OursAndListed, [true; 3]),
        ] {
            assert_eq!(DEMANDS.map(|demand| state.may_delete(demand)), expected, "{state:?}");
        }
    }

    #[test]
    fn a_service_asks_us_the_controller_of_its_class_or_none() {
        let scope = ServiceScope::of(&["ours"]);
        for (class, is_load_balancer, is_deleting, expected) in [
            (None, true, false, Demand::Ours),
            (Some("ours"), true, false, Demand::Ours),
            (Some("other"), true, false, Demand::Other),
            (None, false, false, Demand::Nothing),
            (None, true, true, Demand::Nothing),
            (Some("other"), true, true, Demand::Nothing),
        ] {
            let mut facts = ServiceFacts { is_deleting, is_load_balancer, ..ServiceFacts::balanced("a") };
            facts.service.class = class.map(str::to_owned);
            assert_eq!(Demand::of(&facts, &scope), expected, "{class:?} {is_load_balancer} {is_deleting}");
        }
    }
}
