//! A double of the host, so that a provider's logic is tested natively in milliseconds: it answers requests by script,
//! knows the identity, has a clock that moves only when told, and keeps the log.
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
//! A request that isn't scripted fails the test, and so does, when the double is dropped, an exchange that wasn't used.

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
    Answer, Cluster, Error, Instances, ListedRoute, LoadBalancers, NodeReference, Owned, Problem, Progress,
    Provider, Purpose, RouteChange, Routes, ServiceCall, ServiceProgress, Settings, configuration, export,
};
use double::Double;

/// A request that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its method, upper case.
    pub method: String,
    /// Its URL, with the query.
    pub url: String,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body; empty where it had none.
    pub body: Vec<u8>,
}

impl Sent {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// Whether it was for the host's cache alone, and nothing of it reached the cloud.
    pub fn is_for_the_cache(&self) -> bool {
        self.header("cache-control").is_some_and(|value| value.contains(ONLY_IF_CACHED))
    }
}

/// A line that was logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How much it matters.
    pub level: Level,
    /// The part of the provider that spoke.
    pub target: String,
    /// What it said.
    pub message: String,
    /// The fields of the event, after those of the spans around it.
    pub fields: Vec<(String, String)>,
}

/// The double of the host.
#[must_use = "the double does nothing until something runs in it"]
#[derive(Default)]
pub struct Host(Rc<Double>);

impl Host {
    /// A host that answers no request, knows nothing of the identity, keeps every line, and whose calls have 10 s.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the configuration of the provider, `{}` otherwise.
    ///
    /// # Panics
    ///
    /// Where the value is no JSON.
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

    /// Sets what is left until the soft deadline.
    pub fn remaining(self, time: Duration) -> Self {
        self.0.remaining.set(time);
        self
    }

    /// Sets the clock, which shows 1970-01-01T00:00:00Z otherwise.
    pub fn now(self, now: SystemTime) -> Self {
        self.0.now.set(now);
        self
    }

    /// Keeps no lines that matter less than this.
    pub fn log_level(self, level: Level) -> Self {
        self.0.level.set(level);
        self
    }

    /// Adds an exchange to the script. Of several for the same request the first that isn't used up answers.
    pub fn exchange(self, exchange: Exchange) -> Self {
        self.0.script.borrow_mut().push(exchange);
        self
    }

    /// Answers each request for which there is no exchange by a function: a small cloud, say, that a test makes up. The
    /// method and the URL of what it returns play no part.
    pub fn cloud(self, answer: impl FnMut(&Sent) -> Exchange + 'static) -> Self {
        self.0.cloud.replace(Some(Box::new(answer)));
        self
    }

    /// Adds exchanges that were recorded: a JSON list of objects with `method`, `url`, `status`, `headers` (an object)
    /// and `body` (a text, or any other JSON value), of which `url` alone is required.
    ///
    /// # Panics
    ///
    /// Where the text is no such list.
    pub fn recorded(self, json: &str) -> Self {
        self.0.script.borrow_mut().extend(exchange::recorded(json));
        self
    }

    /// Runs a future to its end with this double as the host.
    ///
    /// # Panics
    ///
    /// Where a request is sent that isn't in the script, or where the thread runs in a double already.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        let _here = double::enter(&self.0);
        tracing::subscriber::with_default(HostLog::default(), || double::block_on(future))
    }

    /// Makes a provider from the configuration, as the host does when it loads one, and says what follows from it.
    ///
    /// # Errors
    ///
    /// All that is wrong with the configuration.
    pub fn configure<P: Provider>(&self) -> Result<Settings, Vec<Problem>> {
        let document = self.0.document.borrow().clone();
        self.run(async { configuration::read::<P>(&document).map(|provider| provider.settings()) })
    }

    /// Makes one call of `instances.lookup`, exactly as a component does.
    ///
    /// # Errors
    ///
    /// What the provider answers for the call as a whole.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run), and where there is not one answer for each Node.
    pub fn lookup<P: Instances>(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> Result<Vec<Result<Answer, Error>>, Error> {
        let answers = self.run(export::answer::<P>(purpose, nodes))?;
        assert_eq!(answers.len(), nodes.len(), "a lookup gives one answer for each Node");
        Ok(answers)
    }

    /// Makes one call of `routes.list`, exactly as a component does.
    ///
    /// # Errors
    ///
    /// What the provider answers.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    pub fn list_routes<P: Routes>(&self, cluster: &Cluster) -> Result<Vec<ListedRoute>, Error> {
        self.run(export::listed::<P>(cluster))
    }

    /// Makes one call of `routes.change`, exactly as a component does.
    ///
    /// # Errors
    ///
    /// What the provider answers for the call as a whole.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run), and where there is not one outcome for each change.
    pub fn change_routes<P: Routes>(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
    ) -> Result<Vec<Result<Progress, Error>>, Error> {
        let outcomes = self.run(export::changed::<P>(cluster, changes))?;
        assert_eq!(outcomes.len(), changes.len(), "a call gives one outcome for each change");
        Ok(outcomes)
    }

    /// Makes one call of `load-balancers.change`, exactly as a component does.
    ///
    /// # Errors
    ///
    /// What the provider answers for the call as a whole.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run), and where there is not one outcome for each change.
    pub fn change_load_balancers<P: LoadBalancers>(
        &self,
        call: &ServiceCall,
    ) -> Result<Vec<Result<ServiceProgress, Error>>, Error> {
        let outcomes = self.run(export::services_changed::<P>(call))?;
        assert_eq!(outcomes.len(), call.changes.len(), "a call gives one outcome for each change");
        Ok(outcomes)
    }

    /// Makes one call of `load-balancers.list-owned`, exactly as a component does.
    ///
    /// # Errors
    ///
    /// What the provider answers.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    pub fn list_owned<P: LoadBalancers>(&self, cluster: &Cluster) -> Result<Vec<Owned>, Error> {
        self.run(export::owned::<P>(cluster))
    }

    /// The requests that were sent, in their order.
    pub fn requests(&self) -> Vec<Sent> {
        self.0.sent.borrow().clone()
    }

    /// The most requests that were in flight at the same time.
    pub fn most_in_flight(&self) -> usize {
        self.0.most_in_flight.get()
    }

    /// The lines that were logged, in their order.
    pub fn log(&self) -> Vec<Line> {
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
        assert!(listed.is_empty(), "{} exchanges were not asked for: {}", listed.len(), listed.join(", "));
    }
}

/// The JSON Schema of a provider's configuration, as it is published.
///
/// # Panics
///
/// Never: a schema is JSON.
pub fn schema<P: Provider>() -> serde_json::Value {
    serde_json::from_str(&configuration::schema::<P>()).expect("a schema is JSON")
}
