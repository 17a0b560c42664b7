//! Tests of providers in Python and JavaScript against the simulated cloud as a process. They show that the contract is
//! independent of Rust, and that a component with an interpreter stays within the limits that every provider has.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

/// Runs each of these tests with each provider.
macro_rules! with_each_provider {
    ($($test:ident),+ $(,)?) => {
        mod python {
            $(#[tokio::test] async fn $test() { super::$test(&crate::PYTHON).await; })+
        }
        mod javascript {
            $(#[tokio::test] async fn $test() { super::$test(&crate::JAVASCRIPT).await; })+
        }
    };
}

mod cloud;
mod instances;
mod load_balancers;

use std::path::PathBuf;

use cloud::Cloud;
use pileus_cloud::{Cluster, ErrorKind};
use pileus_gate::{Gate, Grant};
use pileus_host::{Capability, CodeCache, Compiler, Component, Engine, Guest, Limits, Metrics};
use pileus_loader::{Loader, TrustPolicy};
use prometheus_client::registry::Registry;
use tokio::sync::Mutex;

/// A provider, and where its language shows.
struct Language {
    /// The file name of the component.
    name: &'static str,
    /// The error of a request that the gate denies.
    denied: ErrorKind,
    /// The error for a machine with an unknown state and without other fields.
    malformed_machine: &'static str,
    /// The exception for a text that isn't JSON.
    not_json: &'static str,
}

const PYTHON: Language = Language {
    name: "python",
    denied: ErrorKind::Denied,
    malformed_machine: "KeyError: 'type'",
    not_json: "JSONDecodeError",
};

const JAVASCRIPT: Language = Language {
    name: "javascript",
    // `fetch` rejects with the same error for every request without a response.
    denied: ErrorKind::Unavailable(None),
    malformed_machine: "unknown state or address kind: {\"state\":\"melted\"}",
    not_json: "SyntaxError: JSON.parse",
};

/// Held while a component is loaded, so that the first test compiles it and the others load its code from disk.
static LOADING: Mutex<()> = Mutex::const_new(());

impl Language {
    /// The provider's component, as `make test` builds it.
    async fn component(&self) -> Component {
        let temporary = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let path = temporary.parent().unwrap().join(format!("languages/{}.wasm", self.name));
        let _loading = LOADING.lock().await;
        let compiled = CodeCache::open(&temporary.join("compiled")).unwrap();
        let engine = Engine::start(Some(compiled), Compiler::InProcess).unwrap();
        let verified = Loader::read_file(&path, &TrustPolicy::default())
            .await
            .unwrap_or_else(|error| panic!("{error}; run `make language-guests`"));
        Component::load(&engine, verified).await.unwrap()
    }

    /// The provider with a valid configuration and the grant that it needs.
    async fn provider(&self, cloud: &Cloud, limits: Limits) -> Guest {
        self.provider_with(&cloud.configuration(), cloud.port, limits).await
    }

    /// The provider with an unchecked configuration.
    async fn provider_with(&self, configuration: &str, port: u16, limits: Limits) -> Guest {
        let component = self.component().await;
        let description = component.describe(&limits, &metrics()).await.unwrap();
        let grant = Grant {
            tls: false,
            host: "127.0.0.1".parse().unwrap(),
            port,
            methods: ["GET", "PUT", "DELETE"].map(|method| method.parse().unwrap()).to_vec(),
            paths: vec!["/v1/".parse().unwrap()],
            addresses: vec!["127.0.0.0/8".parse().unwrap()],
        };
        let config = pileus_gate::Config { grants: vec![grant], ..pileus_gate::Config::new(self.name) };
        let gate = Gate::new(config, &pileus_gate::Metrics::register(&mut Registry::default())).unwrap();
        Guest::new(component, self.name, description, configuration, gate, &metrics()).with_limits(limits)
    }
}

fn metrics() -> Metrics {
    Metrics::register(&mut Registry::default())
}

fn cluster() -> Cluster {
    Cluster { name: "kubernetes".to_owned(), uid: Some("c-1".to_owned()) }
}

with_each_provider!(
    it_describes_itself,
    its_settings_follow_from_its_configuration,
    an_invalid_configuration_is_rejected_with_all_problems,
    an_unexpected_exception_is_reported_and_affects_no_other_call,
);

async fn it_describes_itself(language: &Language) {
    let component = language.component().await;
    assert_eq!(
        (component.contract.as_str(), &component.capabilities[..]),
        ("0.2.0", &[Capability::Instances, Capability::LoadBalancers][..])
    );
    let description = component.describe(&Limits::default(), &metrics()).await.unwrap();
    assert_eq!(description.name, format!("simulated-{}", language.name));
    assert_eq!(description.provider_id_schemes, ["simulated"]);
    assert_eq!(description.configuration_schema["required"][0], "endpoint");
    assert_eq!(description.call_shape(Capability::Instances).largest_batch, 64);
    assert_eq!(description.call_shape(Capability::LoadBalancers).largest_batch, 64);
}

async fn its_settings_follow_from_its_configuration(language: &Language) {
    let component = language.component().await;
    for (endpoint, requested, base) in [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080", "/v1"),
        ("https://cloud.test/sim/", "https://cloud.test:443", "/sim/v1"),
        ("http://[::1]:80", "http://[::1]:80", "/v1"),
    ] {
        let document = format!(r#"{{"endpoint": "{endpoint}"}}"#);
        let settings = component.configure(&document, &Limits::default(), &metrics()).await.unwrap();
        assert_eq!(settings.endpoints[0].endpoint.to_string(), requested);
        let paths: Vec<_> = settings.rules.into_iter().map(|rule| rule.path).collect();
        let one = "load-balancers/*";
        let expected = ["machines", "machines/*", "load-balancers", one, one, one];
        assert_eq!(paths, expected.map(|path| format!("{base}/{path}").parse().unwrap()));
    }
}

async fn an_invalid_configuration_is_rejected_with_all_problems(language: &Language) {
    let component = language.component().await;
    for (document, places) in [
        ("{}", &["endpoint"][..]),
        ("{", &[""]),
        ("null", &[""]),
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

async fn an_unexpected_exception_is_reported_and_affects_no_other_call(language: &Language) {
    let cloud = Cloud::start(1);
    let good = language.provider(&cloud, Limits::default()).await;
    let bad = language.provider_with("no JSON", cloud.port, Limits::default()).await;
    for _ in 0..2 {
        let error = bad.list_owned_once(&cluster()).await.unwrap().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Broken, "{error}");
        assert!(error.message.contains(language.not_json), "{error}");
        assert_eq!(good.list_owned_once(&cluster()).await.unwrap(), Ok(Vec::new()));
    }
}
