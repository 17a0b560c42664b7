//! Load balancers in the style where all Services of a cluster share one. Each Service has a frontend in it and an address,
//! both named by the Service's UID. The shared load balancer is named by the cluster's UID, and written once for all
//! changes of a call. An address is created before its frontend and deleted after it.
//!
//! All frontends have the same machines, those of all targets. Health checks find out which machines have an endpoint.

use std::collections::BTreeMap;
use std::net::IpAddr;

use pileus_guest::http::MemberSet;
use pileus_guest::operation::Status;
use pileus_guest::{
    Error, Ingress, IpFamily, Notice, Resource, Service, ServiceCall, ServiceOutcome, ServiceReport,
    SharedDocument, Steps, Task,
};
use serde::{Deserialize, Serialize};

use crate::load_balancer::{BALANCER, HOSTNAME, ResourceState, Rules, Spec};
use crate::{Simulated, machine_id};

/// The step of a Service's address.
const ADDRESS: &str = "address";

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
        let shared = self.collection::<()>("shared-load-balancers").url(call.cluster.require_uid()?);
        let addresses = self.collection::<Address>("addresses");
        let machines = call.members(|target| machine_id(&target.provider_id).ok());
        let mut steps =
            Steps::new(call, &[ADDRESS, BALANCER], |service| Spec::new(call, service, machines.all()));
        steps.wait_for_document::<SharedBalancer>(BALANCER, &*shared).await;
        let mut found = addresses.read_many(steps.free_uids(), |address| Some(&address.name)).await?;
        let put = async |uid: &str, spec: &Spec<'_>, _: Option<&_>| {
            let (family, labels) = (spec.families.first(), &spec.rules.labels);
            addresses.put(uid, &AddressSpec { family, value: spec.address, labels }).await
        };
        let delete = async |uid: &str, _: Option<&_>| addresses.delete(uid).await;
        for turn in steps.turns(BALANCER) {
            match turn.step {
                ADDRESS => steps.resources(turn, &mut found, &put, &delete).await,
                _ => steps.document::<SharedBalancer>(turn, &*shared, |_| true).await,
            }
        }
        steps.report(&found, Address::report);
        Ok(steps.outcomes())
    }
}

impl Resource<Spec<'_>> for Address {
    fn status(&self) -> Status {
        self.state.status()
    }

    fn matches(&self, spec: &Spec<'_>) -> bool {
        spec.address.is_none_or(|value| value == self.value) && self.labels == spec.rules.labels
    }
}

impl Address {
    fn report(&self, service: &Service) -> ServiceReport {
        let second = "a shared load balancer has one address for each Service, of one IP family";
        let hostname = "a shared load balancer has an address for each Service, but no host name";
        let wants_hostname = service.annotation(HOSTNAME) == Some("true");
        ServiceReport::new([Ingress::ip(self.value.to_string())])
            .notices((service.families.len() > 1).then(|| Notice::warning("NotSupported", second)))
            .notices(wants_hostname.then(|| Notice::warning("NotSupported", hostname)))
    }
}

impl SharedDocument<Spec<'_>> for SharedBalancer {
    fn status(&self) -> Status {
        self.state.status()
    }

    fn matches(&self, task: &Task<'_, Spec<'_>>) -> bool {
        let frontend = self.frontends.iter().find(|frontend| frontend.name == task.uid());
        match (&task.desired, frontend) {
            (Some(spec), Some(frontend)) => frontend.rules == spec.rules && self.machines == spec.machines,
            (desired, frontend) => desired.is_none() && frontend.is_none(),
        }
    }

    fn apply(&mut self, task: &Task<'_, Spec<'_>>) {
        self.frontends.retain(|frontend| frontend.name != task.uid());
        if let Some(spec) = &task.desired {
            self.machines = spec.machines.clone();
            let (name, rules) = (task.uid().to_owned(), spec.rules.clone());
            self.frontends.push(Frontend { address: name.clone(), name, rules });
        }
    }

    fn is_empty(&self) -> bool {
        self.frontends.is_empty()
    }
}

#[cfg(test)]
mod tests;
