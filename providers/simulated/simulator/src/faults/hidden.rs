//! Hides existing resources: lists leave them out although reads show them, or reads answer 404 although lists show them. A
//! controller that deletes because of such an answer is caught by it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Random;
use crate::world::Machine;

/// Which resources are hidden from which calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hidden {
    /// Lists leave these out. A page may be short because of it, or empty.
    pub lists: Selection,
    /// Reads of one resource don't find these.
    pub gets: Selection,
}

/// A selection of resources: a share of all machines, and every resource with one of these names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Selection {
    /// The share of all machines, from 0 to 1. It is always the same machines, and a larger share includes a smaller one.
    pub share: f64,
    /// The names of resources that are selected regardless of the share.
    pub names: BTreeSet<String>,
}

impl Selection {
    /// Whether a resource is selected by its name, regardless of the share.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether this machine is selected.
    pub fn contains(&self, machine: &Machine) -> bool {
        // Seeded with the machine, so that unlike other faults the result is the same each time: repeating a request
        // doesn't get the truth.
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
    fn a_share_is_always_the_same_machines_and_a_larger_one_includes_them() {
        let (some, more) = (chosen(&share(0.1)), chosen(&share(0.5)));
        assert!((140..260).contains(&some.len()), "{}", some.len());
        assert!((880..1_120).contains(&more.len()), "{}", more.len());
        assert!(some.is_subset(&more));
        assert_eq!((chosen(&share(0.0)).len(), chosen(&share(1.0)).len()), (0, 2_000));
    }

    #[test]
    fn names_are_selected_regardless_of_the_share() {
        let names = BTreeSet::from(["node-7".to_owned(), "node-9999".to_owned()]);
        assert_eq!(chosen(&Selection { share: 0.0, names }), BTreeSet::from(["node-7".to_owned()]));
    }
}
