//! What is known of all objects of a kind, from the watch and from the answers to our own writes, whichever is newer.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::runtime::watcher;
use kube::{Resource, ResourceExt as _};

/// What is kept of an object.
pub(crate) trait Facts: Send + Sync + 'static {
    /// Its name, with its namespace where it has one: no two objects have the same at a time.
    fn key(&self) -> String;
    /// `metadata.uid`.
    fn uid(&self) -> &str;
    /// `metadata.resourceVersion`.
    fn resource_version(&self) -> &str;
}

/// Something that followers are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change<F> {
    /// An object is new, or has changed.
    Present(Arc<F>),
    /// The object of this key is gone.
    Gone(String),
}

/// All objects by key.
#[derive(Debug)]
pub(crate) struct Kept<F> {
    objects: BTreeMap<String, Arc<F>>,
    /// The objects of a list that is still coming in.
    listing: BTreeMap<String, F>,
    is_synced: bool,
}

impl<F> Default for Kept<F> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listing: BTreeMap::new(), is_synced: false }
    }
}

impl<F: Facts> Kept<F> {
    /// Whether a list has come to its end.
    pub(crate) fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// All objects; none before a list has come to its end, which is not the same as no object.
    pub(crate) fn all(&self) -> Option<Vec<Arc<F>>> {
        self.is_synced.then(|| self.objects.values().cloned().collect())
    }

    /// One of them.
    pub(crate) fn get(&self, key: &str) -> Option<&Arc<F>> {
        self.objects.get(key)
    }

    /// Takes in what the watch says. `read` makes facts of an object, with what is known of one of its key; none where it
    /// isn't kept.
    pub(crate) fn take_in<O: Resource>(
        &mut self,
        event: watcher::Event<O>,
        read: impl Fn(O, Option<&F>) -> Option<F>,
    ) -> Vec<Change<F>> {
        match event {
            watcher::Event::Init => {
                self.list_begins();
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                let known = self.objects.get(&key(&object)).map(|known| &**known);
                if let Some(facts) = read(object, known) {
                    self.listed(facts);
                }
                Vec::new()
            }
            watcher::Event::InitDone => self.list_ends(|_| ()),
            watcher::Event::Apply(object) => {
                let key = key(&object);
                let change = match read(object, self.objects.get(&key).map(|known| &**known)) {
                    Some(facts) => self.changed(facts, |_| ()),
                    None => self.gone(&key, |_| ()),
                };
                change.into_iter().collect()
            }
            watcher::Event::Delete(object) => self.gone(&key(&object), |_| ()).into_iter().collect(),
        }
    }

    /// A list of all objects begins.
    pub(crate) fn list_begins(&mut self) {
        self.listing.clear();
    }

    /// An object of the list.
    pub(crate) fn listed(&mut self, facts: F) {
        self.listing.insert(facts.key(), facts);
    }

    /// The list is complete: what isn't in it is gone. `lost` sees what is gone.
    pub(crate) fn list_ends(&mut self, mut lost: impl FnMut(&F)) -> Vec<Change<F>> {
        self.is_synced = true;
        let listed = std::mem::take(&mut self.listing);
        let missing: Vec<_> = self.objects.keys().filter(|key| !listed.contains_key(*key)).cloned().collect();
        let mut changes: Vec<_> = missing.iter().filter_map(|key| self.gone(key, &mut lost)).collect();
        changes.extend(listed.into_values().filter_map(|facts| self.changed(facts, &mut lost)));
        changes
    }

    /// The watch shows an object: nothing new where our own write has already told more. `lost` sees one whose key it has
    /// taken.
    pub(crate) fn changed(&mut self, facts: F, lost: impl FnOnce(&F)) -> Option<Change<F>> {
        match self.objects.get(&facts.key()) {
            Some(known) if known.uid() != facts.uid() => lost(known),
            Some(known) if !is_newer(&facts, &**known) => return None,
            _ => {}
        }
        Some(self.keep(Arc::new(facts)))
    }

    /// The API server has answered a write or a read with this object. One that the watch doesn't know, or knows to be
    /// gone, is not brought back by an answer that took its time.
    pub(crate) fn learn(&mut self, facts: &Arc<F>) -> Option<Change<F>> {
        let known = self.objects.get(&facts.key())?;
        (known.uid() == facts.uid() && is_newer(&**facts, &**known)).then(|| self.keep(Arc::clone(facts)))
    }

    /// A read shows an object, of whose key the watch may have told more since: also that another one has it.
    pub(crate) fn found(&mut self, facts: &Arc<F>) -> Option<Change<F>> {
        let is_news = self.objects.get(&facts.key()).is_none_or(|known| is_newer(&**facts, &**known));
        is_news.then(|| self.keep(Arc::clone(facts)))
    }

    /// The watch shows that an object is gone, which `lost` sees.
    pub(crate) fn gone(&mut self, key: &str, lost: impl FnOnce(&F)) -> Option<Change<F>> {
        let facts = self.objects.remove(key)?;
        lost(&facts);
        Some(Change::Gone(key.to_owned()))
    }

    fn keep(&mut self, facts: Arc<F>) -> Change<F> {
        self.objects.insert(facts.key(), Arc::clone(&facts));
        Change::Present(facts)
    }
}

/// The key of an object, as [`Facts::key`] has it.
pub(crate) fn key(object: &impl Resource) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

/// Whether one state of an object is later than another. The API promises that resource versions of one resource can be
/// compared as whole numbers (KEP-5504); where a server's can't be, nothing is taken for old.
fn is_newer<F: Facts>(facts: &F, than: &F) -> bool {
    let number = |facts: &F| facts.resource_version().parse::<u128>().ok();
    match (number(facts), number(than)) {
        (Some(version), Some(other)) => version > other,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::node::NodeFacts;

    fn node(name: &str, version: &str) -> NodeFacts {
        NodeFacts { resource_version: version.to_owned(), ..NodeFacts::registered(name) }
    }

    fn present(facts: NodeFacts) -> Change<NodeFacts> {
        Change::Present(Arc::new(facts))
    }

    fn synced(nodes: &[NodeFacts]) -> Kept<NodeFacts> {
        let mut store = Kept::default();
        store.list_begins();
        nodes.iter().cloned().for_each(|node| store.listed(node));
        store.list_ends(|_| ());
        store
    }

    #[test]
    fn nothing_is_known_before_a_list_is_complete() {
        let mut store = Kept::default();
        store.list_begins();
        store.listed(node("a", "1"));
        assert_eq!(store.all(), None);
        assert_eq!(store.list_ends(|_| ()), [present(node("a", "1"))]);
        assert_eq!(store.all().map(|all| all.len()), Some(1));
    }

    #[test]
    fn an_empty_cluster_is_known_too() {
        assert_eq!(synced(&[]).all(), Some(Vec::new()));
    }

    #[test]
    fn a_new_list_tells_what_is_gone_and_what_has_changed() {
        let mut store = synced(&[node("a", "1"), node("b", "1"), node("c", "1")]);
        store.list_begins();
        store.listed(node("a", "1"));
        store.listed(node("c", "2"));
        assert_eq!(store.list_ends(|_| ()), [Change::Gone("b".to_owned()), present(node("c", "2"))]);
    }

    #[test]
    fn a_list_that_broke_off_leaves_no_trace() {
        let mut store = synced(&[node("a", "1")]);
        store.list_begins();
        store.listed(node("ghost", "1"));
        store.list_begins();
        store.listed(node("a", "1"));
        assert_eq!(store.list_ends(|_| ()), []);
    }

    #[test]
    fn the_watch_does_not_take_back_what_our_own_write_has_told() {
        let mut store = synced(&[node("a", "1")]);
        let written = Arc::new(node("a", "6"));
        assert_eq!(store.learn(&written), Some(Change::Present(Arc::clone(&written))));
        assert_eq!(store.changed(node("a", "5"), |_| ()), None);
        assert_eq!(store.changed(node("a", "6"), |_| ()), None);
        assert_eq!(store.changed(node("a", "7"), |_| ()), Some(present(node("a", "7"))));
        assert_eq!(store.learn(&written), None, "an answer that was late");
    }

    #[test]
    fn another_node_of_the_same_name_is_news_whatever_its_version() {
        let mut store = synced(&[node("a", "6")]);
        let other = NodeFacts { uid: "other".to_owned(), ..node("a", "5") };
        assert_eq!(store.changed(other.clone(), |_| ()), Some(present(other)));
        assert_eq!(store.learn(&Arc::new(node("a", "9"))), None, "an answer about the one before");
    }

    #[test]
    fn an_answer_does_not_bring_back_a_node_that_is_gone() {
        let mut store = synced(&[node("a", "1")]);
        assert_eq!(store.gone("a", |_| ()), Some(Change::Gone("a".to_owned())));
        assert_eq!(store.gone("a", |_| ()), None);
        assert_eq!(store.learn(&Arc::new(node("a", "2"))), None);
        assert_eq!(store.all(), Some(Vec::new()));
    }

    #[test]
    fn a_read_that_took_its_time_does_not_bring_back_the_one_that_bore_the_name_before() {
        let mut store = synced(&[node("a", "5")]);
        let other = |version| Arc::new(NodeFacts { uid: "other".to_owned(), ..node("a", version) });
        assert_eq!(store.found(&other("4")), None);
        assert_eq!(store.found(&other("6")), Some(Change::Present(other("6"))));
        assert_eq!(store.found(&Arc::new(node("b", "1"))), Some(present(node("b", "1"))));
    }

    #[test]
    fn versions_that_are_no_numbers_are_never_old() {
        let mut store = synced(&[node("a", "x")]);
        assert_eq!(store.changed(node("a", "w"), |_| ()), Some(present(node("a", "w"))));
    }
}
