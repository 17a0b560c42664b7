//! The instance behind a Node, and the trait through which controllers look it up.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Address, Error, NodeReference, ProviderId};

/// Whether an instance runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InstanceState {
    /// It runs, or is starting.
    Running,
    /// It exists, but doesn't run until it is started.
    Stopped,
    /// The cloud doesn't say.
    Unknown,
}

/// What the cloud knows about one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Its provider ID.
    pub provider_id: ProviderId,
    /// The cloud's name for its size.
    pub instance_type: Option<String>,
    /// Its failure domain, never a guess.
    pub zone: Option<String>,
    /// Its region.
    pub region: Option<String>,
    /// All its addresses, the preferred one of each kind first.
    pub addresses: Vec<Address>,
    /// Additional labels for the Node: keys and values.
    pub labels: Vec<(String, String)>,
    /// Whether it runs.
    pub state: InstanceState,
    /// What the provider said and can't be taken, as sentences for people that say which fact and why. The other facts hold.
    pub left_out: Vec<String>,
}

/// Why an instance is looked up. It decides how fresh and how direct the answer must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// A Node waits for its initialization.
    Initialise,
    /// Check whether known facts still hold. The answer may come from a cache.
    Refresh,
    /// Confirm that the instance is gone. Only a direct read of that one instance may say so.
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

/// What happens to a Node whose instance the provider deliberately doesn't manage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stance {
    /// Leave it alone. Its uninitialized taint stays for another controller.
    LeftAlone,
    /// Take its uninitialized taint off, and ask again only when the Node changes.
    Released,
}

/// The result of a lookup for one Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The Node's instance.
    Found(Instance),
    /// The cloud said that the instance doesn't exist. Nothing else means this.
    Absent,
    /// Not known yet. Look it up again after this time.
    Pending(Duration),
    /// This provider deliberately doesn't manage the Node.
    Unmanaged(Stance),
}

/// Looks up instances.
#[async_trait]
pub trait Instances: Send + Sync {
    /// Looks up the instances of Nodes, all for the same purpose. Changes nothing in the cloud.
    ///
    /// # Guarantees
    /// On success the list has exactly one answer for each Node, in the same order. A Node that fails doesn't affect the
    /// others. A found instance may be up to 30 seconds old; for [`Purpose::Confirm`] it is read during the call.
    /// [`Answer::Absent`] always comes from the cloud, from a read after the Node registered. Dropping the future ends
    /// the call.
    ///
    /// # Errors
    /// The outer error says that the provider could not consider any Node.
    async fn lookup(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> Result<Vec<Result<Answer, Error>>, Error>;
}
