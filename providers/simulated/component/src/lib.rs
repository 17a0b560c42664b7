//! The provider for the simulated cloud, and the model for authors: what it does for the API of that cloud, another
//! provider does for its own. `machine` is what the API says, `list` finds Nodes' machines among many, this file is what
//! Pileus wants to know; `route` is the second capability.

mod list;
mod machine;
mod route;

use std::num::NonZeroU32;
use std::time::Duration;

use list::{List, Listed};
use machine::{Machine, Page};
use pileus_guest::{
    Answer, Description, Effect, Error, Instances, NodeReference, Place, Problem, Provider, Purpose,
    Settings, export_provider, http, one_by_one,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// What provider IDs start with.
const SCHEME: &str = "simulated";

/// Up to so many Nodes are read one by one: a list of any size costs as many requests as it has pages.
const HANDFUL: usize = 3;

/// The largest page that the cloud gives.
const PAGE: &str = "1000";

/// How long the cloud takes to create a machine.
const CREATION: Duration = Duration::from_secs(5);

/// The configuration of the provider.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// Where the simulated cloud's API is, as in `http://simulator:8080`.
    endpoint: http::BaseUrl,
    /// How many lists and reads the cloud lets through, if it was started with quotas.
    reads: Option<Quota>,
    /// How many changes it lets through.
    writes: Option<Quota>,
}

/// How many requests a cloud lets through.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Quota {
    /// How many may come at once.
    burst: NonZeroU32,
    /// How many more each second.
    per_second: NonZeroU32,
}

/// The simulated cloud.
pub struct Simulated {
    cloud: http::BaseUrl,
    reads: Option<Quota>,
    writes: Option<Quota>,
}

export_provider!(Simulated, instances, routes);

impl Provider for Simulated {
    type Configuration = Configuration;

    fn describe() -> Description {
        Description::new("simulated", env!("CARGO_PKG_VERSION")).provider_id_scheme(SCHEME)
    }

    fn configure(configuration: Configuration) -> Result<Self, Vec<Problem>> {
        let Configuration { endpoint: cloud, reads, writes } = configuration;
        Ok(Self { cloud, reads, writes })
    }

    fn settings(&self) -> Settings {
        let read = |path, scope| self.cloud.rule("GET", path, Effect::Read).limit("reads").cache_scope(scope);
        let write = |method| {
            let rule = self.cloud.rule(method, "/v1/routes/*", Effect::Write);
            rule.limit("writes").cache_scope("routes")
        };
        let page = || Place::Query("cursor".to_owned());
        let settings = Settings::default()
            .endpoint(self.cloud.endpoint("to read the machines behind Nodes, and to program routes to them"))
            .rule(read("/v1/machines", "machines").page(page()))
            .rule(read("/v1/machines/*", "machines"))
            .rule(read("/v1/routes", "routes").page(page()))
            .rule(write("PUT"))
            .rule(write("DELETE"));
        let quotas = [("reads", self.reads), ("writes", self.writes)];
        quotas.into_iter().fold(settings, |settings, (key, quota)| match quota {
            Some(Quota { burst, per_second }) => {
                settings.limit(key, burst.get(), per_second.get().saturating_mul(60))
            }
            None => settings,
        })
    }
}

impl Instances for Simulated {
    async fn lookup(&self, _: Purpose, node: &NodeReference) -> Result<Answer, Error> {
        let machine = match machine_id(node)? {
            Some(id) => self.read(id).await,
            None => self.find(&node.name).await,
        };
        match machine {
            Ok(Some(machine)) => Ok(answer(machine)),
            Ok(None) => Ok(Answer::Absent),
            Err(error) => Err(error.about(format_args!("node {}", node.name))),
        }
    }

    async fn lookup_many(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> Result<Vec<Result<Answer, Error>>, Error> {
        // A Node may be deleted on the answer to `confirm`, so that reads its machine however many there are.
        if purpose == Purpose::Confirm {
            return Ok(one_by_one(self, purpose, nodes).await);
        }
        if nodes.len() <= HANDFUL {
            return Ok(self.lookup_few(purpose, nodes).await);
        }
        let list = self.list(http::Request::send).await;
        let listed = Listed::new(&list);
        let look = |node: &NodeReference| match (listed.find(node)?, &list.end) {
            (Some(machine), _) => Ok(answer(machine.clone())),
            (None, Ok(())) => Ok(Answer::Absent),
            // What a list lacks that broke off is not absent.
            (None, Err(error)) => Err(error.clone().about(format_args!("node {}", node.name))),
        };
        Ok(nodes.iter().map(look).collect())
    }
}

impl Simulated {
    /// Reads one machine; none where the cloud has no such machine.
    async fn read(&self, id: &str) -> Result<Option<Machine>, Error> {
        let response = http::get(self.cloud.join(["v1", "machines", id])).send().await?;
        response.or_absent()?.map(http::Response::json).transpose()
    }

    /// Reads the machine of a name; none where no machine bears it.
    async fn find(&self, name: &str) -> Result<Option<Machine>, Error> {
        let request = http::get(self.cloud.join(["v1", "machines"])).query("limit", PAGE).query("name", name);
        let Page { machines, .. } = request.send().await?.json()?;
        Ok(only(&machines, name)?.cloned())
    }

    /// Looks a handful of Nodes up: in the list of all machines while the host has it from a moment ago, which costs the
    /// cloud nothing, and one by one where it hasn't, or the list lacks them.
    async fn lookup_few(&self, purpose: Purpose, nodes: &[NodeReference]) -> Vec<Result<Answer, Error>> {
        let cached = self.list(async |page: http::Request| {
            page.send_if_cached().await?.ok_or_else(|| Error::unavailable("the list is not cached"))
        });
        let list = cached.await;
        let listed = Listed::new(&list);
        let found: Vec<_> = nodes.iter().map(|node| listed.find(node).ok().flatten()).collect();
        let left = nodes.iter().zip(&found).filter(|(_, found)| found.is_none());
        let left: Vec<_> = left.map(|(node, _)| node.clone()).collect();
        let mut read = one_by_one(self, purpose, &left).await.into_iter();
        let answers = found.into_iter().map(|found| match found {
            Some(machine) => Some(Ok(answer(machine.clone()))),
            None => read.next(),
        });
        answers.flatten().collect()
    }

    /// Lists all machines, each page sent in this way.
    async fn list(&self, send: impl AsyncFn(http::Request) -> Result<http::Response, Error>) -> List {
        let mut machines = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let from = cursor.as_ref().map(|cursor| ("cursor", cursor));
            let request = http::get(self.cloud.join(["v1", "machines"])).query("limit", PAGE).queries(from);
            let Page { machines: mut more, next } = match send(request).await.and_then(http::Response::json) {
                Ok(page) => page,
                Err(error) => return List { machines, end: Err(error) },
            };
            machines.append(&mut more);
            match next {
                Some(next) => cursor = Some(next),
                None => return List { machines, end: Ok(()) },
            }
        }
    }
}

/// The id of the machine that a Node says it is; none where it doesn't say yet.
fn machine_id(node: &NodeReference) -> Result<Option<&str>, Error> {
    let id = node.provider_id.as_deref().map(machine_of).transpose();
    id.map_err(|error| error.about(format_args!("node {}", node.name)))
}

/// The id of a machine out of a provider ID.
fn machine_of(provider_id: &str) -> Result<&str, Error> {
    match provider_id.strip_prefix(SCHEME).and_then(|rest| rest.strip_prefix("://")) {
        Some(id) if !id.is_empty() && !id.contains('/') => Ok(id),
        _ => {
            let expected = format_args!("{SCHEME}://m-000001");
            Err(Error::invalid(format!("provider ID `{provider_id}` is not of the form `{expected}`")))
        }
    }
}

/// The machine that bears a name, unless several do: then to take one of them would be a guess.
fn only<'a, M>(machines: &'a [M], name: &str) -> Result<Option<&'a M>, Error> {
    match machines {
        [] => Ok(None),
        [machine] => Ok(Some(machine)),
        several => Err(Error::invalid(format!("{} machines bear the name {name}", several.len()))),
    }
}

fn answer(machine: Machine) -> Answer {
    match machine.state {
        machine::State::Creating => Answer::Pending(CREATION),
        machine::State::Running => Answer::Found(machine.into_instance(SCHEME, pileus_guest::State::Running)),
        machine::State::Stopped => Answer::Found(machine.into_instance(SCHEME, pileus_guest::State::Stopped)),
    }
}

#[cfg(test)]
mod tests {
    use pileus_guest::testing::{Exchange, Host, Sent, get, schema};
    use pileus_guest::{Address, AddressKind, ErrorKind, Instance, State};
    use serde_json::{Value, json};

    use super::*;

    const MACHINES: &str = "http://cloud.test/v1/machines";

    fn cloud() -> Host {
        Host::new().configuration(json!({"endpoint": "http://cloud.test"}))
    }

    fn machine(number: usize) -> Value {
        json!({
            "id": format!("m-{number:06}"),
            "name": format!("node-{number}"),
            "type": "small-2",
            "zone": "sim-1a",
            "region": "sim-1",
            "addresses": [{"kind": "internal-ip", "value": "10.0.0.1"}, {"kind": "hostname", "value": "node"}],
            "state": "running",
            "labels": {"rack": "7"},
            "createdAt": "2026-11-28T12:00:00Z",
        })
    }

    fn in_state(number: usize, state: &str) -> Value {
        let mut machine = machine(number);
        machine["state"] = json!(state);
        machine
    }

    fn found(number: usize, state: State) -> Answer {
        Answer::Found(Instance {
            provider_id: format!("simulated://m-{number:06}"),
            instance_type: Some("small-2".to_owned()),
            zone: Some("sim-1a".to_owned()),
            region: Some("sim-1".to_owned()),
            addresses: vec![
                Address::new(AddressKind::InternalIp, "10.0.0.1"),
                Address::new(AddressKind::Hostname, "node"),
            ],
            labels: vec![("rack".to_owned(), "7".to_owned())],
            state,
            ..Instance::default()
        })
    }

    fn known(number: usize) -> NodeReference {
        new(number).with_provider_id(format!("simulated://m-{number:06}"))
    }

    fn new(number: usize) -> NodeReference {
        NodeReference::new(format!("node-{number}"))
    }

    fn by_id(number: usize) -> Exchange {
        get(format!("{MACHINES}/m-{number:06}"))
    }

    fn by_name(number: usize) -> Exchange {
        get(format!("{MACHINES}?limit=1000&name=node-{number}"))
    }

    fn page(machines: &[Value], next: Option<&str>) -> Value {
        match next {
            Some(next) => json!({"machines": machines, "next": next}),
            None => json!({"machines": machines}),
        }
    }

    #[test]
    fn one_machine_is_read_by_its_id_or_found_by_its_name() {
        let rows = [
            ("running", known(1), by_id(1).json(machine(1)), found(1, State::Running)),
            ("stopped", known(1), by_id(1).json(in_state(1, "stopped")), found(1, State::Stopped)),
            ("creating", known(1), by_id(1).json(in_state(1, "creating")), Answer::Pending(CREATION)),
            ("gone", known(1), by_id(1).status(404), Answer::Absent),
            ("by name", new(1), by_name(1).json(page(&[machine(1)], None)), found(1, State::Running)),
            ("no such name", new(1), by_name(1).json(page(&[], None)), Answer::Absent),
        ];
        for (name, node, exchange, expected) in rows {
            for purpose in [Purpose::Initialise, Purpose::Refresh, Purpose::Confirm] {
                let host = cloud().exchange(exchange.clone());
                let answers = host.lookup::<Simulated>(purpose, std::slice::from_ref(&node)).unwrap();
                assert_eq!(answers, [Ok(expected.clone())], "{name}, {purpose:?}");
            }
        }
    }

    #[test]
    fn what_could_not_be_found_out_is_never_absent() {
        let two = page(&[machine(1), in_state(1, "stopped")], None);
        let rows = [
            ("denied", known(1), Some(by_id(1).status(403)), ErrorKind::Denied),
            (
                "throttled",
                known(1),
                Some(by_id(1).status(429).header("retry-after", "7")),
                ErrorKind::Throttled(Some(Duration::from_secs(7))),
            ),
            ("no list", new(1), Some(by_name(1).status(404)), ErrorKind::Broken),
            ("a state of tomorrow", known(1), Some(by_id(1).json(in_state(1, "melted"))), ErrorKind::Broken),
            ("one name, two machines", new(1), Some(by_name(1).json(two)), ErrorKind::Invalid),
            ("another scheme", new(1).with_provider_id("other://m-000001"), None, ErrorKind::Invalid),
            ("no id", new(1).with_provider_id("simulated://"), None, ErrorKind::Invalid),
            ("a path", new(1).with_provider_id("simulated://a/b"), None, ErrorKind::Invalid),
        ];
        for (name, node, exchange, expected) in rows {
            let host = exchange.into_iter().fold(cloud(), Host::exchange);
            let answers = host.lookup::<Simulated>(Purpose::Confirm, &[node]).unwrap();
            let error = answers[0].as_ref().unwrap_err();
            assert_eq!(error.kind, expected, "{name}: {error}");
            assert!(error.message.contains("node-1"), "{name}: {error}");
        }
    }

    #[test]
    fn a_handful_is_looked_for_in_the_list_that_the_host_has_and_read_where_that_lacks_it() {
        let nodes = [known(1), new(2), new(3)];
        let pages = |cached: fn(Exchange) -> Exchange| {
            let first = get(format!("{MACHINES}?limit=1000")).json(page(&[machine(1)], Some("2")));
            let second = get(format!("{MACHINES}?limit=1000&cursor=2")).json(page(&[machine(2)], None));
            [first, second].map(cached)
        };
        let [first, second] = pages(Exchange::cached);
        let host =
            cloud().exchange(first.clone()).exchange(second).exchange(by_name(3).json(page(&[], None)));
        let answers = host.lookup::<Simulated>(Purpose::Initialise, &nodes).unwrap();
        let [one, two] = [1, 2].map(|number| Ok(found(number, State::Running)));
        assert_eq!(answers, [one.clone(), two.clone(), Ok(Answer::Absent)]);

        // Of half a list, only an id tells whose machine it is.
        let host = cloud()
            .exchange(first)
            .exchange(by_name(2).json(page(&[machine(2)], None)))
            .exchange(by_name(3).json(page(&[], None)));
        let answers = host.lookup::<Simulated>(Purpose::Refresh, &nodes).unwrap();
        assert_eq!(answers, [one, two, Ok(Answer::Absent)]);
    }

    #[test]
    fn many_nodes_are_answered_from_one_list_of_all_pages() {
        let first = [machine(1), machine(2)];
        let second = [in_state(3, "creating"), machine(9)];
        let host = cloud()
            .exchange(get(format!("{MACHINES}?limit=1000")).json(page(&first, Some("a+b"))))
            .exchange(get(format!("{MACHINES}?limit=1000&cursor=a%2Bb")).json(page(&second, None)));
        let nodes = [known(1), new(2), known(3), known(4), new(5)];
        let answers = host.lookup::<Simulated>(Purpose::Refresh, &nodes).unwrap();
        let expected = [
            Ok(found(1, State::Running)),
            Ok(found(2, State::Running)),
            Ok(Answer::Pending(CREATION)),
            Ok(Answer::Absent),
            Ok(Answer::Absent),
        ];
        assert_eq!(answers, expected);
    }

    #[test]
    fn a_list_that_breaks_off_tells_of_the_ids_that_it_has_and_of_nothing_absent() {
        let host = cloud()
            .exchange(get(format!("{MACHINES}?limit=1000")).json(page(&[machine(1)], Some("2"))))
            .exchange(get(format!("{MACHINES}?limit=1000&cursor=2")).status(503));
        let nodes = [known(1), known(2), new(1), new(3)];
        let answers = host.lookup::<Simulated>(Purpose::Refresh, &nodes).unwrap();
        assert_eq!(answers[0], Ok(found(1, State::Running)));
        for answer in &answers[1..] {
            assert_eq!(answer.as_ref().unwrap_err().kind, ErrorKind::Unavailable);
        }
    }

    #[test]
    fn a_list_that_the_deadline_breaks_off_leaves_the_rest_pending() {
        let first = get(format!("{MACHINES}?limit=1000")).json(page(&[machine(1)], Some("2")));
        let host = cloud().exchange(first.taking(Duration::from_secs(11)));
        let answers =
            host.lookup::<Simulated>(Purpose::Refresh, &[known(1), known(2), new(3), new(4)]).unwrap();
        assert_eq!(answers[0], Ok(found(1, State::Running)));
        assert!(answers[1..].iter().all(|answer| matches!(answer, Ok(Answer::Pending(_)))), "{answers:?}");
    }

    #[test]
    fn a_deletion_is_confirmed_by_reads_alone_however_many_there_are() {
        let nodes: Vec<_> = (1..=5).map(known).collect();
        let host = (1..=5).map(|number| by_id(number).status(404)).fold(cloud(), Host::exchange);
        let answers = host.lookup::<Simulated>(Purpose::Confirm, &nodes).unwrap();
        assert!(answers.iter().all(|answer| *answer == Ok(Answer::Absent)));
        assert!(!host.requests().iter().any(Sent::is_for_the_cache));
        let one = cloud().exchange(by_id(1).status(404));
        one.lookup::<Simulated>(Purpose::Confirm, &[known(1)]).unwrap();
        assert!(!one.requests().iter().any(Sent::is_for_the_cache));
    }

    #[test]
    fn the_settings_follow_from_the_endpoint() {
        let host = Host::new().configuration(json!({"endpoint": "https://cloud.test:8443/sim/"}));
        let settings = host.configure::<Simulated>().unwrap();
        let [endpoint] = &settings.endpoints[..] else { panic!("{settings:?}") };
        assert_eq!((endpoint.tls, &endpoint.host[..], endpoint.port), (true, "cloud.test", Some(8443)));
        let paths: Vec<_> = settings.rules.iter().map(|rule| &rule.path[..]).collect();
        let list = "/sim/v1/routes";
        let one = "/sim/v1/routes/*";
        assert_eq!(paths, ["/sim/v1/machines", "/sim/v1/machines/*", list, one, one]);
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
