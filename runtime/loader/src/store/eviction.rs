//! What leaves the store when the budget has no room for what comes: the decision is `budget.rs`, and here it is carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::budget::{self, Entry};
use super::record::{Pins, StoredArtifact};
use super::{MAX_UNFINISHED_AGE, Store, digest_in_name, folder, read_json, store_error};
use crate::digest::Digest;
use crate::error::Error;

impl Store {
    /// Removes what the budget has no room for, and what was left unfinished long ago. A component that is `needed` stays.
    pub(super) fn make_room(&self, incoming: u64, needed: Option<Digest>) -> Result<(), Error> {
        let pins = self.files("pins").filter_map(|(path, ..)| Some((read_json::<Pins>(&path)?, path)));
        let now = Timestamp::now();
        let (current, ended): (Vec<_>, Vec<_>) =
            pins.partition(|(pins, _)| pins.until.is_none_or(|until| until > now));
        let pinned: BTreeSet<Digest> = current.into_iter().flat_map(|(pins, _)| pins.digests).collect();
        let entries = self.files("artifacts").filter_map(|(path, size, used)| {
            let digest = digest_in_name(&path)?;
            let found: Option<StoredArtifact> = read_json(&path);
            let component = found.and_then(|found| found.layer(digest).ok()).map(|layer| layer.digest);
            Some(Entry { key: path, is_pinned: pinned.contains(&digest), used, size, component })
        });
        let entries: Vec<_> = entries.collect();
        let sizes: BTreeMap<_, _> = self
            .files("components")
            .filter_map(|(path, size, used)| {
                // Another process may have written it a moment ago, and its artifact comes next.
                let is_settled = used.elapsed().is_ok_and(|age| age > Duration::from_mins(1));
                let digest = digest_in_name(&path)?;
                let is_known = || entries.iter().any(|entry| entry.component == Some(digest));
                (is_settled || is_known()).then_some((digest, size))
            })
            .collect();
        let eviction = budget::choose(entries, &sizes, incoming, self.budget);
        let unneeded = eviction.components.iter().filter(|digest| Some(**digest) != needed);
        let components = unneeded.map(|digest| self.component_path(*digest));
        let is_stale = |used: &SystemTime| used.elapsed().is_ok_and(|age| age > MAX_UNFINISHED_AGE);
        let stale = self.files("unfinished").filter(|(_, _, used)| is_stale(used)).map(|(path, ..)| path);
        let ended = ended.into_iter().map(|(_, path)| path);
        for path in ended.chain(eviction.artifacts).chain(components).chain(stale) {
            folder::remove(&path).map_err(|source| store_error("remove", &path, source))?;
        }
        Ok(())
    }
}
