//! Instances, which the simulated cloud calls machines. Fields that Pileus doesn't need are left out. An unknown state or
//! kind of address is an error, never a guess.

use std::collections::BTreeMap;
use std::time::Duration;

use pileus_guest::http::Source;
use pileus_guest::{Address, Answer, Error, Instance, InstanceList, Instances, NodeReference, Purpose};
use serde::Deserialize;

use crate::{Simulated, machine_id};

/// How long the cloud takes to create an instance.
const CREATION: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
pub(crate) struct Machine {
    id: String,
    pub(crate) name: String,
    state: State,
    r#type: Option<String>,
    zone: Option<String>,
    region: Option<String>,
    #[serde(default)]
    addresses: Vec<Address>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Creating,
    Running,
    Stopped,
}

impl Instances for Simulated {
    async fn lookup(&self, _: Purpose, node: &NodeReference) -> Result<Answer, Error> {
        let machines = self.collection("machines");
        if let Some(id) = &node.provider_id {
            return Ok(machines.read(machine_id(id)?).await?.map_or(Answer::Absent, answer));
        }
        let named = machines.list_query("name", &node.name).list_from(Source::Cloud).await;
        instance_list(named).find_by_name(&node.name)
    }

    async fn list(&self, source: Source) -> Option<InstanceList> {
        Some(instance_list(self.collection("machines").list_from(source).await))
    }
}

fn instance_list(list: (Vec<Machine>, Result<(), Error>)) -> InstanceList {
    InstanceList::new(list, |machine| {
        (format!("simulated://{}", machine.id), machine.name.clone(), answer(machine))
    })
}

pub(crate) fn answer(Machine { id, state, r#type, zone, region, addresses, labels, .. }: Machine) -> Answer {
    let state = match state {
        State::Creating => return Answer::Pending(CREATION),
        State::Running => pileus_guest::InstanceState::Running,
        State::Stopped => pileus_guest::InstanceState::Stopped,
    };
    Answer::Found(Instance {
        provider_id: format!("simulated://{id}"),
        instance_type: r#type,
        zone,
        region,
        addresses,
        labels: labels.into_iter().collect(),
        state,
        ..Instance::default()
    })
}

#[cfg(test)]
mod tests {
    use pileus_guest::testing::{Exchange, Host, SentRequest, get};
    use pileus_guest::{AddressKind, ErrorKind, InstanceState};
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

    fn found(number: usize, state: InstanceState) -> Answer {
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
    fn one_instance_is_read_by_its_id_or_found_by_its_name() {
        let rows = [
            ("running", known(1), by_id(1).json(machine(1)), found(1, InstanceState::Running)),
            ("stopped", known(1), by_id(1).json(in_state(1, "stopped")), found(1, InstanceState::Stopped)),
            ("creating", known(1), by_id(1).json(in_state(1, "creating")), Answer::Pending(CREATION)),
            ("gone", known(1), by_id(1).status(404), Answer::Absent),
            ("by name", new(1), by_name(1).json(page(&[machine(1)], None)), found(1, InstanceState::Running)),
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
    fn a_failed_lookup_is_never_absent() {
        let mut namesake = machine(2);
        namesake["name"] = json!("node-1");
        let two = page(&[machine(1), namesake], None);
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
    fn few_nodes_are_looked_up_in_the_cached_list_and_read_if_it_lacks_them() {
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
        let [one, two] = [1, 2].map(|number| Ok(found(number, InstanceState::Running)));
        assert_eq!(answers, [one.clone(), two.clone(), Ok(Answer::Absent)]);

        // In an incomplete list, instances are found by ID only.
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
            Ok(found(1, InstanceState::Running)),
            Ok(found(2, InstanceState::Running)),
            Ok(Answer::Pending(CREATION)),
            Ok(Answer::Absent),
            Ok(Answer::Absent),
        ];
        assert_eq!(answers, expected);
    }

    #[test]
    fn an_incomplete_list_answers_the_ids_that_it_has_and_nothing_as_absent() {
        let host = cloud()
            .exchange(get(format!("{MACHINES}?limit=1000")).json(page(&[machine(1)], Some("2"))))
            .exchange(get(format!("{MACHINES}?limit=1000&cursor=2")).status(503));
        let nodes = [known(1), known(2), new(1), new(3)];
        let answers = host.lookup::<Simulated>(Purpose::Refresh, &nodes).unwrap();
        assert_eq!(answers[0], Ok(found(1, InstanceState::Running)));
        for answer in &answers[1..] {
            assert_eq!(answer.as_ref().unwrap_err().kind, ErrorKind::Unavailable(None));
        }
    }

    #[test]
    fn a_list_that_the_deadline_ends_leaves_the_rest_pending() {
        let first = get(format!("{MACHINES}?limit=1000")).json(page(&[machine(1)], Some("2")));
        let host = cloud().exchange(first.delay(Duration::from_secs(11)));
        let answers =
            host.lookup::<Simulated>(Purpose::Refresh, &[known(1), known(2), new(3), new(4)]).unwrap();
        assert_eq!(answers[0], Ok(found(1, InstanceState::Running)));
        assert!(answers[1..].iter().all(|answer| matches!(answer, Ok(Answer::Pending(_)))), "{answers:?}");
    }

    #[test]
    fn a_deletion_is_confirmed_by_reads_only_even_of_many_nodes() {
        let nodes: Vec<_> = (1..=5).map(known).collect();
        let host = (1..=5).map(|number| by_id(number).status(404)).fold(cloud(), Host::exchange);
        let answers = host.lookup::<Simulated>(Purpose::Confirm, &nodes).unwrap();
        assert!(answers.iter().all(|answer| *answer == Ok(Answer::Absent)));
        assert!(!host.requests().iter().any(SentRequest::is_cache_only));
        let one = cloud().exchange(by_id(1).status(404));
        one.lookup::<Simulated>(Purpose::Confirm, &[known(1)]).unwrap();
        assert!(!one.requests().iter().any(SentRequest::is_cache_only));
    }
}
