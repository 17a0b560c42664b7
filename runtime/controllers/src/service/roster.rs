//! All Services that matter, and what is to be done next for which: the service controller as a machine without clock,
//! network and chance.
//!
//! Each Service goes round by itself: what is observed of it becomes its record, `plan` says which step is next and why,
//! the lanes say when, work goes out as values, and what became of it changes the record. Never is more than one piece of
//! work under way for one Service (P-11), nor for two that bore the same name.

use std::sync::Arc;

use pileus_cloud::{Error as CloudError, Retry, ServiceProgress, ServiceTerms};
use tokio::time::Instant;

use super::Settings;
use super::targets::Targets;
use super::work::{Call, Census, Key, Listing, Report, Telling, Work};
use crate::error::Error;
use crate::facts::service::ServiceFacts;

/// The Services.
#[derive(Debug)]
pub(super) struct Roster {}

impl Roster {
    /// Knows of nothing yet, and wants nothing before it has been told of targets. An audit is due at once.
    pub(super) fn new(terms: ServiceTerms, settings: &Settings, now: Instant) -> Self {
        todo!()
    }

    /// A Service is there, and so.
    pub(super) fn present(&mut self, facts: &Arc<ServiceFacts>, now: Instant) {
        todo!()
    }

    /// The Service of this name, `namespace/name`, is gone.
    pub(super) fn gone(&mut self, name: &str, now: Instant) {
        todo!()
    }

    /// The Nodes that may take traffic have changed. First told once all Services and Nodes are known.
    pub(super) fn target(&mut self, targets: Arc<Targets>, now: Instant) {
        todo!()
    }

    /// What may begin now. What it is about is busy until told of. `jitter`, from 0 to 1, spreads audits.
    pub(super) fn next(&mut self, now: Instant, jitter: f64) -> Vec<Work> {
        todo!()
    }

    /// What became of a write: the Service as it is since, or why it isn't written.
    pub(super) fn wrote(
        &mut self,
        uid: &str,
        result: Result<&Arc<ServiceFacts>, &Error>,
        now: Instant,
        jitter: f64,
    ) {
        todo!()
    }

    /// What became of a call.
    pub(super) fn came(
        &mut self,
        call: &Call,
        outcomes: Result<Vec<Result<ServiceProgress, CloudError>>, CloudError>,
        now: Instant,
        jitter: f64,
    ) {
        todo!()
    }

    /// What the cloud has, or when to try the list again: it failed, or the read of the API server after it did.
    pub(super) fn listed(&mut self, listing: Result<&Listing, Retry>, now: Instant, jitter: f64) -> Report {
        todo!()
    }

    /// What is to be told since it was last asked for.
    pub(super) fn tellings(&mut self) -> Vec<Telling> {
        todo!()
    }

    /// When to ask for more work although nothing has been told to the roster; later than the last `next`.
    pub(super) fn wakes(&self) -> Option<Instant> {
        todo!()
    }

    /// How Services fare.
    pub(super) fn census(&self) -> Census {
        todo!()
    }
}
