//! A list of machines, and which of them is a Node's.

use std::collections::HashMap;

use pileus_guest::{Error, NodeReference};

use crate::machine::Machine;
use crate::{machine_id, only};

/// Machines, and what ended their list: they are all that there are only where nothing failed.
pub(crate) struct List {
    pub(crate) machines: Vec<Machine>,
    pub(crate) end: Result<(), Error>,
}

/// A list in which many Nodes are looked up.
pub(crate) struct Listed<'a> {
    by_id: HashMap<&'a str, &'a Machine>,
    /// None where the list broke off: another machine of the same name may be in the part that is missing.
    by_name: Option<HashMap<&'a str, Vec<&'a Machine>>>,
}

impl<'a> Listed<'a> {
    pub(crate) fn new(List { machines, end }: &'a List) -> Self {
        let by_id = machines.iter().map(|machine| (machine.id.as_str(), machine)).collect();
        let by_name = end.is_ok().then(|| {
            let mut by_name: HashMap<&str, Vec<&Machine>> = HashMap::new();
            for machine in machines {
                by_name.entry(&machine.name).or_default().push(machine);
            }
            by_name
        });
        Self { by_id, by_name }
    }

    /// The machine of a Node, if it is in the list.
    pub(crate) fn find(&self, node: &NodeReference) -> Result<Option<&'a Machine>, Error> {
        match (machine_id(node)?, &self.by_name) {
            (Some(id), _) => Ok(self.by_id.get(id).copied()),
            (None, None) => Ok(None),
            (None, Some(names)) => {
                Ok(only(names.get(&*node.name).map_or(&[][..], Vec::as_slice), &node.name)?.copied())
            }
        }
    }
}
