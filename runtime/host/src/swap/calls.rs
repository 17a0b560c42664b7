//! Decides which release serves a call. Each call has exactly one. Pure.

use super::replica::CanaryShare;
use super::status::{Release, Status};
use super::step::State;

/// A call, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call<'a> {
    /// A lookup of this node. A batch is split by the release of its nodes.
    Lookup {
        /// The name of the node.
        node: &'a str,
    },
    /// The lookup from which the deletion of a node follows. A canary never decides that.
    Confirm,
    /// A list of load balancers or routes, from which changes are planned.
    List,
    /// A change of load balancers or routes.
    Change,
}

/// What the releases of one replica do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Roles {
    /// It serves calls.
    pub serving: Option<Release>,
    /// It serves a share of the lookups instead.
    pub canary: Option<CanaryShare>,
    /// Whether the serving release is the one that the status calls active.
    pub is_active: bool,
}

impl Roles {
    /// The release that serves a call; None if the call has to wait.
    ///
    /// Changes, and the lists that they are planned from, need the release that the status calls active: two releases must
    /// not write one load balancer in turns. A replica that can't run it yet still answers lookups with what it has.
    pub fn release_for(&self, call: Call<'_>) -> Option<Release> {
        let serving = self.serving?;
        match call {
            Call::Lookup { node } => {
                let canary = self.canary.filter(|canary| bucket(node) < u64::from(canary.share));
                Some(canary.map_or(serving, |canary| canary.release))
            }
            Call::Confirm => Some(serving),
            Call::List | Call::Change => self.is_active.then_some(serving),
        }
    }
}

impl State {
    /// What the releases of this replica do.
    pub fn roles(&self) -> Roles {
        let active = self.status.as_ref().and_then(Status::active_release);
        let (serving, canary) = (self.replica.serving, self.replica.canary);
        Roles { serving, canary, is_active: serving.is_some() && serving == active }
    }
}

/// A number below 100 that stays the same for a node (FNV-1a, with a last mixing step because names differ in few bits).
fn bucket(node: &str) -> u64 {
    let hash = node.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    ((hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 100
}
