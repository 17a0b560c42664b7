//! The labels of namespaces, for providers that read them, and the one that tells clusters apart.

use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};

use crate::error::Error;
use crate::objects::{Change, Facts, Keep, Kept, answered};

/// What is kept of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Labelled {
    name: String,
    uid: String,
    resource_version: String,
    /// Its labels, in the order of their keys.
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
pub(super) struct Namespaces(Kept<Labelled>);

impl Namespaces {
    /// The labels of one of them.
    pub(super) fn labels(&self, name: &str) -> Option<Vec<(String, String)>> {
        self.0.get(name).map(|namespace| namespace.labels.clone())
    }
}

impl Keep for Namespaces {
    type Object = PartialObjectMeta<Namespace>;
    type Facts = Labelled;

    fn take_in(&mut self, event: watcher::Event<Self::Object>) -> Vec<Change<Labelled>> {
        self.0.take_in(event, |namespace, _| Some(read(namespace)))
    }

    fn kept(&self) -> &Kept<Labelled> {
        &self.0
    }
}

/// Confirms that the API server is still that of the cluster with this UID. One whose store was lost answers for a while as
/// one without Services, and then nothing may be taken for gone: a load balancer that is deleted loses its address for good.
///
/// # Errors
/// [`Error::Refused`] where it is another one. Nothing can be said where the UID isn't known.
pub(super) async fn confirm(client: &Client, uid: Option<&str>) -> Result<(), Error> {
    let Some(uid) = uid else { return Ok(()) };
    let namespace = match answered(Api::<Namespace>::all(client.clone()).get_metadata("kube-system")).await {
        Ok(namespace) => namespace.metadata.uid,
        Err(Error::Gone) => None,
        Err(error) => return Err(error),
    };
    let why = "the namespace kube-system has another UID than at the start, so nothing is taken for gone: \
               restore the cluster's store, or restart where this cluster is meant to be a new one";
    if namespace.as_deref() == Some(uid) { Ok(()) } else { Err(Error::Refused(why.to_owned())) }
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
