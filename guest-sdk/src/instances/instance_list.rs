//! A list of a cloud's instances, in which Nodes are looked up.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::{Answer, Error};

/// The answers for all instances of a list, by provider ID and by name.
pub struct InstanceList {
    /// The provider ID, the name and the answer of each item.
    entries: Vec<(String, String, Answer)>,
    by_name: HashMap<String, Vec<usize>>,
    end: Result<(), Error>,
}

impl InstanceList {
    /// Indexes the items of a list. `list` holds the items and how the list ended: it is complete only if it ended without
    /// an error. `entry` returns the provider ID, the name and the answer of an item.
    pub fn new<M>(list: (Vec<M>, Result<(), Error>), entry: impl Fn(M) -> (String, String, Answer)) -> Self {
        let (items, end) = list;
        let entries: Vec<_> = items.into_iter().map(entry).collect();
        // A list that changes while its pages are read may hold an instance twice. The later item is the newer one.
        let last: HashMap<_, _> =
            entries.iter().enumerate().map(|(place, (id, name, _))| (id, (place, name))).collect();
        let mut by_name = HashMap::<_, Vec<_>>::new();
        for (place, name) in last.into_values() {
            by_name.entry(name.clone()).or_default().push(place);
        }
        Self { entries, by_name, end }
    }

    /// The answer about the only instance of this name. Absent if the complete list has none.
    ///
    /// # Errors
    ///
    /// The error that ended the list, because an incomplete list may lack another instance of the name. `invalid` if several
    /// instances have the name: to choose one would be a guess.
    pub fn find_by_name(&self, name: &str) -> Result<Answer, Error> {
        self.end.clone()?;
        match self.by_name.get(name).map(Vec::as_slice) {
            None | Some([]) => Ok(Answer::Absent),
            Some([place]) => {
                Ok(self.entries.get(*place).map_or(Answer::Absent, |(_, _, answer)| answer.clone()))
            }
            Some(several) => Err(Error::invalid(format!("{} instances have the name {name}", several.len()))),
        }
    }

    /// The list by provider ID. The IDs of the list and of Nodes are compared in the same form, so a provider can't look for
    /// one in the form of the other.
    pub(super) fn index(&self, canonical: for<'a> fn(&'a str) -> Cow<'a, str>) -> ById<'_> {
        let answers = self.entries.iter().map(|(id, _, answer)| (canonical(id), answer)).collect();
        ById { answers, end: &self.end }
    }
}

/// The answers of a list by provider ID.
pub(super) struct ById<'a> {
    answers: HashMap<Cow<'a, str>, &'a Answer>,
    end: &'a Result<(), Error>,
}

impl ById<'_> {
    /// The answer about the instance of this provider ID. Absent if the complete list lacks it, and otherwise the error that
    /// ended the list.
    pub(super) fn find(&self, provider_id: &str) -> Result<Answer, Error> {
        match self.answers.get(provider_id) {
            Some(answer) => Ok((*answer).clone()),
            None => self.end.clone().map(|()| Answer::Absent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, Instance};

    const INSTANCES: [(&str, &str); 4] = [("1", "a"), ("2", "b"), ("3", "c"), ("4", "c")];

    fn answer(id: &str) -> Answer {
        Answer::Found(Instance { provider_id: id.to_owned(), ..Instance::default() })
    }

    fn list(items: &[(&'static str, &'static str)], end: Result<(), Error>) -> InstanceList {
        let entry = |(id, name): (&str, &str)| (format!("c://{id}"), name.to_owned(), answer(id));
        InstanceList::new((items.to_vec(), end), entry)
    }

    fn find(list: &InstanceList, id: &str) -> Result<Answer, Error> {
        list.index(|id| id.to_lowercase().into()).find(&id.to_lowercase())
    }

    #[test]
    fn an_instance_is_found_by_its_id_or_else_by_its_unique_name() {
        let unknown = || Err(ErrorKind::Unavailable(None));
        let (first, second) = (Ok(answer("1")), Ok(answer("2")));
        let rows = [
            ("by ID", Some("c://2"), "a", second.clone(), second.clone()),
            ("in another spelling", Some("C://2"), "a", second.clone(), second),
            ("by name", None, "a", first, unknown()),
            ("no such ID", Some("c://9"), "a", Ok(Answer::Absent), unknown()),
            ("a number that isn't a provider ID", Some("2"), "a", Ok(Answer::Absent), unknown()),
            ("no such name", None, "d", Ok(Answer::Absent), unknown()),
            ("two of a name", None, "c", Err(ErrorKind::Invalid), unknown()),
        ];
        for (row, id, name, complete, incomplete) in rows {
            for (end, expected) in [(Ok(()), complete), (Err(Error::unavailable("gone")), incomplete)] {
                let list = list(&INSTANCES, end.clone());
                let found = id.map_or_else(|| list.find_by_name(name), |id| find(&list, id));
                assert_eq!(found.map_err(|error| error.kind), expected, "{row}, {end:?}");
            }
        }
    }

    #[test]
    fn an_instance_that_is_listed_twice_counts_once_with_its_later_item() {
        let entry = |(id, name): (&str, &str)| (id.to_owned(), name.to_owned(), answer(name));
        let list = InstanceList::new((vec![("1", "old"), ("2", "b"), ("1", "new")], Ok(())), entry);
        assert_eq!((find(&list, "1"), list.find_by_name("new")), (Ok(answer("new")), Ok(answer("new"))));
        assert_eq!(list.find_by_name("old"), Ok(Answer::Absent));
        let same = InstanceList::new((vec![INSTANCES[0]; 2], Ok(())), entry);
        assert_eq!(same.find_by_name("a"), Ok(answer("a")));
    }
}
