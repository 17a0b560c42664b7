//! The provider for the simulated cloud, and the model for provider authors. This file has its configuration and the
//! settings that follow from it. `instance`, `local_instance`, `route` and `load_balancer` have one capability each. `shared` shows
//! load balancers in a cloud where many Services share one.

mod instance;
mod load_balancer;
mod local_instance;
mod route;
mod shared;

use load_balancer::HOSTNAME;
use pileus_guest::{
    Annotation, AnnotationType, Capability, Description, Error, Problem, Provider, Quota, Settings,
    export_provider, http,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// The simulated cloud, as an operator configures it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Simulated {
    /// The base URL of the simulated cloud's API, as in `http://simulator:8080`.
    endpoint: http::BaseUrl,
    /// The base URL of the machine's metadata service, for node managers.
    metadata: Option<http::BaseUrl>,
    /// Whether each Service gets a load balancer of its own, or all of a cluster share one.
    #[serde(default)]
    load_balancers: Style,
    /// How many lists and reads the cloud accepts, if it was started with quotas.
    reads: Option<Quota>,
    /// How many changes the cloud accepts, if it was started with quotas.
    writes: Option<Quota>,
}

/// How Services get load balancers.
#[derive(Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Style {
    /// Each Service has a load balancer of its own.
    #[default]
    PerService,
    /// All Services of a cluster share one. Each has a frontend in it and an address.
    Shared,
}

export_provider!(Simulated, instances, local_instance, load_balancers, routes);

impl Provider for Simulated {
    type Configuration = Self;

    fn describe() -> Description {
        let hostname = "Whether clients get the load balancer's host name instead of its addresses.";
        Description::new("simulated", env!("CARGO_PKG_VERSION"))
            .provider_id_scheme("simulated")
            .service_annotation(Annotation::new(HOSTNAME, AnnotationType::Boolean, hostname).default("false"))
    }

    fn configure(configuration: Self) -> Result<Self, Vec<Problem>> {
        Ok(configuration)
    }

    fn settings(&self) -> Settings {
        let reason = "to read the instances of Nodes, and to change routes and load balancers";
        let mut settings = Settings::default().endpoint(self.endpoint.endpoint(reason));
        for kind in ["machines", "routes", "load-balancers", "addresses", "shared-load-balancers"] {
            // Rules don't depend on the type of the items.
            let all = self.collection::<()>(kind);
            settings = settings.rules(all.read_rules().map(|it| it.limit("reads")));
            if kind != "machines" {
                settings = settings.rules(all.write_rules(["PUT", "DELETE"]).map(|it| it.limit("writes")));
            }
        }
        if let Some(metadata) = &self.metadata {
            settings = local_instance::settings(settings, metadata);
        }
        if self.load_balancers == Style::Shared {
            settings = settings.one_at_a_time(Capability::LoadBalancers);
        }
        settings.quota("reads", self.reads).quota("writes", self.writes)
    }
}

impl Simulated {
    /// The collection of a kind, listed in pages of the largest size that the cloud allows.
    fn collection<T: serde::de::DeserializeOwned>(&self, kind: &str) -> http::Collection<T> {
        let items = if kind == "load-balancers" { "loadBalancers" } else { kind };
        let all = http::Collection::new(&self.endpoint, ["v1", kind]).items(items);
        all.pages("cursor", "next").list_query("limit", "1000")
    }
}

/// Returns the machine's ID in a provider ID.
fn machine_id(provider_id: &str) -> Result<&str, Error> {
    let id = provider_id.strip_prefix("simulated://").filter(|id| !id.is_empty() && !id.contains('/'));
    id.ok_or_else(|| Error::invalid_provider_id(provider_id, "simulated://m-000001"))
}

#[cfg(test)]
mod faults;

#[cfg(test)]
mod tests {
    use pileus_guest::testing::{Host, schema};
    use pileus_guest::{Effect, Place};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_settings_follow_from_the_endpoint() {
        let host = Host::new().configuration(json!({"endpoint": "https://cloud.test:8443/sim/"}));
        let settings = host.configure::<Simulated>().unwrap();
        let [endpoint] = &settings.endpoints[..] else { panic!("{settings:?}") };
        assert_eq!((endpoint.tls, &endpoint.host[..], endpoint.port), (true, "cloud.test", Some(8443)));
        let rules: Vec<_> =
            settings.rules.iter().map(|rule| format!("{} {}", rule.method, rule.path)).collect();
        let expected =
            ["machines", "routes", "load-balancers", "addresses", "shared-load-balancers"].map(|kind| {
                let (all, one) = (format!("/sim/v1/{kind}"), format!("/sim/v1/{kind}/*"));
                let rules = [
                    format!("GET {all}"),
                    format!("GET {one}"),
                    format!("PUT {one}"),
                    format!("DELETE {one}"),
                ];
                rules.into_iter().take(if kind == "machines" { 2 } else { 4 }).collect::<Vec<_>>()
            });
        assert_eq!(rules, expected.concat());
        for rule in &settings.rules {
            let limit = if rule.effect == Effect::Write { "writes" } else { "reads" };
            assert_eq!(
                (rule.effect == Effect::Read, &rule.limits[..]),
                (rule.method == "GET", &[limit.to_owned()][..])
            );
            let is_list = !rule.path.ends_with('*');
            assert_eq!(rule.page, is_list.then(|| Place::Query("cursor".to_owned())), "{rule:?}");
        }
    }

    #[test]
    fn a_shared_load_balancer_is_changed_by_one_call_at_a_time() {
        let one_at_a_time = |style: &str| {
            let document = json!({"endpoint": "http://cloud.test", "loadBalancers": style});
            Host::new().configuration(document).configure::<Simulated>().unwrap().one_at_a_time
        };
        assert_eq!(one_at_a_time("perService"), []);
        assert_eq!(one_at_a_time("shared"), [Capability::LoadBalancers]);
    }

    #[test]
    fn configured_quotas_become_limits() {
        let limits = |document: Value| {
            let settings = Host::new().configuration(document).configure::<Simulated>().unwrap();
            settings.limits.into_iter().map(|limit| (limit.key, limit.capacity, limit.per_minute)).collect()
        };
        let none: Vec<_> = limits(json!({"endpoint": "http://cloud.test"}));
        assert_eq!(none, []);
        let reads = json!({"burst": 250, "perSecond": 25});
        let some: Vec<_> = limits(json!({"endpoint": "http://cloud.test", "reads": reads}));
        assert_eq!(some, [("reads".to_owned(), 250, 1_500)]);
    }

    #[test]
    fn an_invalid_configuration_is_rejected_with_the_path() {
        let rows = [
            (json!({}), "", "missing field `endpoint`"),
            (json!({"endpoint": "cloud.test"}), "endpoint", "must start with"),
            (json!({"endpoint": "http://cloud.test", "zone": 1}), "zone", "unknown field"),
            (json!({"endpoint": "http://cloud.test", "reads": {"burst": 0}}), "reads.burst", "nonzero"),
        ];
        for (document, path, message) in rows {
            let problems = Host::new().configuration(&document).configure::<Simulated>().unwrap_err();
            assert_eq!(problems[0].path, path, "{document}");
            assert!(problems[0].message.contains(message), "{document}: {problems:?}");
        }
    }

    #[test]
    fn the_schema_describes_the_endpoint() {
        let schema = schema::<Simulated>();
        assert_eq!(schema["properties"]["endpoint"]["format"], "uri");
        assert!(
            schema["properties"]["endpoint"]["description"].as_str().unwrap().starts_with("The base URL")
        );
        assert_eq!(schema["required"], json!(["endpoint"]));
    }
}
