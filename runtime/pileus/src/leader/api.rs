//! Requests for one Lease, each with a timeout, and a watch.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource as _};
use pileus_controllers::describe;
use tokio::sync::mpsc;

use super::observation::LeaseRecord;

/// Reads, writes and watches one Lease.
#[derive(Clone)]
pub(super) struct LeaseApi {
    api: Api<Lease>,
    namespace: String,
    name: String,
    /// The Lease as last read or written. Fields that others set are written back.
    last: Lease,
}

/// Why a request failed.
pub(super) enum LeaseError {
    /// The Lease has changed since it was read.
    Conflict,
    /// The Lease or its namespace doesn't exist.
    Missing(String),
    /// Any other failure. Whether a write took effect is unknown.
    Failed(String),
}

/// An event of the watch.
pub(super) struct LeaseChange {
    pub(super) version: String,
    /// None if the Lease was deleted.
    pub(super) record: Option<LeaseRecord>,
    /// The whole Lease.
    lease: Lease,
}

impl LeaseApi {
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, namespace: namespace.to_owned(), name: name.to_owned(), last: Lease::default() }
    }

    /// Reads the Lease with its version; none if it doesn't exist.
    pub(super) async fn read(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<(String, LeaseRecord)>, LeaseError> {
        let found = send(timeout, self.api.get_opt(&self.name)).await?;
        self.last = found.clone().unwrap_or_default();
        Ok(found.map(versioned))
    }

    /// Creates the Lease, and returns it with its version.
    pub(super) async fn create(
        &mut self,
        record: &LeaseRecord,
        timeout: Duration,
    ) -> Result<(String, LeaseRecord), LeaseError> {
        let mut lease = Lease { spec: Some(spec(record, LeaseSpec::default())), ..Lease::default() };
        lease.metadata.name = Some(self.name.clone());
        self.last = send(timeout, self.api.create(&PostParams::default(), &lease)).await?;
        Ok(versioned(self.last.clone()))
    }

    /// Replaces this version of the Lease, and returns the new one.
    pub(super) async fn update(
        &mut self,
        version: &str,
        record: &LeaseRecord,
        timeout: Duration,
    ) -> Result<(String, LeaseRecord), LeaseError> {
        let mut lease = self.last.clone();
        lease.metadata.name = Some(self.name.clone());
        lease.metadata.resource_version = Some(version.to_owned());
        lease.spec = Some(spec(record, lease.spec.unwrap_or_default()));
        let params = PostParams::default();
        let replaced = send(timeout, self.api.replace(&self.name, &params, &lease)).await;
        self.last = replaced.map_err(|failure| match failure {
            // The Lease was deleted since it was read.
            LeaseError::Missing(_) => LeaseError::Conflict,
            failure => failure,
        })?;
        Ok(versioned(self.last.clone()))
    }

    /// Remembers the Lease of an event that is newer than the last one.
    pub(super) fn set_last(&mut self, change: LeaseChange) {
        self.last = change.lease;
    }

    /// The reference for events about the Lease.
    pub(super) fn reference(&self) -> ObjectReference {
        ObjectReference {
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            ..self.last.object_ref(&())
        }
    }

    /// Sends all changes from now on, until the receiver is gone. A watch that breaks, or is silent for `silence`, restarts
    /// after `pause`; the receiver also reads the Lease itself, so it misses nothing for long.
    pub(super) async fn watch(self, changes: mpsc::Sender<LeaseChange>, silence: Duration, pause: Duration) {
        let only = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        while !changes.is_closed() {
            if let Ok(Ok(events)) = tokio::time::timeout(silence, self.api.watch(&only, "0")).await {
                let mut events = events.boxed();
                while let Ok(Ok(Some(event))) = tokio::time::timeout(silence, events.try_next()).await {
                    let change = match event {
                        WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                            let (version, record) = versioned(lease.clone());
                            LeaseChange { version, record: Some(record), lease }
                        }
                        WatchEvent::Deleted(lease) => {
                            LeaseChange { version: versioned(lease).0, record: None, lease: Lease::default() }
                        }
                        WatchEvent::Bookmark(_) => continue,
                        WatchEvent::Error(_) => break,
                    };
                    if changes.send(change).await.is_err() {
                        return;
                    }
                }
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// Sends a request with a timeout.
async fn send<T>(timeout: Duration, request: impl Future<Output = kube::Result<T>>) -> Result<T, LeaseError> {
    match tokio::time::timeout(timeout, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(LeaseError::Conflict),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
            Err(LeaseError::Missing(status.message.clone()))
        }
        Ok(Err(error)) => Err(LeaseError::Failed(describe(&error))),
        Err(_elapsed) => Err(LeaseError::Failed(format!("no answer within {} s", timeout.as_secs_f64()))),
    }
}

fn versioned(lease: Lease) -> (String, LeaseRecord) {
    let spec = lease.spec.unwrap_or_default();
    let record = LeaseRecord {
        holder: spec.holder_identity.unwrap_or_default(),
        seconds: spec.lease_duration_seconds.unwrap_or_default(),
        acquired: spec.acquire_time.map(|time| time.0),
        renewed: spec.renew_time.map(|time| time.0),
        transitions: spec.lease_transitions.unwrap_or_default(),
    };
    (lease.metadata.resource_version.unwrap_or_default(), record)
}

fn spec(record: &LeaseRecord, others: LeaseSpec) -> LeaseSpec {
    let LeaseRecord { holder, seconds, acquired, renewed, transitions } = record.clone();
    LeaseSpec {
        holder_identity: Some(holder),
        lease_duration_seconds: Some(seconds),
        acquire_time: acquired.map(MicroTime),
        renew_time: renewed.map(MicroTime),
        lease_transitions: Some(transitions),
        ..others
    }
}
