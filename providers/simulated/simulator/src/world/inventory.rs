//! All that there is, short enough to be looked at each second: how many of everything, and the first of them, without the
//! long lists of machines that load balancers have.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::World;
use super::address::ReservedAddress;
use super::command::Summary;
use super::load_balancer::LoadBalancer;
use super::machine::MachineId;
use super::managed::Managed;
use super::resource::Resource;
use super::route::Route;
use super::shared::SharedLoadBalancer;

/// All that there is.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    /// Machines.
    pub machines: Summary,
    /// Routes.
    pub routes: Shown<Arc<Route>>,
    /// Load balancers.
    pub load_balancers: Shown<Balancing<LoadBalancer>>,
    /// Addresses that are reserved by themselves.
    pub addresses: Shown<Arc<Resource<ReservedAddress>>>,
    /// Shared load balancers.
    pub shared_load_balancers: Shown<Balancing<SharedLoadBalancer>>,
}

/// Some of all.
#[derive(Clone, Debug, Serialize)]
pub struct Shown<T> {
    /// How many there are.
    pub total: usize,
    /// The first of them.
    pub first: Vec<T>,
}

/// Something that balances load, with numbers in place of what is long.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Balancing<T> {
    /// The thing, without machines, and with the first of its frontends only.
    #[serde(flatten)]
    pub resource: Resource<T>,
    /// How many machines it has.
    pub targets: usize,
    /// How many of them are gone.
    pub unknown: usize,
    /// How many frontends it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frontends_total: Option<usize>,
}

/// How many machines are in a list, and how many of them are gone. One list after another is mostly the same, and then it
/// isn't counted again: with 5,000 machines that would take a tenth of a second.
#[derive(Default)]
struct Counted {
    list: Arc<[MachineId]>,
    unknown: usize,
}

impl World {
    /// All that there is, with the first so many of each.
    pub fn inventory(&mut self, now: Duration, first: usize) -> Inventory {
        self.advance(now);
        let routes = self.routes.history().all();
        let load_balancers = LoadBalancer::all(self).history().all();
        let addresses = ReservedAddress::all(self).history().all();
        let shared = SharedLoadBalancer::all(self).history().all();
        let mut counted = Counted::default();
        Inventory {
            machines: self.fleet.summary(first),
            routes: shown(routes.clone().take(first).map(|it| self.seen(it)), routes.count()),
            load_balancers: shown(
                load_balancers.clone().take(first).map(|it| {
                    let mut goal = LoadBalancer::clone(&it.goal);
                    let list = std::mem::take(&mut goal.machines);
                    self.balancing(it, goal, list, &mut counted)
                }),
                load_balancers.count(),
            ),
            addresses: shown(
                addresses.clone().take(first).map(|it| ReservedAddress::shown(self, Arc::clone(it))),
                addresses.count(),
            ),
            shared_load_balancers: shown(
                shared.clone().take(first).map(|it| {
                    let SharedLoadBalancer { machines, frontends } = &*it.goal;
                    let some = frontends.iter().take(first).cloned().collect();
                    let goal = SharedLoadBalancer { machines: Arc::default(), frontends: some };
                    let mut row = self.balancing(it, goal, Arc::clone(machines), &mut counted);
                    row.frontends_total = Some(frontends.len());
                    row
                }),
                shared.count(),
            ),
        }
    }

    fn balancing<T>(
        &self,
        it: &Resource<T>,
        goal: T,
        list: Arc<[MachineId]>,
        counted: &mut Counted,
    ) -> Balancing<T> {
        if !Arc::ptr_eq(&counted.list, &list) {
            let unknown = list.iter().filter(|machine| !self.fleet.has(**machine)).count();
            *counted = Counted { list, unknown };
        }
        let Counted { list, unknown } = counted;
        let resource = it.with_goal(goal);
        Balancing { resource, targets: list.len(), unknown: *unknown, frontends_total: None }
    }
}

fn shown<T>(first: impl Iterator<Item = T>, total: usize) -> Shown<T> {
    Shown { total, first: first.collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{Command, Guard, Place, Write};
    use super::*;

    fn write<T: Managed<New: serde::de::DeserializeOwned>>(world: &mut World, name: &str, new: Value) {
        let write = Write { guard: Guard::Absent, ..Write::default() };
        world.write::<T>(Duration::ZERO, name, serde_json::from_value(new).unwrap(), &write).unwrap();
    }

    #[test]
    fn it_counts_all_and_shows_the_first_with_numbers_of_machines() {
        let mut world =
            World::new(Place::new("sim-1".to_owned(), Vec::new()), jiff::Timestamp::UNIX_EPOCH, 3);
        let ports = json!([{"protocol": "tcp", "port": 80}]);
        let frontend = |name: &str, address: &str| json!({"name": name, "address": address, "ports": ports});
        for (name, machines) in
            [("a", json!(["m-000001", "m-000003"])), ("b", json!(["m-000001", "m-000002"])), ("c", json!([]))]
        {
            write::<LoadBalancer>(&mut world, name, json!({"ports": ports, "machines": machines}));
            write::<ReservedAddress>(&mut world, name, json!({"family": "ipv4"}));
        }
        let frontends = json!([frontend("x", "b"), frontend("y", "b2"), frontend("z", "c")]);
        write::<ReservedAddress>(&mut world, "b2", json!({"family": "ipv6"}));
        let shared = json!({"machines": ["m-000003"], "frontends": frontends});
        write::<SharedLoadBalancer>(&mut world, "s", shared);
        let route = json!({"destination": "10.0.0.0/24", "machine": "m-000003"});
        world.put_route(Duration::ZERO, "r", serde_json::from_value(route).unwrap()).unwrap();
        world.apply(Duration::ZERO, Command::Delete(MachineId::parse("m-000003").unwrap())).unwrap();

        let shown = serde_json::to_value(world.inventory(Duration::ZERO, 2)).unwrap();
        let totals = ["machines", "routes", "loadBalancers", "addresses", "sharedLoadBalancers"]
            .map(|kind| (shown[kind]["total"].as_u64(), shown[kind]["first"].as_array().unwrap().len()));
        assert_eq!(totals, [(Some(2), 2), (Some(1), 1), (Some(3), 2), (Some(4), 2), (Some(1), 1)]);
        assert_eq!(shown["routes"]["first"][0]["blackhole"], true);
        let [a, b] = [0, 1].map(|n| &shown["loadBalancers"]["first"][n]);
        assert_eq!(
            (&a["name"], &a["machines"], &a["targets"], &a["unknown"]),
            (&json!("a"), &json!([]), &2.into(), &1.into())
        );
        assert_eq!((&b["targets"], &b["unknown"]), (&2.into(), &0.into()));
        assert_eq!(shown["addresses"]["first"][1]["usedBy"], "s");
        let s = &shown["sharedLoadBalancers"]["first"][0];
        assert_eq!((s["frontends"].as_array().unwrap().len(), &s["frontendsTotal"]), (2, &3.into()));
        assert_eq!((&s["targets"], &s["unknown"]), (&1.into(), &1.into()));
    }
}
