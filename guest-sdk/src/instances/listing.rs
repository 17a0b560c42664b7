//! A list of a cloud's machines in which Nodes are looked up.

use std::collections::HashMap;

use crate::Error;

/// Machines out of a list, to be found by their ID, or by their name where a Node has no provider ID yet.
pub struct Listing<M> {
    machines: Vec<M>,
    by_id: HashMap<String, usize>,
    by_name: HashMap<String, Vec<usize>>,
    end: Result<(), Error>,
}

impl<M> Listing<M> {
    /// These machines, each with its ID and its name, and what ended their list: they are all that there are only where
    /// nothing failed.
    pub fn new(machines: Vec<M>, end: Result<(), Error>, names: impl Fn(&M) -> (&str, &str)) -> Self {
        let mut by_id = HashMap::new();
        let mut by_name: HashMap<_, Vec<_>> = HashMap::new();
        for (index, machine) in machines.iter().enumerate() {
            let (id, name) = names(machine);
            by_id.insert(id.to_owned(), index);
            by_name.entry(name.to_owned()).or_default().push(index);
        }
        Self { machines, by_id, by_name, end }
    }

    /// The machine of this ID, or the one of this name where there is no ID; none where the cloud has no such machine.
    ///
    /// # Errors
    ///
    /// What ended a list that may lack it, and `invalid` where several machines bear the name: to take one of them would be
    /// a guess. A list that broke off may lack another of the same name, so nothing is found there by name.
    pub fn find(&self, id: Option<&str>, name: &str) -> Result<Option<&M>, Error> {
        let index = match (id, &self.end) {
            (Some(id), _) => self.by_id.get(id).copied(),
            (None, Err(_)) => None,
            (None, Ok(())) => match self.by_name.get(name).map(Vec::as_slice) {
                None | Some([]) => None,
                Some([index]) => Some(*index),
                Some(several) => {
                    let message = format!("{} machines bear the name {name}", several.len());
                    return Err(Error::invalid(message));
                }
            },
        };
        match index.and_then(|index| self.machines.get(index)) {
            None => self.end.clone().map(|()| None),
            found => Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    const MACHINES: [(&str, &str); 4] = [("1", "a"), ("2", "b"), ("3", "c"), ("4", "c")];

    #[test]
    fn a_machine_is_found_by_its_id_or_else_by_a_name_that_it_alone_bears() {
        let rows = [
            ("by ID", Some("2"), "a", Ok(Some("2")), Ok(Some("2"))),
            ("by name", None, "a", Ok(Some("1")), Err(ErrorKind::Unavailable)),
            ("no such ID", Some("9"), "a", Ok(None), Err(ErrorKind::Unavailable)),
            ("no such name", None, "d", Ok(None), Err(ErrorKind::Unavailable)),
            ("two of a name", None, "c", Err(ErrorKind::Invalid), Err(ErrorKind::Unavailable)),
        ];
        for (row, id, name, complete, broken_off) in rows {
            for (end, expected) in [(Ok(()), complete), (Err(Error::unavailable("gone")), broken_off)] {
                let listing = Listing::new(MACHINES.to_vec(), end.clone(), |(id, name)| (id, name));
                let found = listing.find(id, name).map(|found| found.map(|(id, _)| *id));
                assert_eq!(found.map_err(|error| error.kind), expected, "{row}, {end:?}");
            }
        }
    }
}
