//! The route table as a document, and its edit for many changes. What others have put into it stays as it was. Pure.

use std::collections::BTreeMap;

use pileus_guest::http::{Document, Edit, Raw};
use pileus_guest::{Error, InProgress, RouteProgress};
use serde::{Deserialize, Serialize, Serializer};

use super::name::{is_same, mark_in, name_of, node_of};
use crate::arm::read_only::Part;
use crate::arm::tags::Tags;

/// The kind of next hop of routes to Nodes.
const APPLIANCE: &str = "VirtualAppliance";

/// The table.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Raw")]
pub(super) struct RouteTable {
    whole: Raw,
    properties: Raw,
    tags: BTreeMap<String, String>,
    pub(super) routes: Vec<TableRoute>,
    state: Option<String>,
}

/// A route of the table.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Raw")]
pub(super) struct TableRoute {
    whole: Raw,
    properties: Raw,
    pub(super) name: String,
    pub(super) prefix: String,
    pub(super) kind: String,
    pub(super) next_hop: Option<String>,
}

/// A change of one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Exactly this route goes, if it is still for this range.
    Deleted { name: String, range: String },
    /// The Node's range leads to this address.
    Created { node: String, range: String, next_hop: String, mark: Option<String> },
}

/// What an edit needs to know beside the changes.
pub(super) struct Limits<'a> {
    /// Where a missing table is created.
    pub(super) location: &'a str,
    /// How many routes a table can have.
    pub(super) maximum: usize,
    /// The tags of the table. None for a table that isn't the cluster's.
    pub(super) tags: Option<&'a Tags>,
}

impl TryFrom<Raw> for RouteTable {
    type Error = Error;

    fn try_from(mut whole: Raw) -> Result<Self, Error> {
        let mut properties: Raw = whole.take("properties")?.unwrap_or_default();
        let routes = properties.take("routes")?.unwrap_or_default();
        let state = properties.get("provisioningState")?;
        let tags = whole.take("tags")?.unwrap_or_default();
        Part::RouteTable.strip(&mut whole, &mut properties);
        Ok(Self { whole, properties, tags, routes, state })
    }
}

impl TryFrom<Raw> for TableRoute {
    type Error = Error;

    fn try_from(mut whole: Raw) -> Result<Self, Error> {
        let mut properties: Raw = whole.take("properties")?.unwrap_or_default();
        Part::Route.strip(&mut whole, &mut properties);
        let text =
            |properties: &mut Raw, name: &str| Ok::<_, Error>(properties.take(name)?.unwrap_or_default());
        Ok(Self {
            name: whole.take("name")?.unwrap_or_default(),
            prefix: text(&mut properties, "addressPrefix")?,
            kind: text(&mut properties, "nextHopType")?,
            next_hop: properties.take("nextHopIpAddress")?,
            whole,
            properties,
        })
    }
}

impl Serialize for RouteTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = || {
            let (mut whole, mut properties) = (self.whole.clone(), self.properties.clone());
            if !self.tags.is_empty() {
                whole.set("tags", &self.tags)?;
            }
            properties.set("routes", &self.routes)?;
            whole.set("properties", &properties)?;
            Ok::<_, Error>(whole)
        };
        written().map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl Serialize for TableRoute {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = || {
            let (mut whole, mut properties) = (self.whole.clone(), self.properties.clone());
            properties.set("addressPrefix", &self.prefix)?;
            properties.set("nextHopType", &self.kind)?;
            if let Some(next_hop) = &self.next_hop {
                properties.set("nextHopIpAddress", next_hop)?;
            }
            whole.set("name", &self.name)?;
            whole.set("properties", &properties)?;
            Ok::<_, Error>(whole)
        };
        written().map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl RouteTable {
    fn new(location: &str) -> Result<Self, Error> {
        let mut whole = Raw::default();
        whole.set("location", &location)?;
        let (properties, tags, routes) = (Raw::default(), BTreeMap::new(), Vec::new());
        Ok(Self { whole, properties, tags, routes, state: None })
    }

    fn is(&self, state: &str) -> bool {
        self.state.as_deref().is_some_and(|is| is.eq_ignore_ascii_case(state))
    }
}

impl TableRoute {
    /// The Node that its name says it leads to. Names of older clusters are those of the Nodes.
    pub(super) fn node(&self) -> Option<&str> {
        let is_to_node = self.kind.eq_ignore_ascii_case(APPLIANCE);
        Some(node_of(&self.name)).filter(|node| is_to_node && !node.is_empty())
    }

    /// The mark of its cluster. Routes of cloud-provider-azure have none.
    pub(super) fn mark(&self) -> Option<&str> {
        mark_in(&self.name)
    }

    fn leads_to(&self, next_hop: &str) -> bool {
        self.kind.eq_ignore_ascii_case(APPLIANCE) && self.next_hop.as_deref() == Some(next_hop)
    }

    fn lead_to(&mut self, next_hop: &str) {
        APPLIANCE.clone_into(&mut self.kind);
        self.next_hop = Some(next_hop.to_owned());
    }
}

/// Edits the table for changes, deletions first.
pub(super) fn edit(
    document: &mut Document<RouteTable>,
    changes: &[Wanted],
    limits: &Limits<'_>,
) -> Vec<Edit<RouteProgress>> {
    let mut edits: Vec<_> = changes.iter().map(|_| None).collect();
    for is_turn_of_deletions in [true, false] {
        for (change, edit) in changes.iter().zip(&mut edits) {
            match change {
                Wanted::Deleted { name, range } if is_turn_of_deletions => {
                    *edit = Some(delete(document, name, range));
                }
                Wanted::Created { .. } if !is_turn_of_deletions => {
                    *edit = Some(create(document, change, limits));
                }
                _ => {}
            }
        }
    }
    let edits: Vec<_> = edits.into_iter().flatten().collect();
    if let (Some(tags), Some(table)) = (limits.tags, &mut document.value)
        && edits.contains(&Edit::Changed)
    {
        tags.apply(&mut table.tags);
    }
    edits
}

fn delete(document: &mut Document<RouteTable>, name: &str, range: &str) -> Edit<RouteProgress> {
    let settled = settled(document);
    let Some(table) = &mut document.value else { return settled };
    // Exactly this one: another name may begin with it.
    let is_it = |route: &TableRoute| route.name.eq_ignore_ascii_case(name) && is_same(&route.prefix, range);
    if !table.routes.iter().any(is_it) {
        return settled;
    }
    if table.is("Updating") {
        return waits();
    }
    table.routes.retain(|route| !is_it(route));
    Edit::Changed
}

fn create(document: &mut Document<RouteTable>, change: &Wanted, limits: &Limits<'_>) -> Edit<RouteProgress> {
    let Wanted::Created { node, range, next_hop, mark } = change else { return settled(document) };
    let (settled, is_written) = (settled(document), document.is_written);
    if document.value.is_none() {
        if limits.location.is_empty() {
            let message =
                "the route table doesn't exist, and the configuration has no location to create it in";
            return refused(Error::invalid(message));
        }
        match RouteTable::new(limits.location) {
            Ok(table) => document.value = Some(table),
            Err(error) => return refused(error),
        }
    }
    let Some(table) = &mut document.value else { return settled };
    let is_busy = table.is("Updating");
    let has_failed = (table.is("Failed") || table.is("Canceled")) && !is_written;
    let name = name_of(node, range, mark.as_deref());
    let same = table.routes.iter_mut().find(|route| is_same(&route.prefix, range));
    match same {
        Some(route) if route.leads_to(next_hop) && !has_failed => return settled,
        _ if is_busy => return waits(),
        Some(route) => {
            let is_own = route.node().is_some_and(|owner| owner.eq_ignore_ascii_case(node))
                && route.mark().is_none_or(|there| Some(there) == mark.as_deref());
            if !is_own {
                return refused(Error::conflict(format!(
                    "route {} has the range {range} of node {node} and leads elsewhere",
                    route.name
                )));
            }
            route.lead_to(next_hop);
        }
        None => {
            let count = table.routes.len();
            match table.routes.iter_mut().find(|route| route.name.eq_ignore_ascii_case(&name)) {
                // Two ranges of a Node may have the same digits. The one that is there is of the former range.
                Some(route) => {
                    range.clone_into(&mut route.prefix);
                    route.lead_to(next_hop);
                }
                None if count >= limits.maximum => {
                    return refused(Error::invalid(format!(
                        "the route table has {count} routes, and can't have more than {}: use a network plugin that needs \
                         no routes, or raise the limit with Azure and in maximumRouteCount",
                        limits.maximum
                    )));
                }
                None => {
                    let (whole, properties, prefix) = (Raw::default(), Raw::default(), range.clone());
                    let mut route =
                        TableRoute { whole, properties, name, prefix, kind: String::new(), next_hop: None };
                    route.lead_to(next_hop);
                    table.routes.push(route);
                }
            }
        }
    }
    Edit::Changed
}

/// The outcome of a change for which the table is right: it is complete once the cloud has finished what it is doing to the table.
fn settled(document: &Document<RouteTable>) -> Edit<RouteProgress> {
    let is_busy = document.value.as_ref().is_some_and(|table| table.is("Updating"));
    Edit::Unchanged(Ok(match &document.begun {
        Some(begun) => begun.clone().into(),
        None if is_busy => InProgress::soon().into(),
        None => RouteProgress::Done,
    }))
}

/// A write would cancel what the cloud is doing.
fn waits() -> Edit<RouteProgress> {
    Edit::Unchanged(Ok(InProgress::soon().into()))
}

fn refused(error: Error) -> Edit<RouteProgress> {
    Edit::Unchanged(Err(error))
}
