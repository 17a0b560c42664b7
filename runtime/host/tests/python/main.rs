//! Tests of a provider in Python against the simulated cloud as a process. They show that the contract is independent of
//! Rust, and that a component with an interpreter stays within the limits that every provider has.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod cloud;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use cloud::Cloud;
use pileus_cloud::{
    Address, AddressKind, Answer, Error, ErrorKind, InstanceState, NodeReference, ProviderId, Purpose,
};
use pileus_gate::{Gate, Grant};
use pileus_host::{Capability, CodeCache, Compiler, Component, Engine, Fault, Guest, Limits, Metrics};
use prometheus_client::registry::Registry;
use tokio::sync::Mutex;

/// Held while a component is loaded, so that the first test compiles it and the others load its code from disk.
static LOADING: Mutex<()> = Mutex::const_new(());

/// The provider's component, as `make test` builds it.
async fn component() -> Component {
    let temporary = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = temporary.parent().unwrap().join("python/simulated.wasm");
    let _loading = LOADING.lock().await;
    let compiled = CodeCache::open(&temporary.join("compiled")).unwrap();
    let engine = Engine::start(Some(compiled), Compiler::InProcess).unwrap();
    let bytes = pileus_host::read_component(&path).await.unwrap_or_else(|error| {
        panic!("{error}; run `deploy/dev/python-guest {}`", path.display());
    });
    Component::load(&engine, bytes).await.unwrap()
}

fn metrics() -> Metrics {
    Metrics::register(&mut Registry::default())
}

/// The provider with a valid configuration and the grant that it needs.
async fn provider(cloud: &Cloud, limits: Limits) -> Guest {
    provider_with(&cloud.configuration(), cloud.port, limits).await
}

/// The provider with an unchecked configuration.
async fn provider_with(configuration: &str, port: u16, limits: Limits) -> Guest {
    let component = component().await;
    let description = component.describe(&limits, &metrics()).await.unwrap();
    let grant = Grant {
        tls: false,
        host: "127.0.0.1".parse().unwrap(),
        port,
        methods: vec!["GET".parse().unwrap()],
        paths: vec!["/v1/".parse().unwrap()],
        addresses: vec!["127.0.0.0/8".parse().unwrap()],
    };
    let config = pileus_gate::Config {
        provider: "python".to_owned(),
        grants: vec![grant],
        rules: Vec::new(),
        refusals: Vec::new(),
        limits: Vec::new(),
        tightened: Vec::new(),
        credentials: Vec::new(),
        denied_ranges: Vec::new(),
        fence: pileus_gate::Fence::default(),
        connection: pileus_gate::Connection::default(),
    };
    let gate = Gate::new(config, &pileus_gate::Metrics::register(&mut Registry::default())).unwrap();
    Guest::new(component, "python", description, configuration, gate, &metrics()).with_limits(limits)
}

fn node(name: &str, provider_id: Option<&str>) -> NodeReference {
    NodeReference {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        provider_id: provider_id.map(|id| ProviderId::parse(id).unwrap()),
        created_at: jiff::Timestamp::UNIX_EPOCH,
        addresses: Vec::new(),
        node_ips: Vec::new(),
        labels: Vec::new(),
        system_uuid: None,
    }
}

/// The Nodes `node-1` and so on, which are looked up by name.
fn nodes(count: usize) -> Vec<NodeReference> {
    (1..=count).map(|number| node(&format!("node-{number}"), None)).collect()
}

async fn lookup(guest: &Guest, nodes: &[NodeReference]) -> Vec<Result<Answer, Error>> {
    guest.lookup_once(Purpose::Initialise, nodes).await.unwrap().unwrap()
}

/// The error kinds of failed answers.
fn kinds(answers: &[Result<Answer, Error>]) -> Vec<ErrorKind> {
    answers.iter().map(|answer| answer.as_ref().unwrap_err().kind).collect()
}

#[tokio::test]
async fn it_describes_itself() {
    let component = component().await;
    assert_eq!(
        (component.contract.as_str(), &component.capabilities[..]),
        ("0.2.0", &[Capability::Instances][..])
    );
    let description = component.describe(&Limits::default(), &metrics()).await.unwrap();
    assert_eq!(description.name, "simulated-python");
    assert_eq!(description.provider_id_schemes, ["simulated"]);
    assert_eq!(description.configuration_schema["required"][0], "endpoint");
    assert_eq!(description.call_shape(Capability::Instances).largest_batch, 64);
}

#[tokio::test]
async fn its_settings_follow_from_its_configuration() {
    let component = component().await;
    for (endpoint, requested, path) in [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080", "/v1/machines"),
        ("https://cloud.test/sim/", "https://cloud.test:443", "/sim/v1/machines"),
        ("http://[::1]:80", "http://[::1]:80", "/v1/machines"),
    ] {
        let document = format!(r#"{{"endpoint": "{endpoint}"}}"#);
        let settings = component.configure(&document, &Limits::default(), &metrics()).await.unwrap();
        assert_eq!(settings.endpoints[0].endpoint.to_string(), requested);
        let paths: Vec<_> = settings.rules.into_iter().map(|rule| rule.path).collect();
        assert_eq!(paths, [path.parse().unwrap(), format!("{path}/*").parse().unwrap()]);
    }
}

#[tokio::test]
async fn an_invalid_configuration_is_rejected_with_all_problems() {
    let component = component().await;
    for (document, places) in [
        ("{}", &["endpoint"][..]),
        (r#"{"endpoint": 5}"#, &["endpoint"]),
        (r#"{"endpoint": "ftp://cloud.test"}"#, &["endpoint"]),
        (r#"{"endpoint": "http://cloud.test:99999"}"#, &["endpoint"]),
        (r#"{"endpoint": "http://cloud.test/?a=b"}"#, &["endpoint"]),
        (r#"{"endpoint": "http://cloud.test", "zone": "a"}"#, &["zone"]),
        (r#"{"endpoint": "cloud.test", "zone": "a", "area": "b"}"#, &["area", "zone", "endpoint"]),
    ] {
        let error = component.configure(document, &Limits::default(), &metrics()).await.unwrap_err();
        let pileus_host::Error::Configuration(problems) = error else { panic!("{document}: {error}") };
        let found: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(found, places, "{document}");
    }
}

#[tokio::test]
async fn instances_are_found_by_name_and_by_id_and_missing_ones_are_absent() {
    let cloud = Cloud::start(3);
    cloud.send("POST", "/v1/machines/m-000003/stop", "");
    let guest = provider(&cloud, Limits::default()).await;
    let answers = lookup(
        &guest,
        &[
            node("node-1", None),
            node("renamed", Some("simulated://m-000003")),
            node("node-9", None),
            node("node-1", Some("simulated://m-000009")),
            node("node-2", Some("other://m-000002")),
        ],
    )
    .await;
    let [Ok(Answer::Found(first)), Ok(Answer::Found(third)), gone @ .., wrong] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!(first.provider_id.as_str(), "simulated://m-000001");
    assert_eq!(first.instance_type.as_deref(), Some("small-2"));
    assert_eq!((first.zone.as_deref(), first.region.as_deref()), (Some("sim-1a"), Some("sim-1")));
    let kinds: Vec<_> = first.addresses.iter().map(|address| address.kind).collect();
    assert_eq!(kinds, [AddressKind::InternalIp, AddressKind::ExternalIp, AddressKind::Hostname]);
    assert_eq!(first.addresses[0], Address { kind: AddressKind::InternalIp, value: "10.0.0.1".to_owned() });
    assert_eq!((first.state, third.state), (InstanceState::Running, InstanceState::Stopped));
    assert_eq!(gone, [Ok(Answer::Absent), Ok(Answer::Absent)]);
    assert_eq!(wrong.as_ref().unwrap_err().kind, ErrorKind::Invalid);
}

#[tokio::test]
async fn the_largest_batch_runs_concurrently_within_the_default_limits() {
    let cloud = Cloud::start(64);
    cloud.send("PUT", "/admin/faults", r#"{"latency": {"fixedMs": 300}}"#);
    let guest = provider(&cloud, Limits::default()).await;
    let answers = lookup(&guest, &nodes(64)).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Answer::Found(_)))), "{answers:?}");
    let counters = cloud.send("GET", "/admin/counters", "");
    let peak: u32 =
        counters.split(r#""peak":"#).nth(1).unwrap().trim_end_matches(['}', '\n']).parse().unwrap();
    assert!(peak > 8, "not concurrent: {counters}");
}

#[tokio::test]
async fn refused_requests_are_errors_of_their_kind_with_the_nodes_name() {
    let cloud = Cloud::start(2);
    let guest = provider(&cloud, Limits::default()).await;
    for (faults, expected) in [
        (
            r#"{"throttle": {"share": 1, "retryAfterSeconds": 7}}"#,
            ErrorKind::Throttled(Some(Duration::from_secs(7))),
        ),
        (r#"{"errors": {"share": 1, "status": 503}}"#, ErrorKind::Unavailable(None)),
    ] {
        cloud.send("PUT", "/admin/faults", faults);
        let answers = lookup(&guest, &nodes(2)).await;
        assert_eq!(kinds(&answers), [expected; 2], "{answers:?}");
        assert!(answers[1].as_ref().unwrap_err().message.starts_with("node node-2: "), "{answers:?}");
    }
}

#[tokio::test]
async fn a_cloud_without_a_grant_is_denied_and_one_that_is_gone_unavailable() {
    let cloud = Cloud::start(1);
    let guest = provider_with(&cloud.configuration(), 1, Limits::default()).await;
    let answers = lookup(&guest, &nodes(1)).await;
    assert_eq!(kinds(&answers), [ErrorKind::Denied]);
    assert!(answers[0].as_ref().unwrap_err().message.contains("add a grant"), "{answers:?}");
    let guest = provider(&cloud, Limits::default()).await;
    drop(cloud);
    assert_eq!(kinds(&lookup(&guest, &nodes(1)).await), [ErrorKind::Unavailable(None)]);
}

#[tokio::test]
async fn after_the_soft_deadline_missing_responses_are_pending() {
    let cloud = Cloud::start(2);
    cloud.send("PUT", "/admin/faults", r#"{"latency": {"fixedMs": 8000, "kinds": ["get"]}}"#);
    let limits = Limits { lookup_soft: Duration::from_secs(2), ..Limits::default() };
    let guest = provider(&cloud, limits).await;
    let started = Instant::now();
    let answers = lookup(&guest, &[node("node-1", Some("simulated://m-000001")), node("node-2", None)]).await;
    assert!(matches!(&answers[..], [Ok(Answer::Pending(_)), Ok(Answer::Found(_))]), "{answers:?}");
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
}

#[tokio::test]
async fn an_exception_for_one_node_is_that_nodes_error() {
    let port = cloud::answering(r#"{"machines": [{"id": "m-000001", "state": "melted"}]}"#);
    let configuration = format!(r#"{{"endpoint": "http://127.0.0.1:{port}"}}"#);
    let guest = provider_with(&configuration, port, Limits::default()).await;
    let answers = lookup(&guest, &nodes(1)).await;
    let error = answers[0].as_ref().unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Broken, "node node-1: KeyError: 'type'"));
}

#[tokio::test]
async fn an_uncaught_exception_ends_its_call_and_is_reported() {
    let cloud = Cloud::start(1);
    let good = provider(&cloud, Limits::default()).await;
    let bad = provider_with("no JSON", cloud.port, Limits::default()).await;
    for _ in 0..2 {
        let fault = bad.lookup_once(Purpose::Initialise, &nodes(1)).await.unwrap_err();
        let Fault::Trapped { stderr_tail: Some(words), .. } = &fault else { panic!("{fault:?}") };
        assert!(words.contains("JSONDecodeError"), "{words}");
        assert!(matches!(lookup(&good, &nodes(1)).await[..], [Ok(Answer::Found(_))]));
    }
}
