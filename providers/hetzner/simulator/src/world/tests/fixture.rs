//! A small project, and calls to it.

use std::time::Duration;

use serde_json::{Value, json};
use simulated_cloud::world::WriteFaults;

use super::super::*;

/// A project with three servers in a network, one that has no public address, one that is not in the network, and a
/// certificate.
pub(super) struct Fixture {
    pub(super) world: World,
    pub(super) now: Duration,
    pub(super) faults: WriteFaults,
    pub(super) network: u64,
    pub(super) servers: Vec<u64>,
    pub(super) private_only: u64,
    pub(super) public_only: u64,
    pub(super) certificate: u64,
}

pub(super) fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// How a call ended: `done`, or the code of the refusal and the invalid field.
pub(super) fn code<T>(result: &Result<T, Refusal>) -> String {
    let Err(refusal) = result else { return "done".to_owned() };
    let code = json!(refusal.code).as_str().unwrap().to_owned();
    refusal.field.as_ref().map_or(code.clone(), |field| format!("{code} {field}"))
}

impl Fixture {
    pub(super) fn new() -> Self {
        let mut world = World::new(Timestamp::UNIX_EPOCH);
        let subnet = |range: &str, kind| Subnet {
            ip_range: range.parse().unwrap(),
            network_zone: "eu-central".to_owned(),
            kind,
        };
        let network = NewNetwork {
            name: "net".to_owned(),
            ip_range: "10.0.0.0/8".parse().unwrap(),
            subnets: vec![
                subnet("10.0.0.0/16", SubnetType::Cloud),
                subnet("10.1.0.0/16", SubnetType::Vswitch),
            ],
            labels: Labels::new(),
        };
        let network = world.create_network(seconds(0), network).unwrap();
        let labels = Labels::from([("role".to_owned(), "node".to_owned())]);
        let new = NewServers { count: 3, network: Some(network), labels, ..NewServers::default() };
        let servers = world.create_servers(seconds(0), &new).unwrap();
        let mut one = |new: NewServers| *world.create_servers(seconds(0), &new).unwrap().first().unwrap();
        let private_only =
            one(NewServers { count: 1, public_ipv4: false, public_ipv6: false, ..new.clone() });
        let public_only = one(NewServers::default());
        let certificate = NewCertificate {
            name: "cert".to_owned(),
            kind: CertificateType::Managed,
            domain_names: vec!["a.example".to_owned()],
            labels: Labels::new(),
        };
        let certificate = world.create_certificate(seconds(0), certificate).unwrap();
        let faults =
            WriteFaults { takes: Duration::ZERO, fails: false, is_preempted: false, overtakes: false };
        let now = Duration::ZERO;
        Self { world, now, faults, network, servers, private_only, public_only, certificate }
    }

    pub(super) fn create(&mut self, body: &Value) -> Result<Value, Refusal> {
        self.create_text(&body.to_string())
    }

    pub(super) fn create_text(&mut self, body: &str) -> Result<Value, Refusal> {
        self.world.create_load_balancer(self.now, body.as_bytes(), self.faults)
    }

    /// A load balancer of type lb11 in fsn1 without services and targets.
    pub(super) fn balancer(&mut self, name: &str) -> u64 {
        let body = json!({"name": name, "load_balancer_type": "lb11", "location": "fsn1"});
        self.create(&body).unwrap()["load_balancer"]["id"].as_u64().unwrap()
    }

    pub(super) fn update(&mut self, id: u64, body: &Value) -> Result<Value, Refusal> {
        self.world.update_load_balancer(self.now, id, body.to_string().as_bytes(), self.faults)
    }

    pub(super) fn act(&mut self, id: u64, command: &str, body: &Value) -> Result<Value, Refusal> {
        self.act_text(id, command, &body.to_string())
    }

    pub(super) fn act_text(&mut self, id: u64, command: &str, body: &str) -> Result<Value, Refusal> {
        let resource = (ResourceType::LoadBalancer, id);
        self.world.act(self.now, resource, command, body.as_bytes(), self.faults)
    }

    pub(super) fn route(
        &mut self,
        command: &str,
        destination: &str,
        gateway: &str,
    ) -> Result<Value, Refusal> {
        let body = json!({"destination": destination, "gateway": gateway}).to_string();
        self.world.act(self.now, (ResourceType::Network, self.network), command, body.as_bytes(), self.faults)
    }

    /// A resource, without its envelope.
    pub(super) fn get(&mut self, kind: Collection, id: u64) -> Value {
        let envelope = self.world.get(self.now, kind, id).unwrap();
        envelope.as_object().unwrap().values().next().unwrap().clone()
    }

    pub(super) fn action(&mut self, id: u64) -> Value {
        self.world.action(self.now, None, None, id).unwrap()["action"].clone()
    }
}
