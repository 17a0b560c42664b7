//! The provider for the simulated cloud, and the model for authors: what it does for the API of that cloud, another
//! provider does for its own. `machine` is what the API says, this file what Pileus wants to know.

mod machine;

use std::collections::HashMap;
use std::time::Duration;

use machine::{Machine, Page};
use pileus_guest::{
    Answer, Description, Effect, Error, Instances, NodeReference, Problem, Provider, Purpose, Settings,
    export_provider, http, one_by_one,
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
}

/// The simulated cloud.
pub struct Simulated {
    cloud: http::BaseUrl,
}

export_provider!(Simulated, instances);

impl Provider for Simulated {
    type Configuration = Configuration;

    fn describe() -> Description {
        Description::new("simulated", env!("CARGO_PKG_VERSION")).provider_id_scheme(SCHEME)
    }

    fn configure(Configuration { endpoint }: Configuration) -> Result<Self, Vec<Problem>> {
        Ok(Self { cloud: endpoint })
    }

    fn settings(&self) -> Settings {
        let read = |path| self.cloud.rule("GET", path, Effect::Read).limit("reads").cache_scope("machines");
        Settings::default()
            .endpoint(self.cloud.endpoint("to read the machines behind Nodes"))
            .rule(read("/v1/machines"))
            .rule(read("/v1/machines/*"))
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
        if purpose == Purpose::Confirm || nodes.len() <= HANDFUL {
            return Ok(one_by_one(self, purpose, nodes).await);
        }
        let (machines, end) = self.list().await;
        let by_id: HashMap<&str, &Machine> =
            machines.iter().map(|machine| (machine.id.as_str(), machine)).collect();
        let mut by_name: HashMap<&str, Vec<&Machine>> = HashMap::new();
        for machine in &machines {
            by_name.entry(&machine.name).or_default().push(machine);
        }
        let look = |node: &NodeReference| {
            let found = match machine_id(node)? {
                Some(id) => by_id.get(id).copied(),
                // Another machine of the same name may be in the part that is missing.
                None if end.is_err() => None,
                None => only(by_name.get(&*node.name).map_or(&[][..], Vec::as_slice), &node.name)?.copied(),
            };
            match (found, &end) {
                (Some(machine), _) => Ok(answer(machine.clone())),
                (None, Ok(())) => Ok(Answer::Absent),
                // What a list lacks that broke off is not absent.
                (None, Err(error)) => Err(error.clone().about(format_args!("node {}", node.name))),
            }
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

    /// Lists all machines, with what ended the list: all that there are only where nothing failed.
    async fn list(&self) -> (Vec<Machine>, Result<(), Error>) {
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let from = cursor.as_ref().map(|cursor| ("cursor", cursor));
            let request = http::get(self.cloud.join(["v1", "machines"])).query("limit", PAGE).queries(from);
            let Page { mut machines, next } = match request.send().await.and_then(http::Response::json) {
                Ok(page) => page,
                Err(error) => return (all, Err(error)),
            };
            all.append(&mut machines);
            match next {
                Some(next) => cursor = Some(next),
                None => return (all, Ok(())),
            }
        }
    }
}

/// The id of the machine that a Node says it is; none where it doesn't say yet.
fn machine_id(node: &NodeReference) -> Result<Option<&str>, Error> {
    let Some(provider_id) = &node.provider_id else { return Ok(None) };
    match provider_id.strip_prefix(SCHEME).and_then(|rest| rest.strip_prefix("://")) {
        Some(id) if !id.is_empty() && !id.contains('/') => Ok(Some(id)),
        _ => Err(Error::invalid(format!(
            "node {} has provider ID `{provider_id}`, which is not of the form `{SCHEME}://m-000001`",
            node.name
        ))),
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
    use pileus_guest::testing::{Exchange, Host, get, schema};
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
    }

    #[test]
    fn the_settings_follow_from_the_endpoint() {
        let host = Host::new().configuration(json!({"endpoint": "https://cloud.test:8443/sim/"}));
        let settings = host.configure::<Simulated>().unwrap();
        let [endpoint] = &settings.endpoints[..] else { panic!("{settings:?}") };
        assert_eq!((endpoint.tls, &endpoint.host[..], endpoint.port), (true, "cloud.test", Some(8443)));
        let paths: Vec<_> = settings.rules.iter().map(|rule| &rule.path[..]).collect();
        assert_eq!(paths, ["/sim/v1/machines", "/sim/v1/machines/*"]);
        assert!(settings.rules.iter().all(|rule| rule.effect == Effect::Read && rule.limits == ["reads"]));
    }

    #[test]
    fn a_configuration_that_is_wrong_is_refused_with_its_place() {
        let rows = [
            (json!({}), "", "missing field `endpoint`"),
            (json!({"endpoint": "cloud.test"}), "endpoint", "must start with"),
            (json!({"endpoint": "http://cloud.test", "zone": 1}), "zone", "unknown field"),
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
