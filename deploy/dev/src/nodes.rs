//! Nodes as kubelets register them with `--cloud-provider=external`: with all fields that a cloud-controller-manager reads,
//! and of the size of real ones.

mod machine;
mod readiness;
mod waiting;

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec,
        NodeStatus, NodeSystemInfo, Taint,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, Time},
    },
};
use kube::{Api, Client, api::PostParams};

use crate::Error;

pub use machine::{Machine, settled};
pub use readiness::{Ready, set_ready};
pub use waiting::{await_absence, await_node};

/// The taint that keeps Pods off a Node until the cloud-controller-manager has initialized it.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The annotation in which a kubelet with `--node-ip` passes the address to the cloud-controller-manager.
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// How many Nodes are written concurrently: enough to keep an API server on a few cores busy.
const WRITERS: usize = 32;
/// The most images that a kubelet reports (`nodeStatusMaxImages`). With a digest and a tag each, they are most of a real
/// Node's size.
const IMAGES: usize = 50;

/// Builds a Node that has just registered: not initialized, ready, with no data but its name.
pub fn node(name: &str) -> Kubelet {
    Kubelet(fresh(name))
}

/// A builder of a Node as a kubelet would register it.
#[derive(Clone, Debug)]
#[must_use = "call `build` or `register` to get a Node"]
pub struct Kubelet(Node);

impl Kubelet {
    /// With the address of a kubelet with `--node-ip`, which asks the cloud-controller-manager to verify it.
    pub fn node_ip(mut self, address: &str) -> Self {
        self.annotations().insert(PROVIDED_NODE_IP.to_owned(), address.to_owned());
        self.status()
            .addresses
            .get_or_insert_default()
            .insert(0, NodeAddress { type_: "InternalIP".to_owned(), address: address.to_owned() });
        self
    }

    /// With the provider ID of a kubelet with `--provider-id`.
    pub fn provider_id(mut self, id: &str) -> Self {
        self.spec().provider_id = Some(id.to_owned());
        self
    }

    /// With a label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0.metadata.labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        self
    }

    /// With an annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations().insert(key.to_owned(), value.to_owned());
        self
    }

    /// With another taint.
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.spec().taints.get_or_insert_default().push(taint(key, value, effect));
        self
    }

    /// Without the taint, as if a cloud-controller-manager had initialized it.
    pub fn initialized(mut self) -> Self {
        self.spec().taints.get_or_insert_default().retain(|taint| taint.key != UNINITIALIZED);
        self
    }

    /// With Pod CIDRs, as if kube-controller-manager had assigned them.
    pub fn pod_cidrs(mut self, cidrs: &[String]) -> Self {
        self.spec().pod_cidr = cidrs.first().cloned();
        self.spec().pod_cidrs = Some(cidrs.to_vec());
        self
    }

    /// The name of the Node.
    pub fn name(&self) -> &str {
        self.0.metadata.name.as_deref().unwrap_or_default()
    }

    /// With this number of images instead of 50. With 50, the API server stores 10.4 kB for a Node.
    pub fn images(mut self, count: usize) -> Self {
        self.status().images = Some((0..count).map(image).collect());
        self
    }

    /// Not ready, as reported by its kubelet.
    pub fn not_ready(self) -> Self {
        self.condition("Ready", "False", "KubeletNotReady")
    }

    /// With a condition, which replaces one of the same type.
    pub fn condition(mut self, kind: &str, status: &str, reason: &str) -> Self {
        let conditions = self.status().conditions.get_or_insert_default();
        conditions.retain(|condition| condition.type_ != kind);
        conditions.push(condition(kind, status, reason));
        self
    }

    /// Returns the Node.
    pub fn build(self) -> Node {
        self.0
    }

    fn annotations(&mut self) -> &mut BTreeMap<String, String> {
        self.0.metadata.annotations.get_or_insert_default()
    }

    fn spec(&mut self) -> &mut NodeSpec {
        self.0.spec.get_or_insert_default()
    }

    fn status(&mut self) -> &mut NodeStatus {
        self.0.status.get_or_insert_default()
    }
}

/// Registers Nodes concurrently and returns them as the API server has stored them, in no particular order.
pub async fn register(client: &Client, nodes: impl IntoIterator<Item = Kubelet>) -> Result<Vec<Node>, Error> {
    let api: Api<Node> = Api::all(client.clone());
    let create = |node: Node| {
        let api = api.clone();
        async move {
            let name = node.metadata.name.clone().unwrap_or_default();
            api.create(&PostParams::default(), &node).await.map_err(Error::api(format!("create node {name}")))
        }
    };
    stream::iter(nodes).map(|node| create(node.build())).buffer_unordered(WRITERS).try_collect().await
}

fn fresh(name: &str) -> Node {
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(pairs([
                ("beta.kubernetes.io/arch", "amd64"),
                ("beta.kubernetes.io/os", "linux"),
                ("kubernetes.io/arch", "amd64"),
                ("kubernetes.io/hostname", name),
                ("kubernetes.io/os", "linux"),
            ])),
            annotations: Some(pairs([("volumes.kubernetes.io/controller-managed-attach-detach", "true")])),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            taints: Some(vec![taint(UNINITIALIZED, "true", "NoSchedule")]),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            addresses: Some(vec![NodeAddress { type_: "Hostname".to_owned(), address: name.to_owned() }]),
            capacity: Some(resources("4", "16381976Ki")),
            allocatable: Some(resources("3920m", "15251480Ki")),
            conditions: Some(vec![
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ]),
            daemon_endpoints: Some(NodeDaemonEndpoints {
                kubelet_endpoint: Some(DaemonEndpoint { port: 10_250 }),
            }),
            images: Some((0..IMAGES).map(image).collect()),
            node_info: Some(system(name)),
            ..NodeStatus::default()
        }),
    }
}

fn taint(key: &str, value: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), value: Some(value.to_owned()), effect: effect.to_owned(), time_added: None }
}

fn condition(kind: &str, status: &str, reason: &str) -> NodeCondition {
    // Kubernetes stores times in whole seconds.
    let now = Timestamp::from_second(Timestamp::now().as_second()).ok().map(Time);
    NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(format!("kubelet reports {kind} as {status}")),
        last_heartbeat_time: now.clone(),
        last_transition_time: now,
    }
}

fn image(index: usize) -> ContainerImage {
    let name = format!("registry.example.com/platform/component-{index:02}");
    // No program checks the digests, but they are as long and as hard to compress as real ones.
    let noise = (index as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let digest = format!("{noise:032x}{:032x}", noise.wrapping_mul(noise));
    ContainerImage {
        names: Some(vec![format!("{name}@sha256:{digest}"), format!("{name}:v1.{index}.0")]),
        size_bytes: i64::try_from(1_000_000_000 / (index + 1)).ok(),
    }
}

fn system(name: &str) -> NodeSystemInfo {
    NodeSystemInfo {
        architecture: "amd64".to_owned(),
        boot_id: format!("boot-{name}"),
        container_runtime_version: "containerd://2.2.1".to_owned(),
        kernel_version: "6.12.48-amd64".to_owned(),
        kube_proxy_version: String::new(),
        kubelet_version: "v1.37.2".to_owned(),
        machine_id: format!("machine-{name}"),
        operating_system: "linux".to_owned(),
        os_image: "Debian GNU/Linux 13 (trixie)".to_owned(),
        system_uuid: format!("system-{name}"),
        ..NodeSystemInfo::default()
    }
}

fn resources(cpu: &str, memory: &str) -> BTreeMap<String, Quantity> {
    let all = [
        ("cpu", cpu),
        ("ephemeral-storage", "129886128Ki"),
        ("hugepages-2Mi", "0"),
        ("memory", memory),
        ("pods", "110"),
    ];
    all.into_iter().map(|(name, quantity)| (name.to_owned(), Quantity(quantity.to_owned()))).collect()
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_the_size_of_a_real_one() {
        let weight = serde_json::to_vec(&node("a").build()).unwrap().len();
        assert!((12_000..20_000).contains(&weight), "{weight} bytes");
        let light = serde_json::to_vec(&node("a").images(19).build()).unwrap().len();
        assert!((5_000..7_000).contains(&light), "{light} bytes");
    }
}
