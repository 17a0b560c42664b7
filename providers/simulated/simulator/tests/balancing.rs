//! No sequence of requests with any faults leaves the world inconsistent: names and addresses are unique, an address that a
//! frontend uses exists, an etag identifies one state, a refused request changes nothing, every operation ends, and deleted
//! resources leave nothing behind.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy lets tests panic, but not the functions that they share"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use simulated_cloud::Refusal;
use simulated_cloud::world::{
    Command, Family, Listing, LoadBalancer, MachineId, Managed, NewAddress, NewLoadBalancer, NewMachine,
    NewSharedLoadBalancer, Phase, Place, Precondition, ReservedAddress, Resource, SharedLoadBalancer, World,
    Write, WriteFaults,
};

/// A client's request. Names are small numbers, so that requests concern the same resources.
#[derive(Clone, Debug)]
enum Request {
    Put { name: u8, port: u16, machine: u64, families: Vec<Family>, address: Option<u8> },
    Delete { name: u8 },
    Reserve { name: u8, family: Family, value: Option<u8>, label: u8 },
    Free { name: u8 },
    Share { name: u8, frontends: Vec<(u8, u8)> },
    Unshare { name: u8 },
    Machine,
    NoMachine { number: u64 },
}

/// The precondition of a request.
#[derive(Clone, Copy, Debug)]
enum Claim {
    Nothing,
    Current,
    Outdated,
    Absent,
}

#[derive(Clone, Debug)]
struct Event {
    after: Duration,
    request: Request,
    claim: Claim,
    write_faults: WriteFaults,
}

fn requests() -> impl Strategy<Value = Request> {
    let name = 0_u8..3;
    let family = prop_oneof![Just(Family::Ipv4), Just(Family::Ipv6)];
    let families = prop::collection::vec(family.clone(), 1..3);
    let value = prop::option::of(1_u8..5);
    prop_oneof![
        (name.clone(), 80_u16..82, 1_u64..6, families, value.clone()).prop_map(
            |(name, port, machine, families, address)| Request::Put {
                name,
                port,
                machine,
                families,
                address
            }
        ),
        name.clone().prop_map(|name| Request::Delete { name }),
        (name.clone(), family, value, 0_u8..2).prop_map(|(name, family, value, label)| Request::Reserve {
            name,
            family,
            value,
            label
        }),
        name.clone().prop_map(|name| Request::Free { name }),
        (name.clone(), prop::collection::vec((0_u8..3, 0_u8..3), 0..3))
            .prop_map(|(name, frontends)| Request::Share { name, frontends }),
        name.prop_map(|name| Request::Unshare { name }),
        Just(Request::Machine),
        (1_u64..6).prop_map(|number| Request::NoMachine { number }),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let claim = prop_oneof![
        Just(Claim::Nothing),
        Just(Claim::Current),
        Just(Claim::Current),
        Just(Claim::Outdated),
        Just(Claim::Absent)
    ];
    let write_faults = (
        prop_oneof![Just(0), 0_u64..4_000],
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.1),
        any::<bool>(),
    );
    let write_faults = write_faults.prop_map(|(takes, fails, is_preempted, overtakes)| WriteFaults {
        takes: Duration::from_millis(takes),
        fails,
        is_preempted,
        overtakes,
    });
    let event =
        (0_u64..3_000, requests(), claim, write_faults).prop_map(|(after, request, claim, write_faults)| {
            Event { after: Duration::from_millis(after), request, claim, write_faults }
        });
    prop::collection::vec(event, 0..60)
}

/// All visible resources, by kind and name, without the etag.
type Snapshot = BTreeMap<(&'static str, String), Value>;

struct Client {
    world: World,
    now: Duration,
    /// The state that each etag of each kind identifies.
    etags: BTreeMap<(&'static str, String), Value>,
}

impl Client {
    fn new() -> Self {
        let world = World::new(Place::new("sim-1".to_owned(), Vec::new()), Timestamp::UNIX_EPOCH, 2);
        Self { world, now: Duration::ZERO, etags: BTreeMap::new() }
    }

    fn write<T: Managed>(&mut self, name: &str, claim: Claim, write_faults: WriteFaults) -> Write {
        let precondition = match claim {
            Claim::Nothing => Precondition::None,
            Claim::Absent => Precondition::Absent,
            Claim::Outdated => Precondition::Match("e0".to_owned()),
            Claim::Current => match self.world.read::<T>(self.now, name) {
                Ok(it) => Precondition::Match(it.etag.to_string()),
                Err(_) => Precondition::Absent,
            },
        };
        Write { precondition, write_faults }
    }

    fn put<T: Managed>(&mut self, name: &str, new: T::New, event: &Event) -> Result<(), Refusal> {
        let write = self.write::<T>(name, event.claim, event.write_faults);
        self.world.write::<T>(self.now, name, new, &write).map(|_| ())
    }

    fn delete<T: Managed>(&mut self, name: &str, event: &Event) -> Result<(), Refusal> {
        let write = self.write::<T>(name, event.claim, event.write_faults);
        self.world.remove::<T>(self.now, name, &write).map(|_| ())
    }

    fn send(&mut self, event: &Event) -> Result<(), Refusal> {
        match &event.request {
            Request::Put { name, port, machine, families, address } => {
                let machine = format!("m-{machine:06}");
                let address = address.map(|number| format!("198.51.100.{number}"));
                let ports = [json!({"protocol": "tcp", "port": port})];
                let new =
                    json!({"ports": ports, "machines": [machine], "families": families, "address": address});
                let new: NewLoadBalancer = serde_json::from_value(new).unwrap();
                self.put::<LoadBalancer>(&format!("b{name}"), new, event)
            }
            Request::Delete { name } => self.delete::<LoadBalancer>(&format!("b{name}"), event),
            Request::Reserve { name, family, value, label } => {
                let value = value.map(|number| format!("198.51.100.{number}"));
                let new = json!({"family": family, "value": value, "labels": {"k": label.to_string()}});
                let new: NewAddress = serde_json::from_value(new).unwrap();
                self.put::<ReservedAddress>(&format!("a{name}"), new, event)
            }
            Request::Free { name } => self.delete::<ReservedAddress>(&format!("a{name}"), event),
            Request::Share { name, frontends } => {
                let frontend = |(name, address): &(u8, u8)| {
                    let port = 80 + u16::from(*name);
                    json!({"name": format!("f{name}"), "address": format!("a{address}"), "ports": [{"protocol": "udp", "port": port}]})
                };
                let frontends: Vec<_> = frontends.iter().map(frontend).collect();
                let new: NewSharedLoadBalancer =
                    serde_json::from_value(json!({"frontends": frontends})).unwrap();
                self.put::<SharedLoadBalancer>(&format!("s{name}"), new, event)
            }
            Request::Unshare { name } => self.delete::<SharedLoadBalancer>(&format!("s{name}"), event),
            Request::Machine => {
                let machine = NewMachine::named(format!("node-{}", self.now.as_millis()));
                self.world.apply(self.now, Command::Create { machine, takes: Duration::ZERO }).map(|_| ())
            }
            Request::NoMachine { number } => {
                let id = MachineId::parse(&format!("m-{number:06}")).unwrap();
                self.world.apply(self.now, Command::Delete(id)).map(|_| ())
            }
        }
    }

    fn list<T: Managed + std::fmt::Debug>(&mut self) -> Vec<Arc<Resource<T>>> {
        let page = self.world.page::<T>(self.now, &Listing::default(), Duration::ZERO).unwrap();
        for it in &page.items {
            assert_eq!(self.world.read::<T>(self.now, &it.name).as_ref(), Ok(it), "reads and lists agree");
        }
        page.items
    }

    /// Records all resources of a kind. Checks that an etag never identifies two states, and that names are unique.
    fn record<T: Managed + std::fmt::Debug + serde::Serialize>(&mut self, seen: &mut Snapshot) {
        for it in self.list::<T>() {
            let mut value = serde_json::to_value(&it).unwrap();
            let etag = value["etag"].take().as_str().unwrap().to_owned();
            // Another resource causes this field.
            value.as_object_mut().unwrap().remove("usedBy");
            let before = self.etags.entry((T::NOUN, etag)).or_insert_with(|| value.clone());
            assert_eq!(*before, value, "an etag identifies two states");
            assert!(seen.insert((T::NOUN, it.name.clone()), value).is_none(), "{} exists twice", it.name);
        }
    }

    fn everything(&mut self) -> Snapshot {
        let mut seen = Snapshot::new();
        self.record::<LoadBalancer>(&mut seen);
        self.record::<ReservedAddress>(&mut seen);
        self.record::<SharedLoadBalancer>(&mut seen);
        seen
    }

    fn delete_all<T: Managed + std::fmt::Debug>(&mut self) {
        for it in self.list::<T>() {
            self.world.remove::<T>(self.now, &it.name, &Write::default()).unwrap();
        }
    }

    /// Deletes everything. Checks that all addresses are free afterwards.
    fn assert_deletes_completely(&mut self) {
        self.delete_all::<SharedLoadBalancer>();
        self.delete_all::<ReservedAddress>();
        self.delete_all::<LoadBalancer>();
        assert_eq!(self.everything(), Snapshot::new());
        for number in 1..=4 {
            let new = serde_json::from_value(json!({"family": "ipv4"})).unwrap();
            let name = format!("a{number}");
            let written =
                self.world.write::<ReservedAddress>(self.now, &name, new, &Write::default()).unwrap();
            assert_eq!(written.resource().spec.value.to_string(), format!("198.51.100.{number}"));
        }
    }

    fn assert_consistent(&mut self) {
        let (balancers, addresses) = (self.list::<LoadBalancer>(), self.list::<ReservedAddress>());
        let shared = self.list::<SharedLoadBalancer>();
        let values = balancers.iter().flat_map(|it| it.spec.addresses.clone());
        let values: Vec<_> = values.chain(addresses.iter().map(|it| it.spec.value)).collect();
        assert_eq!(values.iter().collect::<BTreeSet<_>>().len(), values.len(), "an address has two holders");
        for it in &balancers {
            let families: Vec<_> = it.spec.addresses.iter().map(|address| Family::of(*address)).collect();
            assert_eq!(families, it.spec.families);
        }
        for it in &shared {
            for frontend in &it.spec.frontends {
                let address = addresses.iter().find(|address| address.name == frontend.address);
                let user = address.and_then(|address| address.spec.used_by.clone());
                assert_eq!(
                    user.as_ref(),
                    Some(&it.name),
                    "the address of {} exists and is its own",
                    frontend.name
                );
            }
        }
        for address in &addresses {
            let Some(user) = &address.spec.used_by else { continue };
            let user = shared.iter().find(|it| it.name == *user).unwrap();
            let is_shown = user.spec.frontends.iter().any(|frontend| frontend.address == address.name);
            assert!(is_shown || user.state != Phase::Active, "{} is in use without need", address.name);
        }
    }
}

proptest! {
    #[test]
    fn no_sequence_of_requests_leaves_the_world_inconsistent(events in events()) {
        let mut client = Client::new();
        for event in &events {
            client.now += event.after;
            let before = client.everything();
            match client.send(event) {
                // Only an etag may have changed.
                Err(_) => prop_assert_eq!(client.everything(), before, "{:?} was refused", event),
                Ok(()) => drop(client.everything()),
            }
            client.assert_consistent();
        }
        client.now += Duration::from_secs(10);
        let after = client.everything();
        prop_assert!(after.values().all(|it| it["state"] == "active" || it["state"] == "failed"), "{:?}", after);
        client.assert_consistent();
        client.assert_deletes_completely();
    }
}
