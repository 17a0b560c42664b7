//! The instance that this process runs on, and the trait through which a node manager asks for it.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Error, Instance, NodeReference};

/// What the instance's own metadata service says. An instance can't report its own absence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalAnswer {
    /// The instance.
    Found(Instance),
    /// The metadata service doesn't know yet. Ask again after this time.
    Pending(Duration),
}

/// Describes the instance that this process runs on.
#[async_trait]
pub trait LocalInstance: Send + Sync {
    /// Describes the instance of this process, which is that of the given Node. Changes nothing in the cloud.
    ///
    /// # Guarantees
    /// An instance that is found has the Node's provider ID, if the Node has one. Dropping the future ends the call.
    ///
    /// # Errors
    /// [`ErrorKind::Broken`](crate::ErrorKind::Broken) if the metadata service describes another instance than the Node's.
    async fn describe(&self, node: &NodeReference) -> Result<LocalAnswer, Error>;
}
