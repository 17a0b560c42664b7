//! Tests the world against a model that keeps a copy of all machines at every moment. In any order of events, lists show exactly
//! a past moment, the pages of a listing add up to that moment, and names are unique.

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
use simulated_cloud::world::{
    Batch, Changes, Command, Listing, Machine, MachineId, NewMachine, Page, Place, Reply, State, World,
};

/// One event, some time after the previous one.
#[derive(Clone, Debug)]
enum Event {
    Create { name: u8 },
    Batch { count: u32 },
    Relabel { number: usize, value: u8 },
    Stop { number: usize },
    Start { number: usize },
    Delete { number: usize },
    DeleteBatch { count: u32 },
}

fn events() -> impl Strategy<Value = Vec<(Duration, Event)>> {
    let number = 1_usize..14;
    let event = prop_oneof![
        (0_u8..6).prop_map(|name| Event::Create { name }),
        (1_u32..4).prop_map(|count| Event::Batch { count }),
        (number.clone(), any::<u8>()).prop_map(|(number, value)| Event::Relabel { number, value }),
        number.clone().prop_map(|number| Event::Stop { number }),
        number.clone().prop_map(|number| Event::Start { number }),
        number.prop_map(|number| Event::Delete { number }),
        (1_u32..4).prop_map(|count| Event::DeleteBatch { count }),
    ];
    // There may be no time between two events, so that the clock can't tell their moments apart.
    prop::collection::vec(((0_u64..3_000).prop_map(Duration::from_millis), event), 0..40)
}

/// All machines at one moment.
type Snapshot = BTreeMap<MachineId, Arc<Machine>>;

struct Model {
    world: World,
    now: Duration,
    past: Vec<(Duration, Snapshot)>,
}

impl Model {
    fn new(machines: u32) -> Self {
        let place = Place::new("sim-1".to_owned(), Vec::new());
        let mut world = World::new(place, Timestamp::UNIX_EPOCH, machines);
        let start = everything(&world.summary(Duration::ZERO, usize::MAX).first);
        Self { world, now: Duration::ZERO, past: vec![(Duration::ZERO, start)] }
    }

    fn present(&self) -> &Snapshot {
        &self.past.last().unwrap().1
    }

    fn at(&self, moment: Option<Duration>) -> &Snapshot {
        let made = |(at, _): &&(Duration, Snapshot)| moment.is_some_and(|moment| *at <= moment);
        &self.past.iter().rev().find(made).unwrap_or(&self.past[0]).1
    }

    fn id(number: usize) -> MachineId {
        MachineId::parse(&format!("m-{number:06}")).unwrap()
    }

    /// Applies an event, checks the reply, and records the state afterwards.
    fn apply_event(&mut self, after: Duration, event: &Event) {
        self.now += after;
        let mut next = self.present().clone();
        let takes = Duration::ZERO;
        let (now, before) = (self.now, next.clone());
        match event {
            Event::Create { name } => {
                let machine = NewMachine::named(format!("node-{name}"));
                let exists = before.values().any(|there| there.name == machine.name);
                match self.world.apply(now, Command::Create { machine, takes }) {
                    Ok(Reply::Machine(machine)) => {
                        assert!(!exists, "{} exists twice", machine.name);
                        assert!(next.insert(machine.id, machine).is_none(), "an ID was reused");
                    }
                    other => assert!(exists && other.unwrap_err().code() == "conflict"),
                }
            }
            Event::Batch { count } => {
                let batch = Batch { count: *count, prefix: "node-".to_owned() };
                self.world.apply(now, Command::CreateBatch { batch, takes }).unwrap();
                next = everything(&self.world.summary(now, usize::MAX).first);
                assert_eq!(next.len(), before.len() + usize::try_from(*count).unwrap());
                assert!(before.iter().all(|(id, machine)| next.get(id) == Some(machine)));
            }
            Event::Relabel { number, value } => {
                let labels = BTreeMap::from([("k".to_owned(), value.to_string())]);
                let id = Self::id(*number);
                let changes = Changes { labels: Some(labels.clone()), ..Changes::default() };
                let done = self.world.apply(now, Command::Change { id, changes });
                let edit = |machine: &mut Machine| machine.labels = labels;
                self.check_edit(id, done, &mut next, edit);
            }
            Event::Stop { number } => {
                let id = Self::id(*number);
                let done = self.world.apply(now, Command::Stop(id));
                self.check_edit(id, done, &mut next, |machine| machine.state = State::Stopped);
            }
            Event::Start { number } => {
                let id = Self::id(*number);
                let done = self.world.apply(now, Command::Start(id));
                self.check_edit(id, done, &mut next, |machine| machine.state = State::Running);
            }
            Event::Delete { number } => {
                let id = Self::id(*number);
                let done = self.world.apply(now, Command::Delete(id));
                match next.remove(&id) {
                    Some(_) => assert_eq!(done, Ok(Reply::Deleted)),
                    None => assert_eq!(done.unwrap_err().code(), "not-found"),
                }
            }
            Event::DeleteBatch { count } => {
                let batch = Batch { count: *count, prefix: "node-".to_owned() };
                let mut names = Vec::new();
                for _ in 0..*count {
                    names.extend(next.pop_first().map(|(_, machine)| machine.name.clone()));
                }
                assert_eq!(self.world.apply(now, Command::DeleteBatch(batch)), Ok(Reply::Batch(names)));
            }
        }
        let names: BTreeSet<_> = next.values().map(|machine| &machine.name).collect();
        assert_eq!(names.len(), next.len(), "names are unique");
        self.past.push((now, next));
        self.reads_are_current();
    }

    fn check_edit(
        &self,
        id: MachineId,
        done: Result<Reply, simulated_cloud::Refusal>,
        next: &mut Snapshot,
        edit: impl FnOnce(&mut Machine),
    ) {
        let Some(machine) = self.present().get(&id) else {
            assert_eq!(done.unwrap_err().code(), "not-found");
            return;
        };
        let mut machine = Machine::clone(machine);
        edit(&mut machine);
        let machine = Arc::new(machine);
        assert_eq!(done, Ok(Reply::Machine(Arc::clone(&machine))));
        next.insert(id, machine);
    }

    fn reads_are_current(&mut self) {
        for number in 1..14 {
            let id = Self::id(number);
            assert_eq!(self.world.get(self.now, id).ok().as_ref(), self.present().get(&id));
        }
    }

    fn page(&mut self, limit: usize, cursor: Option<String>, lag: Duration) -> Page<Machine> {
        let listing = Listing { limit: Some(limit), cursor, name: None };
        self.world.list(self.now, &listing, lag).unwrap()
    }
}

fn everything(machines: &[Arc<Machine>]) -> Snapshot {
    machines.iter().map(|machine| (machine.id, Arc::clone(machine))).collect()
}

proptest! {
    #[test]
    fn a_list_shows_exactly_the_moment_that_it_lags_behind(
        machines in 0_u32..4,
        events in events(),
        lags in prop::collection::vec(0_u64..60_000, 1..8),
    ) {
        let mut model = Model::new(machines);
        for (after, event) in &events {
            model.apply_event(*after, event);
            for lag in &lags {
                let lag = Duration::from_millis(*lag);
                let page = model.page(1_000, None, lag);
                prop_assert_eq!(&everything(&page.items), model.at(model.now.checked_sub(lag)));
            }
        }
    }

    #[test]
    fn the_pages_of_a_listing_show_each_machine_of_its_moment_once_despite_other_events(
        machines in 0_u32..12,
        before in events(),
        meanwhile in events(),
        limit in 1_usize..5,
        lag in 0_u64..30_000,
    ) {
        let mut model = Model::new(machines);
        for (after, event) in &before {
            model.apply_event(*after, event);
        }
        let lag = Duration::from_millis(lag);
        let expected: Vec<_> = model.at(model.now.checked_sub(lag)).values().cloned().collect();
        let mut meanwhile = meanwhile.iter();
        let mut seen = Vec::new();
        let mut cursor = None;
        loop {
            let page = model.page(limit, cursor, lag);
            prop_assert!(page.items.len() <= limit);
            seen.extend(page.items);
            let Some(next) = page.next else { break };
            cursor = Some(next);
            for (after, event) in meanwhile.by_ref().take(2) {
                model.apply_event(*after, event);
            }
        }
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn forgetting_old_states_never_changes_visible_ones(machines in 0_u32..4, events in events()) {
        let mut model = Model::new(machines);
        for (after, event) in &events {
            // A hundred times slower, so that the ten minutes of kept history pass many times.
            model.apply_event(*after * 100, event);
            for lag in [Duration::ZERO, Duration::from_mins(2), Duration::from_mins(5)] {
                let page = model.page(1_000, None, lag);
                prop_assert_eq!(&everything(&page.items), model.at(model.now.checked_sub(lag)));
            }
        }
    }
}
