//! Load balancers that many clients share: one object with a frontend for each client. It is replaced as a whole, so a write
//! needs a precondition; without one it would undo what other clients have written since.

use std::collections::{BTreeMap, HashSet};
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::World;
use super::load_balancer::{ID_BYTES, Port, check_machines, check_ports, check_ranges};
use super::machine::MachineId;
use super::managed::{Managed, check_label};
use super::resource::{Ended, Phase, ResourceKind, Resources};
use crate::refusal::Refusal;

/// The length of a frontend with a port and three labels in a response, in bytes.
const FRONTEND_BYTES: usize = 400;

/// A frontend: an address with ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Frontend {
    /// Its name. No two of one load balancer have the same.
    pub name: String,
    /// The name of its address.
    pub address: String,
    /// Its ports, at least one.
    pub ports: Vec<Port>,
    /// The source addresses that may connect; all, where the list is empty.
    #[serde(default)]
    pub source_ranges: Vec<IpNet>,
    /// The port of the machines that answers health checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check_port: Option<NonZeroU16>,
    /// How long a client stays with its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky_seconds: Option<NonZeroU32>,
    /// Any labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// The body of a write of a shared load balancer: the whole object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewSharedLoadBalancer {
    /// The machines that the traffic of all frontends goes to.
    #[serde(default)]
    pub machines: Vec<MachineId>,
    /// Its frontends.
    pub frontends: Vec<Frontend>,
}

/// A shared load balancer, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SharedLoadBalancer {
    /// The machines that the traffic of all frontends goes to, as they were written: including deleted ones.
    pub machines: Arc<[MachineId]>,
    /// Its frontends.
    pub frontends: Vec<Frontend>,
}

impl SharedLoadBalancer {
    fn refers_to(&self, address: &str) -> bool {
        self.frontends.iter().any(|frontend| frontend.address == address)
    }
}

impl ResourceKind for SharedLoadBalancer {
    const NOUN: &'static str = "shared load balancer";
    const PLURAL: &'static str = "sharedLoadBalancers";

    fn length(&self) -> usize {
        self.machines.len() * ID_BYTES + self.frontends.len() * FRONTEND_BYTES
    }
}

impl Managed for SharedLoadBalancer {
    type New = NewSharedLoadBalancer;

    const REQUIRES_PRECONDITION: bool = true;

    fn all(world: &World) -> &Resources<Self> {
        &world.shared
    }

    fn all_mut(world: &mut World) -> &mut Resources<Self> {
        &mut world.shared
    }

    fn check(
        world: &World,
        NewSharedLoadBalancer { machines, frontends }: &NewSharedLoadBalancer,
    ) -> Result<(), Refusal> {
        check_machines(machines, &world.fleet)?;
        let (mut names, mut ports) = (HashSet::new(), HashSet::new());
        for frontend in frontends {
            let name = &frontend.name;
            let within = |refusal| Refusal::Invalid(format!("frontend {name}: {refusal}"));
            check_label("frontend", name)?;
            if !names.insert(name) {
                return Err(Refusal::Invalid(format!("frontend {name} is listed twice")));
            }
            check_ports(&frontend.ports).map_err(within)?;
            check_ranges(&frontend.source_ranges).map_err(within)?;
            for Port { protocol, port, node_port: _ } in &frontend.ports {
                let address = &frontend.address;
                if !ports.insert((address, protocol, port)) {
                    let twice = format!("another frontend has port {protocol} {port} of address {address}");
                    return Err(within(Refusal::Invalid(twice)));
                }
            }
        }
        Ok(())
    }

    fn compose(world: &mut World, name: &str, new: NewSharedLoadBalancer) -> Result<Self, Refusal> {
        let NewSharedLoadBalancer { machines, frontends } = new;
        for frontend in &frontends {
            world.check_address(name, frontend)?;
        }
        // It also uses its previous addresses until the operation has ended.
        for frontend in &frontends {
            world.users.insert(frontend.address.clone(), name.to_owned());
        }
        Ok(Self { machines: world.shared_list(machines), frontends })
    }

    fn ended(world: &mut World, Ended { resource, is_deleted }: &Ended<Self>) {
        // After a failure it may still use its previous addresses.
        if *is_deleted || resource.state == Phase::Active {
            world.users.retain(|address, user| {
                *user != resource.name || (!is_deleted && resource.spec.refers_to(address))
            });
        }
    }
}

impl World {
    /// Checks that a frontend can use an address: it is active and no other load balancer uses it. An address that the load
    /// balancer uses already may be in any state.
    fn check_address(&self, name: &str, frontend: &Frontend) -> Result<(), Refusal> {
        let Frontend { name: within, address, .. } = frontend;
        let invalid = |what: &str| Refusal::Invalid(format!("frontend {within}: address {address} {what}"));
        match self.users.get(address) {
            Some(user) if user == name => Ok(()),
            Some(user) => Err(Refusal::Conflict(format!(
                "frontend {within}: address {address} is in use by shared load balancer {user}"
            ))),
            None => match self.addresses.find(address) {
                Some(it) if it.state == Phase::Active => Ok(()),
                Some(it) => Err(invalid(&format!("is {}, not active", it.state.as_str()))),
                None => Err(invalid("doesn't exist")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::super::{
        DeleteResult, NewAddress, Place, Precondition, ReservedAddress, Write, WriteFaults, WriteResult,
    };
    use super::*;

    fn world() -> World {
        World::new(Place::new("sim-1".to_owned(), Vec::new()), jiff::Timestamp::UNIX_EPOCH, 3)
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn frontend(name: &str, address: &str, port: u16) -> Value {
        json!({"name": name, "address": address, "ports": [{"protocol": "tcp", "port": port}]})
    }

    fn absent() -> Write {
        Write { precondition: Precondition::Absent, ..Write::default() }
    }

    /// A write of an existing resource whose operation takes this long.
    fn taking(takes: u64) -> Write {
        Write {
            precondition: Precondition::Present,
            write_faults: WriteFaults { takes: seconds(takes), ..WriteFaults::default() },
        }
    }

    fn put(
        world: &mut World,
        at: u64,
        frontends: &[Value],
        write: &Write,
    ) -> Result<WriteResult<SharedLoadBalancer>, Refusal> {
        let new = json!({"machines": ["m-000001"], "frontends": frontends});
        world.write(seconds(at), "shared", serde_json::from_value(new).unwrap(), write)
    }

    fn reserve(world: &mut World, at: u64, name: &str, new: &Value, write: &Write) -> &'static str {
        let new: NewAddress = serde_json::from_value(new.clone()).unwrap();
        match world.write::<ReservedAddress>(seconds(at), name, new, write) {
            Ok(WriteResult::Created(_)) => "made",
            Ok(WriteResult::Updated(_)) => "changed",
            Ok(WriteResult::Unchanged(_)) => "same",
            Err(refusal) => refusal.code(),
        }
    }

    fn free(world: &mut World, at: u64, name: &str) -> &'static str {
        let done = world.remove::<ReservedAddress>(seconds(at), name, &Write::default());
        done.map_or_else(|refusal| refusal.code(), |_| "done")
    }

    fn with_addresses(names: &[&str]) -> World {
        let mut world = world();
        for name in names {
            reserve(&mut world, 0, name, &json!({"family": "ipv4"}), &Write::default());
        }
        world
    }

    #[test]
    fn an_address_is_reserved_once_and_stays_what_it_is() {
        let v4 = json!({"family": "ipv4"});
        let table = [
            ("a new one", "b", v4.clone(), "made"),
            ("the same again", "a", v4.clone(), "same"),
            (
                "the same again with its value",
                "a",
                json!({"family": "ipv4", "value": "198.51.100.1"}),
                "same",
            ),
            ("other labels", "a", json!({"family": "ipv4", "labels": {"k": "v"}}), "changed"),
            ("another value", "a", json!({"family": "ipv4", "value": "198.51.100.2"}), "conflict"),
            ("another family", "a", json!({"family": "ipv6"}), "conflict"),
            ("a value of its own", "b", json!({"family": "ipv6", "value": "2001:db8::9"}), "made"),
            ("a value of another family", "b", json!({"family": "ipv6", "value": "198.51.100.2"}), "invalid"),
            ("a value that is taken", "b", json!({"family": "ipv4", "value": "198.51.100.1"}), "conflict"),
            ("a foreign value", "b", json!({"family": "ipv4", "value": "192.0.2.1"}), "invalid"),
            ("no name", "B", v4, "invalid"),
        ];
        for (what, name, new, expected) in table {
            let mut world = with_addresses(&["a"]);
            assert_eq!(reserve(&mut world, 1, name, &new, &Write::default()), expected, "{what}");
        }
    }

    #[test]
    fn a_shared_load_balancer_is_replaced_as_a_whole_and_only_with_its_current_etag() {
        let one = [frontend("x", "a", 80)];
        let other = [frontend("y", "b", 80)];
        let mut world = with_addresses(&["a", "b"]);
        let bare = put(&mut world, 1, &one, &Write::default()).unwrap_err();
        assert_eq!((bare.code(), bare.status()), ("precondition-required", 428));
        let made = put(&mut world, 1, &one, &absent()).unwrap();
        let etag = made.resource().etag.to_string();
        let read = Write { precondition: Precondition::Match(etag.clone()), ..Write::default() };
        assert!(matches!(put(&mut world, 2, &one, &read), Ok(WriteResult::Unchanged(_))), "nothing to do");
        assert!(matches!(put(&mut world, 2, &other, &read), Ok(WriteResult::Updated(_))));
        assert_eq!(put(&mut world, 3, &one, &read).unwrap_err().code(), "precondition-failed");
        assert_eq!(put(&mut world, 3, &one, &absent()).unwrap_err().code(), "precondition-failed");
        let shown =
            serde_json::to_value(world.read::<SharedLoadBalancer>(seconds(3), "shared").unwrap()).unwrap();
        let mut expected = json!({"name": "shared", "state": "active", "machines": ["m-000001"]});
        expected["frontends"] = json!([{
            "name": "y", "address": "b", "ports": [{"protocol": "tcp", "port": 80}], "sourceRanges": [], "labels": {},
        }]);
        expected["etag"] = shown["etag"].clone();
        assert_eq!(shown, expected);
    }

    #[test]
    fn each_frontend_is_checked_against_the_others_and_the_addresses() {
        let sctp = json!([{"protocol": "sctp", "port": 80}, {"protocol": "tcp", "port": 80}]);
        let with = |key: &str, value: Value| {
            let mut frontend = frontend("x", "a", 80);
            frontend[key] = value;
            vec![frontend]
        };
        let table = [
            ("none", vec![], "done"),
            ("one", vec![frontend("x", "a", 80)], "done"),
            ("two on one address", vec![frontend("x", "a", 80), frontend("y", "a", 81)], "done"),
            ("two on one port", vec![frontend("x", "a", 80), frontend("y", "a", 80)], "invalid"),
            ("one twice", vec![frontend("x", "a", 80), frontend("x", "b", 80)], "invalid"),
            ("on no address", vec![frontend("x", "none", 80)], "invalid"),
            ("on an address that comes", vec![frontend("x", "comes", 80)], "invalid"),
            ("on an address that goes", vec![frontend("x", "goes", 80)], "invalid"),
            ("on the address of another", vec![frontend("x", "other", 80)], "conflict"),
            ("without ports", with("ports", json!([])), "invalid"),
            ("with sctp among others", with("ports", sctp), "invalid"),
            ("without name", with("name", json!("")), "invalid"),
            ("a range with host bits", with("sourceRanges", json!(["10.0.0.1/8"])), "invalid"),
        ];
        for (what, frontends, expected) in table {
            let mut world = with_addresses(&["a", "b", "goes", "other"]);
            reserve(&mut world, 1, "comes", &json!({"family": "ipv4"}), &taking(9).without_precondition());
            world.remove::<ReservedAddress>(seconds(1), "goes", &taking(9)).unwrap();
            let other = json!({"frontends": [frontend("x", "other", 80)]});
            world
                .write::<SharedLoadBalancer>(
                    seconds(1),
                    "other",
                    serde_json::from_value(other).unwrap(),
                    &absent(),
                )
                .unwrap();
            let done = put(&mut world, 2, &frontends, &absent());
            assert_eq!(done.map_or_else(|refusal| refusal.code(), |_| "done"), expected, "{what}");
        }
    }

    impl Write {
        fn without_precondition(self) -> Self {
            Self { precondition: Precondition::None, ..self }
        }
    }

    #[test]
    fn an_address_is_in_use_until_a_write_without_it_has_succeeded() {
        let mut world = with_addresses(&["a", "b"]);
        put(&mut world, 1, &[frontend("x", "a", 80)], &absent()).unwrap();
        let used = world.read::<ReservedAddress>(seconds(1), "a").unwrap();
        assert_eq!(used.spec.used_by.as_deref(), Some("shared"));
        assert_eq!(free(&mut world, 1, "a"), "in-use");
        put(&mut world, 10, &[frontend("x", "b", 80)], &taking(5)).unwrap();
        assert_eq!((free(&mut world, 14, "a"), free(&mut world, 14, "b")), ("in-use", "in-use"));
        assert_eq!((free(&mut world, 15, "b"), free(&mut world, 15, "a")), ("in-use", "done"));
        let fails =
            Write { write_faults: WriteFaults { fails: true, ..WriteFaults::default() }, ..taking(0) };
        put(&mut world, 20, &[], &fails).unwrap();
        assert_eq!(free(&mut world, 21, "b"), "in-use", "a failed write may still use it");
        world.remove::<SharedLoadBalancer>(seconds(30), "shared", &taking(5)).unwrap();
        assert_eq!(free(&mut world, 34, "b"), "in-use");
        assert_eq!(free(&mut world, 35, "b"), "done");
    }

    #[test]
    fn an_address_in_use_does_not_block_writes_while_it_changes() {
        let mut world = with_addresses(&["a"]);
        put(&mut world, 1, &[frontend("x", "a", 80)], &absent()).unwrap();
        let labels = json!({"family": "ipv4", "labels": {"k": "v"}});
        assert_eq!(reserve(&mut world, 2, "a", &labels, &taking(9)), "changed");
        put(&mut world, 3, &[frontend("x", "a", 80), frontend("y", "a", 81)], &taking(0)).unwrap();
    }

    #[test]
    fn a_deletion_of_an_address_frees_it_for_others_when_it_has_ended() {
        let mut world = with_addresses(&["a"]);
        let begun = world.remove::<ReservedAddress>(seconds(1), "a", &taking(5)).unwrap();
        assert!(matches!(begun, DeleteResult::Started(_)));
        let same = json!({"family": "ipv4", "value": "198.51.100.1"});
        assert_eq!(reserve(&mut world, 5, "b", &same, &Write::default()), "conflict");
        assert_eq!(reserve(&mut world, 6, "b", &same, &Write::default()), "made");
    }
}
