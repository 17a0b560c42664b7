//! What clients read: lists, single resources and actions. Pure.

use std::time::Duration;

use serde_json::{Value, json};

use super::World;
use super::action::{Action, ResourceType};
use super::catalog::{LOAD_BALANCER_TYPES, LOCATIONS, LoadBalancerType, Location, SERVER_TYPES, ServerType};
use super::listing::{Listed, Query};
use crate::refusal::{Code, Refusal};

/// A kind of resource that can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are the kinds of the API")]
pub enum Collection {
    Servers,
    Networks,
    LoadBalancers,
    Certificates,
    Locations,
    ServerTypes,
    LoadBalancerTypes,
}

impl Collection {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Servers,
        Self::Networks,
        Self::LoadBalancers,
        Self::Certificates,
        Self::Locations,
        Self::ServerTypes,
        Self::LoadBalancerTypes,
    ];

    /// Its name in paths and in the envelope of a list.
    pub fn name(self) -> &'static str {
        match self {
            Self::Servers => "servers",
            Self::Networks => "networks",
            Self::LoadBalancers => "load_balancers",
            Self::Certificates => "certificates",
            Self::Locations => "locations",
            Self::ServerTypes => "server_types",
            Self::LoadBalancerTypes => "load_balancer_types",
        }
    }
}

type Pairs = [(String, String)];

impl World {
    /// A page of a list, in its envelope.
    pub fn list(&mut self, now: Duration, kind: Collection, query: &Pairs) -> Result<Value, Refusal> {
        self.advance(now);
        let world = &*self;
        match kind {
            Collection::Servers => page(kind, query, self.servers.values(), |it| it.view(world)),
            Collection::Networks => page(kind, query, self.networks.values(), |it| it.view(world)),
            Collection::LoadBalancers => page(kind, query, self.load_balancers.values(), |it| it.view(world)),
            Collection::Certificates => page(kind, query, self.certificates.values(), |it| it.view(world)),
            Collection::Locations => page(kind, query, LOCATIONS.iter(), Location::view),
            Collection::ServerTypes => page(kind, query, SERVER_TYPES.iter(), ServerType::view),
            Collection::LoadBalancerTypes => {
                page(kind, query, LOAD_BALANCER_TYPES.iter(), LoadBalancerType::view)
            }
        }
    }

    /// One resource, in its envelope.
    pub fn get(&mut self, now: Duration, kind: Collection, id: u64) -> Result<Value, Refusal> {
        self.advance(now);
        let world = &*self;
        let noun = kind.name().trim_end_matches('s');
        let found = match kind {
            Collection::Servers => self.servers.get(&id).map(|it| it.view(world)),
            Collection::Networks => self.networks.get(&id).map(|it| it.view(world)),
            Collection::LoadBalancers => self.load_balancers.get(&id).map(|it| it.view(world)),
            Collection::Certificates => self.certificates.get(&id).map(|it| it.view(world)),
            Collection::Locations => row(&LOCATIONS, id).map(Location::view),
            Collection::ServerTypes => row(&SERVER_TYPES, id).map(ServerType::view),
            Collection::LoadBalancerTypes => row(&LOAD_BALANCER_TYPES, id).map(LoadBalancerType::view),
        };
        found.map(|view| json!({noun: view})).ok_or_else(|| Refusal::not_found(noun, id))
    }

    /// A page of the actions of a type of resource, or of one of them. Without either, the request must name IDs.
    pub fn actions(
        &mut self,
        now: Duration,
        kind: Option<ResourceType>,
        id: Option<u64>,
        query: &Pairs,
    ) -> Result<Value, Refusal> {
        self.advance(now);
        if let (Some(kind), Some(id)) = (kind, id) {
            self.check_exists((kind, id))?;
        }
        let query = Query::parse::<Action>(query)?;
        if kind.is_none() && query.ids.is_empty() {
            return Err(Refusal::new(
                Code::DeprecatedApiEndpoint,
                "listing all actions is no longer available: filter by id",
            ));
        }
        let actions = self.actions.values().filter(|action| concerns(action, kind, id));
        let (found, pagination) = query.page(actions);
        let views: Vec<_> = found.into_iter().map(|action| action.view(self.now, self.started_at)).collect();
        Ok(json!({"actions": views, "meta": {"pagination": pagination}}))
    }

    /// The latest actions, the newest first.
    pub fn latest_actions(&mut self, now: Duration, count: usize) -> Vec<Value> {
        self.advance(now);
        let latest = self.actions.values().rev().take(count);
        latest.map(|action| action.view(self.now, self.started_at)).collect()
    }

    /// One action, of a type of resource or of one resource if the request says so.
    pub fn action(
        &mut self,
        now: Duration,
        kind: Option<ResourceType>,
        id: Option<u64>,
        action: u64,
    ) -> Result<Value, Refusal> {
        self.advance(now);
        let found = self.actions.get(&action).filter(|found| concerns(found, kind, id));
        let found = found.ok_or_else(|| Refusal::not_found("action", action))?;
        Ok(json!({"action": found.view(self.now, self.started_at)}))
    }
}

fn concerns(action: &Action, kind: Option<ResourceType>, id: Option<u64>) -> bool {
    kind.is_none_or(|kind| {
        action.resources.iter().any(|resource| resource.0 == kind && id.is_none_or(|id| resource.1 == id))
    })
}

fn page<'a, T: Listed + 'a>(
    kind: Collection,
    query: &Pairs,
    all: impl Iterator<Item = &'a T>,
    view: impl Fn(&T) -> Value,
) -> Result<Value, Refusal> {
    let (found, pagination) = Query::parse::<T>(query)?.page(all);
    let views: Vec<_> = found.into_iter().map(view).collect();
    Ok(json!({kind.name(): views, "meta": {"pagination": pagination}}))
}

fn row<T: Listed>(table: &'static [T], id: u64) -> Option<&'static T> {
    table.iter().find(|row| row.id() == id)
}
