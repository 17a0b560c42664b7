//! The state of the cloud and all its decisions: a pure state machine. Time is an argument, counted from the start of the
//! cloud. A past state is kept for some minutes, so that lists can lag as in an eventually consistent cloud. A read of one
//! resource always shows the current state.
//!
//! This module has what concerns several kinds of resources, and the calls about machines and routes. `managed` has the calls
//! about resources with long operations.

mod address;
mod command;
mod fleet;
mod history;
mod inventory;
mod listing;
mod load_balancer;
mod machine;
mod managed;
mod pool;
mod resource;
mod route;
mod shared;
mod write;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

pub use self::address::{NewAddress, ReservedAddress};
pub use self::command::{Command, Place, Reply, Summary};
use self::fleet::Fleet;
pub use self::inventory::{Excerpt, Inventory, LoadBalancerRow};
pub use self::listing::{Listable, Listing, MAX_PAGE_ITEMS, Page};
pub use self::load_balancer::{LoadBalancer, NewLoadBalancer, Port, Protocol};
pub use self::machine::{
    Address, AddressKind, Batch, Changes, MAX_BATCH, Machine, MachineId, NewMachine, State,
};
pub use self::managed::Managed;
use self::pool::AddressPool;
pub use self::pool::Family;
use self::resource::Resources;
pub use self::resource::{Etag, Phase, Resource, ResourceKind};
use self::route::Routes;
pub use self::route::{NewRoute, Route};
pub use self::shared::{Frontend, NewSharedLoadBalancer, SharedLoadBalancer};
pub use self::write::{DeleteResult, Precondition, Write, WriteFaults, WriteResult};
use crate::refusal::Refusal;

/// The longest lag of a list.
pub const MAX_LAG: Duration = Duration::from_mins(5);

/// How long past states are kept. A listing that begins at the longest lag has the same time again for its pages.
const HISTORY_SPAN: Duration = Duration::from_mins(10);

/// The cloud.
#[derive(Clone, Debug)]
pub struct World {
    fleet: Fleet,
    routes: Routes,
    pool: AddressPool,
    load_balancers: Resources<LoadBalancer>,
    addresses: Resources<ReservedAddress>,
    shared: Resources<SharedLoadBalancer>,
    /// Which shared load balancer uses an address, by name of the address.
    users: HashMap<String, String>,
    /// The most recently written list of machines.
    last_list: Arc<[MachineId]>,
    /// The latest time of any call: time never goes back.
    now: Duration,
}

impl World {
    /// A cloud that starts at `started_at`, with this many machines. They have always existed, so no lag hides them.
    pub fn new(place: Place, started_at: Timestamp, machines: u32) -> Self {
        Self {
            fleet: Fleet::new(place, started_at, machines),
            routes: Routes::default(),
            pool: AddressPool::default(),
            load_balancers: Resources::default(),
            addresses: Resources::default(),
            shared: Resources::default(),
            users: HashMap::new(),
            last_list: Arc::default(),
            now: Duration::ZERO,
        }
    }

    /// Its region and zones.
    pub fn place(&self) -> &Place {
        self.fleet.place()
    }

    /// Carries out a command, or refuses it and changes nothing.
    pub fn apply(&mut self, now: Duration, command: Command) -> Result<Reply, Refusal> {
        self.advance(now);
        self.fleet.apply(self.now, command)
    }

    /// One machine as it is now.
    pub fn get(&mut self, now: Duration, id: MachineId) -> Result<Arc<Machine>, Refusal> {
        self.advance(now);
        self.fleet.present(id)
    }

    /// One page of a list, with the state of `lag` before the first page was read. All pages show the same moment.
    ///
    /// # Errors
    /// [`Refusal::CursorExpired`] where that moment is forgotten, five minutes after the first page at the earliest
    /// (and only if the state has changed since), and [`Refusal::Invalid`] for an invalid limit or cursor.
    pub fn list(
        &mut self,
        now: Duration,
        listing: &Listing,
        lag: Duration,
    ) -> Result<Page<Machine>, Refusal> {
        let moment = self.moment(now, lag);
        listing.page(self.fleet.history(), moment)
    }

    /// Creates a route to an existing machine. Does nothing where the same route exists.
    pub fn put_route(&mut self, now: Duration, name: &str, route: NewRoute) -> Result<Arc<Route>, Refusal> {
        self.advance(now);
        self.fleet.present(route.machine)?;
        self.routes.put(self.now, name, route)
    }

    /// Removes a route.
    pub fn delete_route(&mut self, now: Duration, name: &str) -> Result<(), Refusal> {
        self.advance(now);
        self.routes.delete(self.now, name)
    }

    /// One page of the route table, as [`World::list`] shows machines. Whether a route is a blackhole is always current.
    pub fn list_routes(
        &mut self,
        now: Duration,
        listing: &Listing,
        lag: Duration,
    ) -> Result<Page<Route>, Refusal> {
        let moment = self.moment(now, lag);
        let mut page = listing.page(self.routes.history(), moment)?;
        for route in &mut page.items {
            *route = self.seen(route);
        }
        Ok(page)
    }

    /// A route, marked as a blackhole where its machine doesn't exist.
    fn seen(&self, route: &Arc<Route>) -> Arc<Route> {
        let mut route = Arc::clone(route);
        if !self.fleet.has(route.machine) {
            Arc::make_mut(&mut route).blackhole = true;
        }
        route
    }

    /// The number of machines by state and zone, and the first `first` machines.
    pub fn summary(&mut self, now: Duration, first: usize) -> Summary {
        self.advance(now);
        self.fleet.summary(first)
    }

    /// Advances the time: machines start and operations end when they are due, and old states are forgotten.
    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        self.fleet.advance(self.now);
        self.finish_due::<LoadBalancer>();
        self.finish_due::<ReservedAddress>();
        self.finish_due::<SharedLoadBalancer>();
        if let Some(horizon) = self.now.checked_sub(HISTORY_SPAN) {
            self.fleet.forget(horizon);
            self.routes.forget(horizon);
            self.load_balancers.forget(horizon);
            self.addresses.forget(horizon);
            self.shared.forget(horizon);
        }
    }

    /// The moment that a list shows; `None` for a moment before the start.
    fn moment(&mut self, now: Duration, lag: Duration) -> Option<Duration> {
        self.advance(now);
        self.now.checked_sub(lag)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn world(machines: u32) -> World {
        World::new(Place::new("sim-1".to_owned(), Vec::new()), Timestamp::UNIX_EPOCH, machines)
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn create(name: &str, takes: Duration) -> Command {
        Command::Create { machine: NewMachine::named(name), takes }
    }

    fn id(number: u64) -> MachineId {
        MachineId(number)
    }

    fn names(page: &Page<Machine>) -> Vec<&str> {
        page.items.iter().map(|machine| machine.name.as_str()).collect()
    }

    fn code(refusal: Result<Reply, Refusal>) -> &'static str {
        refusal.map_or_else(|refusal| refusal.code(), |_| "done")
    }

    #[test]
    fn default_fields_of_a_machine_follow_from_its_number() {
        let mut world = world(5_000);
        let mut shown = |number| serde_json::to_value(world.get(seconds(0), id(number)).unwrap()).unwrap();
        let expected = serde_json::json!({
            "id": "m-000001", "name": "node-1", "type": "small-2", "zone": "sim-1a", "region": "sim-1",
            "addresses": [
                {"kind": "internal-ip", "value": "10.0.0.1"},
                {"kind": "external-ip", "value": "203.0.113.1"},
                {"kind": "hostname", "value": "node-1"},
            ],
            "state": "running", "labels": {}, "createdAt": "1970-01-01T00:00:00Z",
        });
        assert_eq!(shown(1), expected);
        let last = shown(5_000);
        assert_eq!((&last["zone"], &last["name"]), (&"sim-1b".into(), &"node-5000".into()));
        assert_eq!(last["addresses"][0]["value"], "10.0.19.136");
        assert_eq!(last["addresses"][1]["value"], "198.18.19.136");
    }

    #[test]
    fn no_two_machines_share_an_address() {
        let mut world = world(5_000);
        let mut seen = BTreeSet::new();
        for machine in world.summary(seconds(0), 5_000).first {
            for address in &machine.addresses {
                assert!(seen.insert(address.value.clone()), "{}", address.value);
            }
        }
    }

    #[test]
    fn each_command_succeeds_or_fails_by_the_state_of_the_machine() {
        let changes = |labels: &[(&str, &str)]| Changes {
            labels: Some(
                labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ),
            ..Changes::default()
        };
        let change = |number, changes| Command::Change { id: id(number), changes };
        let zone = NewMachine { zone: Some("moon".to_owned()), ..NewMachine::named("c") };
        let empty = Changes { machine_type: Some(String::new()), ..Changes::default() };
        // One world with node-1 (running), node-2 (stopped), node-3 (deleted) and node-4 (creating).
        let table = [
            ("create under a free name", create("a", seconds(0)), "done"),
            ("create under the name of one that is gone", create("node-3", seconds(0)), "done"),
            ("create under a name that is taken", create("node-1", seconds(0)), "conflict"),
            ("create in an unknown zone", Command::Create { machine: zone, takes: seconds(0) }, "invalid"),
            ("create under no name", create("", seconds(0)), "invalid"),
            ("change", change(1, changes(&[("k", "v")])), "done"),
            ("change one that is stopped", change(2, changes(&[])), "done"),
            ("change one that is gone", change(3, changes(&[])), "not-found"),
            ("change one that is being created", change(4, changes(&[])), "done"),
            ("change to what can't be", change(1, empty), "invalid"),
            ("stop", Command::Stop(id(1)), "done"),
            ("stop one that is stopped", Command::Stop(id(2)), "done"),
            ("stop one that is gone", Command::Stop(id(3)), "not-found"),
            ("stop one that is being created", Command::Stop(id(4)), "conflict"),
            ("start one that runs", Command::Start(id(1)), "done"),
            ("start", Command::Start(id(2)), "done"),
            ("start one that is gone", Command::Start(id(3)), "not-found"),
            ("start one that is being created", Command::Start(id(4)), "conflict"),
            ("delete", Command::Delete(id(1)), "done"),
            ("delete one that is gone", Command::Delete(id(3)), "not-found"),
            ("delete one that never was", Command::Delete(id(9)), "not-found"),
            ("delete one that is being created", Command::Delete(id(4)), "done"),
        ];
        for (name, command, expected) in table {
            let mut world = world(3);
            world.apply(seconds(1), Command::Stop(id(2))).unwrap();
            world.apply(seconds(1), Command::Delete(id(3))).unwrap();
            world.apply(seconds(1), create("node-4", seconds(60))).unwrap();
            assert_eq!(code(world.apply(seconds(2), command)), expected, "{name}");
        }
    }

    #[test]
    fn a_change_keeps_fields_that_it_lacks() {
        let mut world = world(1);
        let before = world.get(seconds(0), id(1)).unwrap();
        let changes = Changes { machine_type: Some("large-8".to_owned()), ..Changes::default() };
        world.apply(seconds(1), Command::Change { id: id(1), changes }).unwrap();
        let expected = Machine { machine_type: "large-8".to_owned(), ..Machine::clone(&before) };
        assert_eq!(*world.get(seconds(1), id(1)).unwrap(), expected);
    }

    #[test]
    fn a_batch_takes_the_first_free_names_and_is_created_completely_or_not_at_all() {
        let mut world = world(0);
        world.apply(seconds(0), create("node-2", seconds(0))).unwrap();
        let batch = |count, prefix: &str| Command::CreateBatch {
            batch: Batch { count, prefix: prefix.to_owned() },
            takes: seconds(0),
        };
        let made = world.apply(seconds(1), batch(3, "node-")).unwrap();
        assert_eq!(made, Reply::Batch(["node-1", "node-3", "node-4"].map(str::to_owned).to_vec()));
        for refused in [batch(0, "node-"), batch(MAX_BATCH + 1, "node-"), batch(1, "Node-")] {
            assert_eq!(code(world.apply(seconds(2), refused)), "invalid");
        }
        assert_eq!(world.summary(seconds(2), 0).total, 4);
    }

    #[test]
    fn a_machine_runs_when_its_creation_is_due_and_was_creating_before() {
        let mut world = world(0);
        world.apply(seconds(10), create("a", seconds(5))).unwrap();
        assert_eq!(world.get(seconds(14), id(1)).unwrap().state, State::Creating);
        assert_eq!(world.get(seconds(30), id(1)).unwrap().state, State::Running);
        for (lag, expected) in [(14, State::Running), (15, State::Running), (16, State::Creating)] {
            let page = world.list(seconds(30), &Listing::default(), seconds(lag)).unwrap();
            assert_eq!(page.items[0].state, expected, "{lag} s ago");
        }
    }

    #[test]
    fn a_list_lags_and_a_read_of_one_machine_does_not() {
        let mut world = world(2);
        world.apply(seconds(10), create("late", seconds(0))).unwrap();
        world.apply(seconds(11), Command::Delete(id(1))).unwrap();
        let mut listed = |now, lag| {
            let page = world.list(seconds(now), &Listing::default(), seconds(lag)).unwrap();
            names(&page).join(" ")
        };
        assert_eq!(listed(12, 0), "node-2 late");
        assert_eq!(listed(12, 2), "node-1 node-2 late");
        assert_eq!(listed(12, 3), "node-1 node-2");
        assert_eq!(listed(12, 300), "node-1 node-2", "initial machines have always existed");
        assert_eq!(listed(14, 3), "node-2 late");
        assert_eq!(world.get(seconds(14), id(1)).unwrap_err().to_string(), "no machine m-000001");
    }

    #[test]
    fn a_listing_is_kept_for_as_long_again_as_the_longest_lag() {
        let mut world = world(3);
        world.apply(seconds(1_000), Command::Delete(id(1))).unwrap();
        let first = Listing { limit: Some(1), ..Listing::default() };
        let page = world.list(seconds(1_200), &first, MAX_LAG).unwrap();
        assert_eq!(names(&page), ["node-1"]);
        let next = Listing { cursor: page.next, ..first };
        world.apply(seconds(1_201), Command::Delete(id(2))).unwrap();
        assert_eq!(names(&world.list(seconds(1_599), &next, seconds(0)).unwrap()), ["node-2"]);
        let refusal = world.list(seconds(1_600), &next, seconds(0)).unwrap_err();
        assert_eq!(refusal.code(), "cursor-expired");
    }
}
