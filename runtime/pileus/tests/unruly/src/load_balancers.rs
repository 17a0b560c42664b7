//! Load balancers, one for each Service, named by its UID.

use std::collections::BTreeMap;
use std::time::Duration;

use pileus_guest::{
    Cluster, Error, InProgress, Ingress, LoadBalancers, Notice, OwnedLoadBalancer, Service, ServiceAction,
    ServiceCall, ServiceChange, ServiceOutcome, ServiceProgress, ServiceReport, Targets, http,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Breaks, LOAD_BALANCER, Unruly, random};

/// The labels of a load balancer.
const CLUSTER: &str = "cluster";
const SERVICE: &str = "service";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    load_balancers: Vec<LoadBalancer>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct LoadBalancer {
    name: String,
    state: String,
    addresses: Vec<String>,
    machines: Vec<String>,
    ports: Vec<Port>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Port {
    port: u16,
}

impl LoadBalancers for Unruly {
    async fn list_owned(&self, _: &Cluster) -> Result<Vec<OwnedLoadBalancer>, Error> {
        let mut all = Vec::new();
        let mut from = None;
        loop {
            let page = self.get(&["v1", "load-balancers"], from).await.and_then(http::Response::json);
            let Page { load_balancers, next } = match page {
                Err(_) if self.breaks == Breaks::ErrorsAreEmptyLists => return Ok(Vec::new()),
                page => page?,
            };
            all.extend(load_balancers.into_iter().map(|LoadBalancer { name, mut labels, .. }| {
                OwnedLoadBalancer {
                    cluster_uid: labels.remove(CLUSTER),
                    service_uid: match self.breaks {
                        // As long as a UID: shorter ones name no Service for certain.
                        Breaks::ListsOtherOwners => Some(random() + &random()),
                        _ => labels.remove(SERVICE),
                    },
                    name,
                    ..OwnedLoadBalancer::default()
                }
            }));
            match next {
                Some(next) => from = Some(next),
                None => return Ok(all),
            }
        }
    }

    async fn change_load_balancers(&self, call: &ServiceCall) -> Result<Vec<ServiceOutcome>, Error> {
        if self.breaks == Breaks::ForgetsOthers {
            self.forget_others(call).await?;
        }
        let mut outcomes = call.change_each(async |change| self.change(call, change).await).await;
        let is_ensure = |change: &ServiceChange| matches!(change.action, ServiceAction::Ensure(_));
        match self.breaks {
            Breaks::Order if call.changes.iter().any(is_ensure) => outcomes.reverse(),
            Breaks::OneTooFew if outcomes.len() > 1 => drop(outcomes.pop()),
            _ => {}
        }
        Ok(outcomes)
    }
}

impl Unruly {
    async fn change(&self, call: &ServiceCall, change: &ServiceChange) -> ServiceOutcome {
        let outcome = match &change.action {
            ServiceAction::UpdateTargets(service) if self.breaks == Breaks::KeepsTargets => {
                Ok(ServiceProgress::done(service.status.clone()))
            }
            ServiceAction::Ensure(service) | ServiceAction::UpdateTargets(service) => {
                let targets = match self.breaks {
                    Breaks::IgnoresSelections => Targets::all(&call.targets),
                    _ => call.targets_of(service),
                };
                self.ensure(&call.cluster, targets, service).await
            }
            ServiceAction::Delete(_) if self.breaks == Breaks::KeepsWhatIsDeleted => {
                Ok(ServiceProgress::gone())
            }
            ServiceAction::Delete(Service { uid: name, .. })
            | ServiceAction::RemoveOrphan(OwnedLoadBalancer { name, .. }) => self.remove(name).await,
        };
        match outcome {
            Err(_) if self.breaks == Breaks::ErrorsAreDone => Ok(ServiceProgress::gone()),
            outcome => outcome,
        }
    }

    async fn ensure(&self, cluster: &Cluster, targets: Targets<'_>, service: &Service) -> ServiceOutcome {
        let path = ["v1", "load-balancers", &service.uid];
        let mut machines: Vec<_> =
            targets.iter().filter_map(|target| target.provider_id.strip_prefix("unruly://")).collect();
        machines.sort_unstable();
        let there = self.get(&path, None).await?.or_absent()?;
        let mut current: Option<LoadBalancer> = there.map(http::Response::json).transpose()?;
        let has_ports = |balancer: &LoadBalancer| {
            balancer.ports.iter().map(|port| port.port).eq(service.ports.iter().map(|port| port.port))
        };
        let matches =
            current.as_ref().is_some_and(|balancer| balancer.machines == machines && has_ports(balancer));
        if !matches || self.breaks == Breaks::AlwaysWrites {
            let spec = self.spec(cluster, service, &machines);
            let request = http::put(self.cloud.join(path)).json(&spec);
            current = Some(request.send().await?.json()?);
            if self.breaks == Breaks::ReportsIngressTooEarly {
                let progress = InProgress { after: Duration::from_secs(1), resume: None };
                let report = ServiceReport::new([Ingress::ip("192.0.2.1")]);
                return Ok(ServiceProgress::InProgress(progress, report));
            }
        }
        match current {
            Some(balancer) if balancer.state == "active" => Ok(ServiceProgress::Done(self.report(balancer))),
            _ => Ok(ServiceProgress::in_progress(Duration::from_secs(1))),
        }
    }

    fn report(&self, balancer: LoadBalancer) -> ServiceReport {
        let message = match self.breaks {
            Breaks::RewordsNotices => random(),
            _ => "it is slow".to_owned(),
        };
        let report = ServiceReport::new(balancer.addresses.into_iter().map(Ingress::ip))
            .notices([Notice::normal("SlowLoadBalancer", message)])
            .annotation(LOAD_BALANCER, Some(balancer.name.clone()));
        match self.breaks {
            Breaks::SetsUndeclaredAnnotations => {
                report.annotation("unruly.example/other", Some(balancer.name))
            }
            _ => report,
        }
    }

    fn spec(&self, cluster: &Cluster, service: &Service, machines: &[&str]) -> Value {
        let ports: Vec<_> =
            service.ports.iter().map(|port| json!({"protocol": "tcp", "port": port.port})).collect();
        let labels = match self.breaks {
            Breaks::ForgetsOwners => json!({}),
            Breaks::AlwaysWrites => json!({CLUSTER: cluster.uid, SERVICE: service.uid, "mood": random()}),
            _ => json!({CLUSTER: cluster.uid, SERVICE: service.uid}),
        };
        json!({"ports": ports, "machines": machines, "labels": labels})
    }

    async fn forget_others(&self, call: &ServiceCall) -> Result<(), Error> {
        let is_known = |owned: &OwnedLoadBalancer| {
            let known = call.known.iter().map(|service| &service.uid);
            let changed = call.changes.iter().filter_map(|change| match &change.action {
                ServiceAction::Ensure(service)
                | ServiceAction::UpdateTargets(service)
                | ServiceAction::Delete(service) => Some(&service.uid),
                ServiceAction::RemoveOrphan(owned) => owned.service_uid.as_ref(),
            });
            known.chain(changed).any(|uid| owned.service_uid.as_ref() == Some(uid))
        };
        for owned in self.list_owned(&call.cluster).await? {
            if owned.cluster_uid == call.cluster.uid && !is_known(&owned) {
                self.remove(&owned.name).await?;
            }
        }
        Ok(())
    }

    async fn remove(&self, name: &str) -> ServiceOutcome {
        let answer = http::delete(self.cloud.join(["v1", "load-balancers", name])).send().await?;
        match (self.breaks, answer.status.as_u16()) {
            (_, 202) => Ok(ServiceProgress::in_progress(Duration::from_secs(1))),
            (Breaks::GoneIsAnError, 404) => Err(Error::broken(format!("there is no {name}"))),
            _ => answer.or_absent().map(|_| ServiceProgress::gone()),
        }
    }
}
