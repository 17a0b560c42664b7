//! Many requests at once through a gate, as controllers send them. Refused requests are sent again until all are done.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt as _;
use pileus_gate::{Deadlines, Gate, Urgency};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::cloud::{Calls, Cloud, Quota};

/// Longer than any of this takes, so that no request is held back.
const LONG: Duration = Duration::from_mins(20);

/// The most urgent deletes during the load.
const DELETES: usize = 10;

/// The results of all requests of one kind.
#[derive(Debug)]
pub(crate) struct Side {
    done: u32,
    took: Duration,
    calls: Calls,
}

impl Side {
    /// The part of what the cloud could have accepted meanwhile that it accepted, its full burst at the beginning
    /// included.
    pub(crate) fn goodput(&self, Quota { burst, per_second }: Quota) -> f64 {
        f64::from(self.done) / (f64::from(burst) + f64::from(per_second) * self.took.as_secs_f64())
    }
}

/// The results of a load.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) writes: Side,
    pub(crate) reads: Side,
    /// How long each urgent delete took, from request to answer.
    pub(crate) deletes: Vec<Duration>,
}

impl Outcome {
    /// The part of all calls that the cloud refused.
    pub(crate) fn refused(&self) -> f64 {
        let sum = |of: fn(&Calls) -> u64| {
            let sum: u64 = [&self.writes, &self.reads].into_iter().map(|side| of(&side.calls)).sum();
            f64::from(u32::try_from(sum).unwrap())
        };
        sum(|calls| calls.throttled) / sum(|calls| calls.all)
    }
}

/// Labels this many instances and reads this many, all at once and with background urgency, while a user deletes one
/// now and then.
pub(crate) async fn load(cloud: Arc<Cloud>, gate: Gate, writes: usize, reads: usize) -> Outcome {
    let labelled = all(writes, |n| done(&cloud, &gate, "PATCH", n, r#"{"labels":{"a":"b"}}"#));
    let read = all(reads, |n| done(&cloud, &gate, "GET", n, ""));
    while gate.limits().waiting[2].1 < (writes + reads) * 9 / 10 {
        sleep(Duration::from_millis(1)).await;
    }
    // From here on the gate has all requests, and the cloud decides how long they take.
    let begun = Instant::now();
    let urgent = gate.clone().with_urgency(Urgency::User);
    let mut deletes = Vec::new();
    // Of instances without other requests.
    let others = writes.max(reads);
    for n in others..others + DELETES {
        let asked = Instant::now();
        done(&cloud, &urgent, "DELETE", n, "").await;
        deletes.push(asked.elapsed());
        sleep(Duration::from_secs(1)).await;
    }
    let (labelled, read) = tokio::join!(labelled.join_all(), read.join_all());
    let side = |ends: &[Instant], more, calls| Side {
        done: u32::try_from(ends.len() + more).unwrap(),
        took: ends.iter().max().unwrap().duration_since(begun),
        calls,
    };
    Outcome {
        writes: side(&labelled, DELETES, cloud.calls(&["create", "change", "delete"]).await),
        reads: side(&read, 0, cloud.calls(&["list", "get"]).await),
        deletes,
    }
}

fn all<F>(count: usize, one: impl Fn(usize) -> F) -> JoinSet<Instant>
where
    F: Future<Output = Instant> + Send + 'static,
{
    (0..count).map(one).collect()
}

/// Sends a request about the instance with this number, counted from 0, until it succeeds. Returns when it did.
fn done(
    cloud: &Arc<Cloud>,
    gate: &Gate,
    method: &'static str,
    number: usize,
    body: &'static str,
) -> impl Future<Output = Instant> + Send + 'static {
    let (cloud, gate, path) = (cloud.clone(), gate.clone(), format!("/v1/machines/m-{:06}", number + 1));
    async move {
        loop {
            let soft = Instant::now() + LONG;
            let deadlines =
                Deadlines { soft, hard: soft + LONG, connect: None, first_byte: None, between_bytes: None };
            let answer = gate.send(cloud.request(method, &path, body), deadlines).await.unwrap();
            let (head, body) = answer.into_parts();
            body.collect().await.unwrap();
            match head.status {
                StatusCode::TOO_MANY_REQUESTS => {
                    assert!(!head.headers.contains_key("pileus-gate"), "{head:?}");
                }
                status => {
                    assert!(status.is_success(), "{method} {path}: {head:?}");
                    return Instant::now();
                }
            }
        }
    }
}
