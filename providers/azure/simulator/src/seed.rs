//! What the cloud has at the start, or gets from an operator: node machines of all kinds with their network, and any other
//! resources. Pure.

mod nodes;

use serde::Deserialize;
use serde_json::Value;

use crate::catalog::{Provider, Type};
use crate::compute;
use crate::id::Id;
use crate::network;
use crate::refusal::Refusal;
use crate::state::{Provisioning, State};

/// What a cloud gets.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Seed {
    /// Subscriptions besides the first one.
    pub subscriptions: Vec<NewSubscription>,
    /// Node machines.
    pub nodes: Vec<NewNodes>,
    /// Resources as clients would write them, each with its `id`.
    pub resources: Vec<Value>,
}

/// A subscription of a tenant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewSubscription {
    /// Its ID.
    pub id: String,
    /// The ID of its tenant.
    pub tenant: String,
}

/// How machines are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrangement {
    /// In scale sets with uniform orchestration.
    #[default]
    Uniform,
    /// In scale sets with flexible orchestration.
    Flexible,
    /// Each for itself.
    Standalone,
    /// In availability sets.
    AvailabilitySets,
}

/// Node machines with their network.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct NewNodes {
    /// How many.
    pub count: u32,
    /// How they are grouped.
    pub arrangement: Arrangement,
    /// The number of scale sets or availability sets.
    pub sets: u32,
    /// What names begin with.
    pub prefix: String,
    /// The subscription; the first one where it is missing.
    pub subscription: Option<String>,
    /// The resource group, which is created where it doesn't exist.
    pub group: String,
    /// The region.
    pub location: String,
    /// Whether they are spread over zones, where the region has any.
    pub zones: bool,
    /// Whether each has an address of IPv6.
    pub dual_stack: bool,
    /// Whether each has a public address.
    pub public_addresses: bool,
    /// The size of the machines.
    pub size: String,
    /// The name of the virtual network, which is created where it doesn't exist, with the subnet `nodes`.
    pub network: String,
}

impl Default for NewNodes {
    fn default() -> Self {
        Self {
            count: 0,
            arrangement: Arrangement::Uniform,
            sets: 1,
            prefix: "aks-nodes".to_owned(),
            subscription: None,
            group: "nodes".to_owned(),
            location: "eastus".to_owned(),
            zones: true,
            dual_stack: false,
            public_addresses: false,
            size: "Standard_D4s_v5".to_owned(),
            network: "nodes-vnet".to_owned(),
        }
    }
}

impl State {
    /// Creates all that a seed names. Returns the names of the machines.
    pub fn sow(&mut self, seed: &Seed) -> Result<Vec<String>, Refusal> {
        for NewSubscription { id, tenant } in &seed.subscriptions {
            self.add_subscription(id, tenant);
        }
        for resource in &seed.resources {
            self.create(resource)?;
        }
        let mut names = Vec::new();
        for nodes in &seed.nodes {
            names.extend(self.create_nodes(nodes)?);
        }
        Ok(names)
    }

    /// Creates a resource with all checks of a write, as if its operation had ended.
    fn create(&mut self, document: &Value) -> Result<(), Refusal> {
        let text = crate::json::text(document, "/id").to_owned();
        let invalid =
            || Refusal::new(400, "InvalidResourceId", format!("'{text}' is not the ID of a resource."));
        let id = Id::parse(&text).ok_or_else(invalid)?;
        let path = id.path();
        let provider = path.namespace.as_deref().and_then(Provider::of).ok_or_else(invalid)?;
        let Some(Type::Stored(kind)) = Type::of(provider, &path.types()) else { return Err(invalid()) };
        self.add_group(&path.subscription, path.group(), crate::json::text(document, "/location"));
        let existing = self.store.get(&id.key()).cloned();
        let body = match provider {
            Provider::Network => network::normalize(self, &id, kind, document, existing.as_ref())?,
            Provider::Compute => compute::normalize(self, &id, kind, document, existing.as_ref())?,
        };
        self.store_written(&id, kind, body, existing);
        if let Some(resource) = self.store.get_mut(&id.key()) {
            resource.provisioning = Provisioning::Succeeded;
            // It has always been there.
            resource.before = None;
        }
        Ok(())
    }
}
