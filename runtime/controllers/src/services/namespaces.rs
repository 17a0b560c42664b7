//! The labels of namespaces, for providers that read them.

use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;

use crate::informer::{Change, Facts, InformerStore, ObjectStore};

/// The kept facts of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Labelled {
    name: String,
    uid: String,
    resource_version: String,
    /// In the order of their keys.
    labels: Vec<(String, String)>,
}

impl Facts for Labelled {
    fn key(&self) -> String {
        self.name.clone()
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

/// All namespaces by name.
#[derive(Debug, Default)]
pub(super) struct Namespaces(ObjectStore<Labelled>);

impl Namespaces {
    /// The labels of a namespace.
    pub(super) fn labels(&self, name: &str) -> Option<Vec<(String, String)>> {
        self.0.get(name).map(|namespace| namespace.labels.clone())
    }
}

impl InformerStore for Namespaces {
    type Object = PartialObjectMeta<Namespace>;
    type Facts = Labelled;

    fn on_event(&mut self, event: watcher::Event<Self::Object>) -> Vec<Change<Labelled>> {
        self.0.on_event(event, |namespace, _| Some(read(namespace)))
    }

    fn objects(&self) -> &ObjectStore<Labelled> {
        &self.0
    }

    fn forget_versions(&mut self) {
        self.0.forget_versions();
    }
}

fn read(namespace: PartialObjectMeta<Namespace>) -> Labelled {
    let metadata = namespace.metadata;
    Labelled {
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default().into_iter().collect(),
    }
}
