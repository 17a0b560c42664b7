//! The labels of a Node, in the memory that they need. A large cluster has a hundred thousand of them, of which a map would
//! keep half of its places free.

use std::collections::BTreeMap;

/// Labels, ordered by key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// The value of the label with this key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let place = self.0.binary_search_by(|(own, _)| (**own).cmp(key)).ok()?;
        self.0.get(place).map(|(_, value)| &**value)
    }

    /// Whether there is a label with this key.
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// All labels, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl From<BTreeMap<String, String>> for Labels {
    fn from(labels: BTreeMap<String, String>) -> Self {
        Self(labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

#[cfg(test)]
mod changes {
    use std::ops::Index;

    use super::*;

    impl Labels {
        /// Sets a label.
        pub(crate) fn insert(&mut self, key: &str, value: &str) {
            self.change(|labels| drop(labels.insert(key.to_owned(), value.to_owned())));
        }

        /// Removes a label.
        pub(crate) fn remove(&mut self, key: &str) {
            self.change(|labels| drop(labels.remove(key)));
        }

        fn change(&mut self, change: impl FnOnce(&mut BTreeMap<String, String>)) {
            let mut labels = self.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            change(&mut labels);
            *self = labels.into();
        }
    }

    impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Labels {
        fn from_iter<T: IntoIterator<Item = (K, V)>>(labels: T) -> Self {
            let labels = labels.into_iter().map(|(key, value)| (key.into(), value.into()));
            labels.collect::<BTreeMap<_, _>>().into()
        }
    }

    impl<K: Into<String>, V: Into<String>, const N: usize> From<[(K, V); N]> for Labels {
        fn from(labels: [(K, V); N]) -> Self {
            labels.into_iter().collect()
        }
    }

    impl Index<&str> for Labels {
        type Output = str;

        fn index(&self, key: &str) -> &str {
            self.get(key).unwrap_or_else(|| panic!("no label {key} in {self:?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_by_key_and_told_in_order() {
        let labels = Labels::from([("b", "2"), ("a.example/x", ""), ("a", "1"), ("b", "3")]);
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "1"), ("a.example/x", ""), ("b", "3")]);
        assert_eq!(
            ["a", "a.example/x", "b", "", "aa", "c"].map(|key| labels.get(key)),
            [Some("1"), Some(""), Some("3"), None, None, None]
        );
        assert!(labels.contains_key("b") && !Labels::default().contains_key(""));
    }
}
