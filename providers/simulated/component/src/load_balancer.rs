//! Load balancers: what a Service asks for, as the simulated cloud writes it, and what the cloud has. In this style each
//! Service has a load balancer of its own, named by the Service's UID. `shared` has the other style.

use std::net::IpAddr;

use pileus_guest::http::{MemberDigest, MemberSet};
use pileus_guest::operation::Status;
use pileus_guest::{
    Cluster, Error, Ingress, IpFamily, LoadBalancers, OwnedLoadBalancer, Protocol, Resource, Service,
    ServiceCall, ServiceOutcome, ServicePort, ServiceReport, Steps, labels,
};
use serde::{Deserialize, Serialize};

use crate::{Simulated, Style, machine_id};

/// The Service annotation by which clients get a host name instead of addresses.
pub(crate) const HOSTNAME: &str = "simulated.pileus.dev/hostname";

/// The step of a Service's own load balancer, or of the one that all share.
pub(crate) const BALANCER: &str = "balancer";

/// The load balancer that a Service asks for.
#[derive(Serialize)]
pub(crate) struct Spec<'a> {
    pub(crate) machines: MemberSet,
    pub(crate) families: &'a [IpFamily],
    pub(crate) address: Option<IpAddr>,
    #[serde(flatten)]
    pub(crate) rules: Rules,
}

/// The fields that a load balancer, or a frontend of a shared one, returns exactly as they were written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rules {
    ports: Vec<Listener>,
    source_ranges: Vec<String>,
    health_check_port: Option<u16>,
    sticky_seconds: Option<u64>,
    pub(crate) labels: std::collections::BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listener {
    protocol: Protocol,
    port: u16,
    node_port: Option<u16>,
}

/// The state of a resource in the cloud.
#[derive(Debug, Default, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub(crate) enum ResourceState {
    #[default]
    Active,
    Creating,
    Updating,
    Deleting,
    Failed {
        error: Option<String>,
    },
}

#[derive(Deserialize)]
struct LoadBalancer {
    name: String,
    addresses: Vec<IpAddr>,
    hostname: String,
    families: Vec<IpFamily>,
    machines: MemberDigest,
    #[serde(flatten)]
    state: ResourceState,
    #[serde(flatten)]
    rules: Rules,
}

impl LoadBalancers for Simulated {
    async fn change_load_balancers(&self, call: &ServiceCall) -> Result<Vec<ServiceOutcome>, Error> {
        if self.load_balancers == Style::Shared {
            return self.change_shared(call).await;
        }
        let balancers = self.collection::<LoadBalancer>("load-balancers");
        let machines = call.members(|target| machine_id(&target.provider_id).ok());
        let mut steps =
            Steps::new(call, &[BALANCER], |service| Spec::new(call, service, machines.of(service)));
        let mut found = balancers.read_many(steps.free_uids(), |balancer| Some(&balancer.name)).await?;
        let put = async |uid: &str, spec: &Spec<'_>, _: Option<&_>| balancers.put(uid, spec).await;
        let delete = async |uid: &str, _: Option<&_>| balancers.delete(uid).await;
        steps.resources(BALANCER, &mut found, put, delete).await;
        steps.report(&found, LoadBalancer::report);
        Ok(steps.outcomes())
    }

    async fn list_owned(&self, cluster: &Cluster) -> Result<Vec<OwnedLoadBalancer>, Error> {
        let kind = if self.load_balancers == Style::Shared { "addresses" } else { "load-balancers" };
        Ok(labels::list_owned(self.collection(kind).list().await?, cluster))
    }
}

impl Resource<Spec<'_>> for LoadBalancer {
    fn status(&self) -> Status {
        self.state.status()
    }

    fn matches(&self, spec: &Spec<'_>) -> bool {
        self.machines == spec.machines.digest()
            && self.families == spec.families
            && spec.address.is_none_or(|address| self.addresses.contains(&address))
            && self.rules == spec.rules
    }
}

impl LoadBalancer {
    fn report(&self, service: &Service) -> ServiceReport {
        match service.annotation(HOSTNAME) {
            Some("true") => ServiceReport::new([Ingress::hostname(&self.hostname)]),
            _ => ServiceReport::new(self.addresses.iter().map(|address| Ingress::ip(address.to_string()))),
        }
    }
}

impl ResourceState {
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Active => Status::Succeeded,
            Self::Creating | Self::Updating | Self::Deleting => Status::running(),
            Self::Failed { error } => Status::failed(error.as_deref()),
        }
    }
}

impl<'a> Spec<'a> {
    pub(crate) fn new(call: &ServiceCall, service: &'a Service, machines: MemberSet) -> Result<Self, Error> {
        service.reject_mixed(Protocol::Sctp)?;
        let listener =
            |&ServicePort { protocol, port, node_port, .. }| Listener { protocol, port, node_port };
        let rules = Rules {
            ports: service.ports.iter().map(listener).collect(),
            source_ranges: service.source_ranges.clone(),
            health_check_port: service.policy.health_check_port(),
            sticky_seconds: service.affinity.timeout().map(|timeout| timeout.as_secs()),
            labels: labels::for_service(&call.cluster, service),
        };
        Ok(Self { machines, families: &service.families, address: service.requested_address()?, rules })
    }
}

#[cfg(test)]
pub(crate) mod tests;
