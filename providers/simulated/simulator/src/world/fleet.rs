//! The machines of the cloud, by number and by name, with their past.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp, Unit};

use super::command::{Command, Place, Reply, Summary};
use super::history::History;
use super::machine::{Address, AddressKind, Batch, Machine, MachineId, NewMachine, State};
use crate::refusal::Refusal;

/// The default type of a machine.
const DEFAULT_TYPE: &str = "small-2";

/// The machines.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    place: Place,
    started_at: Timestamp,
    history: History<Machine>,
    /// The numbers of the machines by name.
    names: HashMap<String, u64>,
    /// The number of the last machine that was created.
    last: u64,
    /// When machines that are being created will run.
    creating: BTreeSet<(Duration, u64)>,
}

impl Fleet {
    /// A fleet with this many machines. They have always existed, so no lag hides them.
    pub(super) fn new(place: Place, started_at: Timestamp, machines: u32) -> Self {
        let mut fleet = Self {
            place,
            started_at,
            history: History::default(),
            names: HashMap::new(),
            last: 0,
            creating: BTreeSet::new(),
        };
        for number in 1..=machines {
            let machine = NewMachine::named(format!("node-{number}"));
            fleet.create(Duration::ZERO, machine, Duration::ZERO);
        }
        fleet.history.forget(Duration::ZERO);
        fleet
    }

    /// Their region and zones.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The machines with their past.
    pub(super) fn history(&self) -> &History<Machine> {
        &self.history
    }

    /// Carries out a command, or refuses it and changes nothing.
    pub(super) fn apply(&mut self, now: Duration, command: Command) -> Result<Reply, Refusal> {
        match command {
            Command::Create { machine, takes } => {
                machine.check(&self.place.zones)?;
                if let Some(holder) = self.names.get(&machine.name) {
                    let (name, holder) = (machine.name, MachineId(*holder));
                    return Err(Refusal::Conflict(format!("the name {name} is used by machine {holder}")));
                }
                Ok(Reply::Machine(self.create(now, machine, takes)))
            }
            Command::CreateBatch { batch, takes } => {
                batch.check()?;
                Ok(Reply::Batch(self.create_batch(now, &batch, takes)))
            }
            Command::Change { id, changes } => {
                changes.check()?;
                self.change(now, id, |machine| changes.change(machine)).map(Reply::Machine)
            }
            Command::Stop(id) => self.set_state(now, id, State::Stopped).map(Reply::Machine),
            Command::Start(id) => self.set_state(now, id, State::Running).map(Reply::Machine),
            Command::Delete(id) => {
                self.remove(now, &*self.present(id)?);
                Ok(Reply::Deleted)
            }
            Command::DeleteBatch(batch) => {
                batch.check()?;
                Ok(Reply::Batch(self.delete_batch(now, &batch)))
            }
        }
    }

    /// The machine of this id.
    pub(super) fn present(&self, id: MachineId) -> Result<Arc<Machine>, Refusal> {
        self.history.current(id.0).cloned().ok_or_else(|| Refusal::NotFound(format!("machine {id}")))
    }

    /// Whether this machine exists.
    pub(super) fn has(&self, id: MachineId) -> bool {
        self.history.current(id.0).is_some()
    }

    /// Whether this machine exists or has existed.
    pub(super) fn has_existed(&self, id: MachineId) -> bool {
        (1..=self.last).contains(&id.0)
    }

    /// The number of machines by state and zone, and the first `first` machines.
    pub(super) fn summary(&self, first: usize) -> Summary {
        let states = [State::Creating, State::Running, State::Stopped];
        let mut by_state = BTreeMap::from(states.map(|state| (state, 0)));
        let mut by_zone: BTreeMap<_, _> = self.place.zones.iter().map(|zone| (zone.clone(), 0)).collect();
        for machine in self.history.all() {
            *by_state.entry(machine.state).or_default() += 1;
            if let Some(count) = by_zone.get_mut(&machine.zone) {
                *count += 1;
            }
        }
        let first = self.history.all().take(first).cloned().collect();
        Summary { total: self.names.len(), by_state, by_zone, first }
    }

    /// Starts machines whose creation is due.
    pub(super) fn advance(&mut self, now: Duration) {
        while let Some(&(due, number)) = self.creating.first().filter(|(due, _)| *due <= now) {
            self.creating.remove(&(due, number));
            if let Some(machine) = self.history.current(number) {
                let machine = Machine { state: State::Running, ..Machine::clone(machine) };
                self.history.change(due, number, Some(Arc::new(machine)));
            }
        }
    }

    /// Forgets states before this time.
    pub(super) fn forget(&mut self, at: Duration) {
        self.history.forget(at);
    }

    /// Creates a machine whose name is free.
    fn create(&mut self, now: Duration, machine: NewMachine, takes: Duration) -> Arc<Machine> {
        self.last += 1;
        let number = self.last;
        let NewMachine { name, machine_type, zone, addresses, labels } = machine;
        let machine = Arc::new(Machine {
            id: MachineId(number),
            machine_type: machine_type.unwrap_or_else(|| DEFAULT_TYPE.to_owned()),
            zone: zone.unwrap_or_else(|| self.default_zone(number)),
            region: self.place.region.clone(),
            addresses: addresses.unwrap_or_else(|| default_addresses(number, &name)),
            state: if takes.is_zero() { State::Running } else { State::Creating },
            labels: labels.unwrap_or_default(),
            created_at: self.timestamp(now),
            name,
        });
        self.names.insert(machine.name.clone(), number);
        self.history.change(now, number, Some(Arc::clone(&machine)));
        if !takes.is_zero() {
            self.creating.insert((now.saturating_add(takes), number));
        }
        machine
    }

    /// Removes an existing machine.
    fn remove(&mut self, now: Duration, machine: &Machine) {
        self.names.remove(&machine.name);
        self.history.change(now, machine.id.0, None);
    }

    /// Creates many machines with the first free names.
    fn create_batch(&mut self, now: Duration, batch: &Batch, takes: Duration) -> Vec<String> {
        let mut names = (1_u64..).map(|number| format!("{}{number}", batch.prefix));
        let mut made = Vec::new();
        for _ in 0..batch.count {
            // There are more numbers than machines, so a free name always exists.
            let Some(name) = names.find(|name| !self.names.contains_key(name)) else { break };
            self.create(now, NewMachine::named(name.clone()), takes);
            made.push(name);
        }
        made
    }

    /// Removes the first machines, by ID, with this prefix: many at once, as when a zone fails.
    fn delete_batch(&mut self, now: Duration, batch: &Batch) -> Vec<String> {
        let matching = self.history.all().filter(|machine| machine.name.starts_with(&batch.prefix));
        let most = usize::try_from(batch.count).unwrap_or(usize::MAX);
        let gone: Vec<_> = matching.take(most).cloned().collect();
        for machine in &gone {
            self.remove(now, machine);
        }
        gone.iter().map(|machine| machine.name.clone()).collect()
    }

    fn set_state(&mut self, now: Duration, id: MachineId, state: State) -> Result<Arc<Machine>, Refusal> {
        if self.present(id)?.state == State::Creating {
            return Err(Refusal::Conflict(format!("machine {id} is still being created; retry later")));
        }
        self.change(now, id, |machine| machine.state = state)
    }

    fn change(
        &mut self,
        now: Duration,
        id: MachineId,
        edit: impl FnOnce(&mut Machine),
    ) -> Result<Arc<Machine>, Refusal> {
        let before = self.present(id)?;
        let mut machine = Machine::clone(&before);
        edit(&mut machine);
        if machine == *before {
            return Ok(before);
        }
        let machine = Arc::new(machine);
        self.history.change(now, id.0, Some(Arc::clone(&machine)));
        Ok(machine)
    }

    /// Spreads machines over the zones.
    fn default_zone(&self, number: u64) -> String {
        let index = usize::try_from(number - 1).unwrap_or_default() % self.place.zones.len();
        self.place.zones.get(index).cloned().unwrap_or_default()
    }

    /// The wall clock's time, in whole milliseconds.
    fn timestamp(&self, now: Duration) -> Timestamp {
        let since = SignedDuration::try_from(now).unwrap_or_default();
        let now = self.started_at.saturating_add(since).unwrap_or(self.started_at);
        now.round(Unit::Millisecond).unwrap_or(now)
    }
}

/// The default addresses of a machine. Internal ones count through 10.0.0.0/8. External ones are from ranges that aren't used
/// on the internet: 203.0.113.0/24 for the first 254, then 198.18.0.0/15, so that no two of 131,000 machines share one.
fn default_addresses(number: u64, name: &str) -> Vec<Address> {
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
