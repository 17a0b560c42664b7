//! What a provider is, independent of its configuration.

use crate::Extra;

/// A capability: one interface of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capability {
    /// The instances behind Nodes.
    Instances,
    /// The instance that the host runs on.
    LocalInstance,
    /// The load balancers of Services.
    LoadBalancers,
    /// The routes for Pod traffic.
    Routes,
}

/// How the host should call a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallShape {
    /// The largest number of items in one call.
    pub largest_batch: u32,
    /// Whether two calls may run at the same time. False if they would interfere with each other in the cloud.
    pub side_by_side: bool,
}

impl CallShape {
    /// The default for lookups. They change nothing, so calls may run concurrently. 5,000 Nodes are the largest cluster
    /// that Kubernetes supports, so one list of the cloud's instances answers for the whole cluster.
    pub const INSTANCES: Self = Self { largest_batch: 5_000, side_by_side: true };

    /// The default for load balancers where each Service has a resource of its own in the cloud. A batch holds what is
    /// due when a large cluster is audited. Calls may run concurrently, because no change touches another's resource.
    ///
    /// Where Services share a resource, use [one call at a time](crate::Settings::one_at_a_time), even if conditional
    /// requests protect it ([`http::Document`](crate::http::Document)): of two calls, the one that writes last may have
    /// the older targets.
    pub const LOAD_BALANCERS: Self = Self { largest_batch: 1_000, side_by_side: true };

    /// The default for routes: as many changes as most clouds accept within the time of a call. One call at a time,
    /// because many clouds can't change routes of one table concurrently.
    pub const ROUTES: Self = Self { largest_batch: 1_000, side_by_side: false };
}

/// The type of an annotation's value. The user reference shows it, and the host checks it before the provider sees the
/// value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationType {
    /// Any text.
    Text,
    /// `true` or `false`. Users may also write `1`, `t`, `0`, `f` in any case; the provider gets `true` or `false`.
    Boolean,
    /// A whole number.
    Integer,
    /// A list of texts, separated by commas.
    TextList,
    /// A list of CIDRs, separated by commas.
    RangeList,
    /// A label selector, as in `pool in (a, b),!spot`. The host applies it: the Service's targets are the Nodes that it
    /// selects. Several selectors of a Service all apply.
    NodeSelector,
}

/// A Service annotation that the provider reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The key, or a pattern with one `*` that stands for at least one character.
    pub name: String,
    /// The type of its value.
    pub value: AnnotationType,
    /// The value that applies without the annotation. None if its absence has a meaning of its own.
    pub default: Option<String>,
    /// Whether the provider sets it, see [`ServiceReport::annotations`](crate::ServiceReport::annotations). Then `name` is a
    /// key, not a pattern.
    pub written: bool,
    /// One sentence for the user reference.
    pub description: String,
}

impl Annotation {
    /// An annotation without a default value.
    pub fn new(name: impl Into<String>, value: AnnotationType, description: impl Into<String>) -> Self {
        Self { name: name.into(), value, default: None, written: false, description: description.into() }
    }

    /// Sets the value that applies without the annotation.
    #[must_use]
    pub fn default(mut self, value: impl Into<String>) -> Self {
        self.default = Some(value.into());
        self
    }

    /// Says that the provider sets the annotation.
    #[must_use]
    pub fn written(mut self) -> Self {
        self.written = true;
        self
    }
}

/// Optional data about Services that the provider reads. Most flags cost the host memory or a watch, so all are off by
/// default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the contract, each independent of the others")]
pub struct ServiceFacts {
    /// The labels of the Service's namespace.
    pub namespace_labels: bool,
    /// The Service's endpoints on each Node.
    pub endpoints: bool,
    /// The Services of the cluster that aren't being changed.
    pub known: bool,
    /// Services with ports that have no node port. Set it if the load balancers send traffic to Pods, or to the Service's own
    /// port on the Nodes. Without it the host refuses such a Service.
    pub missing_node_ports: bool,
}

/// What a provider is. The SDK adds the configuration's schema, from
/// [`Provider::Configuration`](crate::Provider::Configuration), and the capabilities, from
/// [`export_provider!`](crate::export_provider).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The provider's name in lower case, as in `azure`. Metrics, logs and events carry it.
    pub name: String,
    /// The provider's own version, semver.
    pub version: String,
    /// The schemes of the provider IDs that it serves, without `://`.
    pub provider_id_schemes: Vec<String>,
    /// The Service annotations that it reads.
    pub service_annotations: Vec<Annotation>,
    /// The optional data about Services that it reads.
    pub service_facts: ServiceFacts,
    /// The keys of the Node labels that it reads with every configuration, beside those of
    /// [`Settings::node_labels`](crate::Settings::node_labels). Other labels never reach it.
    pub node_labels: Vec<String>,
    /// How to call `instances`.
    pub instances: CallShape,
    /// How to call `load-balancers`.
    pub load_balancers: CallShape,
    /// How to call `routes`.
    pub routes: CallShape,
    /// See [`Extra`].
    pub extra: Extra,
}

impl Description {
    /// A provider of this name and version. `env!("CARGO_PKG_VERSION")` is the version of the author's crate.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            provider_id_schemes: Vec::new(),
            service_annotations: Vec::new(),
            service_facts: ServiceFacts::default(),
            node_labels: Vec::new(),
            instances: CallShape::INSTANCES,
            load_balancers: CallShape::LOAD_BALANCERS,
            routes: CallShape::ROUTES,
            extra: Extra::new(),
        }
    }

    /// Adds a scheme of provider IDs, without `://`.
    #[must_use]
    pub fn provider_id_scheme(mut self, scheme: impl Into<String>) -> Self {
        self.provider_id_schemes.push(scheme.into());
        self
    }

    /// Adds a Service annotation that the provider reads.
    #[must_use]
    pub fn service_annotation(mut self, annotation: Annotation) -> Self {
        self.service_annotations.push(annotation);
        self
    }

    /// Sets which optional data about Services the provider reads.
    #[must_use]
    pub fn service_facts(mut self, facts: ServiceFacts) -> Self {
        self.service_facts = facts;
        self
    }

    /// Adds the key of a Node label that the provider reads.
    #[must_use]
    pub fn node_label(mut self, key: impl Into<String>) -> Self {
        self.node_labels.push(key.into());
        self
    }

    /// Sets how to call `instances`, in place of [`CallShape::INSTANCES`].
    #[must_use]
    pub fn instances(mut self, shape: CallShape) -> Self {
        self.instances = shape;
        self
    }

    /// Sets how to call `load-balancers`, in place of [`CallShape::LOAD_BALANCERS`].
    #[must_use]
    pub fn load_balancers(mut self, shape: CallShape) -> Self {
        self.load_balancers = shape;
        self
    }

    /// Sets how to call `routes`, in place of [`CallShape::ROUTES`].
    #[must_use]
    pub fn routes(mut self, shape: CallShape) -> Self {
        self.routes = shape;
        self
    }
}
