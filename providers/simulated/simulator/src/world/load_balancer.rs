//! Load balancers that are one object each: what a caller may write, what the cloud adds, and what it refuses.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::World;
use super::fleet::Fleet;
use super::machine::MachineId;
use super::managed::Managed;
use super::pool::Family;
use super::resource::{Ended, ResourceKind, Resources};
use crate::refusal::Refusal;

/// The length of a machine's ID in a response, with its quotes and a comma, in bytes.
pub(super) const ID_BYTES: usize = 11;

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP, which can't be mixed with others.
    Sctp,
}

/// A port of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Port {
    /// Its protocol.
    pub protocol: Protocol,
    /// The port that clients connect to.
    pub port: NonZeroU16,
    /// The port of the machines; by default the same port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<NonZeroU16>,
}

/// The body of a write of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NewLoadBalancer {
    /// Its ports, at least one.
    pub ports: Vec<Port>,
    /// The machines that the traffic goes to.
    #[serde(default)]
    pub machines: Vec<MachineId>,
    /// The source addresses that may connect; all, where the list is empty.
    #[serde(default)]
    pub source_ranges: Vec<IpNet>,
    /// The families of its addresses.
    #[serde(default = "default_families")]
    pub families: Vec<Family>,
    /// The address of one of its families. By default the cloud chooses.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// The port of the machines that answers health checks.
    #[serde(default)]
    pub health_check_port: Option<NonZeroU16>,
    /// How long a client stays with its machine.
    #[serde(default)]
    pub sticky_seconds: Option<NonZeroU32>,
    /// Any labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

fn default_families() -> Vec<Family> {
    vec![Family::Ipv4]
}

/// A load balancer, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancer {
    /// Its addresses, one of each family.
    pub addresses: Vec<IpAddr>,
    /// Its name in the cloud's DNS.
    pub hostname: String,
    /// Its ports.
    pub ports: Vec<Port>,
    /// The machines that the traffic goes to, as they were written: including deleted ones.
    pub machines: Arc<[MachineId]>,
    /// The source addresses that may connect; all, where the list is empty.
    pub source_ranges: Vec<IpNet>,
    /// The families of its addresses.
    pub families: Vec<Family>,
    /// The port of the machines that answers health checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check_port: Option<NonZeroU16>,
    /// How long a client stays with its machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sticky_seconds: Option<NonZeroU32>,
    /// Any labels.
    pub labels: BTreeMap<String, String>,
}

impl ResourceKind for LoadBalancer {
    const NOUN: &'static str = "load balancer";
    const PLURAL: &'static str = "loadBalancers";

    fn length(&self) -> usize {
        self.machines.len() * ID_BYTES
    }
}

impl Managed for LoadBalancer {
    type New = NewLoadBalancer;

    fn all(world: &World) -> &Resources<Self> {
        &world.load_balancers
    }

    fn all_mut(world: &mut World) -> &mut Resources<Self> {
        &mut world.load_balancers
    }

    fn check(world: &World, new: &NewLoadBalancer) -> Result<(), Refusal> {
        new.check(&world.fleet)
    }

    fn compose(world: &mut World, name: &str, new: NewLoadBalancer) -> Result<Self, Refusal> {
        let before = world.load_balancers.find(name).map(|it| it.spec.addresses.clone()).unwrap_or_default();
        let holder = format!("{} {name}", Self::NOUN);
        let addresses = world.choose(&new, &before, &holder)?;
        world.pool.assign(&holder, &before, &addresses);
        Ok(world.complete(name, new, addresses))
    }

    fn ended(world: &mut World, Ended { resource, is_deleted }: &Ended<Self>) {
        if *is_deleted {
            world.pool.release(&resource.spec.addresses);
        }
    }
}

impl World {
    /// One address of each family: the requested one, else the current one, else a free one.
    fn choose(&self, new: &NewLoadBalancer, has: &[IpAddr], holder: &str) -> Result<Vec<IpAddr>, Refusal> {
        if let Some(address) = new.address {
            self.pool.check(address, holder)?;
        }
        let asked = new.address.iter().chain(has);
        let of = |family: &Family| {
            let found = asked.clone().copied().find(|address| Family::of(*address) == *family);
            found.unwrap_or_else(|| self.pool.free(*family))
        };
        Ok(new.families.iter().map(of).collect())
    }

    fn complete(&mut self, name: &str, new: NewLoadBalancer, addresses: Vec<IpAddr>) -> LoadBalancer {
        let NewLoadBalancer {
            ports,
            machines,
            source_ranges,
            families,
            address: _,
            health_check_port,
            sticky_seconds,
            labels,
        } = new;
        let hostname = format!("{name}.lb.{}.example", self.place().region());
        let machines = self.shared_list(machines);
        LoadBalancer {
            addresses,
            hostname,
            ports,
            machines,
            source_ranges,
            families,
            health_check_port,
            sticky_seconds,
            labels,
        }
    }

    /// Shares memory between equal lists of machines, as long as the list is the one that was written last. Otherwise a
    /// thousand load balancers of 5,000 machines would take 40 MB, and their past states the same again.
    pub(super) fn shared_list(&mut self, machines: Vec<MachineId>) -> Arc<[MachineId]> {
        if *self.last_list != *machines {
            self.last_list = machines.into();
        }
        Arc::clone(&self.last_list)
    }
}

impl NewLoadBalancer {
    fn check(&self, fleet: &Fleet) -> Result<(), Refusal> {
        let Self { ports, machines, source_ranges, families, address, .. } = self;
        check_ports(ports)?;
        check_machines(machines, fleet)?;
        check_ranges(source_ranges)?;
        if families.is_empty() || families.iter().collect::<HashSet<_>>().len() < families.len() {
            return Err(Refusal::Invalid(
                "invalid families: expected ipv4, ipv6 or both, each once".to_owned(),
            ));
        }
        match address {
            Some(address) if !families.contains(&Family::of(*address)) => {
                Err(Refusal::Invalid(format!("address {address} has none of the families")))
            }
            _ => Ok(()),
        }
    }
}

/// Checks ports: each only once, and SCTP not together with other protocols.
pub(super) fn check_ports(ports: &[Port]) -> Result<(), Refusal> {
    if ports.is_empty() {
        return Err(Refusal::Invalid("ports are empty; at least one is required".to_owned()));
    }
    let mut seen = HashSet::new();
    for Port { protocol, port, node_port: _ } in ports {
        if !seen.insert((protocol, port)) {
            return Err(Refusal::Invalid(format!("port {protocol} {port} is listed twice")));
        }
    }
    let sctp = ports.iter().filter(|port| port.protocol == Protocol::Sctp).count();
    if sctp > 0 && sctp < ports.len() {
        return Err(Refusal::Invalid(
            "sctp is mixed with other protocols; use another load balancer for sctp".to_owned(),
        ));
    }
    Ok(())
}

/// Checks that machines exist or have existed. A caller may not know yet that a machine was deleted, and that must not
/// prevent the rest of its write.
pub(super) fn check_machines(machines: &[MachineId], fleet: &Fleet) -> Result<(), Refusal> {
    let mut seen = HashSet::new();
    for machine in machines {
        if !fleet.has_existed(*machine) {
            return Err(Refusal::Invalid(format!("machine {machine} has never existed")));
        }
        if !seen.insert(machine) {
            return Err(Refusal::Invalid(format!("machine {machine} is listed twice")));
        }
    }
    Ok(())
}

/// Checks that CIDRs have no host bits, as in the route table.
pub(super) fn check_ranges(ranges: &[IpNet]) -> Result<(), Refusal> {
    match ranges.iter().find(|range| range.trunc() != **range) {
        Some(range) => {
            let valid = range.trunc();
            Err(Refusal::Invalid(format!("source range {range} has host bits; use {valid}")))
        }
        None => Ok(()),
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use std::time::Duration;

    use super::super::{
        Command, DeleteResult, Listing, Phase, Place, Precondition, Write, WriteFaults, WriteResult,
    };
    use super::*;

    fn world() -> World {
        World::new(Place::new("sim-1".to_owned(), Vec::new()), jiff::Timestamp::UNIX_EPOCH, 3)
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn new(changes: &Value) -> NewLoadBalancer {
        let mut new = json!({
            "ports": [{"protocol": "tcp", "port": 80, "nodePort": 30080}], "machines": ["m-000001", "m-000002"],
        });
        for (key, value) in changes.as_object().unwrap() {
            new[key] = value.clone();
        }
        serde_json::from_value(new).unwrap()
    }

    fn taking(takes: u64) -> Write {
        Write {
            write_faults: WriteFaults { takes: seconds(takes), ..WriteFaults::default() },
            ..Write::default()
        }
    }

    fn with_precondition(precondition: Precondition) -> Write {
        Write { precondition, write_faults: WriteFaults::default() }
    }

    fn put(
        world: &mut World,
        at: u64,
        name: &str,
        changes: &Value,
        write: &Write,
    ) -> Result<WriteResult<LoadBalancer>, Refusal> {
        world.write(seconds(at), name, new(changes), write)
    }

    fn outcome(done: Result<WriteResult<LoadBalancer>, Refusal>) -> &'static str {
        match done {
            Ok(WriteResult::Created(_)) => "made",
            Ok(WriteResult::Updated(_)) => "changed",
            Ok(WriteResult::Unchanged(_)) => "same",
            Err(refusal) => refusal.code(),
        }
    }

    fn phase(world: &mut World, at: u64, name: &str) -> Option<Phase> {
        world.read::<LoadBalancer>(seconds(at), name).ok().map(|it| it.state)
    }

    #[test]
    fn a_load_balancer_is_shown_with_an_address_and_a_host_name() {
        let mut world = world();
        let written = put(&mut world, 1, "a", &json!({}), &Write::default()).unwrap();
        let expected = json!({
            "name": "a", "state": "active", "etag": "e2", "addresses": ["198.51.100.1"],
            "hostname": "a.lb.sim-1.example", "ports": [{"protocol": "tcp", "port": 80, "nodePort": 30080}],
            "machines": ["m-000001", "m-000002"], "sourceRanges": [], "families": ["ipv4"], "labels": {},
        });
        assert_eq!(serde_json::to_value(written.resource()).unwrap(), expected);
    }

    #[test]
    fn each_write_succeeds_or_fails_by_the_current_state() {
        let none = Write::default();
        let both = json!([{"protocol": "sctp", "port": 80}, {"protocol": "tcp", "port": 80}]);
        let sctp = json!([{"protocol": "sctp", "port": 80}, {"protocol": "sctp", "port": 81}]);
        let twice = json!([{"protocol": "tcp", "port": 80}, {"protocol": "tcp", "port": 80, "nodePort": 5}]);
        // One world with a (active, 198.51.100.1), busy (creating, .2) and failed (.3); m-000003 is gone.
        let table = [
            ("new", "b", json!({}), &none, "made"),
            ("the same again", "a", json!({}), &none, "same"),
            ("a change", "a", json!({"labels": {"k": "v"}}), &none, "changed"),
            ("the same again of one that has failed", "failed", json!({}), &none, "changed"),
            ("one that is busy", "busy", json!({}), &none, "busy"),
            ("no name", "A", json!({}), &none, "invalid"),
            ("no ports", "b", json!({"ports": []}), &none, "invalid"),
            ("a port twice", "b", json!({"ports": twice}), &none, "invalid"),
            ("sctp alone", "b", json!({"ports": sctp}), &none, "made"),
            ("sctp mixed", "b", json!({"ports": both}), &none, "invalid"),
            ("a machine that never was", "a", json!({"machines": ["m-000004"]}), &none, "invalid"),
            ("a machine that was", "a", json!({"machines": ["m-000003"]}), &none, "changed"),
            ("a machine twice", "a", json!({"machines": ["m-000001", "m-000001"]}), &none, "invalid"),
            ("a range with host bits", "a", json!({"sourceRanges": ["10.0.0.1/8"]}), &none, "invalid"),
            ("no family", "a", json!({"families": []}), &none, "invalid"),
            ("a family twice", "a", json!({"families": ["ipv4", "ipv4"]}), &none, "invalid"),
            ("its own address", "a", json!({"address": "198.51.100.1"}), &none, "same"),
            ("another address", "a", json!({"address": "198.51.100.9"}), &none, "changed"),
            ("an address that is taken", "a", json!({"address": "198.51.100.2"}), &none, "conflict"),
            ("a foreign address", "a", json!({"address": "192.0.2.1"}), &none, "invalid"),
            ("an address of another family", "a", json!({"address": "2001:db8::1"}), &none, "invalid"),
            (
                "its etag",
                "a",
                json!({"labels": {"k": "v"}}),
                &with_precondition(Precondition::Match("e2".into())),
                "changed",
            ),
            (
                "an old etag",
                "a",
                json!({}),
                &with_precondition(Precondition::Match("e1".into())),
                "precondition-failed",
            ),
            (
                "an etag of none",
                "b",
                json!({}),
                &with_precondition(Precondition::Match("e1".into())),
                "precondition-failed",
            ),
            ("only where it is", "a", json!({}), &with_precondition(Precondition::Present), "same"),
            (
                "only where it is, but it isn't",
                "b",
                json!({}),
                &with_precondition(Precondition::Present),
                "precondition-failed",
            ),
            ("only where it isn't", "b", json!({}), &with_precondition(Precondition::Absent), "made"),
            (
                "only where it isn't, but it is",
                "a",
                json!({}),
                &with_precondition(Precondition::Absent),
                "precondition-failed",
            ),
        ];
        for (what, name, changes, write, expected) in table {
            let mut world = world();
            let fails = Write {
                write_faults: WriteFaults { fails: true, ..WriteFaults::default() },
                ..Write::default()
            };
            put(&mut world, 1, "a", &json!({}), &none).unwrap();
            put(&mut world, 1, "busy", &json!({}), &taking(60)).unwrap();
            put(&mut world, 1, "failed", &json!({}), &fails).unwrap();
            world.apply(seconds(1), Command::Delete(MachineId(3))).unwrap();
            assert_eq!(outcome(put(&mut world, 2, name, &changes, write)), expected, "{what}");
        }
    }

    #[test]
    fn an_operation_shows_the_written_fields_immediately_and_ends_when_it_is_due() {
        let mut world = world();
        put(&mut world, 10, "a", &json!({}), &taking(5)).unwrap();
        assert_eq!(phase(&mut world, 14, "a"), Some(Phase::Creating));
        assert_eq!(phase(&mut world, 15, "a"), Some(Phase::Active));
        let before = world.read::<LoadBalancer>(seconds(15), "a").unwrap().etag;
        put(&mut world, 20, "a", &json!({"machines": []}), &taking(5)).unwrap();
        let meanwhile = world.read::<LoadBalancer>(seconds(24), "a").unwrap();
        assert_eq!((meanwhile.state, meanwhile.spec.machines.len()), (Phase::Updating, 0));
        assert_ne!(meanwhile.etag, before);
        assert_ne!(
            world.read::<LoadBalancer>(seconds(25), "a").unwrap().etag,
            meanwhile.etag,
            "its end is a change"
        );
    }

    #[test]
    fn a_deletion_keeps_the_name_and_the_address_until_it_has_ended() {
        let mut world = world();
        put(&mut world, 1, "a", &json!({}), &Write::default()).unwrap();
        let begun = world.remove::<LoadBalancer>(seconds(10), "a", &taking(5)).unwrap();
        assert!(matches!(begun, DeleteResult::Started(it) if it.state == Phase::Deleting));
        let address = json!({"address": "198.51.100.1"});
        let overtakes = Write {
            write_faults: WriteFaults { overtakes: true, ..WriteFaults::default() },
            ..Write::default()
        };
        assert_eq!(outcome(put(&mut world, 14, "a", &json!({}), &overtakes)), "busy");
        assert_eq!(outcome(put(&mut world, 14, "b", &address, &Write::default())), "conflict");
        assert_eq!(world.remove::<LoadBalancer>(seconds(14), "a", &taking(5)).unwrap_err().code(), "busy");
        let listed = |world: &mut World, now| {
            world.page::<LoadBalancer>(now, &Listing::default(), seconds(0)).unwrap().items.len()
        };
        assert_eq!(listed(&mut world, seconds(14)), 1);
        assert_eq!(listed(&mut world, seconds(15)), 0);
        assert_eq!(
            world.remove::<LoadBalancer>(seconds(15), "a", &taking(5)).unwrap_err().code(),
            "not-found"
        );
        assert_eq!(outcome(put(&mut world, 15, "b", &address, &Write::default())), "made");
        assert_eq!(outcome(put(&mut world, 15, "a", &json!({}), &Write::default())), "made");
        let gone = world.remove::<LoadBalancer>(seconds(15), "a", &Write::default()).unwrap();
        assert_eq!(gone, DeleteResult::Deleted);
    }

    #[test]
    fn a_late_failure_is_shown_and_a_write_or_a_deletion_starts_again() {
        let mut world = world();
        let fails = Write {
            write_faults: WriteFaults { takes: seconds(5), fails: true, ..WriteFaults::default() },
            ..Write::default()
        };
        assert_eq!(outcome(put(&mut world, 1, "a", &json!({}), &fails)), "made");
        let failed = world.read::<LoadBalancer>(seconds(6), "a").unwrap();
        assert!(failed.state == Phase::Failed && failed.error.is_some());
        put(&mut world, 7, "a", &json!({}), &taking(5)).unwrap();
        assert_eq!(world.read::<LoadBalancer>(seconds(8), "a").unwrap().error, None);
        assert_eq!(phase(&mut world, 12, "a"), Some(Phase::Active));
        world.remove::<LoadBalancer>(seconds(20), "a", &fails).unwrap();
        assert_eq!(phase(&mut world, 25, "a"), Some(Phase::Failed));
        world.remove::<LoadBalancer>(seconds(30), "a", &taking(1)).unwrap();
        assert_eq!(phase(&mut world, 31, "a"), None);
    }

    #[test]
    fn a_write_that_replaces_another_ends_at_its_own_time() {
        let mut world = world();
        put(&mut world, 1, "a", &json!({}), &taking(5)).unwrap();
        let write_faults = WriteFaults { takes: seconds(10), overtakes: true, ..WriteFaults::default() };
        let overtakes = Write { write_faults, ..Write::default() };
        assert_eq!(outcome(put(&mut world, 3, "a", &json!({"machines": []}), &overtakes)), "changed");
        assert_eq!(phase(&mut world, 12, "a"), Some(Phase::Updating));
        assert_eq!(phase(&mut world, 13, "a"), Some(Phase::Active));
    }

    #[test]
    fn a_preempted_write_is_refused_although_its_precondition_holds_and_changes_the_etag() {
        let mut world = world();
        put(&mut world, 1, "a", &json!({}), &Write::default()).unwrap();
        let write_faults = WriteFaults { is_preempted: true, ..WriteFaults::default() };
        let preempted = |precondition| Write { precondition, write_faults };
        for (name, precondition) in [("a", Precondition::Match("e2".into())), ("b", Precondition::Absent)] {
            let refusal = put(&mut world, 2, name, &json!({}), &preempted(precondition)).unwrap_err();
            assert!(matches!(refusal, Refusal::Preempted(_)), "{name}");
        }
        assert_eq!(world.read::<LoadBalancer>(seconds(2), "a").unwrap().etag.to_string(), "e3");
        let stale =
            put(&mut world, 3, "a", &json!({}), &preempted(Precondition::Match("e2".into()))).unwrap_err();
        assert!(matches!(stale, Refusal::Stale(_)), "the precondition doesn't hold anyway");
        assert_eq!(outcome(put(&mut world, 3, "a", &json!({}), &preempted(Precondition::None))), "same");
    }

    #[test]
    fn each_family_has_an_address_that_changes_keep() {
        let mut world = world();
        let addresses = |world: &mut World, at, families: &[&str]| {
            let families = json!({"families": families});
            let written = put(world, at, "a", &families, &Write::default()).unwrap();
            written.resource().spec.addresses.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(addresses(&mut world, 1, &["ipv4"]), ["198.51.100.1"]);
        assert_eq!(addresses(&mut world, 2, &["ipv6", "ipv4"]), ["2001:db8::1", "198.51.100.1"]);
        put(&mut world, 3, "b", &json!({"families": ["ipv6"]}), &Write::default()).unwrap();
        assert_eq!(addresses(&mut world, 4, &["ipv6"]), ["2001:db8::1"]);
        let freed = json!({"address": "198.51.100.1"});
        assert_eq!(outcome(put(&mut world, 5, "c", &freed, &Write::default())), "made");
    }

    #[test]
    fn lists_lag_and_reads_do_not() {
        let mut world = world();
        put(&mut world, 10, "a", &json!({}), &taking(5)).unwrap();
        let listed = |world: &mut World, lag| {
            let page = world.page::<LoadBalancer>(seconds(20), &Listing::default(), seconds(lag)).unwrap();
            page.items.first().map(|it| it.state)
        };
        assert_eq!(listed(&mut world, 0), Some(Phase::Active));
        assert_eq!(listed(&mut world, 6), Some(Phase::Creating));
        assert_eq!(listed(&mut world, 11), None);
        assert_eq!(phase(&mut world, 20, "a"), Some(Phase::Active));
    }
}
