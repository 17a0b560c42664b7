//! The provider for the simulated cloud, and the model for authors: what it does for the API of that cloud, another
//! provider does for its own. This file is its configuration and what follows from it; `machine`, `route` and
//! `load_balancer` are a capability each, and `shared` is for a cloud where many Services share a load balancer.

mod load_balancer;
mod machine;
mod route;
mod shared;
#[cfg(test)]
mod storm;

use std::collections::HashMap;

use load_balancer::{HOSTNAME, Style};
use pileus_guest::{
    Annotation, AnnotationType, Capability, Description, Effect, Error, Place, Problem, Provider, Quota,
    ServiceChange, Settings, export_provider, http, side_by_side,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Up to so many things are read one by one: a list of any size costs as many requests as it has pages.
const HANDFUL: usize = 3;

/// The largest page that the cloud gives.
const PAGE: &str = "1000";

/// The simulated cloud, as an operator configures it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Simulated {
    /// Where the simulated cloud's API is, as in `http://simulator:8080`.
    #[serde(rename = "endpoint")]
    cloud: http::BaseUrl,
    /// Whether each Service gets a load balancer of its own, or all of a cluster share one.
    #[serde(default)]
    load_balancers: Style,
    /// How many lists and reads the cloud lets through, if it was started with quotas.
    reads: Option<Quota>,
    /// How many changes it lets through.
    writes: Option<Quota>,
}

/// One page of a list.
#[derive(Deserialize)]
struct Page<T> {
    #[serde(alias = "machines", alias = "routes", alias = "loadBalancers", alias = "addresses")]
    items: Vec<T>,
    /// Where the next page starts; none on the last one.
    next: Option<String>,
}

export_provider!(Simulated, instances, load_balancers, routes);

impl Provider for Simulated {
    type Configuration = Self;

    fn describe() -> Description {
        let hostname = "Whether clients are told the load balancer's host name instead of its addresses.";
        Description::new("simulated", env!("CARGO_PKG_VERSION"))
            .provider_id_scheme("simulated")
            .service_annotation(Annotation::new(HOSTNAME, AnnotationType::Boolean, hostname).default("false"))
    }

    fn configure(configuration: Self) -> Result<Self, Vec<Problem>> {
        Ok(configuration)
    }

    fn settings(&self) -> Settings {
        let reason = "to read the machines behind Nodes, and to program routes and load balancers to them";
        let mut settings = Settings::default().endpoint(self.cloud.endpoint(reason));
        for kind in ["machines", "routes", "load-balancers", "addresses", "shared-load-balancers"] {
            let (all, one) = (format!("/v1/{kind}"), format!("/v1/{kind}/*"));
            let read = |path| self.cloud.rule("GET", path, Effect::Read).limit("reads").cache_scope(kind);
            let write =
                |method| self.cloud.rule(method, &one, Effect::Write).limit("writes").cache_scope(kind);
            settings = settings.rule(read(&all).page(Place::Query("cursor".to_owned()))).rule(read(&one));
            if kind != "machines" {
                settings = settings.rule(write("PUT")).rule(write("DELETE"));
            }
        }
        if self.load_balancers == Style::Shared {
            settings = settings.one_at_a_time(Capability::LoadBalancers);
        }
        settings.quota("reads", self.reads).quota("writes", self.writes)
    }
}

impl Simulated {
    fn url(&self, kind: &str, name: &str) -> String {
        self.cloud.join(["v1", kind, name])
    }

    /// Reads one thing of a kind; none where the cloud has no such thing.
    async fn read<T: DeserializeOwned>(&self, kind: &str, name: &str) -> Result<Option<T>, Error> {
        let response = http::get(self.url(kind, name)).send().await?;
        response.or_absent()?.map(http::Response::json).transpose()
    }

    /// Lists all things of a kind, each page sent in this way: what came, and what ended the list.
    async fn list<T: DeserializeOwned>(
        &self,
        kind: &str,
        send: impl AsyncFn(http::Request) -> Result<http::Response, Error>,
    ) -> (Vec<T>, Result<(), Error>) {
        let first = || http::get(self.cloud.join(["v1", kind])).query("limit", PAGE);
        let page = |Page { items, next }| (items, next.map(|next: String| first().query("cursor", next)));
        http::pages(first(), send, page).await
    }

    /// Lists all things of a kind, or fails.
    async fn all<T: DeserializeOwned>(&self, kind: &str) -> Result<Vec<T>, Error> {
        let (items, end) = self.list(kind, http::Request::send).await;
        end.map(|()| items)
    }

    /// What the cloud has under the names that changes are about, out of a list where they are many.
    async fn found<T: DeserializeOwned>(
        &self,
        kind: &str,
        changes: &[ServiceChange],
        name: impl Fn(&T) -> &str,
    ) -> Result<HashMap<String, Result<T, Error>>, Error> {
        if changes.len() > HANDFUL {
            let all: Vec<T> = self.all(kind).await?;
            return Ok(all.into_iter().map(|it| (name(&it).to_owned(), Ok(it))).collect());
        }
        let read = async |change: &ServiceChange| {
            let read = self.read(kind, change.name()).await.transpose()?;
            Some((change.name().to_owned(), read))
        };
        Ok(side_by_side(changes, read).await.into_iter().flatten().collect())
    }
}

/// The id of a machine out of a provider ID.
fn machine_of(provider_id: &str) -> Result<&str, Error> {
    let id = provider_id.strip_prefix("simulated://").filter(|id| !id.is_empty() && !id.contains('/'));
    id.ok_or_else(|| {
        Error::invalid(format!("provider ID `{provider_id}` is not of the form `simulated://m-000001`"))
    })
}

#[cfg(test)]
mod tests {
    use pileus_guest::testing::{Host, schema};
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
    fn what_all_services_share_is_written_by_one_call_at_a_time() {
        let alone = |style: &str| {
            let document = json!({"endpoint": "http://cloud.test", "loadBalancers": style});
            Host::new().configuration(document).configure::<Simulated>().unwrap().one_at_a_time
        };
        assert_eq!(alone("perService"), []);
        assert_eq!(alone("shared"), [Capability::LoadBalancers]);
    }

    #[test]
    fn the_cloud_has_a_limit_where_it_has_quotas() {
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
    fn a_configuration_that_is_wrong_is_refused_with_its_place() {
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
    fn the_schema_tells_operators_what_the_endpoint_is() {
        let schema = schema::<Simulated>();
        assert_eq!(schema["properties"]["endpoint"]["format"], "uri");
        assert!(schema["properties"]["endpoint"]["description"].as_str().unwrap().starts_with("Where"));
        assert_eq!(schema["required"], json!(["endpoint"]));
    }
}
