//! Things that are there and that the cloud denies: lists that leave them out although reads show them, and reads
//! that answer 404 although lists show them. A controller that deletes on such a word shows it here.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Random;
use crate::world::Machine;

/// Which things are denied, and by what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hidden {
    /// Lists leave these out. A page may be short for it, or empty.
    pub lists: Selection,
    /// Reads of one thing don't find these.
    pub gets: Selection,
}

/// Some things: a share of all machines, and whatever has one of these names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Selection {
    /// How many of all machines, from 0 to 1. Always the same ones, and a larger share holds those of a smaller one.
    pub share: f64,
    /// These, whatever the share.
    pub names: BTreeSet<String>,
}

impl Selection {
    /// Whether what has this name is one of them, whatever the share.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether this machine is one of them.
    pub fn contains(&self, machine: &Machine) -> bool {
        // Dice that are seeded with the machine fall the same way each time, unlike those of the other faults: an
        // answer that is asked for again is no less of a lie.
        self.has(&machine.name) || Random::seeded(machine.id.number()).share() < self.share
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::world::{Place, World};

    fn machines() -> Vec<std::sync::Arc<Machine>> {
        let place = Place::new("sim-1".to_owned(), Vec::new());
        let mut world = World::new(place, Timestamp::UNIX_EPOCH, 2_000);
        world.summary(std::time::Duration::ZERO, usize::MAX).first
    }

    fn chosen(selection: &Selection) -> BTreeSet<String> {
        let machines = machines();
        let chosen = machines.iter().filter(|machine| selection.contains(machine));
        chosen.map(|machine| machine.name.clone()).collect()
    }

    fn share(share: f64) -> Selection {
        Selection { share, ..Selection::default() }
    }

    #[test]
    fn a_share_is_always_the_same_machines_and_a_larger_one_holds_them() {
        let (some, more) = (chosen(&share(0.1)), chosen(&share(0.5)));
        assert!((140..260).contains(&some.len()), "{}", some.len());
        assert!((880..1_120).contains(&more.len()), "{}", more.len());
        assert!(some.is_subset(&more));
        assert_eq!((chosen(&share(0.0)).len(), chosen(&share(1.0)).len()), (0, 2_000));
    }

    #[test]
    fn names_are_chosen_whatever_the_share() {
        let names = BTreeSet::from(["node-7".to_owned(), "node-9999".to_owned()]);
        assert_eq!(chosen(&Selection { share: 0.0, names }), BTreeSet::from(["node-7".to_owned()]));
    }
}
