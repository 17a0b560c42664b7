//! Names of routes, and ranges as texts. Pure.

use std::net::IpAddr;

/// Between the parts of a route's name: the Node, the range without punctuation, and the mark of the cluster.
const SEPARATOR: &str = "____";

/// The longest name that a route may have.
const MAX_NAME: usize = 80;

/// How many digits of the cluster's UID are in a route's name. The host takes 24 for a UID's beginning.
const MARK: usize = 24;

/// The Node that a name says a route leads to. Names of older clusters are those of the Nodes.
pub(super) fn node_of(name: &str) -> &str {
    name.split(SEPARATOR).next().unwrap_or_default()
}

/// The mark of the cluster in a name. Routes of cloud-provider-azure have none.
pub(super) fn mark_in(name: &str) -> Option<&str> {
    name.split(SEPARATOR).nth(2)
}

/// The mark of a cluster in names of routes.
pub(super) fn mark_of(uid: &str) -> String {
    uid.chars().filter(char::is_ascii_hexdigit).take(MARK).collect::<String>().to_ascii_lowercase()
}

/// The name of a route: as cloud-provider-azure names it, and the mark, if the whole isn't too long.
pub(super) fn name_of(node: &str, range: &str, mark: Option<&str>) -> String {
    let range: String = range.chars().filter(|c| !":./".contains(*c)).collect();
    let name = format!("{node}{SEPARATOR}{range}");
    let marked = mark.map(|mark| format!("{name}{SEPARATOR}{mark}"));
    marked.filter(|marked| marked.len() <= MAX_NAME).unwrap_or(name)
}

/// Whether two texts are the same range.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let range = |text: &str| {
        let (address, length) = text.split_once('/')?;
        Some((address.parse::<IpAddr>().ok()?, length.parse::<u8>().ok()?))
    };
    one == other || range(one).is_some_and(|parsed| range(other) == Some(parsed))
}
