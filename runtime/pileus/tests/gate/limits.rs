//! A cloud that lets through less than its provider declares: it refuses few requests, little of its quota stays
//! unused, and urgent requests pass background work.

use std::sync::Arc;
use std::time::Duration;

use crate::cloud::{Cloud, Quota};
use crate::load::{Outcome, load};

const fn quota(burst: u32, per_second: u32) -> Quota {
    Quota { burst, per_second }
}

/// What a provider declares, what its cloud lets through, and the load.
struct Case {
    declared: [Quota; 2],
    hidden: [Quota; 2],
    silent: bool,
    reads: usize,
    writes: usize,
}

async fn check(case: Case) {
    let Case { declared: [reads, writes], hidden, silent, reads: asked, writes: written } = case;
    let [most_reads, most_writes] = hidden;
    let cloud = Arc::new(Cloud::start(asked.max(written) + 10, most_reads, most_writes, silent).await);
    let gate = cloud.gate(reads, writes);
    let outcome = load(cloud, gate.clone(), written, asked).await;
    let Outcome { writes, reads, deletes } = &outcome;
    let slowest = *deletes.iter().max().unwrap();
    let (refused, used) = (outcome.refused(), [reads.goodput(most_reads), writes.goodput(most_writes)]);
    println!(
        "{refused:.4} of all calls refused, of the limits {used:.3?} used, the slowest delete {slowest:?}"
    );
    let limits = gate.limits().limits;
    assert!(refused < 0.01, "{outcome:#?} {limits:#?}");
    assert!(used.iter().all(|used| *used >= 0.9), "{used:?} {outcome:#?} {limits:#?}");
    assert!(slowest < Duration::from_secs(2), "{outcome:#?}");
}

#[tokio::test]
async fn a_limit_that_the_cloud_does_not_publish_is_learned_and_used() {
    check(Case {
        declared: [quota(500, 750), quota(100, 150)],
        hidden: [quota(100, 150), quota(20, 30)],
        silent: true,
        reads: 5_000,
        writes: 1_000,
    })
    .await;
}

#[tokio::test]
async fn a_limit_that_answers_publish_is_learned_and_used() {
    check(Case {
        declared: [quota(500, 750), quota(100, 150)],
        hidden: [quota(100, 150), quota(20, 30)],
        silent: false,
        reads: 5_000,
        writes: 1_000,
    })
    .await;
}

#[tokio::test]
#[ignore = "takes four minutes; `make test-full` runs it"]
async fn azures_limits_are_learned_and_used() {
    check(Case {
        declared: [quota(500, 100), quota(400, 40)],
        hidden: [quota(250, 25), quota(200, 10)],
        silent: true,
        reads: 5_000,
        writes: 1_000,
    })
    .await;
}
