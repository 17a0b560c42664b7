//! The provider for Azure: instances, routes and the local instance. It follows cloud-provider-azure in provider IDs, labels,
//! addresses and names, so that it takes over a cluster without a write. This file has the description and the settings;
//! `arm` is the resource manager, and `machine`, `route` and `local` have one capability each.

mod arm;
mod configuration;
#[cfg(test)]
mod documents;
mod environment;
mod local;
mod machine;
#[cfg(test)]
mod recordings;
mod route;
mod rules;

use std::borrow::Cow;

pub use configuration::{Azure, Configuration};
use machine::provider_id::{MachineId, SCHEME};
use pileus_guest::{
    Capability, CredentialHint, Description, Endpoint, Problem, Provider, Settings, export_provider,
};

/// Why the provider needs the resource manager.
const ARM_REASON: &str = "to read virtual machines, scale sets, network interfaces and public addresses, and to read and write the route table";

/// Why the provider needs the metadata service.
const METADATA_REASON: &str = "to describe the machine that a node manager runs on";

export_provider!(Azure, instances, local_instance, routes);

impl Provider for Azure {
    type Configuration = Configuration;

    fn describe() -> Description {
        Description::new("azure", env!("CARGO_PKG_VERSION"))
            .provider_id_scheme(SCHEME)
            .node_label(machine::MANAGED)
            .node_label(machine::RESOURCE_GROUP)
    }

    fn configure(configuration: Configuration) -> Result<Self, Vec<Problem>> {
        configuration.check()
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings { notices: self.notices.clone(), ..Settings::default() };
        if !self.subscription.is_empty() {
            let arm = &self.environment.arm;
            let endpoint = arm.endpoint(ARM_REASON);
            let endpoint = self.identity.hint.iter().cloned().fold(endpoint, Endpoint::credential);
            settings = settings.endpoint(endpoint).rules(rules::arm(arm));
            settings = rules::limits().fold(settings, Settings::limit);
            settings = arm::error::codes(arm).into_iter().fold(settings, Settings::codes);
            // All routes are one document, so calls side by side would only refuse each other's writes.
            settings = settings.one_at_a_time(Capability::Routes);
        }
        if let Some(service) = &self.metadata {
            let hint = CredentialHint::new("metadata").value("flavor", "azure");
            let (rules, limit) = rules::metadata(service);
            settings = settings.endpoint(service.endpoint(METADATA_REASON).credential(hint));
            settings = settings.rules(rules).limit(limit);
        }
        settings
    }

    fn canonical_id(provider_id: &str) -> Cow<'_, str> {
        let id = MachineId::parse(provider_id);
        Cow::Owned(id.map_or_else(|| provider_id.to_lowercase(), |id| id.provider_id().to_lowercase()))
    }
}

#[cfg(test)]
mod tests;
