//! Load balancers in the style where all Services of a cluster share one. Each Service has a frontend in it and an address,
//! both named by the Service's UID. The shared load balancer is named by the cluster's UID, and written once for all
//! changes of a call. An address is created before its frontend and deleted after it.
//!
//! All frontends have the same machines, those of all targets. Health checks find out which machines have an endpoint.

use std::collections::BTreeMap;
use std::net::IpAddr;

use pileus_guest::http::{HeaderMap, MemberSet};
use pileus_guest::operation::Status;
use pileus_guest::shared::{self, Part, SharedResource};
use pileus_guest::{
    Error, Ingress, IpFamily, Notice, Resource, Service, ServiceCall, ServiceOutcome, ServiceProgress,
    ServiceReport,
};
use serde::{Deserialize, Serialize};

use crate::load_balancer::{HOSTNAME, ResourceState, Rules, Spec};
use crate::{Simulated, machine_id};

#[derive(Debug, Default, Deserialize, Serialize)]
struct SharedBalancer {
    #[serde(flatten, skip_serializing)]
    state: ResourceState,
    machines: MemberSet,
    frontends: Vec<Frontend>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Frontend {
    name: String,
    address: String,
    #[serde(flatten)]
    rules: Rules,
}

#[derive(Deserialize)]
struct Address {
    name: String,
    value: IpAddr,
    labels: BTreeMap<String, String>,
    #[serde(flatten)]
    state: ResourceState,
}

#[derive(Serialize)]
struct AddressSpec<'a> {
    family: Option<&'a IpFamily>,
    value: Option<IpAddr>,
    labels: &'a BTreeMap<String, String>,
}

impl Simulated {
    /// Makes all changes of a call with one write of the shared load balancer, and one write for each address.
    pub(crate) async fn change_shared(&self, call: &ServiceCall) -> Result<Vec<ServiceOutcome>, Error> {
        let cluster = call.cluster.require_uid()?;
        let document =
            self.collection::<SharedBalancer>("shared-load-balancers").read_document(cluster).await?;
        if let Some(waiting) = call.waiting_outcomes(document.value.as_ref().map(|it| it.state.status())) {
            return Ok(waiting);
        }
        let addresses = self.collection::<Address>("addresses");
        let found = addresses.read_many(call.resource_names(), |address| &address.name).await?;
        let machines = call.members(|target| machine_id(&target.provider_id).ok());
        let changes = call.resource_changes(&found, |service| Spec::new(call, service, machines.all()));
        let frontends = shared::update_parts(document, &changes).await;
        let put = async |name: &str, spec: &Spec<'_>| {
            let (family, labels) = (spec.families.first(), &spec.rules.labels);
            addresses.put(name, &AddressSpec { family, value: spec.address, labels }).await
        };
        Ok(shared::reconcile(&changes, frontends, put, async |name: &str| addresses.delete(name).await).await)
    }
}

impl Resource<Spec<'_>> for Address {
    fn status(&self, _: &HeaderMap) -> Status {
        self.state.status()
    }

    fn matches(&self, spec: &Spec<'_>) -> bool {
        spec.address.is_none_or(|value| value == self.value) && self.labels == spec.rules.labels
    }

    fn report(&self, service: &Service) -> ServiceProgress {
        let second = "a shared load balancer has one address for each Service, of one IP family";
        let hostname = "a shared load balancer has an address for each Service, but no host name";
        let warnings =
            [(service.families.len() > 1, second), (service.annotation(HOSTNAME) == Some("true"), hostname)];
        let warnings = warnings.into_iter().filter(|(applies, _)| *applies);
        let report = ServiceReport::new([Ingress::ip(self.value.to_string())]);
        ServiceProgress::Done(
            warnings.fold(report, |report, (_, text)| report.notice(Notice::warning("NotSupported", text))),
        )
    }
}

impl SharedResource<Address, Spec<'_>> for SharedBalancer {
    fn status(&self, _: &HeaderMap) -> Status {
        self.state.status()
    }

    fn has_part(&self, name: &str) -> bool {
        self.frontends.iter().any(|frontend| frontend.name == name)
    }

    fn matches(&self, part: &Part<'_, Address, Spec<'_>>) -> bool {
        let matches = |it: &Frontend| it.name == part.name && it.rules == part.desired.rules;
        self.machines == part.desired.machines && self.frontends.iter().any(matches)
    }

    fn add_part(&mut self, part: &Part<'_, Address, Spec<'_>>) {
        self.machines = part.desired.machines.clone();
        let (name, rules) = (part.name.to_owned(), part.desired.rules.clone());
        self.frontends.push(Frontend { address: name.clone(), name, rules });
    }

    fn remove_part(&mut self, name: &str) {
        self.frontends.retain(|frontend| frontend.name != name);
    }

    fn is_empty(&self) -> bool {
        self.frontends.is_empty()
    }
}

#[cfg(test)]
mod tests;
