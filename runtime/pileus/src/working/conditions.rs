//! What the controllers of a provider are made for.

use jiff::Timestamp;
use pileus_controllers::claims::Claim;
use pileus_controllers::facts::service::NodeSelector;
use pileus_host::Declaration;

use crate::document::CloudProvider;

/// What controllers are made for. They go on as long as it stays the same.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Conditions {
    pub(crate) declaration: Declaration,
    pub(super) classes: Vec<String>,
    pub(super) node_selector: NodeSelector,
    pub(super) is_default: bool,
}

impl Conditions {
    /// Those of a release and the document that it runs under.
    pub(crate) fn new(declaration: Declaration, document: &CloudProvider) -> Self {
        let CloudProvider { classes, node_selector, is_default, .. } = document;
        let (classes, node_selector) = (classes.clone(), node_selector.clone());
        Self { declaration, classes, node_selector, is_default: *is_default }
    }

    /// What the provider of this name, whose document was made at this time, claims for itself.
    pub(super) fn claim(&self, name: &str, created_at: Timestamp) -> Claim {
        let Self { declaration, classes, node_selector, is_default } = self.clone();
        let serves_services = declaration.service_requirements.is_some();
        Claim {
            name: name.to_owned(),
            created_at,
            schemes: declaration.schemes,
            node_selector,
            classes: if serves_services { classes } else { Vec::new() },
            is_default: is_default && serves_services,
            looks_up_instances: declaration.largest_lookup_batch.is_some(),
        }
    }
}
