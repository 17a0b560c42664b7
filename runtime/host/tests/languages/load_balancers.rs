//! Load balancers, in a cloud where each Service has one of its own.

use std::time::{Duration, Instant};

use pileus_cloud::{
    Error, ErrorKind, Ingress, IngressPoint, IpFamily, OwnedLoadBalancer, Protocol, ProviderId, Service,
    ServiceAction, ServiceCall, ServiceChange, ServicePort, ServiceProgress, SessionAffinity, Target,
    TargetSelection, TrafficPolicy,
};
use pileus_host::{Guest, Limits};
use serde_json::{Value, json};

use crate::cloud::Cloud;
use crate::{Language, cluster};

with_each_provider!(
    all_that_a_service_asks_for_is_written_once,
    what_differs_is_written_and_what_is_gone_is_done,
    an_operation_is_in_progress_until_it_ends,
    a_late_failure_is_told_and_then_written_again,
    removals_take_effect_before_additions,
    a_refused_service_does_not_affect_the_others,
    refused_requests_are_errors_of_their_kind,
    after_the_soft_deadline_a_change_is_in_progress,
    all_pages_of_a_list_are_read_and_other_clusters_left_out,
);

type Outcome = Result<ServiceProgress, Error>;

/// A busy machine must not bring a call to its soft deadline.
fn patient() -> Limits {
    Limits { load_balancers_soft: Duration::from_secs(30), ..Limits::default() }
}

fn service(name: &str) -> Service {
    let port = |protocol, port, node_port| ServicePort {
        name: String::new(),
        protocol,
        port,
        node_port: Some(node_port),
        app_protocol: None,
    };
    Service {
        ports: vec![port(Protocol::Tcp, 80, 30_080), port(Protocol::Udp, 53, 30_053)],
        families: vec![IpFamily::Ipv4],
        ..Service::named("shop", name, format!("uid-{name}"))
    }
}

fn target(number: usize) -> Target {
    Target {
        node: format!("node-{number}"),
        uid: format!("uid-node-{number}"),
        provider_id: ProviderId::parse(&format!("simulated://m-{number:06}")).unwrap(),
        addresses: Vec::new(),
        zone: None,
        labels: Vec::new(),
    }
}

/// Makes changes in one call, with the targets 3, 1 and 2.
async fn change(guest: &Guest, changes: &[ServiceChange]) -> Vec<Outcome> {
    let (cluster, targets) = (cluster(), [3, 1, 2].map(target));
    let call = ServiceCall { cluster: &cluster, targets: &targets, known: &[], changes, is_audit: false };
    guest.change_load_balancers_once(call).await.unwrap().unwrap()
}

async fn change_one(guest: &Guest, action: ServiceAction, resume: Option<&str>) -> Outcome {
    let resume = resume.map(str::to_owned);
    change(guest, &[ServiceChange { action, resume }]).await.remove(0)
}

async fn ensure(guest: &Guest, service: &Service) -> Outcome {
    change_one(guest, ServiceAction::Ensure(service.clone()), None).await
}

/// The addresses of a Service whose change is complete.
fn addresses<'a>(outcome: &'a Outcome) -> Vec<&'a str> {
    let Ok(ServiceProgress::Done { status, .. }) = outcome else { panic!("{outcome:?}") };
    let ip = |ingress: &'a Ingress| match &ingress.point {
        IngressPoint::Ip(ip) => ip.as_str(),
        IngressPoint::Hostname(name) => panic!("{name}"),
    };
    status.iter().map(ip).collect()
}

/// The note of a change that is in progress.
fn note(outcome: &Outcome) -> Option<&str> {
    let Ok(ServiceProgress::InProgress { resume, .. }) = outcome else { panic!("{outcome:?}") };
    resume.as_deref()
}

fn kind(outcome: &Outcome) -> ErrorKind {
    outcome.as_ref().unwrap_err().kind
}

fn is_done(outcome: &Outcome) -> bool {
    matches!(outcome, Ok(ServiceProgress::Done { .. }))
}

fn document(cloud: &Cloud, path: &str) -> Value {
    let answer = cloud.send("GET", path, "");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// How often the cloud was asked to write.
fn writes(cloud: &Cloud) -> u64 {
    let counters = document(cloud, "/admin/counters");
    let outcomes =
        ["create", "change", "delete"].map(|kind| counters["calls"][kind].as_object().unwrap().clone());
    outcomes.iter().flat_map(|outcomes| outcomes.values()).map(|count| count.as_u64().unwrap()).sum()
}

async fn all_that_a_service_asks_for_is_written_once(language: &Language) {
    let cloud = Cloud::start(3);
    let guest = language.provider(&cloud, patient()).await;
    let all = Service {
        policy: TrafficPolicy::Local(31_000),
        affinity: SessionAffinity::ClientIp(Duration::from_mins(10)),
        source_ranges: vec!["192.0.2.0/24".parse().unwrap()],
        requested_ip: Some("198.51.100.9".to_owned()),
        families: vec![IpFamily::Ipv6, IpFamily::Ipv4],
        targets: TargetSelection::Rows(vec![0, 2]),
        ..service("web")
    };
    let outcome = ensure(&guest, &all).await;
    assert_eq!(addresses(&outcome), ["2001:db8::1", "198.51.100.9"]);
    let mut written = document(&cloud, "/v1/load-balancers/uid-web");
    for field in ["state", "etag", "hostname", "name"] {
        written.as_object_mut().unwrap().remove(field);
    }
    let expected = json!({
        "addresses": ["2001:db8::1", "198.51.100.9"],
        "ports": [{"protocol": "tcp", "port": 80, "nodePort": 30_080}, {"protocol": "udp", "port": 53, "nodePort": 30_053}],
        "machines": ["m-000002", "m-000003"], "sourceRanges": ["192.0.2.0/24"], "families": ["ipv6", "ipv4"],
        "healthCheckPort": 31_000, "stickySeconds": 600,
        "labels": {"pileus-cluster": "c-1", "pileus-service": "uid-web",
                   "pileus-service-namespace": "shop", "pileus-service-name": "web"},
    });
    assert_eq!(written, expected);
    for action in [ServiceAction::Ensure(all.clone()), ServiceAction::UpdateTargets(all)] {
        assert_eq!(change_one(&guest, action, None).await, outcome);
    }
    assert_eq!(writes(&cloud), 1);
}

async fn what_differs_is_written_and_what_is_gone_is_done(language: &Language) {
    let cloud = Cloud::start(3);
    let guest = language.provider(&cloud, patient()).await;
    let mut web = service("web");
    let machines = |cloud: &Cloud| document(cloud, "/v1/load-balancers/uid-web")["machines"].clone();
    assert_eq!(addresses(&ensure(&guest, &web).await), ["198.51.100.1"]);
    assert_eq!(machines(&cloud), json!(["m-000001", "m-000002", "m-000003"]));
    web.targets = TargetSelection::Rows(vec![1]);
    let updated = change_one(&guest, ServiceAction::UpdateTargets(web.clone()), None).await;
    assert_eq!(addresses(&updated), ["198.51.100.1"]);
    assert_eq!(machines(&cloud), json!(["m-000001"]));
    web.ports.truncate(1);
    assert!(is_done(&ensure(&guest, &web).await));
    assert_eq!(document(&cloud, "/v1/load-balancers/uid-web")["ports"].as_array().unwrap().len(), 1);
    assert_eq!(writes(&cloud), 3);
    for _ in 0..2 {
        let removed = change_one(&guest, ServiceAction::Delete(web.clone()), None).await;
        assert_eq!(addresses(&removed), Vec::<&str>::new());
        assert_eq!(document(&cloud, "/v1/load-balancers")["loadBalancers"], json!([]));
        assert_eq!(writes(&cloud), 4);
    }
}

async fn an_operation_is_in_progress_until_it_ends(language: &Language) {
    let cloud = Cloud::start(3);
    let guest = language.provider(&cloud, patient()).await;
    cloud.send("PUT", "/admin/faults", r#"{"operations": {"takesMs": 1500}}"#);
    let web = service("web");
    for (action, expected) in
        [(ServiceAction::Ensure(web.clone()), "written"), (ServiceAction::Delete(web.clone()), "deleted")]
    {
        let started = Instant::now();
        let mut outcome = change_one(&guest, action.clone(), None).await;
        assert_eq!(note(&outcome), Some(expected));
        while !is_done(&outcome) {
            assert!(started.elapsed() < Duration::from_secs(30), "{outcome:?}");
            assert_eq!(note(&outcome), Some(expected));
            tokio::time::sleep(Duration::from_millis(100)).await;
            outcome = change_one(&guest, action.clone(), Some(expected)).await;
        }
        assert!(started.elapsed() > Duration::from_millis(1400), "{:?}", started.elapsed());
    }
    assert_eq!(writes(&cloud), 2);
}

async fn a_late_failure_is_told_and_then_written_again(language: &Language) {
    let cloud = Cloud::start(3);
    let guest = language.provider(&cloud, patient()).await;
    cloud.send("PUT", "/admin/faults", r#"{"operations": {"lateFailures": {"next": 1}}}"#);
    let web = service("web");
    let action = ServiceAction::Ensure(web.clone());
    for resume in [None, Some("written")] {
        let failed = change_one(&guest, action.clone(), resume).await;
        assert_eq!(kind(&failed), ErrorKind::Unavailable(None));
        assert!(failed.as_ref().unwrap_err().message.starts_with("service shop/web: "), "{failed:?}");
        assert_eq!(writes(&cloud), 1);
    }
    assert_eq!(addresses(&ensure(&guest, &web).await), ["198.51.100.1"]);
    assert_eq!(writes(&cloud), 2);
}

async fn removals_take_effect_before_additions(language: &Language) {
    let cloud = Cloud::start(3);
    let guest = language.provider(&cloud, patient()).await;
    let with_address =
        |name: &str| Service { requested_ip: Some("198.51.100.7".to_owned()), ..service(name) };
    ensure(&guest, &with_address("old")).await.unwrap();
    let actions = [ServiceAction::Ensure(with_address("new")), ServiceAction::Delete(with_address("old"))];
    let outcomes = change(&guest, &actions.map(|action| ServiceChange { action, resume: None })).await;
    assert_eq!(addresses(&outcomes[0]), ["198.51.100.7"]);
    assert_eq!(addresses(&outcomes[1]), Vec::<&str>::new());
}

async fn a_refused_service_does_not_affect_the_others(language: &Language) {
    let cloud = Cloud::start(3);
    let guest = language.provider(&cloud, patient()).await;
    ensure(&guest, &Service { requested_ip: Some("198.51.100.7".to_owned()), ..service("first") })
        .await
        .unwrap();
    let services = [
        service("a"),
        Service { requested_ip: Some("198.51.100.7".to_owned()), ..service("taken") },
        Service { requested_ip: Some("here".to_owned()), ..service("nowhere") },
        service("z"),
    ];
    let changes = services.map(|it| ServiceChange { action: ServiceAction::Ensure(it), resume: None });
    let outcomes = change(&guest, &changes).await;
    assert!(is_done(&outcomes[0]) && is_done(&outcomes[3]), "{outcomes:?}");
    assert_eq!((kind(&outcomes[1]), kind(&outcomes[2])), (ErrorKind::Conflict(None), ErrorKind::Invalid));
    let message = &outcomes[1].as_ref().unwrap_err().message;
    assert!(message.starts_with("service shop/taken: the cloud answered 409: "), "{message}");
}

async fn refused_requests_are_errors_of_their_kind(language: &Language) {
    for (faults, expected) in [
        (
            r#"{"throttle": {"share": 1, "retryAfterSeconds": 7}}"#,
            ErrorKind::Throttled(Some(Duration::from_secs(7))),
        ),
        (r#"{"errors": {"share": 1, "status": 503}}"#, ErrorKind::Unavailable(None)),
        (r#"{"cut": {"next": 99}}"#, ErrorKind::Unavailable(None)),
    ] {
        // A gate that was throttled holds later requests back.
        let cloud = Cloud::start(3);
        cloud.send("PUT", "/admin/faults", faults);
        let guest = language.provider(&cloud, Limits::default()).await;
        assert_eq!(kind(&ensure(&guest, &service("web")).await), expected, "{faults}");
        let guest = language.provider(&cloud, Limits::default()).await;
        let error = guest.list_owned_once(&cluster()).await.unwrap().unwrap_err();
        assert_eq!(error.kind, expected, "{faults}: {error}");
    }
}

async fn after_the_soft_deadline_a_change_is_in_progress(language: &Language) {
    let cloud = Cloud::start(3);
    cloud.send("PUT", "/admin/faults", r#"{"latency": {"fixedMs": 8000, "kinds": ["create"]}}"#);
    let limits = Limits { load_balancers_soft: Duration::from_secs(2), ..Limits::default() };
    let guest = language.provider(&cloud, limits).await;
    let started = Instant::now();
    assert_eq!(note(&ensure(&guest, &service("web")).await), None);
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
}

async fn all_pages_of_a_list_are_read_and_other_clusters_left_out(language: &Language) {
    const COUNT: usize = 1_001; // more than a page
    let cloud = Cloud::start(0);
    let guest = language.provider(&cloud, patient()).await;
    let put = |name: &str, labels: Value| {
        let body = json!({"ports": [{"protocol": "tcp", "port": 80}], "labels": labels}).to_string();
        cloud.send("PUT", &format!("/v1/load-balancers/{name}"), &body);
    };
    put("unlabeled", json!({}));
    put("foreign", json!({"pileus-cluster": "c-2", "pileus-service": "s"}));
    put("unknown", json!({"pileus-service": "s"}));
    for number in 3..COUNT {
        let labels = json!({"pileus-cluster": "c-1", "pileus-service": "s", "pileus-service-namespace": "shop",
                            "pileus-service-name": "web"});
        put(&format!("lb-{number}"), labels);
    }
    let owned = |cluster_uid: Option<&str>, service: Option<(&str, &str)>, name: &str| OwnedLoadBalancer {
        cluster_uid: cluster_uid.map(str::to_owned),
        service_uid: Some("s".to_owned()),
        service: service.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
        name: name.to_owned(),
        extra: Vec::new(),
    };
    let listed = guest.list_owned_once(&cluster()).await.unwrap().unwrap();
    assert_eq!(listed.len(), COUNT - 2);
    assert_eq!(listed[0], owned(None, None, "unknown"));
    let last = owned(Some("c-1"), Some(("shop", "web")), "lb-1000");
    assert_eq!(listed.last(), Some(&last));
    let removed = change_one(&guest, ServiceAction::RemoveOrphan(last), None).await;
    assert!(is_done(&removed), "{removed:?}");
    assert_eq!(guest.list_owned_once(&cluster()).await.unwrap().unwrap().len(), COUNT - 3);
}
