//! Leader election: of several replicas one works and the others stand by.
//!
//! `decide` says what to do next about the Lease, from an `observation`; `api` does it; `tenure` is what the rest of the
//! process sees of it, and `client` the fence before the API server. The election has a thread, a runtime and a client
//! of its own, so that no provider, compiler or storm of work delays a renewal.
//!
//! ```text
//!            provider loaded           write accepted             SIGTERM, work done
//!   Starting ───────────────▶ Standby ───────────────▶ Leading ───────────────────────▶ Ended
//!                                │  SIGTERM               │ not renewed in time, or taken
//!                                └──────────▶ Ended       └──────────────▶ Lost: the process exits with code 1
//! ```

mod api;
mod client;
mod decide;
mod elector;
mod metrics;
mod observation;
mod tenure;

use std::fmt;
use std::thread;
use std::time::Duration;

use kube::{Client, Config};
use pileus_gate::Fence;
use prometheus_client::registry::Registry;
use tokio::sync::{oneshot, watch};

use crate::cli::LeaderElection;
use crate::error::Error;
use api::Leases;
pub(crate) use client::fenced;
use elector::Elector;
use metrics::Metrics;
use observation::Candidate;
pub(crate) use observation::LONGEST;
use tenure::Tenure;

/// How long the end of an election is waited for beyond its last request: two events at most, which tell and don't
/// promise.
const FAREWELL: Duration = Duration::from_secs(2);

/// Where this process stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is not ready to lead, and hasn't looked yet who does.
    Starting,
    /// It could lead, but another does, whose identity this is, or nobody does yet.
    Standby(Option<String>),
    /// It could lead, but doesn't get at the Lease, and why.
    CutOff(String),
    /// It leads.
    Leading,
    /// It has lost the lead, and why.
    Lost(String),
    /// It has left the election.
    Ended,
}

impl Standing {
    /// Whether it does what it should: one that stands by is well.
    pub(crate) fn is_well(&self) -> bool {
        !matches!(self, Self::CutOff(_) | Self::Lost(_))
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("this replica does not take part yet"),
            Self::Standby(Some(leader)) => write!(f, "{leader} leads, this replica stands by"),
            Self::Standby(None) => f.write_str("nobody leads, this replica stands by"),
            Self::CutOff(why) => write!(f, "the lease is out of reach: {why}"),
            Self::Leading => f.write_str("this replica leads"),
            Self::Lost(why) => write!(f, "this replica has lost the lease: {why}"),
            Self::Ended => f.write_str("this replica takes part no more"),
        }
    }
}

/// An election that this process will take part in, or has no rivals in.
pub(crate) struct Election {
    flags: LeaderElection,
    identity: String,
    tenure: Tenure,
    standing: watch::Sender<Standing>,
    metrics: Metrics,
}

/// The part that this process has in the election.
pub(crate) struct Leadership {
    tenure: Tenure,
    standing: watch::Receiver<Standing>,
    campaign: Campaign,
}

enum Campaign {
    /// There are no rivals; this keeps the standing readable.
    None(watch::Sender<Standing>),
    /// There is a thread that takes part.
    Running {
        end: oneshot::Sender<End>,
        /// How long one of its requests may take.
        patience: Duration,
    },
}

/// How to leave the election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Everything that was begun has ended: another may begin at once.
    Released,
    /// Something is unfinished: others wait until the Lease has expired.
    LeftToExpire,
}

impl Election {
    /// Prepares the election. `host` and `random` make the identity, which no other replica may have.
    ///
    /// # Errors
    /// [`Error::Flag`] for durations that don't go together.
    pub(crate) fn new(
        flags: LeaderElection,
        host: &str,
        random: u128,
        registry: &mut Registry,
    ) -> Result<Self, Error> {
        let metrics = Metrics::register(registry, &flags.leader_elect_resource_name);
        let tenure = if flags.leader_elect {
            flags.check()?;
            Tenure::none()
        } else {
            Tenure::unrivalled()
        };
        let standing = watch::Sender::new(Standing::Starting);
        Ok(Self { flags, identity: identity(host, random), tenure, standing, metrics })
    }

    /// The name of this process in the Lease, in the cluster's audit log and in events.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// The fence that is open while this process may write.
    pub(crate) fn fence(&self) -> Fence {
        let tenure = self.tenure.clone();
        Fence::new(move || tenure.may_write())
    }

    /// Shows where this process stands, for as long as it is there.
    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Begins to compete for the Lease, in a thread of its own. `jitter` gives a number from 0 to 1 at each call.
    ///
    /// # Errors
    /// [`Error::Machine`] where there is no thread to be had.
    pub(crate) fn start(self, mut cluster: Config, jitter: fn() -> f64) -> Result<Leadership, Error> {
        let Self { flags, identity, tenure, standing, metrics } = self;
        let seen = standing.subscribe();
        if !flags.leader_elect {
            standing.send_replace(Standing::Leading);
            return Ok(Leadership { tenure, standing: seen, campaign: Campaign::None(standing) });
        }
        let candidate = Candidate {
            identity,
            lease_duration: flags.leader_elect_lease_duration,
            renew_deadline: flags.leader_elect_renew_deadline,
            retry_period: flags.leader_elect_retry_period,
        };
        let patience = candidate.patience();
        cluster.connect_timeout = Some(patience);
        // Whether to try again is the election's own decision.
        cluster.default_retry = false;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Machine)?;
        let (end, ended) = oneshot::channel();
        let shared = tenure.clone();
        let elect = async move {
            match Client::try_from(cluster) {
                Ok(client) => {
                    let (namespace, name) =
                        (&flags.leader_elect_resource_namespace, &flags.leader_elect_resource_name);
                    let leases = Leases::new(client.clone(), namespace, name);
                    let elector = Elector::new(client, leases, candidate, shared, metrics, jitter);
                    elector.run(&standing, ended).await;
                }
                Err(error) => drop(standing.send_replace(Standing::Lost(error.to_string()))),
            }
        };
        let thread = thread::Builder::new().name("leader".to_owned());
        thread.spawn(move || runtime.block_on(elect)).map_err(Error::Machine)?;
        Ok(Leadership { tenure, standing: seen, campaign: Campaign::Running { end, patience } })
    }
}

impl Leadership {
    /// Waits until this process leads.
    ///
    /// # Errors
    /// [`Error::LeaseLost`].
    pub(crate) async fn acquired(&self) -> Result<(), Error> {
        let mut standing = self.standing.clone();
        let is_decided = |standing: &Standing| {
            !matches!(standing, Standing::Starting | Standing::Standby(_) | Standing::CutOff(_))
        };
        match standing.wait_for(is_decided).await.as_deref() {
            Ok(Standing::Lost(why)) => Err(Error::LeaseLost(why.clone())),
            Ok(_) => Ok(()),
            Err(_gone) => Err(gone()),
        }
    }

    /// Waits until the lead is lost, and tells how the process ends then.
    pub(crate) async fn lost(&self) -> Error {
        let mut standing = self.standing.clone();
        match standing.wait_for(|standing| matches!(standing, Standing::Lost(_))).await.as_deref() {
            Ok(Standing::Lost(why)) => Error::LeaseLost(why.clone()),
            Ok(_) | Err(_) => gone(),
        }
    }

    /// Leaves the election. No write is allowed from now on.
    pub(crate) async fn end(self, how: End) {
        self.tenure.end();
        let (end, patience) = match self.campaign {
            Campaign::Running { end, patience } => (end, patience),
            Campaign::None(standing) => return drop(standing.send_replace(Standing::Ended)),
        };
        // An election that has ended by itself listens no more.
        let _heard = end.send(how);
        let mut standing = self.standing;
        // A renewal that is under way, and then the release.
        let ended = standing.wait_for(|standing| matches!(standing, Standing::Ended | Standing::Lost(_)));
        if tokio::time::timeout(2 * patience + FAREWELL, ended).await.is_err() {
            tracing::warn!("the API server takes no release of the lease; it is left to expire");
        }
    }
}

/// The thread has died, which only a defect can bring about.
fn gone() -> Error {
    Error::LeaseLost("the thread of the election has ended".to_owned())
}

/// As upstream: host name and a random UUID (version 4).
fn identity(host: &str, random: u128) -> String {
    let version = (random & !(0xf << 76)) | (0x4 << 76);
    let bits = (version & !(0x3 << 62)) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    let mut groups = Vec::new();
    let mut rest = hex.as_str();
    for length in [8, 4, 4, 4, 12] {
        let (group, after) = rest.split_at(length);
        groups.push(group);
        rest = after;
    }
    format!("{host}_{}", groups.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_the_host_and_a_uuid() {
        assert_eq!(identity("a", 0), "a_00000000-0000-4000-8000-000000000000");
        assert_eq!(identity("a", u128::MAX), "a_ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
