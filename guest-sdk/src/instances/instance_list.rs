//! A list of a cloud's instances, in which Nodes are looked up.

use std::collections::HashMap;

use crate::{Answer, Error};

/// The answers for all instances of a list, indexed by the instances' IDs and names.
pub struct InstanceList {
    answers: Vec<Answer>,
    by_id: HashMap<String, usize>,
    by_name: HashMap<String, Vec<usize>>,
    end: Result<(), Error>,
}

impl InstanceList {
    /// Indexes the items of a list. `list` holds the items and how the list ended: it is complete only if it ended without
    /// an error. `names` returns the ID and the name of an item, `answer` the answer about it.
    pub fn new<M>(
        list: (Vec<M>, Result<(), Error>),
        names: impl Fn(&M) -> (&str, &str),
        answer: impl Fn(M) -> Answer,
    ) -> Self {
        let (items, end) = list;
        let ids = items.iter().enumerate().map(|(index, item)| (names(item).0.to_owned(), index));
        // A list that changes while its pages are read may hold an instance twice. The later item is the newer one.
        let by_id: HashMap<_, _> = ids.collect();
        let mut by_name: HashMap<_, Vec<_>> = HashMap::new();
        for index in by_id.values() {
            if let Some(item) = items.get(*index) {
                by_name.entry(names(item).1.to_owned()).or_default().push(*index);
            }
        }
        Self { answers: items.into_iter().map(answer).collect(), by_id, by_name, end }
    }

    /// The answer about the instance of this ID, or of this name if there is no ID. Absent if the complete list lacks it.
    ///
    /// # Errors
    ///
    /// The error that ended the list, if the list lacks the instance. `invalid` if several instances have the name: to
    /// choose one would be a guess. An incomplete list may lack another instance of the same name, so nothing is found by
    /// name there.
    pub fn find(&self, id: Option<&str>, name: &str) -> Result<Answer, Error> {
        let index = match (id, &self.end) {
            (Some(id), _) => self.by_id.get(id).copied(),
            (None, Err(_)) => None,
            (None, Ok(())) => match self.by_name.get(name).map(Vec::as_slice) {
                None | Some([]) => None,
                Some([index]) => Some(*index),
                Some(several) => {
                    let message = format!("{} instances have the name {name}", several.len());
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

    const INSTANCES: [(&str, &str); 4] = [("1", "a"), ("2", "b"), ("3", "c"), ("4", "c")];

    fn answer((id, _): (&str, &str)) -> Answer {
        Answer::Found(Instance { provider_id: id.to_owned(), ..Instance::default() })
    }

    #[test]
    fn an_instance_is_found_by_its_id_or_else_by_its_unique_name() {
        let (first, second) = (Ok(answer(INSTANCES[0])), Ok(answer(INSTANCES[1])));
        let unknown = || Err(ErrorKind::Unavailable(None));
        let rows = [
            ("by ID", Some("2"), "a", second.clone(), second),
            ("by name", None, "a", first, unknown()),
            ("no such ID", Some("9"), "a", Ok(Answer::Absent), unknown()),
            ("no such name", None, "d", Ok(Answer::Absent), unknown()),
            ("two of a name", None, "c", Err(ErrorKind::Invalid), unknown()),
        ];
        for (row, id, name, complete, incomplete) in rows {
            for (end, expected) in [(Ok(()), complete), (Err(Error::unavailable("gone")), incomplete)] {
                let items = (INSTANCES.to_vec(), end.clone());
                let found = InstanceList::new(items, |(id, name)| (id, name), answer).find(id, name);
                assert_eq!(found.map_err(|error| error.kind), expected, "{row}, {end:?}");
            }
        }
    }

    #[test]
    fn an_instance_that_is_listed_twice_counts_once_with_its_later_item() {
        let items = vec![("1", "old"), ("2", "b"), ("1", "new")];
        let list =
            InstanceList::new((items, Ok(())), |(id, name)| (id, name), |(_, name)| answer((name, "")));
        for (id, name, expected) in [(Some("1"), "", answer(("new", ""))), (None, "new", answer(("new", "")))]
        {
            assert_eq!(list.find(id, name), Ok(expected), "{id:?}");
        }
        assert_eq!(list.find(None, "old"), Ok(Answer::Absent));
        let same = InstanceList::new((vec![INSTANCES[0]; 2], Ok(())), |(id, name)| (id, name), answer);
        assert_eq!(same.find(None, "a"), Ok(answer(INSTANCES[0])));
    }
}
