//! Whose the load balancer of a Service is. Pure: one table.
//!
//! A finalizer proves nothing, since other controllers use the same one. Only these reasons make a load balancer ours to
//! delete: the Service asked us for it while this process watched, this process has begun to delete it, or the cloud's own
//! list names the Service's UID and our cluster's UID. That list never counts against a live Service of another class: the
//! object may belong to that class's controller, or `loadBalancerClasses` may lack the class.
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

use crate::facts::service::ServiceFacts;

/// From which controller a Service asks for a load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Demand {
    /// From us.
    Ours,
    /// From the controller of another class.
    OtherClass,
    /// From none: it has another type, is being deleted, or is gone.
    Nothing,
}

impl Demand {
    /// What a Service asks for that exists.
    pub(super) fn of(facts: &ServiceFacts, classes: &[String]) -> Self {
        if !facts.is_load_balancer || facts.is_deleting {
            Self::Nothing
        } else if has_other_class(facts, classes) {
            Self::OtherClass
        } else {
            Self::Ours
        }
    }
}

/// Whether a Service is of type LoadBalancer with the class of another controller.
pub(super) fn has_other_class(facts: &ServiceFacts, classes: &[String]) -> bool {
    let class = facts.service.class.as_ref();
    facts.is_load_balancer && class.is_some_and(|class| !classes.contains(class))
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
        use Demand::{Nothing, OtherClass};
        use OwnershipEvent::{DeleteConfirmed, DeleteStarted, Listed, Observed, Released};
        match self {
            Self::Unclaimed => match event {
                Observed(Demand::Ours) | Released(Demand::Ours) => Self::Ours,
                Listed(OtherClass) => Self::Listed,
                Listed(Demand::Ours | Nothing) | DeleteStarted => Self::Leftover,
                Observed(_) | Released(_) | DeleteConfirmed => Self::Unclaimed,
            },
            Self::Listed => match event {
                Observed(Demand::Ours) | Released(Demand::Ours) => Self::Ours,
                Observed(Nothing) | Listed(Demand::Ours | Nothing) | DeleteConfirmed => Self::Leftover,
                Observed(OtherClass) | Listed(OtherClass) | DeleteStarted | Released(_) => Self::Listed,
            },
            Self::Leftover => match event {
                Observed(Demand::Ours) | Released(Demand::Ours) => Self::Ours,
                Listed(OtherClass) => Self::Listed,
                Released(_) => Self::Unclaimed,
                Observed(_) | Listed(_) | DeleteStarted | DeleteConfirmed => Self::Leftover,
            },
            Self::Ours => match event {
                Listed(OtherClass) => Self::OursAndListed,
                Released(OtherClass | Nothing) => Self::Unclaimed,
                Observed(_) | Listed(_) | DeleteStarted | DeleteConfirmed | Released(_) => Self::Ours,
            },
            Self::OursAndListed => match event {
                Observed(OtherClass) | Listed(OtherClass) | DeleteStarted => Self::OursAndListed,
                Released(OtherClass | Nothing) => Self::Listed,
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
            Self::Leftover => !matches!(demand, Demand::OtherClass),
            Self::Unclaimed | Self::Listed => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ownership::{Leftover, Listed, Ours, OursAndListed, Unclaimed};

    const DEMANDS: [Demand; 3] = [Demand::Ours, Demand::OtherClass, Demand::Nothing];

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
                let is_other_class = matches!(
                    event,
                    OwnershipEvent::Listed(Demand::OtherClass) | OwnershipEvent::Observed(Demand::OtherClass)
                );
                let counts = state.counts_list(event);
                assert!(!(counts && is_other_class), "{state:?}, {event:?}");
                assert!(!(counts && state.next(event).is_listed()), "{state:?}, {event:?}: once");
                if matches!(event, OwnershipEvent::Observed(_)) {
                    assert_eq!(counts, state.is_listed() && !is_other_class, "{state:?}, {event:?}");
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
        let classes = ["ours".to_owned()];
        for (class, is_load_balancer, is_deleting, expected) in [
            (None, true, false, Demand::Ours),
            (Some("ours"), true, false, Demand::Ours),
            (Some("other"), true, false, Demand::OtherClass),
            (None, false, false, Demand::Nothing),
            (None, true, true, Demand::Nothing),
            (Some("other"), true, true, Demand::Nothing),
        ] {
            let mut facts = ServiceFacts { is_deleting, is_load_balancer, ..ServiceFacts::balanced("a") };
            facts.service.class = class.map(str::to_owned);
            assert_eq!(Demand::of(&facts, &classes), expected, "{class:?} {is_load_balancer} {is_deleting}");
        }
    }
}
