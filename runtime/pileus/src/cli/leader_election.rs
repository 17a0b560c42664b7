//! The flags of leader election: upstream's names, defaults and durations.

use std::time::Duration;

use clap::{ArgAction, Args};

use super::duration::duration;
use crate::error::Error;
use crate::leader::LONGEST;

/// Flags of leader election.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderElection {
    /// Whether replicas agree by a Lease on which of them works, while the others stand by. With false this process
    /// takes itself for the only one
    #[arg(
        long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true, default_missing_value = "true",
        num_args = 0..=1, require_equals = true
    )]
    pub leader_elect: bool,

    /// How long the Lease of a leader that shows no sign of life is respected
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "15s")]
    pub leader_elect_lease_duration: Duration,

    /// How long a leader works on without having renewed its Lease; then it ends
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    pub leader_elect_renew_deadline: Duration,

    /// How often a leader renews, and others look
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    pub leader_elect_retry_period: Duration,

    /// The kind of object that replicas agree by; there is no other than leases
    #[arg(long, value_name = "KIND", value_parser = lock, default_value = "leases")]
    pub leader_elect_resource_lock: String,

    /// The name of the Lease; where it is changed, the role has to name it, too
    #[arg(long, value_name = "NAME", default_value = "cloud-controller-manager")]
    pub leader_elect_resource_name: String,

    /// The namespace of the Lease; where it is changed, the role has to be there, too
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
}

impl LeaderElection {
    /// Whether the durations go together, as upstream demands.
    ///
    /// # Errors
    /// [`Error::Flag`], which names the flags.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let (lease, deadline) = (self.leader_elect_lease_duration, self.leader_elect_renew_deadline);
        let retry = self.leader_elect_retry_period;
        let wrong = |flag, value: Duration, problem: &str| {
            Err(Error::Flag { flag, value: format!("{value:?}"), problem: problem.to_owned() })
        };
        if lease > LONGEST {
            let problem = "a leader that is gone would be missed for too long; choose an hour at most";
            return wrong("leader-elect-lease-duration", lease, problem);
        }
        if retry.is_zero() {
            return wrong("leader-elect-retry-period", retry, "choose more than nothing");
        }
        if lease <= deadline {
            let problem = "it must be longer than --leader-elect-renew-deadline, or two replicas could lead";
            return wrong("leader-elect-lease-duration", lease, problem);
        }
        // A replica's retries are up to 1.2 periods late.
        if deadline <= retry.mul_f64(1.2) {
            let problem =
                "it must be longer than 1.2 times --leader-elect-retry-period, to leave time for a retry";
            return wrong("leader-elect-renew-deadline", deadline, problem);
        }
        Ok(())
    }
}

fn lock(text: &str) -> Result<String, String> {
    if text == "leases" {
        Ok(text.to_owned())
    } else {
        Err("replicas agree by leases only; leave the flag out or write leases".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        flags: LeaderElection,
    }

    fn flags(arguments: &[&str]) -> Result<LeaderElection, String> {
        let parsed = Program::try_parse_from(std::iter::once(&"program").chain(arguments));
        let flags = parsed.map_err(|error| error.to_string())?.flags;
        flags.check().map_err(|error| error.to_string())?;
        Ok(flags)
    }

    #[test]
    fn the_defaults_are_upstreams() {
        let flags = flags(&[]).unwrap();
        assert!(flags.leader_elect);
        let durations = [
            flags.leader_elect_lease_duration,
            flags.leader_elect_renew_deadline,
            flags.leader_elect_retry_period,
        ];
        assert_eq!(durations, [15, 10, 2].map(Duration::from_secs));
        assert_eq!(flags.leader_elect_resource_name, "cloud-controller-manager");
        assert_eq!(flags.leader_elect_resource_namespace, "kube-system");
    }

    #[test]
    fn a_boolean_flag_may_stand_alone_or_say_false() {
        for (argument, elects) in
            [("--leader-elect", true), ("--leader-elect=true", true), ("--leader-elect=false", false)]
        {
            assert_eq!(flags(&[argument]).unwrap().leader_elect, elects, "{argument}");
        }
        assert!(flags(&["--leader-elect", "false"]).is_err(), "as in Go, a value needs its =");
    }

    #[test]
    fn what_does_not_go_together_is_refused_and_the_flags_are_named() {
        for (arguments, named) in [
            (&["--leader-elect-lease-duration=10s"][..], &["lease-duration", "renew-deadline"][..]),
            (&["--leader-elect-renew-deadline=2.4s"], &["renew-deadline", "1.2 times", "retry-period"]),
            (&["--leader-elect-retry-period=0"], &["retry-period"]),
            (&["--leader-elect-lease-duration=61m"], &["lease-duration", "an hour at most"]),
            (&["--leader-elect-lease-duration=15"], &["lease-duration", "15s, 1m30s"]),
            (&["--leader-elect-resource-lock=endpoints"], &["resource-lock", "endpoints", "leases"]),
        ] {
            let message = flags(arguments).unwrap_err();
            for part in named {
                assert!(message.contains(part), "{arguments:?}: {message}");
            }
        }
    }
}
