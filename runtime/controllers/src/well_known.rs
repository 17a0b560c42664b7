//! The names on which Kubernetes and cloud-controller-managers agree. Compatibility depends on every letter.

/// Taint that the kubelet sets with `--cloud-provider=external`: the Node waits to be initialized. It is identified by its key
/// alone, regardless of value and effect.
pub const TAINT_UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Taint of a Node whose instance is stopped, with the effect `NoSchedule`.
pub const TAINT_SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// Taint of a Node that won't come back: its Pods are moved together with their volumes (KEP-2268).
pub const TAINT_OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Taint with which the cluster autoscaler marks a Node before it removes the instance. It is identified by its key alone.
pub const TAINT_AUTOSCALER_DELETES: &str = "ToBeDeletedByClusterAutoscaler";

/// Label that excludes a Node from load balancers, unless its value is false.
pub const LABEL_EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Finalizer that keeps a Service until its load balancer is gone.
pub const FINALIZER_LOAD_BALANCER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Annotation with the source ranges that may connect, older than `spec.loadBalancerSourceRanges`.
pub const ANNOTATION_SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Annotation with the keys of the Node labels that Pileus owns: has set, and may change or remove. They are sorted and separated by
/// commas.
pub const ANNOTATION_OWNED_LABELS: &str = "pileus.dev/owned-labels";

/// Annotation by which the node manager of a Node says that it writes what comes from the instance, so that the central process
/// leaves the Node alone.
pub const ANNOTATION_NODE_MANAGER: &str = "pileus.dev/node-manager";

/// Annotation with which an operator releases a Node whose deletion is on hold. Its value is the Node's UID, so that it can't release
/// another Node of the same name.
pub const ANNOTATION_RELEASE_DELETION: &str = "pileus.dev/release-deletion";

/// Annotation of a Service with the name of the provider that made its load balancer, where several providers may run. It means
/// something only together with [`FINALIZER_LOAD_BALANCER`].
pub const ANNOTATION_PROVIDER: &str = "pileus.dev/provider";

/// Condition of a Node whose instance is gone, and whose deletion is on hold because too many instances are gone at once.
pub const CONDITION_MACHINE_ABSENT: &str = "pileus.dev/MachineAbsent";

/// Reason of the condition `NetworkUnavailable` of a Node whose routes exist.
pub const REASON_ROUTE_CREATED: &str = "RouteCreated";

/// Annotation with the kubelet's `--node-ip`: one address, or one of each family separated by a comma.
pub const ANNOTATION_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// Label with the instance type, and its key from before 1.17, which some users still select on.
pub const LABELS_INSTANCE_TYPE: [&str; 2] =
    ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"];

/// Label with the zone, and its old key.
pub const LABELS_ZONE: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];

/// Label with the region, and its old key.
pub const LABELS_REGION: [&str; 2] =
    ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"];

/// The labels of a Node of the control plane, which no kubelet can set. The second is from before 1.24.
pub const LABELS_CONTROL_PLANE: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// The labels with the type, zone and region of the instance.
pub const TOPOLOGY_LABELS: [[&str; 2]; 3] = [LABELS_INSTANCE_TYPE, LABELS_ZONE, LABELS_REGION];

/// Whether a label or annotation key is reserved for Kubernetes: under `kubernetes.io`, `k8s.io` or their subdomains.
pub fn is_reserved(key: &str) -> bool {
    let Some((prefix, _)) = key.split_once('/') else {
        return false;
    };
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|domain| prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_keys_end_on_a_label_boundary() {
        for (key, reserved) in [
            ("kubernetes.io/role", true),
            ("k8s.io/x", true),
            ("node.kubernetes.io/exclude", true),
            ("topology.k8s.io/x", true),
            ("topology.k8s.cp/zone-id", false),
            ("my.custom.label/foo", false),
            ("k8snio/bar", false),
            ("app.k8snio/bar", false),
            ("mykubernetes.io/x", false),
            ("kubernetes.io", false),
        ] {
            assert_eq!(is_reserved(key), reserved, "{key}");
        }
    }
}
