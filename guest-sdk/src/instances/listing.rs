//! A list of a cloud's machines in which Nodes are looked up.

use std::collections::HashMap;

use crate::{Answer, Error};

/// The answers about all machines of a list, to be found by their machine's ID, or by its name where a Node has no provider
/// ID yet.
pub struct Listing {
    answers: Vec<Answer>,
    by_id: HashMap<String, usize>,
    by_name: HashMap<String, Vec<usize>>,
    end: Result<(), Error>,
}

impl Listing {
    /// These machines, each with its ID, its name and the answer about it, and what ended their list: they are all that
    /// there are only where nothing failed.
    pub fn new<M>(
        (machines, end): (Vec<M>, Result<(), Error>),
        names: impl Fn(&M) -> (&str, &str),
        answer: impl Fn(M) -> Answer,
    ) -> Self {
        let ids = machines.iter().enumerate().map(|(index, machine)| (names(machine).0.to_owned(), index));
        // A list that changes while its pages are read may have a machine twice: the later of them holds.
        let by_id: HashMap<_, _> = ids.collect();
        let mut by_name: HashMap<_, Vec<_>> = HashMap::new();
        for index in by_id.values() {
            if let Some(machine) = machines.get(*index) {
                by_name.entry(names(machine).1.to_owned()).or_default().push(*index);
            }
        }
        Self { answers: machines.into_iter().map(answer).collect(), by_id, by_name, end }
    }

    /// The answer about the machine of this ID, or about the one of this name where there is no ID; absent where the cloud
    /// has no such machine.
    ///
    /// # Errors
    ///
    /// What ended a list that may lack it, and `invalid` where several machines bear the name: to take one of them would be
    /// a guess. A list that broke off may lack another of the same name, so nothing is found there by name.
    pub fn find(&self, id: Option<&str>, name: &str) -> Result<Answer, Error> {
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
        match index.and_then(|index| self.answers.get(index)) {
            Some(answer) => Ok(answer.clone()),
            None => self.end.clone().map(|()| Answer::Absent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, Instance};

    const MACHINES: [(&str, &str); 4] = [("1", "a"), ("2", "b"), ("3", "c"), ("4", "c")];

    fn answer((id, _): (&str, &str)) -> Answer {
        Answer::Found(Instance { provider_id: id.to_owned(), ..Instance::default() })
    }

    #[test]
    fn a_machine_is_found_by_its_id_or_else_by_a_name_that_it_alone_bears() {
        let (first, second) = (Ok(answer(MACHINES[0])), Ok(answer(MACHINES[1])));
        let unknown = || Err(ErrorKind::Unavailable);
        let rows = [
            ("by ID", Some("2"), "a", second.clone(), second),
            ("by name", None, "a", first, unknown()),
            ("no such ID", Some("9"), "a", Ok(Answer::Absent), unknown()),
            ("no such name", None, "d", Ok(Answer::Absent), unknown()),
            ("two of a name", None, "c", Err(ErrorKind::Invalid), unknown()),
        ];
        for (row, id, name, complete, broken_off) in rows {
            for (end, expected) in [(Ok(()), complete), (Err(Error::unavailable("gone")), broken_off)] {
                let list = (MACHINES.to_vec(), end.clone());
                let found = Listing::new(list, |(id, name)| (id, name), answer).find(id, name);
                assert_eq!(found.map_err(|error| error.kind), expected, "{row}, {end:?}");
            }
        }
    }

    #[test]
    fn a_machine_that_a_list_has_twice_is_one_machine_as_it_was_seen_last() {
        let machines = vec![("1", "old"), ("2", "b"), ("1", "new")];
        let listing =
            Listing::new((machines, Ok(())), |(id, name)| (id, name), |(_, name)| answer((name, "")));
        for (id, name, expected) in [(Some("1"), "", answer(("new", ""))), (None, "new", answer(("new", "")))]
        {
            assert_eq!(listing.find(id, name), Ok(expected), "{id:?}");
        }
        assert_eq!(listing.find(None, "old"), Ok(Answer::Absent));
        let same = Listing::new((vec![MACHINES[0]; 2], Ok(())), |(id, name)| (id, name), answer);
        assert_eq!(same.find(None, "a"), Ok(answer(MACHINES[0])));
    }
}
