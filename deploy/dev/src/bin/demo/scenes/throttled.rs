//! A cloud that accepts fewer changes than its provider declares. The gate learns the limit, and sends urgent changes first.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use pileus_dev::Error;
use pileus_gate::{Config, Connection, Deadlines, Effect, Fence, Gate, Grant, Limit, Metrics, Rule, Urgency};
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::page::{self, Cell, Tone, format_duration, row};
use crate::stage::Stage;
use crate::steps::Steps;

/// The changes that become due at once, in the order in which they are sent: the least urgent first.
const CHANGES: [(Urgency, usize); 3] =
    [(Urgency::Background, 60), (Urgency::Initialise, 30), (Urgency::User, 10)];
/// The number of all changes.
const ALL: usize = 100;
/// The rate of changes per second that the provider declares.
const DECLARED: f64 = 100.0;
/// The rate and burst that the cloud accepts.
const ACCEPTED: u32 = 20;
const BURST: u32 = 10;
/// The time between two lines about the queue.
const PAUSE: Duration = Duration::from_millis(700);
/// Longer than all changes take on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The columns of the table.
const COLUMNS: [&str; 5] = ["waiting", "users' changes", "new nodes", "background", "refused"];

/// Sends a hundred changes at once to a cloud that throttles them.
pub(crate) async fn drain(steps: &mut Steps, stage: &Stage) -> Result<(), Error> {
    steps.begin(
        "The cloud throttles",
        &format!(
            "It accepts {ACCEPTED} changes a second, and {ALL} are due at once. The gate learns the limit from a few refusals, \
             and sends the most urgent changes first. (Here the demo calls the gate itself, in place of a provider.)"
        ),
    );
    stage.cloud.limit_writes(BURST, ACCEPTED).await?;
    let gate = gate(stage)?;
    let begun = Instant::now();
    let mut sent = JoinSet::new();
    for (urgency, count) in CHANGES {
        for _ in 0..count {
            let gate = gate.clone().with_urgency(urgency);
            let url = stage.cloud.http.url(&format!("/v1/machines/m-{:06}", sent.len() + 1));
            sent.spawn(async move { change(&gate, &url).await.map(|()| (urgency, begun.elapsed())) });
        }
    }
    page::table(&[line(Tone::Quiet, COLUMNS.map(str::to_owned))]);
    let mut ends = Vec::new();
    let mut next = begun;
    while ends.len() < ALL {
        tokio::select! {
            Some(end) = sent.join_next() => {
                let end = end.map_err(|error| stage.cloud.failed(&error.to_string()))?;
                ends.push(end.map_err(|problem| stage.cloud.failed(&problem))?);
            }
            () = sleep(next.saturating_duration_since(Instant::now())) => {
                print_queue(stage, &gate, begun).await?;
                next = Instant::now() + PAUSE;
            }
        }
    }
    let refused = stage.cloud.throttled_count().await?;
    stage.cloud.lift_write_limit().await?;
    let last = |wanted| ends.iter().filter(|(urgency, _)| *urgency == wanted).map(|(_, at)| *at).max();
    let last = |wanted| format_duration(last(wanted).unwrap_or_default());
    let [users, new, others] = [Urgency::User, Urgency::Initialise, Urgency::Background].map(last);
    page::table(&[
        Vec::new(),
        row(
            "done",
            Tone::Good,
            format!("users' changes after {users}, new nodes after {new}, all after {others}"),
        ),
        row("refused", Tone::Good, format!("{refused} of {ALL}, from which the gate has learned the limit")),
    ]);
    steps.end();
    let text =
        format!("to a throttled cloud: users' first, after {users}; all after {others}; {refused} refused");
    steps.add_to_summary(&format!("{ALL} changes"), text);
    Ok(())
}

/// Prints how many changes of each urgency wait.
async fn print_queue(stage: &Stage, gate: &Gate, begun: Instant) -> Result<(), Error> {
    let [user, new, others] = gate.limits().waiting.map(|(_, count)| count);
    let refused = stage.cloud.throttled_count().await?;
    let at = format!("at {}", format_duration(begun.elapsed()));
    page::table(&[line(Tone::Plain, [at, bar(user), bar(new), bar(others), refused.to_string()])]);
    Ok(())
}

/// A row with cells of fixed width, since the rows are printed one by one.
fn line(tone: Tone, texts: [String; 5]) -> Vec<Cell> {
    texts.into_iter().map(|text| tone.cell(format!("{text:<17}"))).collect()
}

/// A number, with a mark for each five.
fn bar(count: usize) -> String {
    format!("{count:>2} {}", "▪".repeat(count.div_ceil(5)))
}

/// Sends a change, again until the cloud accepts it.
async fn change(gate: &Gate, url: &str) -> Result<(), String> {
    loop {
        let request = Request::builder().method(Method::PATCH).uri(url).body(Full::new(Bytes::from("{}")));
        let soft = Instant::now() + TIMEOUT;
        let deadlines = Deadlines { soft, hard: soft, connect: None, first_byte: None, between_bytes: None };
        let answer = gate.send(request.map_err(|error| error.to_string())?, deadlines).await;
        let (head, body) = answer.map_err(|error| error.to_string())?.into_parts();
        body.collect().await.map_err(|error| error.to_string())?;
        match head.status {
            StatusCode::TOO_MANY_REQUESTS => {}
            StatusCode::OK => return Ok(()),
            status => return Err(format!("answered {status} to a change through the gate")),
        }
    }
}

/// A gate to the cloud, for a provider that declares a rate that is too high.
fn gate(stage: &Stage) -> Result<Gate, Error> {
    let failed = |error: pileus_gate::Error| stage.cloud.failed(&error.to_string());
    let gate = || {
        let host = "127.0.0.1";
        let rule = Rule {
            host: host.parse()?,
            method: "*".parse()?,
            path: "/v1/**".parse()?,
            operation: None,
            effect: Effect::Write,
            limits: vec!["writes".parse()?],
            cache_scope: None,
            fold_case: false,
            page: None,
        };
        let grant = Grant {
            tls: false,
            host: host.parse()?,
            port: stage.cloud.port().parse().unwrap_or_default(),
            methods: vec!["PATCH".parse()?],
            paths: vec!["/v1/".parse()?],
            addresses: "127.0.0.0/8".parse().into_iter().collect(),
        };
        let config = Config {
            provider: "demo".to_owned(),
            grants: vec![grant],
            rules: vec![rule],
            refusals: Vec::new(),
            limits: vec![Limit::new("writes", BURST, DECLARED)?],
            tightened: Vec::new(),
            credentials: Vec::new(),
            denied_ranges: Vec::new(),
            fence: Fence::default(),
            connection: Connection::default(),
        };
        Gate::new(config, &Metrics::register(&mut Registry::default()))
    };
    gate().map_err(failed)
}
