//! The cloud as a pure state machine: subscriptions with their resources, operations, tokens and quotas. A request and the
//! time give a response. Pure.

mod behavior;
mod deletion;
mod group;
mod identity;
mod listing;
mod lock;
mod metadata;
mod operation;
mod overview;
mod precondition;
mod provider;
mod read;
mod reference;
mod script;
mod store;
mod throttle;
mod write;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use axum::http::Method;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use simulated_cloud::faults::Random;
use simulated_cloud::world::WriteFaults;

pub use self::behavior::{Behavior, Caps, Concurrent, Operations, Style};
use self::group::Subscription;
pub use self::metadata::Metadata;
use self::operation::Operation;
pub use self::overview::{MachineAction, MachineCommand};
pub(crate) use self::provider::{LOCATIONS, normalize_location};
pub(crate) use self::reference::{named, references};
pub use self::script::Script;
pub(crate) use self::store::{Provisioning, Resource, Store};
pub use self::throttle::Quotas;
use self::throttle::Throttle;
use crate::catalog::Kind;
use crate::id::Key;
use crate::refusal::Refusal;
use crate::request::{Request, Response};
use crate::token::Directory;
use crate::{compute, network};

/// How many requests the journal keeps.
const MAX_JOURNAL: usize = 20_000;

/// What the cloud is like at the start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The time of the start.
    pub started_at: Timestamp,
    /// The seed of all random numbers: the same seed and the same requests lead to the same responses.
    pub seed: u64,
    /// The ID of the subscription.
    pub subscription: String,
    /// The ID of the tenant to which the subscription belongs.
    pub tenant: String,
    /// The rate limits.
    pub quotas: Quotas,
    /// The clients that get tokens. `None` where requests need no token.
    pub directory: Option<Directory>,
}

/// An entry of the journal.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The number of the entry, which counts up.
    pub number: u64,
    /// The time since the start, in milliseconds.
    pub at_ms: u64,
    /// The method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The API version of the query.
    pub version: Option<String>,
    /// The status of the response.
    pub status: u16,
    /// The error code of the response.
    pub code: Option<String>,
    /// The client that the token was issued to.
    pub client: Option<String>,
}

/// The cloud.
pub struct State {
    started_at: Timestamp,
    /// The latest time of any request: time never goes back.
    now: Duration,
    random: Random,
    pub(crate) tenant: String,
    pub(crate) subscription: String,
    subscriptions: BTreeMap<String, Subscription>,
    pub(crate) store: Store,
    operations: BTreeMap<String, Operation>,
    due: BTreeSet<(Duration, String)>,
    pub(crate) behavior: Behavior,
    throttle: Throttle,
    pub(crate) directory: Option<Directory>,
    pub(crate) metadata: Metadata,
    scripts: Vec<Script>,
    journal: VecDeque<Entry>,
    requests: u64,
    /// How many public addresses were given, which are never reused.
    pub(crate) addresses: u32,
}

impl State {
    /// A cloud with one subscription without resource groups.
    pub fn new(settings: Settings) -> Self {
        let Settings { started_at, seed, subscription, tenant, quotas, directory } = settings;
        let mut state = Self {
            started_at,
            now: Duration::ZERO,
            random: Random::seeded(seed),
            tenant: tenant.clone(),
            subscription: subscription.clone(),
            subscriptions: BTreeMap::new(),
            store: Store::default(),
            operations: BTreeMap::new(),
            due: BTreeSet::new(),
            behavior: Behavior::default(),
            throttle: Throttle::new(quotas),
            directory,
            metadata: Metadata::default(),
            scripts: Vec::new(),
            journal: VecDeque::new(),
            requests: 0,
            addresses: 0,
        };
        state.add_subscription(&subscription, &tenant);
        state
    }

    /// Answers a request at a time since the start. `faults` are those of a write.
    pub fn apply(&mut self, now: Duration, request: &Request, faults: WriteFaults) -> Response {
        self.advance(now);
        let mut client = None;
        let answer = self.answer(request, faults, &mut client);
        let mut response = answer.unwrap_or_else(|refusal| refusal.response());
        let (id, correlation) = (self.next_guid(), self.next_guid());
        response = response
            .with("x-ms-request-id", id)
            .with("x-ms-correlation-request-id", correlation)
            .with("cache-control", "no-cache");
        self.record(request, &response, client);
        response
    }

    fn answer(
        &mut self,
        request: &Request,
        faults: WriteFaults,
        client: &mut Option<String>,
    ) -> Result<Response, Refusal> {
        let path = request.path.to_lowercase();
        if let Some(response) = self.scripted(request) {
            return Ok(response);
        }
        if path == "/metadata/endpoints" {
            return Ok(self.endpoints(request));
        }
        if path.starts_with("/metadata/") {
            return Ok(self.metadata(request, &path));
        }
        if crate::token::is_token_path(&path) {
            return Ok(self.entra(request, &path));
        }
        let principal = self.authenticate(request)?;
        *client = principal.as_ref().map(|principal| principal.client.clone());
        let client = client.as_deref().unwrap_or("anyone");
        let place = self.place(&request.path);
        let place = (place.0.as_str(), place.1);
        let headers = self.throttle.take(self.now, self.started_at, client, request, place)?;
        let mut response =
            self.arm(request, faults, principal.as_ref()).unwrap_or_else(|refusal| refusal.response());
        response.headers.extend(headers);
        Ok(response)
    }

    /// The region in which a request counts, and whether its resource exists.
    fn place(&self, path: &str) -> (String, bool) {
        match self.store.owner(path) {
            Some(resource) => (normalize_location(resource.location()), true),
            None => (String::new(), false),
        }
    }

    fn record(&mut self, request: &Request, response: &Response, client: Option<String>) {
        self.requests += 1;
        let code = response.body.as_ref().and_then(|body| {
            body.pointer("/error/code")
                .or_else(|| body.get("code"))
                .and_then(Value::as_str)
                .map(str::to_owned)
        });
        self.journal.push_back(Entry {
            number: self.requests,
            at_ms: u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX),
            method: request.method.to_string(),
            path: request.path.clone(),
            version: request.parameter("api-version").map(str::to_owned),
            status: response.status,
            code: code.filter(|_| response.status >= 400),
            client,
        });
        if self.journal.len() > MAX_JOURNAL {
            self.journal.pop_front();
        }
    }

    /// The entries of the journal after a number.
    pub fn journal(&self, after: u64) -> impl Iterator<Item = &Entry> {
        self.journal.iter().filter(move |entry| entry.number > after)
    }

    /// A point in time as Azure shows it.
    pub(crate) fn time(&self, at: Duration) -> String {
        format!("{:.3}", self.started_at + at)
    }

    pub(crate) fn timestamp(&self) -> Timestamp {
        self.started_at + self.now
    }

    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    pub(crate) fn next_guid(&mut self) -> String {
        let [a, b, c, d] = std::array::from_fn(|_| self.random.number());
        let (b, mid) = (b >> 16, b & 0xfff);
        let (c, rest) = (0x8000 | (c >> 18), c & 0xffff);
        format!("{a:08x}-{b:04x}-4{mid:03x}-{c:04x}-{rest:04x}{d:08x}")
    }

    /// The etag of a resource that has just changed.
    pub(crate) fn next_etag(&mut self, kind: Kind, former: Option<&str>) -> String {
        use crate::catalog::Provider;
        match kind.provider() {
            Provider::Network => format!("W/\"{}\"", self.next_guid()),
            Provider::Compute => {
                let number =
                    former.and_then(|text| text.trim_matches('"').parse::<u64>().ok()).unwrap_or_default();
                format!("\"{}\"", number + 1)
            }
        }
    }

    /// A resource as a response shows it.
    pub(crate) fn view(&self, resource: &Resource, with_instance_view: bool) -> Value {
        match resource.kind.provider() {
            crate::catalog::Provider::Compute => compute::view(self, resource, with_instance_view),
            crate::catalog::Provider::Network => network::view(self, resource),
        }
    }

    /// Removes a resource with everything below it, and the references to it that Azure removes by itself.
    pub(crate) fn remove(&mut self, key: &Key) {
        let prefix = format!("{key}/");
        let keys: Vec<_> = self.store.below(&prefix).map(|resource| resource.id.key()).collect();
        for key in keys {
            self.store.remove(&key, self.now);
        }
        self.store.remove(key, self.now);
    }

    /// Whether a path is one of a resource that exists.
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.store.exists(path)
    }

    /// How many requests of a method reached a type, for tests: the sum over the journal.
    pub fn count(&self, method: &Method, path_contains: &str) -> usize {
        let path_contains = path_contains.to_lowercase();
        let is_meant = |entry: &&Entry| {
            entry.method == method.as_str() && entry.path.to_lowercase().contains(&path_contains)
        };
        self.journal.iter().filter(is_meant).count()
    }
}

#[cfg(test)]
mod tests;
