//! Leader election: one of several replicas leads, and the others stand by.
//!
//! `decide` chooses the next action from an `observation` of the Lease, and `api` carries it out. `term` tells the rest
//! of the process whether it may write, and the cluster's client fences writes by that. The election has a thread, a
//! runtime and a client of its own, so that no provider, compiler or load delays a renewal.
//!
//! ```text
//!            provider loaded           write accepted             SIGTERM, work done
//!   Starting ───────────────▶ Standby ───────────────▶ Leading ───────────────────────▶ Ended
//!                                │  SIGTERM               │ not renewed in time, or taken
//!                                └──────────▶ Ended       └──────────────▶ Lost: the process exits with code 1
//! ```

mod api;
mod decide;
mod elector;
mod metrics;
mod observation;
mod term;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use pileus_gate::Fence;
use prometheus_client::registry::Registry;
use tokio::sync::{oneshot, watch};

use crate::cli::LeaderElection;
use crate::cluster::ClusterConfig;
use crate::error::Error;
use api::LeaseApi;
use elector::Elector;
use metrics::Metrics;
use observation::Candidate;
use term::LeaseTerm;

/// How long an event about the Lease may take. Events are best effort.
const EVENT_TIMEOUT: Duration = Duration::from_secs(2);

/// The part that this process has in the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaderStatus {
    /// It isn't ready to lead and has not read the Lease yet.
    Starting,
    /// It is ready to lead. Another replica leads, whose identity this is, or none does yet.
    Standby(Option<String>),
    /// It is ready to lead, but can't read or write the Lease, and why.
    CutOff(String),
    /// It leads.
    Leading,
    /// It has lost the Lease, and why.
    Lost(String),
    /// It has left the election.
    Ended,
}

impl LeaderStatus {
    /// Whether readiness may pass. A replica that stands by is healthy.
    pub(crate) fn is_healthy(&self) -> bool {
        !matches!(self, Self::CutOff(_) | Self::Lost(_))
    }
}

impl fmt::Display for LeaderStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("this replica does not take part in the election yet"),
            Self::Standby(Some(leader)) => write!(f, "{leader} leads, this replica stands by"),
            Self::Standby(None) => f.write_str("no replica leads, this one stands by"),
            Self::CutOff(why) => write!(f, "can't read or write the lease: {why}"),
            Self::Leading => f.write_str("this replica leads"),
            Self::Lost(why) => write!(f, "this replica has lost the lease: {why}"),
            Self::Ended => f.write_str("this replica has left the election"),
        }
    }
}

/// An election before it starts; without leader election, this process leads unopposed.
pub(crate) struct Election {
    flags: LeaderElection,
    identity: String,
    term: LeaseTerm,
    status: watch::Sender<LeaderStatus>,
    metrics: Metrics,
}

/// How long a former leader had certainly done nothing when this process became leader; `None` within if there was none. It is
/// set before the status says that this process leads.
type PredecessorIdle = Arc<OnceLock<Option<Duration>>>;

/// A running election. Waits for the lead, and for its loss.
pub(crate) struct Leadership {
    term: LeaseTerm,
    predecessor_idle: PredecessorIdle,
    status: watch::Receiver<LeaderStatus>,
    campaign: Campaign,
}

enum Campaign {
    /// Leader election is off; this sender keeps the status readable.
    Disabled(watch::Sender<LeaderStatus>),
    /// A thread takes part in the election.
    Running {
        end: oneshot::Sender<LeaseEnd>,
        /// The timeout of one of its requests.
        timeout: Duration,
    },
}

/// How to leave the election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseEnd {
    /// All work has ended: another replica may lead at once.
    Released,
    /// Some work is unfinished: other replicas wait until the Lease expires.
    LeftToExpire,
}

impl Election {
    /// Prepares the election. `host` and `random` make the identity, which must be unique among replicas.
    ///
    /// # Errors
    /// [`Error::Flag`] for durations that don't fit together.
    pub(crate) fn new(
        flags: LeaderElection,
        host: &str,
        random: u128,
        registry: &mut Registry,
    ) -> Result<Self, Error> {
        let metrics = Metrics::register(registry, &flags.leader_elect_resource_name);
        let term = if flags.leader_elect {
            flags.check()?;
            LeaseTerm::none()
        } else {
            LeaseTerm::unlimited()
        };
        let status = watch::Sender::new(LeaderStatus::Starting);
        Ok(Self { flags, identity: identity(host, random), term, status, metrics })
    }

    /// The identity of this process in the Lease, in the cluster's audit log and in events.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// The fence that is open while this process may write.
    pub(crate) fn fence(&self) -> Fence {
        let term = self.term.clone();
        Fence::new(move || term.may_write())
    }

    /// Follows the status of this process.
    pub(crate) fn status(&self) -> watch::Receiver<LeaderStatus> {
        self.status.subscribe()
    }

    /// Starts to compete for the Lease, in a thread of its own. `jitter` returns a random number from 0 to 1.
    ///
    /// # Errors
    /// [`Error::Machine`] if the thread can't be started.
    pub(crate) fn start(self, mut cluster: ClusterConfig, jitter: fn() -> f64) -> Result<Leadership, Error> {
        let Self { flags, identity, term, status, metrics } = self;
        let (watched, predecessor_idle) = (status.subscribe(), PredecessorIdle::default());
        if !flags.leader_elect {
            status.send_replace(LeaderStatus::Leading);
            let campaign = Campaign::Disabled(status);
            return Ok(Leadership { term, predecessor_idle, status: watched, campaign });
        }
        let candidate = Candidate {
            identity,
            lease_duration: flags.leader_elect_lease_duration,
            renew_deadline: flags.leader_elect_renew_deadline,
            retry_period: flags.leader_elect_retry_period,
        };
        let timeout = candidate.timeout();
        cluster.config.connect_timeout = Some(timeout);
        // The election decides itself when to retry.
        cluster.config.default_retry = false;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Machine)?;
        let (end, ended) = oneshot::channel();
        let shared = (term.clone(), Arc::clone(&predecessor_idle));
        let elect = async move {
            match cluster.client(Fence::default()) {
                Ok(client) => {
                    let (namespace, name) =
                        (&flags.leader_elect_resource_namespace, &flags.leader_elect_resource_name);
                    let leases = LeaseApi::new(client.clone(), namespace, name);
                    let elector = Elector::new(client, leases, candidate, shared, metrics, jitter);
                    elector.run(&status, ended).await;
                }
                Err(error) => drop(status.send_replace(LeaderStatus::Lost(error.to_string()))),
            }
        };
        let thread = thread::Builder::new().name("leader".to_owned());
        thread.spawn(move || runtime.block_on(elect)).map_err(Error::Machine)?;
        let campaign = Campaign::Running { end, timeout };
        Ok(Leadership { term, predecessor_idle, status: watched, campaign })
    }
}

impl Leadership {
    /// Waits until this process leads.
    ///
    /// # Errors
    /// [`Error::LeaseLost`].
    pub(crate) async fn acquired(&self) -> Result<(), Error> {
        let mut status = self.status.clone();
        let is_decided = |status: &LeaderStatus| {
            !matches!(status, LeaderStatus::Starting | LeaderStatus::Standby(_) | LeaderStatus::CutOff(_))
        };
        match status.wait_for(is_decided).await.as_deref() {
            Ok(LeaderStatus::Lost(why)) => Err(Error::LeaseLost(why.clone())),
            Ok(_) => Ok(()),
            Err(_gone) => Err(gone()),
        }
    }

    /// How long a former leader had certainly done nothing when this process became leader. `None` if there was none. Without
    /// leader election nothing is known, so it may just have worked.
    pub(crate) fn predecessor_idle(&self) -> Option<Duration> {
        self.predecessor_idle.get().copied().unwrap_or(Some(Duration::ZERO))
    }

    /// Waits until the Lease is lost, and returns the error with which the process ends.
    pub(crate) async fn lost(&self) -> Error {
        let mut status = self.status.clone();
        match status.wait_for(|status| matches!(status, LeaderStatus::Lost(_))).await.as_deref() {
            Ok(LeaderStatus::Lost(why)) => Error::LeaseLost(why.clone()),
            Ok(_) | Err(_) => gone(),
        }
    }

    /// Leaves the election. Writes are fenced off from now on.
    pub(crate) async fn end(self, how: LeaseEnd) {
        self.term.end();
        let (end, timeout) = match self.campaign {
            Campaign::Running { end, timeout } => (end, timeout),
            Campaign::Disabled(status) => return drop(status.send_replace(LeaderStatus::Ended)),
        };
        // The receiver is gone if the election has ended by itself.
        let _received = end.send(how);
        let mut status = self.status;
        // A renewal in flight, the release, and then an event.
        let ended = status.wait_for(|status| matches!(status, LeaderStatus::Ended | LeaderStatus::Lost(_)));
        if tokio::time::timeout(2 * timeout + EVENT_TIMEOUT, ended).await.is_err() {
            tracing::warn!("lease not released in time; it will expire");
        }
    }
}

/// The thread has died, which only a bug can cause.
fn gone() -> Error {
    Error::LeaseLost("the election thread has ended unexpectedly".to_owned())
}

/// As upstream: the host name and a random UUID (version 4).
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
    fn an_identity_is_the_host_name_and_a_uuid() {
        assert_eq!(identity("a", 0), "a_00000000-0000-4000-8000-000000000000");
        assert_eq!(identity("a", u128::MAX), "a_ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
