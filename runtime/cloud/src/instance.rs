//! The machine behind a Node, and the trait by which controllers ask for it.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Address, Error, NodeReference, ProviderId};

/// Whether a machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It runs, or is on its way to.
    Running,
    /// It exists, but won't run until somebody starts it.
    Stopped,
    /// The cloud doesn't tell.
    Unknown,
}

/// What the cloud knows of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Its provider ID.
    pub provider_id: ProviderId,
    /// The cloud's name for its size.
    pub instance_type: Option<String>,
    /// Its failure domain; never a guess.
    pub zone: Option<String>,
    /// Its region.
    pub region: Option<String>,
    /// All its addresses, the preferred one of each kind first.
    pub addresses: Vec<Address>,
    /// More labels for the Node, key and value.
    pub labels: Vec<(String, String)>,
    /// Whether it runs.
    pub state: State,
}

/// Why a machine is asked about, which decides how fresh and how direct the answer must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// A Node waits to be initialised.
    Initialise,
    /// Are the facts still true? They may be old.
    Refresh,
    /// Is it really gone? Only a direct read of that one machine may say so.
    Confirm,
}

impl Purpose {
    /// The purpose as a metric label or a log field.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Initialise => "initialise",
            Self::Refresh => "refresh",
            Self::Confirm => "confirm",
        }
    }
}

/// The answer about one Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// This is its machine.
    Found(Instance),
    /// The cloud said that there is no such machine. Nothing else means this.
    Absent,
    /// Not known yet: ask again after this time.
    Pending(Duration),
    /// The Node is deliberately not managed by this provider: leave it alone.
    Unmanaged,
}

/// Looks up machines.
#[async_trait]
pub trait Instances: Send + Sync {
    /// Looks up the machines of Nodes, all for the same purpose. Changes nothing in the cloud.
    ///
    /// # Guarantees
    /// On success the list has exactly one answer for each Node, in the same order; an error of one Node doesn't touch
    /// its neighbours. What was found may be half a minute old, and for [`Purpose::Confirm`] is new. [`Answer::Absent`] is
    /// only ever the cloud's own word, from after the Node had registered. Dropping the future ends the call.
    ///
    /// # Errors
    /// The outer error says that no Node could be considered at all.
    async fn lookup(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> Result<Vec<Result<Answer, Error>>, Error>;
}
