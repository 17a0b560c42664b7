//! Flags of leader election, with upstream's names, defaults and format of durations.

use std::time::Duration;

use clap::{ArgAction, Args};

use super::duration::duration;
use crate::error::Error;

/// The longest lease duration. With a longer one, a cluster whose leader has crashed would go without one for too long.
pub(crate) const MAX_LEASE_DURATION: Duration = Duration::from_hours(1);

/// Flags of leader election.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderElection {
    /// Elect a leader among replicas by a Lease; with false this process assumes that it is the only one
    #[arg(
        long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true, default_missing_value = "true",
        num_args = 0..=1, require_equals = true
    )]
    pub leader_elect: bool,

    /// Let other replicas wait this long after the last renewal of the Lease before they take it over
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "15s")]
    pub leader_elect_lease_duration: Duration,

    /// Stop leading, and exit, after failing to renew the Lease for this long
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    pub leader_elect_renew_deadline: Duration,

    /// Renew the Lease, or check whether it is free, this often
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    pub leader_elect_retry_period: Duration,

    /// Elect with this kind of object; only leases are supported
    #[arg(long, value_name = "KIND", value_parser = lock, default_value = "leases")]
    pub leader_elect_resource_lock: String,

    /// Use the Lease of this name; the role must allow it too
    #[arg(long, value_name = "NAME", default_value = "cloud-controller-manager")]
    pub leader_elect_resource_name: String,

    /// Use a Lease in this namespace; the role must be there too
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
}

impl LeaderElection {
    /// Checks that the durations fit together, as upstream requires.
    ///
    /// # Errors
    /// [`Error::Flag`] for the first duration that doesn't fit.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let (lease, deadline) = (self.leader_elect_lease_duration, self.leader_elect_renew_deadline);
        let retry = self.leader_elect_retry_period;
        let invalid = |flag, value: Duration, problem: &str| {
            Err(Error::Flag { flag, value: format!("{value:?}"), problem: problem.to_owned() })
        };
        if lease > MAX_LEASE_DURATION {
            let problem =
                "too long: it delays the takeover from a leader that has crashed; choose at most 1h";
            return invalid("leader-elect-lease-duration", lease, problem);
        }
        if retry.is_zero() {
            return invalid("leader-elect-retry-period", retry, "must be greater than 0");
        }
        if lease <= deadline {
            let problem =
                "must be longer than --leader-elect-renew-deadline, or two replicas could lead at once";
            return invalid("leader-elect-lease-duration", lease, problem);
        }
        // Retries are jittered by up to 1.2 periods.
        if deadline <= retry.mul_f64(1.2) {
            let problem =
                "must be longer than 1.2 times --leader-elect-retry-period, to leave time for a retry";
            return invalid("leader-elect-renew-deadline", deadline, problem);
        }
        Ok(())
    }
}

fn lock(text: &str) -> Result<String, String> {
    if text == "leases" {
        Ok(text.to_owned())
    } else {
        Err("only leases are supported; omit the flag or write leases".to_owned())
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
    fn the_defaults_are_those_of_upstream() {
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
    fn a_boolean_flag_needs_no_value() {
        for (argument, elects) in
            [("--leader-elect", true), ("--leader-elect=true", true), ("--leader-elect=false", false)]
        {
            assert_eq!(flags(&[argument]).unwrap().leader_elect, elects, "{argument}");
        }
        assert!(flags(&["--leader-elect", "false"]).is_err(), "as in Go, a value needs its =");
    }

    #[test]
    fn durations_that_do_not_fit_are_rejected_with_the_flags_to_change() {
        for (arguments, named) in [
            (&["--leader-elect-lease-duration=10s"][..], &["lease-duration", "renew-deadline"][..]),
            (&["--leader-elect-renew-deadline=2.4s"], &["renew-deadline", "1.2 times", "retry-period"]),
            (&["--leader-elect-retry-period=0"], &["retry-period"]),
            (&["--leader-elect-lease-duration=61m"], &["lease-duration", "at most 1h"]),
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
