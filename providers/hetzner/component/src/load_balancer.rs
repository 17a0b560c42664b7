//! Load balancers: each Service has one, found by the label that hcloud-cloud-controller-manager gives it. `spec` has what a
//! Service asks for, `difference` what has to change, and this file the requests.

mod certificate;
mod difference;
mod spec;

use std::collections::{BTreeMap, HashMap};

use difference::Change;
use pileus_guest::http::{self, Collection, NumericId, Source};
use pileus_guest::operation::{self, InProgress, Status, Written};
use pileus_guest::{
    Cluster, Error, Ingress, IpMode, LoadBalancers, Notice, OwnedLoadBalancer, Resource, ServiceCall,
    ServiceOutcome, ServiceReport, Steps, labels, map_concurrently,
};
use serde::Deserialize;
use serde_json::Value;
use spec::{Spec, Target};

use crate::server::PrivateNet;
use crate::{Begun, Hetzner, is_locked};

/// The label with the UID of the Service, as hcloud-cloud-controller-manager writes it.
const UID: &str = "hcloud-ccm/service-uid";

/// The steps of a Service.
const CERTIFICATE: &str = "certificate";
const BALANCER: &str = "balancer";

/// A load balancer.
#[derive(Deserialize)]
struct LoadBalancer {
    id: NumericId,
    name: String,
    labels: BTreeMap<String, String>,
    #[serde(rename = "load_balancer_type")]
    kind: LoadBalancerType,
    algorithm: Algorithm,
    public_net: PublicNet,
    private_net: Vec<PrivateNet>,
    services: Vec<Value>,
    targets: Vec<Target>,
    protection: Protection,
}

#[derive(Deserialize)]
struct LoadBalancerType {
    name: String,
    max_targets: usize,
}

#[derive(Deserialize)]
struct Algorithm {
    r#type: String,
}

#[derive(Deserialize)]
struct PublicNet {
    enabled: bool,
    ipv4: PublicIp,
    ipv6: PublicIp,
}

#[derive(Deserialize)]
struct PublicIp {
    ip: Option<String>,
    dns_ptr: Option<String>,
}

#[derive(Deserialize)]
struct Protection {
    delete: bool,
}

impl LoadBalancers for Hetzner {
    async fn change_load_balancers(&self, call: &ServiceCall) -> Result<Vec<ServiceOutcome>, Error> {
        let network = self.network_id(Source::Cloud).await?;
        let spec = |service| Spec::new(&self.load_balancers, call, service, network);
        let mut steps = Steps::new(call, &[CERTIFICATE, BALANCER], spec);
        steps.poll(async |url| self.poll(url).await).await;
        self.find_certificates(&mut steps).await;
        let mut found = self.find(&steps).await?;
        // A change in several actions keeps the ingress that works.
        report(&mut steps, &found, |balancer, spec| match balancer.targets[..] {
            [] => ServiceReport::default(),
            _ => ServiceReport::new(balancer.ingress(spec)),
        });
        let write = async |_: &str, spec: &Spec<'_>, found: Option<&LoadBalancer>| match found {
            None => self.create(spec).await,
            Some(balancer) => self.change(balancer, spec).await,
        };
        let delete = async |_: &str, found: Option<&LoadBalancer>| match found {
            Some(balancer) if !balancer.protection.delete => self.delete(balancer.id).await,
            _ => Ok(Status::Succeeded),
        };
        steps.resources(BALANCER, &mut found, write, delete).await;
        report(&mut steps, &found, LoadBalancer::report);
        Ok(steps.outcomes())
    }

    async fn list_owned(&self, cluster: &Cluster) -> Result<Vec<OwnedLoadBalancer>, Error> {
        let owned = |balancer: LoadBalancer| {
            let LoadBalancer { name, mut labels, .. } = balancer;
            let uid = labels.remove(UID)?;
            labels.insert(labels::SERVICE.to_owned(), uid);
            labels::owned(name, labels, cluster)
        };
        // What is protected stays, so it is no orphan.
        let all = self.balancers().list().await?.into_iter().filter(|balancer| !balancer.protection.delete);
        Ok(all.filter_map(owned).collect())
    }
}

/// Sets what the Services are told, from their load balancers.
fn report(
    steps: &mut Steps<'_, Spec<'_>>,
    found: &HashMap<String, Result<LoadBalancer, Error>>,
    report: impl Fn(&LoadBalancer, &Spec<'_>) -> ServiceReport,
) {
    for task in steps.free_mut() {
        if let (Some(spec), Some(Ok(balancer))) = (&task.desired, found.get(task.uid())) {
            task.report = report(balancer, spec);
        }
    }
}

impl Hetzner {
    fn balancers(&self) -> Collection<LoadBalancer> {
        let collection = self.collection::<LoadBalancer>("load_balancer");
        collection.found_by("label_selector", |uid| format!("{UID}=={uid}"))
    }

    /// The load balancers of the Services by their UIDs: those with the label, or else those of the right name that no Service
    /// has yet.
    async fn find(
        &self,
        steps: &Steps<'_, Spec<'_>>,
    ) -> Result<HashMap<String, Result<LoadBalancer, Error>>, Error> {
        let balancers = self.balancers();
        let mut found = balancers.read_many(steps.free_uids(), LoadBalancer::uid).await?;
        let new = steps.free().filter(|task| !found.contains_key(task.uid()));
        let new: Vec<_> = new.filter_map(|task| Some((task.uid(), &task.desired.as_ref()?.name))).collect();
        let named = map_concurrently(new, async |(owner, name)| {
            let named = self.balancers().list_query("name", name).list().await;
            let free = named.map(|all| all.into_iter().find(|balancer| balancer.uid().is_none()));
            Some((owner.to_owned(), free.transpose()?))
        });
        found.extend(named.await.into_iter().flatten());
        Ok(found)
    }

    /// Creates a load balancer with all that the cloud takes at once. What it doesn't follows in later calls.
    async fn create(&self, spec: &Spec<'_>) -> Result<Written<LoadBalancer>, Error> {
        let response = http::post(self.balancers().list_url()).json(&spec.creation()?).send().await?;
        match self.status(response.json::<Begun>()?.action) {
            Status::Running(progress) => Ok(Written::Step(progress)),
            Status::Succeeded => Ok(Written::Step(InProgress::soon())),
            Status::Failed(error) => Err(error),
        }
    }

    /// Makes the changes one after the other, as far as the cloud completes each at once.
    async fn change(&self, balancer: &LoadBalancer, spec: &Spec<'_>) -> Result<Written<LoadBalancer>, Error> {
        let (id, mut changes) = (balancer.id, balancer.changes(spec));
        // Once more for a load balancer that has just joined its network, and lacks the rest.
        for is_last in [false, true] {
            for change in changes {
                match self.make(id, &change).await? {
                    Status::Succeeded => {}
                    Status::Running(progress) => return Ok(Written::Step(progress)),
                    Status::Failed(error) => return Err(error),
                }
            }
            let Some(changed) = self.balancers().read(id).await? else { break };
            changes = changed.changes(spec);
            if is_last || changes.is_empty() {
                return Ok(Written::Whole(changed));
            }
        }
        Ok(Written::Gone)
    }

    async fn make(&self, id: NumericId, change: &Change) -> Result<Status, Error> {
        match change {
            Change::Action(action, body) => {
                self.act(["load_balancers", &id.to_string(), "actions", action], body).await
            }
            Change::Update(body) => {
                let response = http::put(self.balancers().url(id)).json(body).send().await?;
                if is_locked(&response) {
                    return Ok(Status::running());
                }
                response.error_for_status().map(|_| Status::Succeeded)
            }
        }
    }

    async fn delete(&self, id: NumericId) -> Result<Status, Error> {
        let response = http::delete(self.balancers().url(id)).send().await?;
        if is_locked(&response) { Ok(Status::running()) } else { operation::deletion_status(response) }
    }
}

impl Resource<Spec<'_>> for LoadBalancer {
    fn status(&self) -> Status {
        // A load balancer tells nothing of its actions. Their notes do.
        Status::Succeeded
    }

    fn matches(&self, spec: &Spec<'_>) -> bool {
        self.changes(spec).is_empty()
    }
}

impl LoadBalancer {
    /// The UID of its Service.
    fn uid(&self) -> Option<&str> {
        self.labels.get(UID).map(String::as_str)
    }

    fn report(&self, spec: &Spec<'_>) -> ServiceReport {
        let mut report = ServiceReport::new(self.ingress(spec));
        let count = spec.targets.iter().filter(|target| self.targets.contains(target)).count();
        if count < spec.targets.len() {
            let LoadBalancerType { name, max_targets } = &self.kind;
            let message = format!(
                "{count} of {} nodes receive traffic: load balancer type {name} has {max_targets} targets at most",
                spec.targets.len()
            );
            report.notices.push(Notice::warning("MaxTargetsReached", message));
        }
        for protocol in &spec.unsupported {
            let message =
                format!("ports of protocol {protocol} are left out: load balancers of this cloud lack it");
            report.notices.push(Notice::warning("UnsupportedProtocolConfigured", message));
        }
        report
    }

    fn ingress(&self, spec: &Spec<'_>) -> Vec<Ingress> {
        let options = &spec.options;
        if let Some(hostname) = options.text("hostname").filter(|name| !name.is_empty()) {
            return vec![Ingress::hostname(hostname)];
        }
        let ip_mode = Some(if options.is("uses-proxyprotocol") { IpMode::Proxy } else { IpMode::Vip });
        let PublicNet { enabled, ipv4, ipv6 } = &self.public_net;
        let ipv6 = ipv6.ip.as_ref().filter(|_| !options.is("ipv6-disabled"));
        let public = ipv4.ip.iter().chain(ipv6).filter(|_| *enabled);
        let private =
            self.private_net.iter().map(|net| &net.ip).filter(|_| !options.is("disable-private-ingress"));
        public.chain(private).map(|ip| Ingress { ip_mode, ..Ingress::ip(ip) }).collect()
    }
}

#[cfg(test)]
mod tests;
