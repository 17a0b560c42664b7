//! Load balancers of Services. In this imaginary cloud each is named by its client, which makes writes idempotent:
//!
//! ```text
//! GET    /v1/load-balancers            {"loadBalancers": [LOAD BALANCER, …], "next": "CURSOR"}
//! GET    /v1/load-balancers/NAME       LOAD BALANCER, or 404
//! PUT    /v1/load-balancers/NAME       creates or replaces it; the response shows it with the state of the change
//! DELETE /v1/load-balancers/NAME       202 while it is being deleted, 204, or 404
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;

use pileus_guest::http::{Collection, MemberDigest, MemberSet};
use pileus_guest::operation::Status;
use pileus_guest::{
    Cluster, Error, Ingress, IpFamily, LoadBalancers, OwnedLoadBalancer, Protocol, Resource,
    Service, ServiceCall, ServiceOutcome, ServicePort, ServiceReport, Steps, labels,
};
use serde::{Deserialize, Serialize};

use crate::{Cloud, machine_id};

/// The only step of a change. A cloud that needs an address or a firewall rule first has more steps.
const BALANCER: &str = "balancer";

/// What a Service asks for, as the cloud takes it.
#[derive(Serialize)]
struct Spec {
    machines: MemberSet,
    address: Option<IpAddr>,
    #[serde(flatten)]
    rules: Rules,
}

/// The fields that the cloud returns exactly as they were written.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rules {
    families: Vec<IpFamily>,
    ports: Vec<Port>,
    source_ranges: Vec<String>,
    health_check_port: Option<u16>,
    sticky_seconds: Option<u64>,
    /// By its labels the provider finds the load balancers of its cluster.
    labels: BTreeMap<String, String>,
}

#[derive(PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    protocol: Protocol,
    port: u16,
    node_port: Option<u16>,
}

/// A load balancer, as the cloud returns it. Its name is the UID of the Service.
#[derive(Deserialize)]
pub(crate) struct LoadBalancer {
    name: String,
    addresses: Vec<IpAddr>,
    machines: MemberDigest,
    state: State,
    error: Option<String>,
    #[serde(flatten)]
    rules: Rules,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Active,
    Creating,
    Updating,
    Deleting,
    Failed,
}

impl Cloud {
    pub(crate) fn load_balancers(&self) -> Collection<LoadBalancer> {
        let all = Collection::new(&self.0.endpoint, ["v1", "load-balancers"]);
        all.items("loadBalancers").pages("cursor", "next")
    }
}

impl LoadBalancers for Cloud {
    /// Reads what exists, and writes only what differs. The host may repeat a call at any time.
    async fn change_load_balancers(
        &self,
        call: &ServiceCall,
    ) -> Result<Vec<ServiceOutcome>, Error> {
        let balancers = self.load_balancers();
        let machines = call.members(|target| machine_id(&target.provider_id).ok());
        let mut steps = Steps::new(call, &[BALANCER], |service| {
            spec(&call.cluster, service, machines.of(service))
        });
        let mut found = balancers
            .read_many(steps.free_uids(), |it| Some(&it.name))
            .await?;
        let put = async |uid: &str, spec: &Spec, _: Option<&_>| balancers.put(uid, spec).await;
        let delete = async |uid: &str, _: Option<&_>| balancers.delete(uid).await;
        steps.resources(BALANCER, &mut found, put, delete).await;
        steps.report(&found, |balancer, _| {
            let addresses = balancer.addresses.iter();
            ServiceReport::new(addresses.map(|address| Ingress::ip(address.to_string())))
        });
        Ok(steps.outcomes())
    }

    /// Lists the load balancers of the cluster. The host removes those whose Service is gone.
    async fn list_owned(&self, cluster: &Cluster) -> Result<Vec<OwnedLoadBalancer>, Error> {
        let balancers = self.load_balancers().list().await?;
        let owned = |it: LoadBalancer| labels::owned(it.name, it.rules.labels, cluster);
        Ok(balancers.into_iter().filter_map(owned).collect())
    }
}

impl Resource<Spec> for LoadBalancer {
    fn status(&self) -> Status {
        match self.state {
            State::Active => Status::Succeeded,
            State::Creating | State::Updating | State::Deleting => Status::running(),
            State::Failed => Status::failed(self.error.as_deref()),
        }
    }

    fn matches(&self, spec: &Spec) -> bool {
        let has_address = |address: &IpAddr| self.addresses.contains(address);
        self.rules == spec.rules
            && self.machines == spec.machines.digest()
            && spec.address.iter().all(has_address)
    }
}

/// Reject here what the cloud can't do: the user of the Service gets the error as an event.
fn spec(cluster: &Cluster, service: &Service, machines: MemberSet) -> Result<Spec, Error> {
    service.reject_mixed(Protocol::Sctp)?;
    let port = |it: &ServicePort| Port {
        protocol: it.protocol,
        port: it.port,
        node_port: it.node_port,
    };
    let rules = Rules {
        families: service.families.clone(),
        ports: service.ports.iter().map(port).collect(),
        source_ranges: service.source_ranges.clone(),
        health_check_port: service.policy.health_check_port(),
        sticky_seconds: service.affinity.timeout().map(|timeout| timeout.as_secs()),
        labels: labels::for_service(cluster, service),
    };
    Ok(Spec {
        machines,
        address: service.requested_address()?,
        rules,
    })
}

#[cfg(test)]
mod tests {
    use pileus_guest::testing::{Host, delete, get, put};
    use pileus_guest::{ServiceAction, ServiceChange, ServiceProgress, Target};
    use serde_json::{Value, json};

    use super::*;

    const URL: &str = "https://cloud.example/v1/load-balancers/uid-1";

    fn host() -> Host {
        Host::new().configuration(json!({"endpoint": "https://cloud.example"}))
    }

    fn service() -> Service {
        Service {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: "uid-1".to_owned(),
            ports: vec![ServicePort {
                port: 80,
                node_port: Some(30_080),
                ..ServicePort::default()
            }],
            families: vec![IpFamily::Ipv4],
            ..Service::default()
        }
    }

    fn change(host: &Host, action: ServiceAction) -> ServiceOutcome {
        let target = Target {
            provider_id: "my-cloud://m-1".to_owned(),
            ..Target::default()
        };
        let call = ServiceCall {
            cluster: Cluster {
                uid: Some("cluster-1".to_owned()),
                ..Cluster::default()
            },
            targets: vec![target],
            changes: vec![ServiceChange::from(action)],
            ..ServiceCall::default()
        };
        host.change_load_balancers::<Cloud>(&call)
            .unwrap()
            .remove(0)
    }

    fn balancer(port: u16) -> Value {
        json!({
            "name": "uid-1", "state": "active", "addresses": ["198.51.100.1"],
            "machines": ["m-1"], "families": ["ipv4"], "sourceRanges": [],
            "ports": [{"protocol": "tcp", "port": port, "nodePort": 30080}],
            "labels": {
                "pileus-cluster": "cluster-1", "pileus-service": "uid-1",
                "pileus-service-namespace": "shop", "pileus-service-name": "web",
            },
        })
    }

    #[test]
    fn a_load_balancer_is_written_only_if_it_differs() {
        let done = ServiceProgress::done([Ingress::ip("198.51.100.1")]);
        let rows = [
            ("new", get(URL).status(404), true),
            ("other port", get(URL).json(balancer(81)), true),
            ("the same", get(URL).json(balancer(80)), false),
        ];
        for (name, found, is_written) in rows {
            let write = is_written.then(|| put(URL).json(balancer(80)));
            let host = write
                .into_iter()
                .fold(host().exchange(found), Host::exchange);
            let outcome = change(&host, ServiceAction::Ensure(service()));
            assert_eq!(outcome, Ok(done.clone()), "{name}");
        }
    }

    #[test]
    fn a_deletion_is_done_when_the_load_balancer_is_gone() {
        let host = host()
            .exchange(get(URL).status(404))
            .exchange(delete(URL).status(404));
        let outcome = change(&host, ServiceAction::Delete(service()));
        assert_eq!(outcome, Ok(ServiceProgress::gone()));
    }
}
