//! A provider for an imaginary cloud. Replace the API by the one of your cloud:
//!
//! ```text
//! GET /v1/machines                {"machines": [MACHINE, …], "next": "CURSOR"}, or without `next` on the last page
//! GET /v1/machines?cursor=CURSOR  the next page
//! GET /v1/machines?name=NAME      the machines of this name
//! GET /v1/machines/ID             MACHINE, or 404
//! ```

mod load_balancer;

use std::time::Duration;

use pileus_guest::http::{BaseUrl, Collection, Source};
use pileus_guest::{
    Address, Answer, Description, Error, Instance, InstanceList, InstanceState, Instances,
    NodeReference, Problem, Provider, Purpose, Settings, export_provider,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// What the operator configures. `pileus inspect` shows its schema, with these comments.
#[derive(Deserialize, JsonSchema)]
pub struct Configuration {
    /// The base URL of the cloud's API.
    endpoint: BaseUrl,
}

/// The cloud, as it is configured. Each call gets a new value, so it keeps no state.
pub struct Cloud(Configuration);

export_provider!(Cloud, instances, load_balancers);

impl Provider for Cloud {
    type Configuration = Configuration;

    fn describe() -> Description {
        Description::new("my-cloud", env!("CARGO_PKG_VERSION")).provider_id_scheme("my-cloud")
    }

    fn configure(configuration: Configuration) -> Result<Self, Vec<Problem>> {
        Ok(Self(configuration))
    }

    /// Which hosts the provider needs, and what its requests mean. A request without a rule counts as a write.
    fn settings(&self) -> Settings {
        let reason = "to read the instances of Nodes, and to change load balancers";
        Settings::default()
            .endpoint(self.0.endpoint.endpoint(reason))
            .rules(self.machines().read_rules())
            .rules(self.load_balancers().read_rules())
            .rules(self.load_balancers().write_rules(["PUT", "DELETE"]))
    }
}

/// A machine, as the cloud returns it. Fields that Pileus doesn't need are left out.
#[derive(Deserialize)]
struct Machine {
    id: String,
    name: String,
    r#type: String,
    zone: String,
    addresses: Vec<Address>,
    state: State,
}

/// An unknown state is an error, never a guess: the host deletes Nodes and adds taints by it.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Creating,
    Running,
    Stopped,
}

impl Cloud {
    fn machines(&self) -> Collection<Machine> {
        let machines = Collection::new(&self.0.endpoint, ["v1", "machines"]);
        machines.items("machines").pages("cursor", "next")
    }
}

impl Instances for Cloud {
    /// Reads the machine of one Node: by its ID, or by the Node's name before the Node has a provider ID.
    async fn lookup(&self, _: Purpose, node: &NodeReference) -> Result<Answer, Error> {
        if let Some(provider_id) = &node.provider_id {
            let machine = self.machines().read(machine_id(provider_id)?).await?;
            return Ok(machine.map_or(Answer::Absent, answer));
        }
        let named = self.machines().list_query("name", &node.name);
        instance_list(named.list_from(Source::Cloud).await).find_by_name(&node.name)
    }

    /// Reads all machines. The SDK answers many Nodes from the list.
    async fn list(&self, source: Source) -> Option<InstanceList> {
        Some(instance_list(self.machines().list_from(source).await))
    }
}

fn instance_list(list: (Vec<Machine>, Result<(), Error>)) -> InstanceList {
    InstanceList::new(list, |machine| {
        (provider_id(&machine), machine.name.clone(), answer(machine))
    })
}

/// What the host is told about a machine.
fn answer(machine: Machine) -> Answer {
    let state = match machine.state {
        State::Creating => return Answer::Pending(Duration::from_secs(5)),
        State::Running => InstanceState::Running,
        State::Stopped => InstanceState::Stopped,
    };
    Answer::Found(Instance {
        provider_id: provider_id(&machine),
        instance_type: Some(machine.r#type),
        zone: Some(machine.zone),
        addresses: machine.addresses,
        state,
        ..Instance::default()
    })
}

fn provider_id(machine: &Machine) -> String {
    format!("my-cloud://{}", machine.id)
}

/// The ID of the machine in a provider ID.
fn machine_id(provider_id: &str) -> Result<&str, Error> {
    let id = provider_id.strip_prefix("my-cloud://");
    id.filter(|id| !id.is_empty() && !id.contains('/'))
        .ok_or_else(|| Error::invalid_provider_id(provider_id, "my-cloud://m-000001"))
}

/// Tests run natively, with a test double of the host. A request that isn't in its script fails the test.
#[cfg(test)]
mod tests {
    use pileus_guest::ErrorKind;
    use pileus_guest::testing::{Host, get};
    use serde_json::{Value, json};

    use super::*;

    const MACHINES: &str = "https://cloud.example/v1/machines";

    fn host() -> Host {
        Host::new().configuration(json!({"endpoint": "https://cloud.example"}))
    }

    fn machine(number: u32, state: &str) -> Value {
        json!({
            "id": format!("m-{number}"),
            "name": format!("node-{number}"),
            "type": "small",
            "zone": "zone-a",
            "addresses": [{"kind": "internal-ip", "value": "10.0.0.1"}],
            "state": state,
        })
    }

    fn node(number: u32) -> NodeReference {
        NodeReference::new(format!("node-{number}"))
            .with_provider_id(format!("my-cloud://m-{number}"))
    }

    #[test]
    fn a_node_without_a_provider_id_is_found_by_its_name() {
        let page = json!({"machines": [machine(1, "running")]});
        let host = host().exchange(get(format!("{MACHINES}?name=node-1")).json(page));
        let answers = host.lookup::<Cloud>(Purpose::Initialise, &[NodeReference::new("node-1")]);
        let Ok([Ok(Answer::Found(instance))]) = answers.as_deref() else {
            panic!("{answers:?}")
        };
        assert_eq!(instance.provider_id, "my-cloud://m-1");
        assert_eq!(instance.zone.as_deref(), Some("zone-a"));
        assert_eq!(instance.state, InstanceState::Running);
    }

    #[test]
    fn a_missing_machine_is_absent_and_a_failed_request_is_not() {
        let url = format!("{MACHINES}/m-1");
        let host_404 = host().exchange(get(&*url).status(404));
        let answers = host_404.lookup::<Cloud>(Purpose::Confirm, &[node(1)]);
        assert_eq!(answers, Ok(vec![Ok(Answer::Absent)]));

        let host_503 = host().exchange(get(&*url).status(503));
        let answers = host_503
            .lookup::<Cloud>(Purpose::Confirm, &[node(1)])
            .unwrap();
        let error = answers[0].as_ref().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable(None));
    }

    #[test]
    fn many_nodes_are_answered_from_one_list() {
        let first =
            json!({"machines": [machine(1, "running"), machine(2, "stopped")], "next": "2"});
        let second = json!({"machines": [machine(3, "creating")]});
        let host = host()
            .exchange(get(MACHINES).json(first))
            .exchange(get(format!("{MACHINES}?cursor=2")).json(second));
        let nodes = [1, 2, 3, 4].map(node);
        let answers = host.lookup::<Cloud>(Purpose::Refresh, &nodes).unwrap();
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        assert!(matches!(answers[..2], [Answer::Found(_), Answer::Found(_)]));
        assert!(matches!(answers[2..], [Answer::Pending(_), Answer::Absent]));
    }
}
