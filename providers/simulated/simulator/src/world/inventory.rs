//! An overview of all resources that is short enough to be read every second: the number of each kind and the first of them,
//! without the long lists of machines of load balancers.

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

/// An overview of all resources.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    /// Machines.
    pub machines: Summary,
    /// Routes.
    pub routes: Excerpt<Arc<Route>>,
    /// Load balancers.
    pub load_balancers: Excerpt<LoadBalancerRow<LoadBalancer>>,
    /// Reserved addresses.
    pub addresses: Excerpt<Arc<Resource<ReservedAddress>>>,
    /// Shared load balancers.
    pub shared_load_balancers: Excerpt<LoadBalancerRow<SharedLoadBalancer>>,
}

/// The number of resources of a kind, and the first of them.
#[derive(Clone, Debug, Serialize)]
pub struct Excerpt<T> {
    /// How many exist.
    pub total: usize,
    /// The first of them.
    pub first: Vec<T>,
}

/// A load balancer of either kind, with counts in place of long lists.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerRow<T> {
    /// The load balancer, without machines, and with only the first of its frontends.
    #[serde(flatten)]
    pub resource: Resource<T>,
    /// How many machines it has.
    pub targets: usize,
    /// How many of these machines don't exist any more.
    pub unknown: usize,
    /// How many frontends it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frontends_total: Option<usize>,
}

/// How many machines of a list don't exist any more. Most load balancers share one list, which is counted only once: with
/// 5,000 machines, counting each would take a tenth of a second.
#[derive(Default)]
struct Counted {
    list: Arc<[MachineId]>,
    unknown: usize,
}

impl World {
    /// The overview, with the first `first` resources of each kind.
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
                    let mut spec = LoadBalancer::clone(&it.spec);
                    let list = std::mem::take(&mut spec.machines);
                    self.balancing(it, spec, list, &mut counted)
                }),
                load_balancers.count(),
            ),
            addresses: shown(
                addresses.clone().take(first).map(|it| ReservedAddress::shown(self, Arc::clone(it))),
                addresses.count(),
            ),
            shared_load_balancers: shown(
                shared.clone().take(first).map(|it| {
                    let SharedLoadBalancer { machines, frontends } = &*it.spec;
                    let some = frontends.iter().take(first).cloned().collect();
                    let spec = SharedLoadBalancer { machines: Arc::default(), frontends: some };
                    let mut row = self.balancing(it, spec, Arc::clone(machines), &mut counted);
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
        spec: T,
        list: Arc<[MachineId]>,
        counted: &mut Counted,
    ) -> LoadBalancerRow<T> {
        if !Arc::ptr_eq(&counted.list, &list) {
            let unknown = list.iter().filter(|machine| !self.fleet.has(**machine)).count();
            *counted = Counted { list, unknown };
        }
        let Counted { list, unknown } = counted;
        let resource = it.with_spec(spec);
        LoadBalancerRow { resource, targets: list.len(), unknown: *unknown, frontends_total: None }
    }
}

fn shown<T>(first: impl Iterator<Item = T>, total: usize) -> Excerpt<T> {
    Excerpt { total, first: first.collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{Command, Place, Precondition, Write};
    use super::*;

    fn write<T: Managed<New: serde::de::DeserializeOwned>>(world: &mut World, name: &str, new: Value) {
        let write = Write { precondition: Precondition::Absent, ..Write::default() };
        world.write::<T>(Duration::ZERO, name, serde_json::from_value(new).unwrap(), &write).unwrap();
    }

    #[test]
    fn it_counts_all_and_shows_the_first_with_counts_of_machines() {
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
