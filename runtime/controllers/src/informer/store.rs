//! The objects of one kind that an informer knows, from the watch and from the responses to our own writes. The newer
//! version of an object wins, so that a controller plans after a write with what the write left behind, however late the
//! watch is.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::runtime::watcher;
use kube::{Resource, ResourceExt as _};

/// What an informer keeps of an object.
pub(crate) trait Facts: Send + Sync + 'static {
    /// The object's name, as `namespace/name` where it has a namespace. It is unique at any time.
    fn key(&self) -> String;
    /// `metadata.uid`.
    fn uid(&self) -> &str;
    /// `metadata.resourceVersion`.
    fn resource_version(&self) -> &str;
}

/// A change that subscribers receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change<F> {
    /// An object is new or has changed.
    Present(Arc<F>),
    /// The object with this key is gone.
    Gone(String),
}

/// The known objects by key.
#[derive(Debug)]
pub(crate) struct ObjectStore<F> {
    objects: BTreeMap<String, Arc<F>>,
    /// The objects of a list that isn't complete yet.
    listing: BTreeMap<String, F>,
    is_synced: bool,
    /// Whether the next list is right even where its objects are older than the known ones.
    accepts_older: bool,
}

impl<F> Default for ObjectStore<F> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listing: BTreeMap::new(), is_synced: false, accepts_older: false }
    }
}

impl<F: Facts> ObjectStore<F> {
    /// Whether a list has been completed.
    pub(crate) fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// All objects. `None` before a list has been completed, which is not the same as no object.
    pub(crate) fn all(&self) -> Option<Vec<Arc<F>>> {
        self.is_synced.then(|| self.objects.values().cloned().collect())
    }

    /// The object with this key.
    pub(crate) fn get(&self, key: &str) -> Option<&Arc<F>> {
        self.objects.get(key)
    }

    /// Applies an event of the watch. `read` turns an object into facts, given the known facts of the same key. Where it
    /// returns `None`, the object isn't kept.
    pub(crate) fn on_event<O: Resource>(
        &mut self,
        event: watcher::Event<O>,
        read: impl Fn(O, Option<&F>) -> Option<F>,
    ) -> Vec<Change<F>> {
        match event {
            watcher::Event::Init => {
                self.begin_list();
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                let known = self.objects.get(&key(&object)).map(|known| &**known);
                if let Some(facts) = read(object, known) {
                    self.add_listed(facts);
                }
                Vec::new()
            }
            watcher::Event::InitDone => self.finish_list(|_| ()),
            watcher::Event::Apply(object) => {
                let key = key(&object);
                let change = match read(object, self.objects.get(&key).map(|known| &**known)) {
                    Some(facts) => self.on_applied(facts, |_| ()),
                    None => self.on_deleted(&key, |_| ()),
                };
                change.into_iter().collect()
            }
            watcher::Event::Delete(object) => self.on_deleted(&key(&object), |_| ()).into_iter().collect(),
        }
    }

    /// The versions of all known objects mean nothing any more: the next list is right, however old its objects are.
    pub(crate) fn forget_versions(&mut self) {
        self.accepts_older = true;
    }

    /// Begins a list, and drops what came of one that broke off.
    pub(crate) fn begin_list(&mut self) {
        self.listing.clear();
    }

    /// Adds an object of the list.
    pub(crate) fn add_listed(&mut self, facts: F) {
        self.listing.insert(facts.key(), facts);
    }

    /// Replaces what is kept of the objects of a list that isn't complete yet, see [`ObjectStore::amend`].
    pub(crate) fn amend_listed(&mut self, amended: impl Fn(&F) -> Option<F>) {
        for listed in self.listing.values_mut() {
            if let Some(facts) = amended(listed) {
                *listed = facts;
            }
        }
    }

    /// Completes the list: a known object that isn't in it is gone. `on_lost` gets each object that is gone.
    pub(crate) fn finish_list(&mut self, mut on_lost: impl FnMut(&F)) -> Vec<Change<F>> {
        self.is_synced = true;
        let listed = std::mem::take(&mut self.listing);
        let missing: Vec<_> = self.objects.keys().filter(|key| !listed.contains_key(*key)).cloned().collect();
        let mut changes: Vec<_> =
            missing.iter().filter_map(|key| self.on_deleted(key, &mut on_lost)).collect();
        changes.extend(listed.into_values().filter_map(|facts| self.on_applied(facts, &mut on_lost)));
        self.accepts_older = false;
        changes
    }

    /// Applies an object that the watch shows, unless it is older than the response to one of our own writes. `on_lost` gets
    /// the former object where another one has taken its key.
    pub(crate) fn on_applied(&mut self, facts: F, on_lost: impl FnOnce(&F)) -> Option<Change<F>> {
        match self.objects.get(&facts.key()) {
            Some(known) if known.uid() != facts.uid() => on_lost(known),
            Some(known) if !self.accepts_older && !is_newer(&facts, &**known) => return None,
            _ => {}
        }
        Some(self.insert(Arc::new(facts)))
    }

    /// Applies the object in the response to a write. A late response doesn't bring back an object that the watch doesn't
    /// know or has reported as deleted.
    pub(crate) fn on_write_response(&mut self, facts: &Arc<F>) -> Option<Change<F>> {
        let known = self.objects.get(&facts.key())?;
        (known.uid() == facts.uid() && is_newer(&**facts, &**known)).then(|| self.insert(Arc::clone(facts)))
    }

    /// Applies the object in the response to a read, unless the watch has shown a newer one of the same key since.
    pub(crate) fn on_read_response(&mut self, facts: &Arc<F>) -> Option<Change<F>> {
        let is_newer_one = self.objects.get(&facts.key()).is_none_or(|known| is_newer(&**facts, &**known));
        is_newer_one.then(|| self.insert(Arc::clone(facts)))
    }

    /// Removes an object that the watch reports as deleted. `on_lost` gets it.
    pub(crate) fn on_deleted(&mut self, key: &str, on_lost: impl FnOnce(&F)) -> Option<Change<F>> {
        let facts = self.objects.remove(key)?;
        on_lost(&facts);
        Some(Change::Gone(key.to_owned()))
    }

    /// Replaces what is kept of an object by the same version of it, with what other objects say about it.
    pub(crate) fn amend(&mut self, facts: F) -> Change<F> {
        self.insert(Arc::new(facts))
    }

    fn insert(&mut self, facts: Arc<F>) -> Change<F> {
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

/// Whether one version of an object is newer than another. The API promises that resource versions of one resource compare as
/// whole numbers (KEP-5504). Where a server's versions aren't numbers, no version counts as old.
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

    fn synced(nodes: &[NodeFacts]) -> ObjectStore<NodeFacts> {
        let mut store = ObjectStore::default();
        store.begin_list();
        nodes.iter().cloned().for_each(|node| store.add_listed(node));
        store.finish_list(|_| ());
        store
    }

    #[test]
    fn nothing_is_known_before_a_list_is_complete() {
        let mut store = ObjectStore::default();
        store.begin_list();
        store.add_listed(node("a", "1"));
        assert_eq!(store.all(), None);
        assert_eq!(store.finish_list(|_| ()), [present(node("a", "1"))]);
        assert_eq!(store.all().map(|all| all.len()), Some(1));
    }

    #[test]
    fn a_list_after_the_versions_were_forgotten_is_right_however_old_it_is() {
        let mut store = synced(&[node("a", "900"), node("b", "901"), node("c", "5")]);
        let relist = |store: &mut ObjectStore<NodeFacts>, nodes: &[NodeFacts]| {
            store.begin_list();
            nodes.iter().cloned().for_each(|node| store.add_listed(node));
            store.finish_list(|_| ())
        };
        let old = [node("a", "7"), node("c", "5")];
        assert_eq!(relist(&mut store, &old), [Change::Gone("b".to_owned())]);
        assert_eq!(store.get("a").unwrap().resource_version, "900", "the versions still count");
        store.forget_versions();
        assert_eq!(relist(&mut store, &old), old.clone().map(present));
        assert_eq!(store.get("a").unwrap().resource_version, "7");
        assert_eq!(store.on_applied(node("a", "6"), |_| ()), None, "they count again");
        assert_eq!(store.on_applied(node("a", "8"), |_| ()), Some(present(node("a", "8"))));
    }

    #[test]
    fn an_empty_list_counts_as_known() {
        assert_eq!(synced(&[]).all(), Some(Vec::new()));
    }

    #[test]
    fn a_new_list_reports_what_is_gone_and_what_has_changed() {
        let mut store = synced(&[node("a", "1"), node("b", "1"), node("c", "1")]);
        store.begin_list();
        store.add_listed(node("a", "1"));
        store.add_listed(node("c", "2"));
        assert_eq!(store.finish_list(|_| ()), [Change::Gone("b".to_owned()), present(node("c", "2"))]);
    }

    #[test]
    fn a_list_that_broke_off_has_no_effect() {
        let mut store = synced(&[node("a", "1")]);
        store.begin_list();
        store.add_listed(node("ghost", "1"));
        store.begin_list();
        store.add_listed(node("a", "1"));
        assert_eq!(store.finish_list(|_| ()), []);
    }

    #[test]
    fn the_watch_does_not_undo_a_newer_write_response() {
        let mut store = synced(&[node("a", "1")]);
        let written = Arc::new(node("a", "6"));
        assert_eq!(store.on_write_response(&written), Some(Change::Present(Arc::clone(&written))));
        assert_eq!(store.on_applied(node("a", "5"), |_| ()), None);
        assert_eq!(store.on_applied(node("a", "6"), |_| ()), None);
        assert_eq!(store.on_applied(node("a", "7"), |_| ()), Some(present(node("a", "7"))));
        assert_eq!(store.on_write_response(&written), None, "a late response");
    }

    #[test]
    fn another_node_of_the_same_name_is_a_change_regardless_of_its_version() {
        let mut store = synced(&[node("a", "6")]);
        let other = NodeFacts { uid: "other".to_owned(), ..node("a", "5") };
        assert_eq!(store.on_applied(other.clone(), |_| ()), Some(present(other)));
        assert_eq!(
            store.on_write_response(&Arc::new(node("a", "9"))),
            None,
            "a response about the former node"
        );
    }

    #[test]
    fn a_write_response_does_not_bring_back_a_deleted_node() {
        let mut store = synced(&[node("a", "1")]);
        assert_eq!(store.on_deleted("a", |_| ()), Some(Change::Gone("a".to_owned())));
        assert_eq!(store.on_deleted("a", |_| ()), None);
        assert_eq!(store.on_write_response(&Arc::new(node("a", "2"))), None);
        assert_eq!(store.all(), Some(Vec::new()));
    }

    #[test]
    fn a_late_read_does_not_bring_back_the_former_object_of_the_same_name() {
        let mut store = synced(&[node("a", "5")]);
        let other = |version| Arc::new(NodeFacts { uid: "other".to_owned(), ..node("a", version) });
        assert_eq!(store.on_read_response(&other("4")), None);
        assert_eq!(store.on_read_response(&other("6")), Some(Change::Present(other("6"))));
        assert_eq!(store.on_read_response(&Arc::new(node("b", "1"))), Some(present(node("b", "1"))));
    }

    #[test]
    fn versions_that_are_not_numbers_are_never_old() {
        let mut store = synced(&[node("a", "x")]);
        assert_eq!(store.on_applied(node("a", "w"), |_| ()), Some(present(node("a", "w"))));
    }
}
