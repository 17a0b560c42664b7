mod audits;
mod calls;
mod failures;
mod lifecycle;
mod orphans;
mod ownership;
mod refusals;
mod reports;
mod targets;
mod writes;

use std::time::Duration;

use pileus_cloud::{
    ErrorKind, Ingress, IngressPoint, OwnedLoadBalancer, Retry, ServiceProgress, TargetSelection,
};
use serde_json::{Value, json};

use super::*;
use crate::error::Error;
use crate::service::harness::{
    AUDIT, FINALIZER, Harness, ID, NODES, failure, ingress, node, nodes, requirements, service,
};
use crate::service::work::{Call, Listing, ListingReport};

const ENSURE: &str = r#"ensure a ["n"]"#;
const DELETING: &str = "2026-01-02T03:04:05Z";

/// A cluster with one settled Service; its calls, patches and events are discarded.
fn settled(change: Value) -> Harness {
    let mut harness = Harness::with_nodes(&nodes(&["n"]));
    harness.store(service("a", change));
    assert_eq!(harness.settle().take_calls(), [ENSURE]);
    assert_eq!(harness.take_events(), ["EnsuringLoadBalancer a", "EnsuredLoadBalancer a"]);
    (harness.patches, harness.sizes) = (0, Vec::new());
    harness
}

fn in_progress(after: u64, note: &str) -> ServiceProgress {
    ServiceProgress::in_progress(Duration::from_secs(after), Some(note.to_owned()))
}

fn status(ip: &str) -> Value {
    json!({"loadBalancer": {"ingress": [{"ip": ip}]}})
}

fn owned(name: &str, cluster: Option<&str>, uid: Option<&str>) -> OwnedLoadBalancer {
    OwnedLoadBalancer {
        cluster_uid: cluster.map(str::to_owned),
        service_uid: uid.map(str::to_owned),
        service: None,
        name: name.to_owned(),
        extra: Vec::new(),
    }
}
