//! The cloud's route table: which CIDR goes to which machine. A CIDR has at most one route. A route whose machine is deleted
//! stays as a blackhole, as in real clouds.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::history::History;
use super::listing::Listable;
use super::machine::MachineId;
use crate::refusal::Refusal;

/// A route, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// Its name, which the client chose.
    pub name: String,
    /// Its destination CIDR. No two routes have the same.
    pub destination: IpNet,
    /// The machine that the traffic goes to.
    pub machine: MachineId,
    /// Whether that machine doesn't exist any more.
    #[serde(default)]
    pub blackhole: bool,
    /// Any labels.
    pub labels: BTreeMap<String, String>,
}

/// The body of a write of a route.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewRoute {
    /// The destination CIDR.
    pub destination: IpNet,
    /// The machine.
    pub machine: MachineId,
    /// Any labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

impl Listable for Route {
    const PLURAL: &'static str = "routes";

    fn name(&self) -> &str {
        &self.name
    }
}

/// The table.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes {
    history: History<Route>,
    by_name: HashMap<String, u64>,
    by_destination: HashMap<IpNet, u64>,
    last: u64,
}

impl Routes {
    /// Creates a route. Does nothing where the same route exists.
    ///
    /// # Errors
    /// [`Refusal::Conflict`] where another route has the name or the CIDR.
    pub(super) fn put(&mut self, now: Duration, name: &str, new: NewRoute) -> Result<Arc<Route>, Refusal> {
        let NewRoute { destination, machine, labels } = new;
        if destination.trunc() != destination {
            return Err(Refusal::Invalid(format!(
                "{destination} has host bits, {} has none",
                destination.trunc()
            )));
        }
        let wanted = Route { name: name.to_owned(), destination, machine, blackhole: false, labels };
        let holders = [self.by_name.get(name), self.by_destination.get(&destination)];
        let holder = holders.into_iter().flatten().find_map(|number| self.history.current(*number));
        if let Some(holder) = holder {
            if **holder == wanted {
                return Ok(Arc::clone(holder));
            }
            let Route { name: other, destination: its, .. } = &**holder;
            return Err(Refusal::Conflict(format!("route {other} exists already, for {its}")));
        }
        self.last += 1;
        self.by_name.insert(name.to_owned(), self.last);
        self.by_destination.insert(destination, self.last);
        let route = Arc::new(wanted);
        self.history.change(now, self.last, Some(Arc::clone(&route)));
        Ok(route)
    }

    /// Removes a route.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] where no route has this name.
    pub(super) fn delete(&mut self, now: Duration, name: &str) -> Result<(), Refusal> {
        let number = self.by_name.remove(name).ok_or_else(|| Refusal::NotFound(format!("route {name}")))?;
        if let Some(route) = self.history.current(number) {
            self.by_destination.remove(&route.destination);
        }
        self.history.change(now, number, None);
        Ok(())
    }

    /// They and their past.
    pub(super) fn history(&self) -> &History<Route> {
        &self.history
    }

    /// Forgets what was before this time.
    pub(super) fn forget(&mut self, at: Duration) {
        self.history.forget(at);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, Listing, Place, World};
    use super::*;

    fn world() -> World {
        World::new(Place::new("sim-1".to_owned(), Vec::new()), jiff::Timestamp::UNIX_EPOCH, 3)
    }

    fn new(destination: &str, machine: u64) -> NewRoute {
        let destination = destination.parse().unwrap();
        NewRoute { destination, machine: MachineId(machine), labels: BTreeMap::new() }
    }

    const NOW: Duration = Duration::from_secs(1);

    fn listed(world: &mut World, now: Duration, lag: Duration) -> Vec<String> {
        let page = world.list_routes(now, &Listing::default(), lag).unwrap();
        page.items.iter().map(|route| format!("{} {}", route.name, route.blackhole)).collect()
    }

    #[test]
    fn a_range_and_a_name_are_there_once_and_making_what_is_there_succeeds() {
        let table = [
            ("new", "b", new("10.0.1.0/24", 1), "done"),
            ("the same again", "a", new("10.0.0.0/24", 1), "done"),
            ("its range under another name", "b", new("10.0.0.0/24", 1), "conflict"),
            ("its range to another machine", "a", new("10.0.0.0/24", 2), "conflict"),
            ("its name for another range", "a", new("10.0.1.0/24", 1), "conflict"),
            ("to no machine", "b", new("10.0.1.0/24", 9), "not-found"),
            ("a CIDR with host bits", "b", new("10.0.1.1/24", 1), "invalid"),
        ];
        for (what, name, route, expected) in table {
            let mut world = world();
            world.put_route(NOW, "a", new("10.0.0.0/24", 1)).unwrap();
            let found = world.put_route(NOW, name, route).map_or_else(|refusal| refusal.code(), |_| "done");
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn a_route_whose_machine_is_gone_leads_nowhere_and_stays() {
        let mut world = world();
        world.put_route(NOW, "a", new("10.0.0.0/24", 1)).unwrap();
        world.apply(NOW, Command::Delete(MachineId(1))).unwrap();
        assert_eq!(listed(&mut world, NOW, Duration::ZERO), ["a true"]);
        world.delete_route(NOW, "a").unwrap();
        assert_eq!(world.delete_route(NOW, "a").unwrap_err().code(), "not-found");
        assert_eq!(listed(&mut world, NOW, Duration::ZERO), Vec::<String>::new());
        world.put_route(NOW, "b", new("10.0.0.0/24", 2)).unwrap();
    }

    #[test]
    fn a_list_lags_and_its_pages_show_one_moment() {
        let mut world = world();
        for number in 0..5_u64 {
            let at = Duration::from_secs(10 + number);
            world.put_route(at, &format!("r{number}"), new(&format!("10.0.{number}.0/24"), 1)).unwrap();
        }
        let now = Duration::from_secs(20);
        assert_eq!(listed(&mut world, now, Duration::from_secs(8)).len(), 3);
        let mut listing = Listing { limit: Some(2), ..Listing::default() };
        let mut names = Vec::new();
        loop {
            let page = world.list_routes(now, &listing, Duration::ZERO).unwrap();
            names.extend(page.items.iter().map(|route| route.name.clone()));
            // What happens in between shows on no page.
            let _gone = world.delete_route(now, "r4");
            let Some(next) = page.next else { break };
            listing.cursor = Some(next);
        }
        assert_eq!(names, ["r0", "r1", "r2", "r3", "r4"]);
    }
}
