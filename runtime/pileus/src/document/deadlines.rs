//! The `deadlines` of a document: how long calls to the provider may take.

use std::time::Duration;

use pileus_host::Limits;

use super::fields::Fields;
use crate::cli::duration;

/// The shortest and the longest deadline. A lookup that fails at one Node is repeated in parts for three times as long.
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_mins(5);

/// The least time between the deadlines. In its first half, responses of requests that were sent in time still arrive.
const GAP: Duration = Duration::from_secs(1);

/// Reads the optional field `deadlines` into the limits of a call.
pub(super) fn deadlines(spec: &mut Fields<'_>) -> Limits {
    let mut limits = Limits::default();
    let Limits {
        lookup_soft,
        lookup_hard,
        change_soft,
        change_hard,
        load_balancers_soft,
        load_balancers_hard,
        ..
    } = &mut limits;
    let mut deadlines = spec.object("deadlines");
    for (name, soft, hard) in [
        ("lookup", lookup_soft, lookup_hard),
        ("routes", change_soft, change_hard),
        ("loadBalancers", load_balancers_soft, load_balancers_hard),
    ] {
        let mut fields = deadlines.object(name);
        *soft = fields.optional("soft", deadline).unwrap_or(*soft);
        *hard = fields.optional("hard", deadline).unwrap_or(*hard);
        if *soft + GAP > *hard {
            fields.wrong(format!(
                "the hard deadline of {} s must be at least a second after the soft one of {} s",
                hard.as_secs_f64(),
                soft.as_secs_f64()
            ));
        }
        fields.end();
    }
    deadlines.end();
    limits
}

fn deadline(text: &str) -> Result<Duration, String> {
    let deadline = duration(text)?;
    if (LEAST..=MOST).contains(&deadline) {
        Ok(deadline)
    } else {
        Err(format!("{text} is out of range; choose a deadline from 1s to 5m"))
    }
}
