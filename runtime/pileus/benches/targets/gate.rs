//! The cost of the gate: dialed and cached requests through the whole gate, compared with the same requests by the HTTP
//! library that it uses; and the memory of requests that wait for a limit.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use pileus_gate::{Config, Connection, Deadlines, Effect, Fence, Gate, Grant, Limit, Metrics, Rule, View};
use prometheus_client::registry::Registry;

use crate::Failure;
use crate::bodies::{Bodies, LARGE, SMALL};
use crate::machine::field;
use crate::report::{Samples, heading, note, row, size, time};

/// Requests of each sort, in rounds, so that all meet the same moods of the machine.
const ROUNDS: usize = 20;
const REQUESTS: usize = 100;
/// The same for the large body.
const LARGE_REQUESTS: usize = 5;

/// What the design allows for an answer of one machine: out of the cache in all, and dialled over the HTTP library.
const CACHED_TARGET: Duration = Duration::from_micros(100);
const DIALLED_TARGET: Duration = Duration::from_micros(300);

/// Requests that wait, and what the design allows them in bytes.
const WAITING: u32 = 10_000;
const WAITING_TARGET: u64 = 32 << 20;

/// Longer than the bench takes.
const LONG: Duration = Duration::from_hours(48);

/// Measures requests.
pub(crate) async fn measure() -> Result<(), Failure> {
    let bodies = Bodies::start().await?;
    for (body, requests) in [(SMALL, REQUESTS), (LARGE, LARGE_REQUESTS)] {
        let url = bodies.url(body);
        let gate = gate(bodies.port()?, None)?;
        // In a task, as calls are made.
        let compared = tokio::spawn(async move { compare(&gate, &url, requests).await }).await??;
        heading(&format!("A body of {}", size(u64::try_from(body)?)), &["median", "p90", "target"]);
        lines(&compared, body == SMALL);
        note(&format!(
            "{} requests each, one after another, to a process on this machine",
            ROUNDS * requests
        ));
    }
    heading("Requests that wait for a limit", &["memory", "target"]);
    let weight = waiting_weight()?;
    row(&format!("{WAITING} of them, with four headers"), &[size(weight), size(WAITING_TARGET)]);
    Ok(())
}

/// The same requests, in three ways.
#[derive(Default)]
struct Compared {
    plain: Samples,
    dialled: Samples,
    cached: Samples,
}

/// The design names targets for small bodies only.
fn lines(Compared { plain, dialled, cached }: &Compared, is_small: bool) {
    let target = |target: Duration| if is_small { time(target) } else { String::new() };
    let line = |label: &str, samples: &Samples, target: String| {
        row(label, &[time(samples.median()), time(samples.percentile(90)), target]);
    };
    line("plain hyper", plain, String::new());
    line("gate, dialled", dialled, target(plain.median() + DIALLED_TARGET));
    row("gate, dialled, over plain hyper", &[time(dialled.median().saturating_sub(plain.median()))]);
    line("gate, out of its cache", cached, target(CACHED_TARGET));
}

async fn compare(gate: &Gate, url: &str, requests: usize) -> Result<Compared, Failure> {
    let plain: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build({
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector
    });
    let cached = gate.clone().with_view(View::at_most(LONG));
    let mut compared = Compared::default();
    for round in 0..=ROUNDS {
        let mut taken = [Vec::new(), Vec::new(), Vec::new()];
        for (samples, way) in taken.iter_mut().zip([None, Some(gate), Some(&cached)]) {
            for _ in 0..requests {
                let begun = Instant::now();
                match way {
                    None => drop(plain.request(get(url)?).await?.into_body().collect().await?),
                    Some(gate) => {
                        let answer = gate.send(get(url)?, deadlines()).await?;
                        drop(answer.into_body().collect().await?);
                    }
                }
                samples.push(begun.elapsed());
            }
        }
        // The first round warms all up.
        if round > 0 {
            let [plain, dialled, cached] = taken;
            compared.plain.extend(plain);
            compared.dialled.extend(dialled);
            compared.cached.extend(cached);
        }
    }
    Ok(compared)
}

fn get(url: &str) -> Result<Request<Full<Bytes>>, http::Error> {
    Request::get(url).header("accept", "application/json").body(Full::default())
}

fn deadlines() -> Deadlines {
    let soft = tokio::time::Instant::now() + LONG;
    Deadlines { soft, hard: soft, connect: None, first_byte: None, between_bytes: None }
}

/// A gate to this port, where everything is a read, and counts against this limit.
fn gate(port: u16, limit: Option<Limit>) -> Result<Gate, Failure> {
    let rule = Rule {
        host: "127.0.0.1".parse()?,
        method: "*".parse()?,
        path: "/**".parse()?,
        operation: None,
        effect: Effect::Read,
        limits: limit.iter().map(|_| "reads".parse()).collect::<Result<_, _>>()?,
        cache_scope: None,
        fold_case: false,
        page: None,
    };
    let grant = Grant {
        tls: false,
        host: "127.0.0.1".parse()?,
        port,
        methods: vec!["*".parse()?],
        paths: vec!["/".parse()?],
        addresses: vec!["127.0.0.0/8".parse()?],
    };
    let config = Config {
        provider: "bench".to_owned(),
        grants: vec![grant],
        rules: vec![rule],
        refusals: Vec::new(),
        limits: limit.into_iter().collect(),
        tightened: Vec::new(),
        credentials: Vec::new(),
        denied_ranges: Vec::new(),
        fence: Fence::default(),
        connection: Connection::default(),
    };
    Ok(Gate::new(config, &Metrics::register(&mut Registry::default()))?)
}

/// What requests weigh that wait, by a process that does nothing else.
fn waiting_weight() -> Result<u64, Failure> {
    let output = Command::new(std::env::current_exe()?).arg("--role=waiting").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| format!("the process that weighs requests says {output:?}").into())
}

/// What that process does: prints by how much it grew, in bytes.
pub(crate) async fn weigh() -> Result<(), Failure> {
    // Nothing is sent: the first token would flow in after ten seconds.
    let gate = gate(9, Some(Limit::new("reads", 1, 0.1)?))?;
    let resident = || -> Result<u64, Failure> {
        let status = fs::read_to_string("/proc/self/status")?;
        Ok(field(&status, "VmRSS").trim_end_matches(" kB").parse::<u64>()? << 10)
    };
    let before = resident()?;
    let mut waiting = Vec::with_capacity(WAITING.try_into()?);
    for number in 0..WAITING {
        let mut request = Request::get(format!("http://127.0.0.1:9/subscriptions/1/vms/{number}"));
        for header in ["accept", "content-type", "user-agent", "x-ms-client-request-id"] {
            request = request.header(header, "a value as long as they are");
        }
        let mut sending = Box::pin(gate.send(request.body(Full::<Bytes>::default())?, deadlines()));
        if futures::poll!(sending.as_mut()).is_ready() {
            return Err("a request did not wait".into());
        }
        waiting.push(sending);
    }
    println!("{}", resident()?.saturating_sub(before));
    Ok(())
}
