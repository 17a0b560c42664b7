//! What a provider is, whatever its configuration.

use crate::Extra;

/// What a capability is about: one interface of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capability {
    /// The machines behind Nodes.
    Instances,
    /// The load balancers of Services.
    LoadBalancers,
    /// The routes of Pods' traffic.
    Routes,
}

/// How the host should call a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallShape {
    /// The most items that one call may carry.
    pub largest_batch: u32,
    /// Whether two calls may run at the same time. False where they would step on each other in the cloud.
    pub side_by_side: bool,
}

impl CallShape {
    /// What suits lookups: they change nothing, and 5,000 is the size of the largest cluster that Kubernetes supports,
    /// so one list of the cloud's machines answers for all of it.
    pub const INSTANCES: Self = Self { largest_batch: 5_000, side_by_side: true };

    /// What suits load balancers where each Service has an object of its own in the cloud: as many as come up when a large
    /// cluster's are looked over, and calls side by side, as no change touches another's object. Where Services share an
    /// object, only [one call at a time](crate::Settings::one_at_a_time) will do, also where it is written on conditions
    /// ([`http::Document`](crate::http::Document)): of two calls the one that writes last may have the older targets.
    pub const LOAD_BALANCERS: Self = Self { largest_batch: 1_000, side_by_side: true };

    /// What suits changes of routes: as many as most clouds take within the time of a call, one call at a time, as routes
    /// of one table often can't be written side by side.
    pub const ROUTES: Self = Self { largest_batch: 1_000, side_by_side: false };
}

/// The type of an annotation's value, for the reference that users read and for a check before the provider sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationType {
    /// Any text.
    Text,
    /// `true` or `false`. Users may also write `1`, `t`, `0`, `f` and any case; the provider gets one of the two words.
    Boolean,
    /// A whole number.
    Integer,
    /// A list of texts, separated by commas.
    TextList,
    /// A list of address ranges, separated by commas.
    RangeList,
}

/// One annotation of Services that the provider reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The key, or a pattern with one `*` that stands for at least one character.
    pub name: String,
    /// What its value is.
    pub value: AnnotationType,
    /// What holds where it is absent; none where its absence has a meaning of its own.
    pub default: Option<String>,
    /// One sentence for the reference.
    pub description: String,
}

impl Annotation {
    /// An annotation whose absence has a meaning of its own.
    pub fn new(name: impl Into<String>, value: AnnotationType, description: impl Into<String>) -> Self {
        Self { name: name.into(), value, default: None, description: description.into() }
    }

    /// Says what holds where it is absent.
    #[must_use]
    pub fn default(mut self, value: impl Into<String>) -> Self {
        self.default = Some(value.into());
        self
    }
}

/// What a provider reads of Services beyond what each says of itself. Each costs the host memory or a watch, so it is left
/// empty unless asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceFacts {
    /// The labels of the Service's namespace.
    pub namespace_labels: bool,
    /// The Service's endpoints on each Node.
    pub endpoints: bool,
    /// The Services of the cluster that aren't being changed.
    pub known: bool,
}

/// What a provider is. The schema of the configuration and the list of capabilities are not part of it: the SDK derives
/// them from [`Provider::Configuration`](crate::Provider::Configuration) and [`export_provider!`](crate::export_provider).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The provider's name, lower case, as in `azure`. Metrics, logs and events carry it.
    pub name: String,
    /// The provider's own version, semver.
    pub version: String,
    /// The schemes of the provider IDs that are its own, without `://`.
    pub provider_id_schemes: Vec<String>,
    /// The Service annotations that it reads.
    pub service_annotations: Vec<Annotation>,
    /// What else it reads of Services.
    pub service_facts: ServiceFacts,
    /// The keys of the Node labels that it reads. Others never reach it.
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
    /// A provider of this name and version; `env!("CARGO_PKG_VERSION")` is the version of the author's crate.
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

    /// Says what else the provider reads of Services.
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

    /// Says how to call `instances`, where [`CallShape::INSTANCES`] doesn't suit.
    #[must_use]
    pub fn instances(mut self, shape: CallShape) -> Self {
        self.instances = shape;
        self
    }

    /// Says how to call `load-balancers`, where [`CallShape::LOAD_BALANCERS`] doesn't suit.
    #[must_use]
    pub fn load_balancers(mut self, shape: CallShape) -> Self {
        self.load_balancers = shape;
        self
    }

    /// Says how to call `routes`, where [`CallShape::ROUTES`] doesn't suit.
    #[must_use]
    pub fn routes(mut self, shape: CallShape) -> Self {
        self.routes = shape;
        self
    }
}
