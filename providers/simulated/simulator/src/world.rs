//! The state of the cloud and everything that it decides: a pure state machine. Time comes as an argument, counted
//! from the start of the cloud; the past is kept for a while, so that lists may show it as an eventually consistent
//! cloud's do, while a read of one machine always shows the present.
//!
//! Another kind of object gets a `history::History` of its own beside the machines, its commands and its replies.

mod batch;
mod command;
mod history;
mod machine;
mod route;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp, Unit};

pub use self::command::{Command, LARGEST_PAGE, Listing, Page, Place, Reply, Summary};
use self::history::{History, Revision};
pub use self::machine::{
    Address, AddressKind, Batch, Changes, LARGEST_BATCH, Machine, MachineId, NewMachine, State,
};
use self::route::Routes;
pub use self::route::{NewRoute, Route, RoutePage};
use crate::refusal::Refusal;

/// The furthest that a list may lag.
pub const MAX_LAG: Duration = Duration::from_mins(5);

/// For how long the past is remembered. A listing that begins at the longest lag has as long again for its pages.
const MEMORY: Duration = Duration::from_mins(10);

/// The type of a machine that was not given one.
const USUAL_TYPE: &str = "small-2";

/// The cloud.
#[derive(Clone, Debug)]
pub struct World {
    place: Place,
    born: Timestamp,
    machines: History<Machine>,
    routes: Routes,
    /// The names that are taken, and by which number.
    names: HashMap<String, u64>,
    /// The number of the machine that was made last.
    last: u64,
    /// When which machine that is being created will run.
    creating: BTreeSet<(Duration, u64)>,
    /// The latest time that anybody mentioned: time never goes back.
    now: Duration,
}

impl World {
    /// A cloud that begins at `born`, with so many machines that have always been there: no lag hides them.
    pub fn new(place: Place, born: Timestamp, machines: u32) -> Self {
        let mut world = Self {
            place,
            born,
            machines: History::default(),
            routes: Routes::default(),
            names: HashMap::new(),
            last: 0,
            creating: BTreeSet::new(),
            now: Duration::ZERO,
        };
        for number in 1..=machines {
            world.create(NewMachine::named(format!("node-{number}")), Duration::ZERO);
        }
        world.machines.forget(Duration::ZERO);
        world
    }

    /// Where its machines are.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Carries out a command, or refuses it and changes nothing.
    pub fn apply(&mut self, now: Duration, command: Command) -> Result<Reply, Refusal> {
        self.advance(now);
        match command {
            Command::Create { machine, takes } => {
                machine.check(&self.place.zones)?;
                if let Some(holder) = self.names.get(&machine.name) {
                    let (name, holder) = (machine.name, MachineId(*holder));
                    return Err(Refusal::Conflict(format!("the name {name} is taken by machine {holder}")));
                }
                Ok(Reply::Machine(self.create(machine, takes)))
            }
            Command::CreateBatch { batch, takes } => {
                batch.check()?;
                Ok(Reply::Batch(self.create_batch(&batch, takes)))
            }
            Command::Change { id, changes } => {
                changes.check()?;
                self.change(id, |machine| changes.change(machine)).map(Reply::Machine)
            }
            Command::Stop(id) => self.turn(id, State::Stopped).map(Reply::Machine),
            Command::Start(id) => self.turn(id, State::Running).map(Reply::Machine),
            Command::Delete(id) => {
                self.remove(&*self.present(id)?);
                Ok(Reply::Deleted)
            }
            Command::DeleteBatch(batch) => {
                batch.check()?;
                Ok(Reply::Batch(self.delete_batch(&batch)))
            }
        }
    }

    /// One machine as it is now.
    pub fn get(&mut self, now: Duration, id: MachineId) -> Result<Arc<Machine>, Refusal> {
        self.advance(now);
        self.present(id)
    }

    /// One page of a list, as the cloud was `lag` ago when its first page was read: all pages show the same moment.
    ///
    /// # Errors
    /// [`Refusal::CursorExpired`] where that moment is forgotten, five minutes after the first page at the soonest
    /// (and only once something has changed), and [`Refusal::Invalid`] for a limit or a cursor that can't be.
    pub fn list(&mut self, now: Duration, listing: &Listing, lag: Duration) -> Result<Page, Refusal> {
        self.advance(now);
        let limit = listing.page_limit()?;
        let Cursor { revision, behind } = match &listing.cursor {
            None => Cursor { revision: self.revision_before(lag), behind: 0 },
            Some(text) => self.cursor(text)?,
        };
        let wanted = |machine: &&Arc<Machine>| listing.name.as_ref().is_none_or(|name| *name == machine.name);
        let mut rest = self.machines.behind(behind, revision).filter(wanted).cloned();
        let machines: Vec<_> = rest.by_ref().take(limit).collect();
        let next = match (rest.next(), machines.last()) {
            (Some(_), Some(last)) => Some(Cursor { revision, behind: last.id.0 }.to_string()),
            _ => None,
        };
        Ok(Page { machines, next })
    }

    /// Makes a route to a machine that is there, or finds it made.
    pub fn put_route(&mut self, now: Duration, name: &str, route: NewRoute) -> Result<Arc<Route>, Refusal> {
        self.advance(now);
        self.present(route.machine)?;
        self.routes.put(self.now, name, route)
    }

    /// Removes a route.
    pub fn delete_route(&mut self, now: Duration, name: &str) -> Result<(), Refusal> {
        self.advance(now);
        self.routes.delete(self.now, name)
    }

    /// One page of the route table, as [`World::list`] shows machines. Whether a route leads nowhere is told as of now.
    pub fn list_routes(
        &mut self,
        now: Duration,
        listing: &Listing,
        lag: Duration,
    ) -> Result<RoutePage, Refusal> {
        self.advance(now);
        let limit = listing.page_limit()?;
        let Cursor { revision, behind } = match &listing.cursor {
            None => Cursor { revision: self.routes.revision_before(self.now, lag), behind: 0 },
            Some(text) => Cursor::parse(text)
                .filter(|cursor| self.routes.remembers(cursor.revision))
                .ok_or_else(|| Refusal::CursorExpired(text.clone()))?,
        };
        let wanted =
            |(_, route): &(u64, &Arc<Route>)| listing.name.as_ref().is_none_or(|name| *name == route.name);
        let mut rest = self.routes.behind(behind, revision).filter(wanted);
        let mut page = RoutePage { routes: Vec::new(), next: None };
        let mut last = behind;
        for (number, route) in rest.by_ref().take(limit) {
            let blackhole = self.machines.current(route.machine.0).is_none();
            page.routes.push(Route { blackhole, ..Route::clone(route) });
            last = number;
        }
        page.next = rest.next().map(|_| Cursor { revision, behind: last }.to_string());
        Ok(page)
    }

    /// How many machines of which sort there are, and the first `first` of them.
    pub fn summary(&mut self, now: Duration, first: usize) -> Summary {
        self.advance(now);
        let states = [State::Creating, State::Running, State::Stopped];
        let mut by_state = BTreeMap::from(states.map(|state| (state, 0)));
        let mut by_zone: BTreeMap<_, _> = self.place.zones.iter().map(|zone| (zone.clone(), 0)).collect();
        for machine in self.machines.all() {
            *by_state.entry(machine.state).or_default() += 1;
            if let Some(count) = by_zone.get_mut(&machine.zone) {
                *count += 1;
            }
        }
        let first = self.machines.all().take(first).cloned().collect();
        Summary { total: self.names.len(), by_state, by_zone, routes: self.routes.count(), first }
    }

    /// Lets time pass: machines come up when they are due, and the distant past is forgotten.
    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        while let Some(&(due, number)) = self.creating.first().filter(|(due, _)| *due <= self.now) {
            self.creating.remove(&(due, number));
            if let Some(machine) = self.machines.current(number) {
                let machine = Machine { state: State::Running, ..Machine::clone(machine) };
                self.machines.change(due, number, Some(Arc::new(machine)));
            }
        }
        if let Some(horizon) = self.now.checked_sub(MEMORY) {
            self.machines.forget(horizon);
            self.routes.forget(horizon);
        }
    }

    fn revision_before(&self, lag: Duration) -> Revision {
        self.now.checked_sub(lag).map_or(self.machines.oldest(), |moment| self.machines.revision_at(moment))
    }

    fn cursor(&self, text: &str) -> Result<Cursor, Refusal> {
        let cursor = Cursor::parse(text).filter(|cursor| cursor.revision <= self.machines.newest());
        let cursor =
            cursor.ok_or_else(|| Refusal::Invalid(format!("cursor {text:?} is none of this cloud's")))?;
        if cursor.revision < self.machines.oldest() {
            return Err(Refusal::CursorExpired(text.to_owned()));
        }
        Ok(cursor)
    }

    fn present(&self, id: MachineId) -> Result<Arc<Machine>, Refusal> {
        self.machines.current(id.0).cloned().ok_or_else(|| Refusal::NotFound(format!("machine {id}")))
    }

    /// Makes a machine whose name is known to be free.
    fn create(&mut self, machine: NewMachine, takes: Duration) -> Arc<Machine> {
        self.last += 1;
        let number = self.last;
        let NewMachine { name, machine_type, zone, addresses, labels } = machine;
        let machine = Arc::new(Machine {
            id: MachineId(number),
            machine_type: machine_type.unwrap_or_else(|| USUAL_TYPE.to_owned()),
            zone: zone.unwrap_or_else(|| self.usual_zone(number)),
            region: self.place.region.clone(),
            addresses: addresses.unwrap_or_else(|| usual_addresses(number, &name)),
            state: if takes.is_zero() { State::Running } else { State::Creating },
            labels: labels.unwrap_or_default(),
            created_at: self.timestamp(),
            name,
        });
        self.names.insert(machine.name.clone(), number);
        self.machines.change(self.now, number, Some(Arc::clone(&machine)));
        if !takes.is_zero() {
            self.creating.insert((self.now.saturating_add(takes), number));
        }
        machine
    }

    /// Removes a machine that is there.
    fn remove(&mut self, machine: &Machine) {
        self.names.remove(&machine.name);
        self.machines.change(self.now, machine.id.0, None);
    }

    fn turn(&mut self, id: MachineId, state: State) -> Result<Arc<Machine>, Refusal> {
        if self.present(id)?.state == State::Creating {
            return Err(Refusal::Conflict(format!("machine {id} is still being created, ask again later")));
        }
        self.change(id, |machine| machine.state = state)
    }

    fn change(&mut self, id: MachineId, edit: impl FnOnce(&mut Machine)) -> Result<Arc<Machine>, Refusal> {
        let before = self.present(id)?;
        let mut machine = Machine::clone(&before);
        edit(&mut machine);
        if machine == *before {
            return Ok(before);
        }
        let machine = Arc::new(machine);
        self.machines.change(self.now, id.0, Some(Arc::clone(&machine)));
        Ok(machine)
    }

    /// The zones in turn.
    fn usual_zone(&self, number: u64) -> String {
        let turn = usize::try_from(number - 1).unwrap_or_default() % self.place.zones.len();
        self.place.zones.get(turn).cloned().unwrap_or_default()
    }

    /// Now, in whole milliseconds: finer is only noise to a reader.
    fn timestamp(&self) -> Timestamp {
        let since = SignedDuration::try_from(self.now).unwrap_or_default();
        let now = self.born.saturating_add(since).unwrap_or(self.born);
        now.round(Unit::Millisecond).unwrap_or(now)
    }
}

/// The addresses of a machine that was not given any. Internal ones count through 10.0.0.0/8. External ones are of
/// ranges that nobody on the internet has: 203.0.113.0/24 as long as it lasts, then 198.18.0.0/15, so that no two of
/// 131,000 machines share one.
fn usual_addresses(number: u64, name: &str) -> Vec<Address> {
    let within = |base: [u8; 4], size: u32| {
        let offset = u32::try_from(number % u64::from(size)).unwrap_or_default();
        Ipv4Addr::from_bits(Ipv4Addr::from(base).to_bits() | offset).to_string()
    };
    let external =
        if number < 255 { within([203, 0, 113, 0], 1 << 8) } else { within([198, 18, 0, 0], 1 << 17) };
    vec![
        Address { kind: AddressKind::InternalIp, value: within([10, 0, 0, 0], 1 << 24) },
        Address { kind: AddressKind::ExternalIp, value: external },
        Address { kind: AddressKind::Hostname, value: name.to_owned() },
    ]
}

/// Where a listing goes on: the moment that it shows, and the number behind which the next page begins.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    revision: Revision,
    behind: u64,
}

impl Cursor {
    fn parse(text: &str) -> Option<Self> {
        let (revision, behind) = text.strip_prefix('c')?.split_once('-')?;
        Some(Self { revision: revision.parse().ok()?, behind: behind.parse().ok()? })
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "c{}-{}", self.revision, self.behind)
    }
}

#[cfg(test)]
mod tests {
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

    fn names(page: &Page) -> Vec<&str> {
        page.machines.iter().map(|machine| machine.name.as_str()).collect()
    }

    fn code(refusal: Result<Reply, Refusal>) -> &'static str {
        refusal.map_or_else(|refusal| refusal.code(), |_| "done")
    }

    #[test]
    fn what_a_machine_was_not_given_follows_from_its_number() {
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
    fn each_command_is_answered_as_the_machine_allows() {
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
            (
                "create in a zone that is none",
                Command::Create { machine: zone, takes: seconds(0) },
                "invalid",
            ),
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
    fn what_is_not_given_in_a_change_stays() {
        let mut world = world(1);
        let before = world.get(seconds(0), id(1)).unwrap();
        let changes = Changes { machine_type: Some("large-8".to_owned()), ..Changes::default() };
        world.apply(seconds(1), Command::Change { id: id(1), changes }).unwrap();
        let expected = Machine { machine_type: "large-8".to_owned(), ..Machine::clone(&before) };
        assert_eq!(*world.get(seconds(1), id(1)).unwrap(), expected);
    }

    #[test]
    fn a_batch_takes_the_first_names_that_are_free_and_is_made_whole_or_not() {
        let mut world = world(0);
        world.apply(seconds(0), create("node-2", seconds(0))).unwrap();
        let batch = |count, prefix: &str| Command::CreateBatch {
            batch: Batch { count, prefix: prefix.to_owned() },
            takes: seconds(0),
        };
        let made = world.apply(seconds(1), batch(3, "node-")).unwrap();
        assert_eq!(made, Reply::Batch(["node-1", "node-3", "node-4"].map(str::to_owned).to_vec()));
        for refused in [batch(0, "node-"), batch(LARGEST_BATCH + 1, "node-"), batch(1, "Node-")] {
            assert_eq!(code(world.apply(seconds(2), refused)), "invalid");
        }
        assert_eq!(world.summary(seconds(2), 0).total, 4);
    }

    #[test]
    fn a_machine_runs_once_its_creation_is_due_and_the_past_knows_it_creating() {
        let mut world = world(0);
        world.apply(seconds(10), create("a", seconds(5))).unwrap();
        assert_eq!(world.get(seconds(14), id(1)).unwrap().state, State::Creating);
        assert_eq!(world.get(seconds(30), id(1)).unwrap().state, State::Running);
        for (lag, expected) in [(14, State::Running), (15, State::Running), (16, State::Creating)] {
            let page = world.list(seconds(30), &Listing::default(), seconds(lag)).unwrap();
            assert_eq!(page.machines[0].state, expected, "{lag} s ago");
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
        assert_eq!(listed(12, 300), "node-1 node-2", "machines of the start have always been there");
        assert_eq!(listed(14, 3), "node-2 late");
        assert_eq!(world.get(seconds(14), id(1)).unwrap_err().to_string(), "no machine m-000001");
    }

    #[test]
    fn a_name_filters_to_that_name_exactly() {
        let mut world = world(20);
        let listing = |name: &str| Listing { name: Some(name.to_owned()), ..Listing::default() };
        let page = world.list(seconds(0), &listing("node-1"), seconds(0)).unwrap();
        assert_eq!((names(&page), &page.next), (vec!["node-1"], &None));
        assert!(world.list(seconds(0), &listing("node-"), seconds(0)).unwrap().machines.is_empty());
    }

    #[test]
    fn limits_and_cursors_that_can_not_be_are_refused() {
        let mut world = world(3);
        let mut list = |limit, cursor: Option<&str>| {
            let listing = Listing { limit, cursor: cursor.map(str::to_owned), name: None };
            world.list(seconds(0), &listing, seconds(0)).map_or_else(|refusal| refusal.code(), |_| "done")
        };
        for (limit, expected) in [(0, "invalid"), (1, "done"), (1_000, "done"), (1_001, "invalid")] {
            assert_eq!(list(Some(limit), None), expected, "limit {limit}");
        }
        for cursor in ["", "c", "c3", "3-1", "c3-x", "c4-1"] {
            assert_eq!(list(None, Some(cursor)), "invalid", "cursor {cursor:?}");
        }
    }

    #[test]
    fn a_listing_is_remembered_for_as_long_again_as_the_longest_lag() {
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
