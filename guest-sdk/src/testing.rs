//! A test double of the host. A provider's logic is tested natively with it, in milliseconds. It answers requests from a
//! script, has the identity's facts, keeps the log, and has a clock that moves only when an exchange takes time.
//!
//! ```
//! use pileus_guest::{http, testing};
//!
//! let host = testing::Host::new()
//!     .exchange(testing::get("http://cloud.test/v1/machines/m-1").status(404));
//! let response = host.run(http::get("http://cloud.test/v1/machines/m-1").send()).unwrap();
//! assert!(response.or_absent().unwrap().is_none());
//! ```
//!
//! A request that isn't in the script fails the test. So does an unused exchange, when the double is dropped.

pub(crate) mod double;
mod exchange;

use std::rc::Rc;
use std::time::{Duration, SystemTime};

pub use exchange::{Exchange, delete, get, patch, post, put};
use serde::Serialize;
use tracing::Level;

use crate::http::ONLY_IF_CACHED;
use crate::log::HostLog;
use crate::{
    Answer, Cluster, Error, Instances, ListedRoute, LoadBalancers, LocalAnswer, LocalInstance, NodeReference,
    OwnedLoadBalancer, Problem, Provider, Purpose, RouteChange, RouteOutcome, Routes, ServiceCall,
    ServiceOutcome, Settings, configuration, export,
};
use double::Double;

/// A request that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentRequest {
    /// Its method, upper case.
    pub method: String,
    /// Its URL, with the query.
    pub url: String,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body. Empty if it had none.
    pub body: Vec<u8>,
}

impl SentRequest {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// Whether only the host's cache may answer it, so that it never reaches the cloud.
    pub fn is_cache_only(&self) -> bool {
        self.header("cache-control").is_some_and(|value| value.contains(ONLY_IF_CACHED))
    }
}

/// A line that was logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Its level.
    pub level: Level,
    /// The part of the provider that logged it.
    pub target: String,
    /// The message.
    pub message: String,
    /// The fields of the event, after those of the spans around it.
    pub fields: Vec<(String, String)>,
}

/// The test double of the host.
#[must_use = "the double does nothing until something runs in it"]
#[derive(Default)]
pub struct Host(Rc<Double>);

impl Host {
    /// A host with an empty script, no facts about the identity, all log levels, and 10 s until the soft deadline.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the configuration of the provider. The default is `{}`.
    ///
    /// # Panics
    ///
    /// If the value can't be written as JSON.
    pub fn configuration(self, configuration: impl Serialize) -> Self {
        let document = serde_json::to_string(&configuration).expect("the configuration of a test is JSON");
        self.0.document.replace(document);
        self
    }

    /// Adds a fact about the identity.
    pub fn identity(self, name: &str, value: &str) -> Self {
        self.0.facts.borrow_mut().push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the time until the soft deadline.
    pub fn remaining(self, time: Duration) -> Self {
        self.0.remaining.set(time);
        self
    }

    /// Sets the clock. The default is 1970-01-01T00:00:00Z.
    pub fn now(self, now: SystemTime) -> Self {
        self.0.now.set(now);
        self
    }

    /// Keeps only lines of this level and above.
    pub fn log_level(self, level: Level) -> Self {
        self.0.level.set(level);
        self
    }

    /// Adds an exchange to the script. If several match a request, the first that isn't used up answers it.
    pub fn exchange(self, exchange: Exchange) -> Self {
        self.0.script.borrow_mut().push(exchange);
        self
    }

    /// Answers each request that has no exchange with a function, for example a small fake cloud. The method and the URL of
    /// the returned exchange are ignored.
    pub fn cloud(self, answer: impl FnMut(&SentRequest) -> Exchange + 'static) -> Self {
        self.0.cloud.replace(Some(Box::new(answer)));
        self
    }

    /// Adds recorded exchanges: a JSON list of objects with `method`, `url`, `status`, `headers` (an object) and `body` (a
    /// text, or any other JSON value). Only `url` is required.
    ///
    /// # Panics
    ///
    /// If the text is not such a list.
    pub fn recorded(self, json: &str) -> Self {
        self.0.script.borrow_mut().extend(exchange::recorded(json));
        self
    }

    /// Runs a future to completion with this double as the host.
    ///
    /// # Panics
    ///
    /// If a request isn't in the script, or if the thread runs in a double already.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        let _entered = double::enter(&self.0);
        tracing::subscriber::with_default(HostLog::default(), || double::block_on(future))
    }

    /// Makes a provider from the configuration, as the host does when it loads one, and returns its settings.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the configuration.
    pub fn configure<P: Provider>(&self) -> Result<Settings, Vec<Problem>> {
        let document = self.0.document.borrow().clone();
        self.run(async { configuration::read::<P>(&document).map(|provider| provider.settings()) })
    }

    /// Makes one call of `instances.lookup`, exactly as a component does.
    ///
    /// # Errors
    ///
    /// The provider's error for the call as a whole.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run), and if there isn't one answer for each Node.
    pub fn lookup<P: Instances>(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> Result<Vec<Result<Answer, Error>>, Error> {
        let answers = self.run(export::look_up::<P>(purpose, nodes))?;
        assert_eq!(answers.len(), nodes.len(), "a lookup gives one answer for each Node");
        Ok(answers)
    }

    /// Makes one call of `local-instance.describe`, exactly as a component does.
    ///
    /// # Errors
    ///
    /// The provider's error.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    pub fn describe_local_instance<P: LocalInstance>(
        &self,
        node: &NodeReference,
    ) -> Result<LocalAnswer, Error> {
        self.run(export::described_local_instance::<P>(node))
    }

    /// Makes one call of `routes.list`, exactly as a component does.
    ///
    /// # Errors
    ///
    /// The provider's error.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    pub fn list_routes<P: Routes>(&self, cluster: &Cluster) -> Result<Vec<ListedRoute>, Error> {
        self.run(export::listed_routes::<P>(cluster))
    }

    /// Makes one call of `routes.change`, exactly as a component does.
    ///
    /// # Errors
    ///
    /// The provider's error for the call as a whole.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run), and if there isn't one outcome for each change.
    pub fn change_routes<P: Routes>(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
    ) -> Result<Vec<RouteOutcome>, Error> {
        let outcomes = self.run(export::changed_routes::<P>(cluster, changes))?;
        assert_eq!(outcomes.len(), changes.len(), "a call gives one outcome for each change");
        Ok(outcomes)
    }

    /// Makes one call of `load-balancers.change`, exactly as a component does.
    ///
    /// # Errors
    ///
    /// The provider's error for the call as a whole.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run), and if there isn't one outcome for each change.
    pub fn change_load_balancers<P: LoadBalancers>(
        &self,
        call: &ServiceCall,
    ) -> Result<Vec<ServiceOutcome>, Error> {
        let outcomes = self.run(export::changed_load_balancers::<P>(call))?;
        assert_eq!(outcomes.len(), call.changes.len(), "a call gives one outcome for each change");
        Ok(outcomes)
    }

    /// Makes one call of `load-balancers.list-owned`, exactly as a component does.
    ///
    /// # Errors
    ///
    /// The provider's error.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    pub fn list_owned<P: LoadBalancers>(&self, cluster: &Cluster) -> Result<Vec<OwnedLoadBalancer>, Error> {
        self.run(export::owned_load_balancers::<P>(cluster))
    }

    /// The requests that were sent, in order.
    pub fn requests(&self) -> Vec<SentRequest> {
        self.0.sent.borrow().clone()
    }

    /// The largest number of requests that were in flight at a time.
    pub fn max_in_flight(&self) -> usize {
        self.0.max_in_flight.get()
    }

    /// The largest number of bytes of responses that were read at a time.
    pub fn max_bytes_in_flight(&self) -> usize {
        self.0.max_bytes_in_flight.get()
    }

    /// The lines that were logged, in order.
    pub fn log(&self) -> Vec<LogLine> {
        self.0.log.borrow().clone()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let unused = self.0.unused();
        if std::thread::panicking() {
            return;
        }
        let listed: Vec<String> = unused.iter().map(ToString::to_string).collect();
        assert!(listed.is_empty(), "{} exchanges were not used: {}", listed.len(), listed.join(", "));
    }
}

/// The JSON Schema of a provider's configuration, as the component publishes it.
///
/// # Panics
///
/// Never: a schema is JSON.
pub fn schema<P: Provider>() -> serde_json::Value {
    serde_json::from_str(&configuration::schema::<P>()).expect("a schema is JSON")
}
