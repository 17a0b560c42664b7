//! Many machines at once: made for a test that needs thousands, and gone together as when a zone fails.

use std::time::Duration;

use super::World;
use super::machine::{Batch, NewMachine};

impl World {
    /// Makes machines of the first names that are free.
    pub(super) fn create_batch(&mut self, batch: &Batch, takes: Duration) -> Vec<String> {
        let mut names = (1_u64..).map(|number| format!("{}{number}", batch.prefix));
        let mut made = Vec::new();
        for _ in 0..batch.count {
            // Names never run out: there are more numbers than machines.
            let Some(name) = names.find(|name| !self.names.contains_key(name)) else { break };
            self.create(NewMachine::named(name.clone()), takes);
            made.push(name);
        }
        made
    }

    /// Removes the first machines, by id, whose names begin so.
    pub(super) fn delete_batch(&mut self, batch: &Batch) -> Vec<String> {
        let matching = self.machines.all().filter(|machine| machine.name.starts_with(&batch.prefix));
        let most = usize::try_from(batch.count).unwrap_or(usize::MAX);
        let gone: Vec<_> = matching.take(most).cloned().collect();
        for machine in &gone {
            self.remove(machine);
        }
        gone.iter().map(|machine| machine.name.clone()).collect()
    }
}
