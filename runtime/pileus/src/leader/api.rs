//! The Lease as the API server has it: requests, each with an end, and a watch.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource as _};
use tokio::sync::mpsc;

use super::observation::Record;
use crate::error::chain;

/// One Lease.
#[derive(Clone)]
pub(super) struct Leases {
    api: Api<Lease>,
    namespace: String,
    name: String,
    /// As it was last read or written: what others keep in it is written back.
    last: Lease,
}

/// Why a request didn't do what it should.
pub(super) enum Failure {
    /// The Lease is not as it was when it was read.
    Conflict,
    /// The Lease isn't there, or its namespace.
    Missing(String),
    /// Anything else, in words. Whether a write was done is not known.
    Failed(String),
}

/// What the watch tells.
pub(super) struct Change {
    pub(super) version: String,
    /// None if it was deleted.
    pub(super) record: Option<Record>,
    /// All of it.
    lease: Lease,
}

impl Leases {
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, namespace: namespace.to_owned(), name: name.to_owned(), last: Lease::default() }
    }

    /// The Lease with its version, or none if there is none.
    pub(super) async fn read(&mut self, patience: Duration) -> Result<Option<(String, Record)>, Failure> {
        let found = answered(patience, self.api.get_opt(&self.name)).await?;
        self.last = found.clone().unwrap_or_default();
        Ok(found.map(seen))
    }

    /// Makes the Lease, and tells its version.
    pub(super) async fn create(
        &mut self,
        record: &Record,
        patience: Duration,
    ) -> Result<(String, Record), Failure> {
        let mut lease = Lease { spec: Some(spec(record, LeaseSpec::default())), ..Lease::default() };
        lease.metadata.name = Some(self.name.clone());
        self.last = answered(patience, self.api.create(&PostParams::default(), &lease)).await?;
        Ok(seen(self.last.clone()))
    }

    /// Replaces what stands in this version of the Lease, and tells the new version.
    pub(super) async fn update(
        &mut self,
        version: &str,
        record: &Record,
        patience: Duration,
    ) -> Result<(String, Record), Failure> {
        let mut lease = self.last.clone();
        lease.metadata.name = Some(self.name.clone());
        lease.metadata.resource_version = Some(version.to_owned());
        lease.spec = Some(spec(record, lease.spec.unwrap_or_default()));
        let params = PostParams::default();
        let replaced = answered(patience, self.api.replace(&self.name, &params, &lease)).await;
        self.last = replaced.map_err(|failure| match failure {
            // Gone between two requests is as good as changed.
            Failure::Missing(_) => Failure::Conflict,
            failure => failure,
        })?;
        Ok(seen(self.last.clone()))
    }

    /// Takes over what the watch has told, where it is newer than what was known.
    pub(super) fn heard(&mut self, change: Change) {
        self.last = change.lease;
    }

    /// What events about the Lease refer to.
    pub(super) fn reference(&self) -> ObjectReference {
        ObjectReference {
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            ..self.last.object_ref(&())
        }
    }

    /// Tells of all changes from now on, until nobody listens. A watch that breaks, or says nothing for this long, is
    /// begun anew after this pause: whoever listens looks for himself, too.
    pub(super) async fn watch(self, changes: mpsc::Sender<Change>, silence: Duration, pause: Duration) {
        let only = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        while !changes.is_closed() {
            if let Ok(Ok(events)) = tokio::time::timeout(silence, self.api.watch(&only, "0")).await {
                let mut events = events.boxed();
                while let Ok(Ok(Some(event))) = tokio::time::timeout(silence, events.try_next()).await {
                    let change = match event {
                        WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                            let (version, record) = seen(lease.clone());
                            Change { version, record: Some(record), lease }
                        }
                        WatchEvent::Deleted(lease) => {
                            Change { version: seen(lease).0, record: None, lease: Lease::default() }
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

/// What the API server answers, if it does so in time.
async fn answered<T>(
    patience: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(patience, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(Failure::Conflict),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
            Err(Failure::Missing(status.message.clone()))
        }
        Ok(Err(error)) => Err(Failure::Failed(chain(&error))),
        Err(_elapsed) => Err(Failure::Failed(format!("no answer within {patience:?}"))),
    }
}

fn seen(lease: Lease) -> (String, Record) {
    let spec = lease.spec.unwrap_or_default();
    let record = Record {
        holder: spec.holder_identity.unwrap_or_default(),
        seconds: spec.lease_duration_seconds.unwrap_or_default(),
        acquired: spec.acquire_time.map(|time| time.0),
        renewed: spec.renew_time.map(|time| time.0),
        transitions: spec.lease_transitions.unwrap_or_default(),
    };
    (lease.metadata.resource_version.unwrap_or_default(), record)
}

fn spec(record: &Record, others: LeaseSpec) -> LeaseSpec {
    let Record { holder, seconds, acquired, renewed, transitions } = record.clone();
    LeaseSpec {
        holder_identity: Some(holder),
        lease_duration_seconds: Some(seconds),
        acquire_time: acquired.map(MicroTime),
        renew_time: renewed.map(MicroTime),
        lease_transitions: Some(transitions),
        ..others
    }
}
