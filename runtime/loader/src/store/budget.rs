//! Chooses what leaves the store when it is over its budget: what was used longest ago, and never what runs or can be rolled
//! back to. Pure.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::digest::Digest;

/// An artifact in the store.
#[derive(Debug, Clone)]
pub(super) struct Entry<K> {
    /// By what it is removed.
    pub(super) key: K,
    /// Whether it runs or can be rolled back to.
    pub(super) is_pinned: bool,
    pub(super) used: SystemTime,
    /// Of its record in bytes, which has the signatures.
    pub(super) size: u64,
    /// Its component, if it can be told. Several artifacts may share one.
    pub(super) component: Option<Digest>,
}

/// What has to leave the store.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Eviction<K> {
    /// Artifacts, the first to be removed first.
    pub(super) artifacts: Vec<K>,
    /// Components that no remaining artifact has. They go last, so that no artifact is ever without its component.
    pub(super) components: Vec<Digest>,
}

/// Chooses so that what remains, records and components, and `incoming` more bytes, fit into `budget`. `sizes` has the components that are stored.
/// Where pinned artifacts alone are over the budget, they stay.
pub(super) fn choose<K: Clone>(
    mut entries: Vec<Entry<K>>,
    sizes: &BTreeMap<Digest, u64>,
    incoming: u64,
    budget: u64,
) -> Eviction<K> {
    entries.sort_by_key(|entry| (entry.is_pinned, entry.used));
    let mut users: BTreeMap<Digest, usize> = BTreeMap::new();
    for component in entries.iter().filter_map(|entry| entry.component) {
        *users.entry(component).or_default() += 1;
    }
    // A component without an artifact is left over from a write or a removal that was cut off.
    let mut components: Vec<_> = sizes.keys().filter(|digest| !users.contains_key(digest)).copied().collect();
    let size = |digest: &Digest| sizes.get(digest).copied().unwrap_or(0);
    let records: u64 = entries.iter().map(|entry| entry.size).sum();
    let mut total = users.keys().map(size).sum::<u64>().saturating_add(records).saturating_add(incoming);
    let mut artifacts = Vec::new();
    for entry in entries.iter().filter(|entry| !entry.is_pinned) {
        if total <= budget {
            break;
        }
        artifacts.push(entry.key.clone());
        total -= entry.size;
        let Some(component) = entry.component else { continue };
        let Some(left) = users.get_mut(&component) else { continue };
        *left -= 1;
        if *left == 0 {
            total -= size(&component);
            if sizes.contains_key(&component) {
                components.push(component);
            }
        }
    }
    Eviction { artifacts, components }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn digest(name: &str) -> Digest {
        Digest::of(name.as_bytes())
    }

    fn entry(key: &'static str, used: u64, is_pinned: bool, component: &str) -> Entry<&'static str> {
        let used = SystemTime::UNIX_EPOCH + Duration::from_secs(used);
        Entry { key, is_pinned, used, size: 0, component: Some(digest(component)) }
    }

    #[test]
    fn the_oldest_leave_first_and_pinned_ones_never() {
        let entries = [
            entry("new", 9, false, "n"),
            entry("old", 1, false, "o"),
            entry("runs", 0, true, "r"),
            entry("old, shares its component", 2, false, "r"),
        ];
        let sizes = BTreeMap::from([
            (digest("n"), 10),
            (digest("o"), 10),
            (digest("r"), 10),
            (digest("left over"), 99),
        ]);
        let all = ["old", "old, shares its component", "new"];
        for (incoming, budget, artifacts, components) in [
            (0, 30, &all[..0], &[][..]),
            (0, 29, &all[..1], &["o"]),
            (0, 19, &all[..3], &["o", "n"]),
            (10, 30, &all[..1], &["o"]),
            (u64::MAX, 30, &all[..3], &["o", "n"]),
            (0, 0, &all[..3], &["o", "n"]),
        ] {
            let found = choose(entries.to_vec(), &sizes, incoming, budget);
            let components: Vec<_> =
                ["left over"].iter().chain(components).map(|name| digest(name)).collect();
            assert_eq!(found, Eviction { artifacts: artifacts.to_vec(), components }, "{incoming} {budget}");
        }
    }

    #[test]
    fn records_count_like_components() {
        let entries =
            [entry("old", 1, false, "shared"), entry("new", 2, false, "shared"), entry("runs", 3, true, "r")];
        let entries = entries.map(|entry| Entry { size: 5, ..entry }).to_vec();
        let sizes = BTreeMap::from([(digest("shared"), 10), (digest("r"), 10)]);
        for (budget, artifacts, components) in
            [(35, &[][..], 0), (34, &["old"], 0), (30, &["old"], 0), (29, &["old", "new"], 1)]
        {
            let found = choose(entries.clone(), &sizes, 0, budget);
            assert_eq!((&*found.artifacts, found.components.len()), (artifacts, components), "{budget}");
        }
    }
}
