//! The part of a random history that Services and routes have: they come, change and go, others meddle with them, and the
//! cloud's writes fail. No load balancer is removed whose Service has always wanted it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::Story;
use crate::cloud::Object;
use crate::service::{self, OURS, change, create, delete, tear_out};

/// The most Services at a time.
const MOST: usize = 15;

/// A Service that is there, as the history knows it.
#[derive(Debug, Clone)]
pub(super) struct Known {
    name: String,
    uid: String,
    is_load_balancer: bool,
    /// Whether it has wanted its load balancer ever since it is there.
    is_faithful: bool,
}

impl Story {
    pub(super) async fn service_step(&mut self) {
        match self.dice.roll(100) {
            0..=29 if self.services.len() < MOST => self.make_service().await,
            0..=34 => self.remove_service().await,
            35..=59 => self.change_service().await,
            60..=69 => self.flip_service().await,
            70..=77 => self.meddle_with_service().await,
            78..=82 => self.tear_service_out().await,
            83..=89 => self.exclude_node().await,
            _ => self.writes_fail().await,
        }
    }

    async fn make_service(&mut self) {
        self.made += 1;
        let name = format!("s-{}", self.made);
        self.make_service_of_name(&name).await;
    }

    async fn make_service_of_name(&mut self, name: &str) {
        let class = [None, None, Some(OURS), Some("example.com/theirs")][self.dice.roll(4)];
        let spec = json!({"loadBalancerClass": class, "ports": self.ports()});
        self.tell(format!("service {name} is made: {spec}"));
        let made = create(&self.world, name, spec).await;
        let is_ours = class.is_none_or(|class| class == OURS);
        let (name, uid) = (name.to_owned(), made.uid().unwrap());
        self.services.push(Known { name, uid, is_load_balancer: true, is_faithful: is_ours });
    }

    /// One or two ports.
    fn ports(&mut self) -> Value {
        let port = |number: usize| json!({"name": format!("p-{number}"), "port": number, "protocol": "TCP"});
        let number = 1_000 + self.dice.roll(50);
        if self.dice.roll(2) == 0 { json!([port(number)]) } else { json!([port(number), port(number + 1)]) }
    }

    async fn remove_service(&mut self) {
        let Some(Known { name, uid, .. }) = self.dice.pick(&self.services) else { return };
        self.tell(format!("service {name} is deleted"));
        self.services.retain(|known| known.uid != uid);
        delete(&self.world, &name).await;
    }

    async fn change_service(&mut self) {
        let Some(Known { name, is_load_balancer: true, .. }) = self.dice.pick(&self.services) else { return };
        let spec = match self.dice.roll(4) {
            0 => json!({"ports": self.ports()}),
            1 => json!({"loadBalancerSourceRanges": [format!("10.{}.0.0/16", self.dice.roll(200))]}),
            2 => {
                let policy = ["Local", "Cluster"][self.dice.roll(2)];
                json!({"externalTrafficPolicy": policy})
            }
            _ => {
                let seconds = 60 + self.dice.roll(1_000);
                json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}})
            }
        };
        self.tell(format!("service {name} becomes {spec}"));
        change(&self.world, &name, json!({"spec": spec})).await;
    }

    async fn flip_service(&mut self) {
        let Some(chosen) = self.dice.pick(&self.services) else { return };
        let Some(known) = self.services.iter_mut().find(|known| known.uid == chosen.uid) else { return };
        known.is_faithful = false;
        known.is_load_balancer = !known.is_load_balancer;
        let spec = if known.is_load_balancer {
            json!({"type": "LoadBalancer"})
        } else {
            json!({"type": "ClusterIP", "externalTrafficPolicy": null, "loadBalancerClass": null, "loadBalancerSourceRanges": null})
        };
        let name = known.name.clone();
        self.tell(format!("service {name} becomes {spec}"));
        change(&self.world, &name, json!({"spec": spec})).await;
    }

    /// Others take something away that is ours to keep.
    async fn meddle_with_service(&mut self) {
        let Some(Known { name, .. }) = self.dice.pick(&self.services) else { return };
        if self.dice.roll(2) == 0 {
            self.tell(format!("service {name} loses its finalizers"));
            change(&self.world, &name, json!({"metadata": {"finalizers": null}})).await;
        } else {
            self.tell(format!("service {name} loses its status"));
            let patch = Patch::Merge(json!({"status": {"loadBalancer": null}}));
            service::api(&self.world).patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
        }
    }

    /// Gone past its finalizer, and sometimes there again at once.
    async fn tear_service_out(&mut self) {
        let Some(Known { name, uid, .. }) = self.dice.pick(&self.services) else { return };
        self.tell(format!("service {name} is torn out"));
        self.services.retain(|known| known.uid != uid);
        tear_out(&self.world, &name).await;
        if self.dice.roll(2) == 0 {
            self.make_service_of_name(&name).await;
        }
    }

    /// A Node is taken out of load balancers, or put back.
    async fn exclude_node(&mut self) {
        let Some(machine) = self.dice.pick(&self.machines) else { return };
        let value = [json!(""), json!("false"), Value::Null][self.dice.roll(3)].clone();
        self.tell(format!("{} is excluded from load balancers: {value}", machine.name));
        let labels = json!({"node.kubernetes.io/exclude-from-external-load-balancers": value});
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        Api::<Node>::all(self.world.client.clone())
            .patch(&machine.name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// The cloud fails at what changes something, or takes its time.
    async fn writes_fail(&mut self) {
        let share = [0.3, 0.7][self.dice.roll(2)];
        let writes = json!(["create", "change", "delete"]);
        let faults = match self.dice.roll(5) {
            0 => json!({"throttle": {"share": share, "retryAfterSeconds": 1, "kinds": writes}}),
            1 => json!({"errors": {"share": share, "status": 503, "kinds": writes}}),
            2 => json!({"lost": {"share": share, "kinds": writes}}),
            3 => json!({"operations": {"takesMs": 500, "jitterMs": 500, "lateFailures": {"share": share}}}),
            _ => json!({"preconditions": {"share": share}, "operations": {"takesMs": 300}}),
        };
        self.fault(faults).await;
    }

    /// No load balancer was asked to go, or has gone, whose Service has always wanted it.
    pub(super) async fn nothing_was_removed_wrongly(&mut self) {
        let faithful = self.services.iter().filter(|known| known.is_faithful);
        let faithful: BTreeSet<_> = faithful.map(|known| known.uid.clone()).collect();
        for request in self.world.cloud.reads().await {
            let path = request["path"].as_str().unwrap();
            let is_wrong =
                request["method"] == "DELETE" && faithful.iter().any(|uid| path.contains(uid.as_str()));
            assert!(!is_wrong, "{request} about a service that wants it: {:#?}", self.told);
        }
        // Out of a shared one it goes by a PUT. While lists lag they tell of what was.
        let held = if self.faults.get("lag").is_some() { return } else { self.held().await };
        let Ok(held) = held else { return };
        let lost = self.held.difference(&held).find(|uid| faithful.contains(*uid));
        assert!(lost.is_none(), "{lost:?} has lost what it wants: {:#?}", self.told);
        self.held = held;
    }

    /// The UIDs of Services that have a load balancer, or a part of one; an error where a fault has hit the question.
    async fn held(&self) -> Result<BTreeSet<String>, String> {
        let cloud = &self.world.cloud;
        let (own, shared) =
            (cloud.all(Object::LoadBalancer).await?, cloud.all(Object::SharedLoadBalancer).await?);
        let parts = shared.iter().flat_map(|object| object["frontends"].as_array().unwrap());
        let uids = own.iter().chain(parts).filter_map(|it| it["labels"]["pileus-service"].as_str());
        Ok(uids.map(str::to_owned).collect())
    }

    /// What of the cloud's load balancers and routes isn't as the cluster asks for.
    pub(super) async fn network_differences(&self) -> Vec<String> {
        let nodes = self.world.nodes().await;
        let asked: BTreeMap<_, _> = nodes.iter().filter_map(range).collect();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let routes = self.world.cloud.routes().await;
        let held: BTreeMap<_, _> =
            routes.iter().map(|route| (text(&route["destination"]), text(&route["machine"]))).collect();
        let routes =
            (asked != held).then(|| format!("routes {asked:?} are asked for, and there are {held:?}"));
        service::difference(&self.world).await.into_iter().chain(routes).collect()
    }
}

/// A Node's range of Pod addresses, and its machine.
fn range(node: &Node) -> Option<(String, String)> {
    let spec = node.spec.as_ref()?;
    let machine = spec.provider_id.as_ref()?.strip_prefix("simulated://")?;
    Some((spec.pod_cidr.clone()?, machine.to_owned()))
}
