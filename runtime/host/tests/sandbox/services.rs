//! A provider that fails at load balancers: at one Service of many, or with an invalid answer.

use std::sync::Arc;

use pileus_cloud::{
    Cluster, Error, ErrorKind, IngressPoint, IpFamily, LoadBalancers as _, Protocol, Service, ServiceAction,
    ServiceCall, ServiceChange, ServicePort, ServiceProgress,
};
use pileus_host::{Guest, Limits, Metrics};
use prometheus_client::registry::Registry;

use crate::fixture::{configured, count, engine, gate};

/// A guest with this behavior at one Service, or at all Services, and its metrics.
async fn behaving(behaviour: &str, only: Option<&str>) -> (Arc<Guest>, Registry) {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let configuration = serde_json::json!({"behaviour": behaviour, "only": only}).to_string();
    (configured(&engine(), &configuration, gate(Vec::new()), Limits::default(), &metrics).await, registry)
}

fn cluster() -> Cluster {
    Cluster { name: "kubernetes".to_owned(), uid: Some("c-1".to_owned()) }
}

fn change(number: usize) -> ServiceChange {
    let port = ServicePort {
        name: String::new(),
        protocol: Protocol::Tcp,
        port: 80,
        node_port: Some(30080),
        app_protocol: None,
    };
    let service = Service {
        ports: vec![port],
        families: vec![IpFamily::Ipv4],
        ..Service::named("default", format!("svc-{number}"), format!("uid-{number}"))
    };
    ServiceChange { action: ServiceAction::Ensure(service), resume: None }
}

async fn ensure(guest: &Guest, count: usize) -> Result<Vec<Result<ServiceProgress, Error>>, Error> {
    let changes: Vec<_> = (0..count).map(change).collect();
    let cluster = cluster();
    let call =
        ServiceCall { cluster: &cluster, targets: &[], known: &[], changes: &changes, is_audit: false };
    guest.change(call).await
}

/// Each Service has its address, except for one, which has an error with these parts.
fn assert_one_fails(outcomes: &[Result<ServiceProgress, Error>], failing: usize, parts: &[&str]) {
    for (place, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Ok(ServiceProgress::Done { status, .. }) => {
                let points: Vec<_> = status.iter().map(|ingress| ingress.point.clone()).collect();
                assert_eq!(points, [IngressPoint::Ip("198.51.100.7".to_owned())]);
                assert_ne!(place, failing);
            }
            Err(error) => {
                assert_eq!((place, error.kind), (failing, ErrorKind::Broken), "{error}");
                for part in parts {
                    assert!(error.message.contains(part), "{part:?} is missing: {error}");
                }
            }
            Ok(other) => panic!("{place}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trap_about_one_service_of_100_does_not_affect_the_others() {
    let (guest, registry) = behaving("panic", Some("svc-37")).await;
    let outcomes = ensure(&guest, 100).await.unwrap();
    assert_eq!(outcomes.len(), 100);
    let parts =
        ["provider hostile: change-load-balancers of service default/svc-37 trapped", "hostile panic"];
    assert_one_fails(&outcomes, 37, &parts);
    assert_eq!(count(&registry, "culprits"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_outcomes_for_one_service_do_not_affect_the_others() {
    let (guest, registry) = behaving("misaligned", Some("svc-5")).await;
    let outcomes = ensure(&guest, 20).await.unwrap();
    assert_eq!(outcomes.len(), 20);
    assert_one_fails(&outcomes, 5, &["service default/svc-5", "returned 0 outcomes about 1 services"]);
    assert_eq!(count(&registry, "culprits"), 1);
    let error = ensure(&behaving("misaligned", None).await.0, 1).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Broken);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_address_is_an_error_of_its_service_and_repeats_no_call() {
    let (guest, registry) = behaving("no-address", Some("svc-2")).await;
    let outcomes = ensure(&guest, 4).await.unwrap();
    assert_one_fails(&outcomes, 2, &["service default/svc-2: invalid IP address \"lb.example\""]);
    assert_eq!(count(&registry, "repeats"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn notices_are_limited_in_number_and_length() {
    let (guest, _) = behaving("huge-answer", None).await;
    let outcomes = ensure(&guest, 1).await.unwrap();
    let Ok(ServiceProgress::Done { notices, .. }) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(notices.len(), 8);
    assert!(notices.iter().all(|it| it.message.len() <= 1 << 10), "{}", notices[0].message.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_list_is_an_error() {
    for (behaviour, expected) in
        [("many-owned", "returned 20001 load balancers; the limit is 20000"), ("trap", "list-owned trapped")]
    {
        let error = behaving(behaviour, None).await.0.list_owned(&cluster()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Broken, "{behaviour}");
        assert!(error.message.contains(expected), "{error}");
    }
    let listed = behaving("echo", None).await.0.list_owned_once(&cluster()).await.unwrap().unwrap();
    assert_eq!(listed[0].name, "lb-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_has_the_capabilities_that_its_component_exports() {
    let guest = Arc::into_inner(behaving("echo", None).await.0).unwrap();
    let provider = guest.provider();
    assert!(provider.instances.is_some() && provider.load_balancers.is_some());
    assert!(provider.routes.is_none());
}
