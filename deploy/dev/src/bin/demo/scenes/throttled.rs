//! A cloud that takes less than its provider believes, and what waits for it: who goes first, and how often the cloud has
//! to refuse.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use pileus_dev::Error;
use pileus_gate::{Config, Connection, Deadlines, Effect, Fence, Gate, Grant, Limit, Metrics, Rule, Urgency};
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::page::{self, Cell, Tone, row, seconds};
use crate::stage::Stage;
use crate::steps::Steps;

/// What is asked for at once, in the order in which it comes: the least urgent first.
const ASKED: [(Urgency, usize); 3] =
    [(Urgency::Background, 60), (Urgency::Initialise, 30), (Urgency::User, 10)];
/// How many that is.
const ALL: usize = 100;
/// What the provider believes that the cloud takes each second, and what it takes.
const BELIEVED: f64 = 100.0;
const TAKEN: u32 = 20;
const BURST: u32 = 10;
/// Between two looks at the queue.
const LOOK: Duration = Duration::from_millis(700);
/// Longer than all of it takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// The columns of the strip.
const COLUMNS: [&str; 5] = ["waiting", "users' work", "new nodes", "nobody waits for", "refused"];

/// Asks a throttled cloud for a hundred changes at once.
pub(crate) async fn drain(steps: &mut Steps, stage: &Stage) -> Result<(), Error> {
    steps.begin(
        "A throttled cloud",
        &format!(
            "It takes {TAKEN} changes a second, the provider believes {BELIEVED}, and {ALL} come at once. The gate finds \
             out, waits instead of asking, and lets the most urgent go first. (So many at \
             once a demo's cluster doesn't bring about: here the demo itself asks the gate, in a provider's place.)"
        ),
    );
    stage.cloud.limit_writes(BURST, TAKEN).await?;
    let gate = gate(stage)?;
    let begun = Instant::now();
    let mut asked = JoinSet::new();
    for (urgency, count) in ASKED {
        for _ in 0..count {
            let gate = gate.clone().with_urgency(urgency);
            let url = stage.cloud.web.url(&format!("/v1/machines/m-{:06}", asked.len() + 1));
            asked.spawn(async move { change(&gate, &url).await.map(|()| (urgency, begun.elapsed())) });
        }
    }
    page::table(&[strip(Tone::Quiet, COLUMNS.map(str::to_owned))]);
    let mut ends = Vec::new();
    let mut look = begun;
    while ends.len() < ALL {
        tokio::select! {
            Some(end) = asked.join_next() => {
                let end = end.map_err(|error| stage.cloud.failed(&error.to_string()))?;
                ends.push(end.map_err(|problem| stage.cloud.failed(&problem))?);
            }
            () = sleep(look.saturating_duration_since(Instant::now())) => {
                show(stage, &gate, begun).await?;
                look = Instant::now() + LOOK;
            }
        }
    }
    let refused = stage.cloud.refused().await?;
    stage.cloud.unlimit().await?;
    let last = |wanted| ends.iter().filter(|(urgency, _)| *urgency == wanted).map(|(_, at)| *at).max();
    let last = |wanted| seconds(last(wanted).unwrap_or_default());
    let [users, new, others] = [Urgency::User, Urgency::Initialise, Urgency::Background].map(last);
    page::table(&[
        Vec::new(),
        row(
            "done",
            Tone::Good,
            format!("users' work after {users}, new nodes after {new}, all after {others}"),
        ),
        row("refused", Tone::Good, format!("{refused} calls, from which the gate has learned")),
    ]);
    steps.end();
    let text =
        format!("through a slow cloud: users' after {users}, all after {others}, {refused} refused by it");
    steps.shown(&format!("{ALL} changes"), text);
    Ok(())
}

/// A line of the strip: how many of each urgency wait.
async fn show(stage: &Stage, gate: &Gate, begun: Instant) -> Result<(), Error> {
    let [user, new, others] = gate.limits().waiting.map(|(_, count)| count);
    let refused = stage.cloud.refused().await?;
    let at = format!("at {}", seconds(begun.elapsed()));
    page::table(&[strip(Tone::Plain, [at, bar(user), bar(new), bar(others), refused.to_string()])]);
    Ok(())
}

/// Cells of equal widths in all lines, which are printed one by one.
fn strip(tone: Tone, texts: [String; 5]) -> Vec<Cell> {
    texts.into_iter().map(|text| tone.cell(format!("{text:<17}"))).collect()
}

/// A number, and a mark for each five.
fn bar(count: usize) -> String {
    format!("{count:>2} {}", "▪".repeat(count.div_ceil(5)))
}

/// Makes a change that changes nothing, again until the cloud has taken it.
async fn change(gate: &Gate, url: &str) -> Result<(), String> {
    loop {
        let request = Request::builder().method(Method::PATCH).uri(url).body(Full::new(Bytes::from("{}")));
        let soft = Instant::now() + PATIENCE;
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

/// A gate to the cloud, with a provider that believes too much.
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
            limits: vec![Limit::new("writes", BURST, BELIEVED)?],
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
