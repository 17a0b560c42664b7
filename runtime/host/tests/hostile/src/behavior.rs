//! The misbehavior, one function each. `black_box` keeps the compiler from optimizing it away.

use std::hint::black_box;
use std::time::Duration;

use pileus_guest::bindings::pileus::provider::logging;
use pileus_guest::{
    Answer, Effect, Endpoint, Error, Instance, InstanceState, Limit, NodeReference, Rule, Settings, http,
};
use wasip2::http::outgoing_handler;
use wasip2::http::types::{Fields, OutgoingRequest, Scheme};

use crate::Behavior;
use crate::attempt::{self, Attempt};
use crate::hoard;

/// The length of a text that exceeds every limit, and still fits well into a guest's memory.
const LONG: usize = 1 << 20;

/// The number of random bytes in one request: far more than a provider needs, and small enough for a guest's memory. So
/// the host's limit must stop it.
const CHUNK: u64 = 16 << 20;

/// An hour in nanoseconds, longer than every deadline.
const HOUR: u64 = 3_600_000_000_000;

/// Misbehaves as configured, and answers with the instance if that ends.
pub(crate) async fn misbehave(
    behaviour: Behavior,
    attempts: &[Attempt],
    instance: Instance,
) -> Result<Answer, Error> {
    match behaviour {
        Behavior::Echo
        | Behavior::Misaligned
        | Behavior::Ask
        | Behavior::Bodies
        | Behavior::Overload
        | Behavior::Leak
        | Behavior::LeakAndPanic
        | Behavior::NoAddress
        | Behavior::IpModes
        | Behavior::ManyOwned
        | Behavior::AskInConfigure
        | Behavior::HugeSettings
        | Behavior::HugeProblems
        | Behavior::WrongSettings => Ok(Answer::Found(instance)),
        Behavior::Loop | Behavior::LoopInConfigure => forever(),
        Behavior::Recurse => Ok(Answer::Found(Instance { zone: Some(recurse(1).to_string()), ..instance })),
        Behavior::Grow => grow(),
        Behavior::Trap => trap(),
        Behavior::Panic => Err(panic(&instance.provider_id)),
        Behavior::Sleep => Ok(sleep(instance)),
        Behavior::Nap => {
            for _ in 0..50 {
                wasip2::clocks::monotonic_clock::subscribe_duration(12_000_000).block();
            }
            Ok(Answer::Found(instance))
        }
        Behavior::DeniedHost => {
            let response = http::get("http://denied.example/").send().await?.error_for_status()?;
            Ok(Answer::Found(Instance { zone: Some(response.status.to_string()), ..instance }))
        }
        Behavior::StdoutFlood => loop {
            println!("{}", "hostile ".repeat(1_000));
        },
        Behavior::LogFlood => loop {
            let fields = [("flood".to_owned(), "x".repeat(LONG))];
            logging::write(logging::Level::Error, "hostile", &"hostile ".repeat(1_000), &fields);
        },
        Behavior::HugeAnswer => Ok(huge(instance)),
        Behavior::RandomFlood => Ok(random(instance)),
        Behavior::Handles => handles(),
        Behavior::Attempt => {
            let outcomes = attempts.iter().map(Attempt::outcome).enumerate();
            let labels = outcomes.map(|(number, outcome)| (number.to_string(), outcome)).collect();
            Ok(Answer::Found(Instance { labels, ..instance }))
        }
        Behavior::Hoard => {
            let opened = attempts.first().map_or(0, |attempt| attempt::hoard(attempt, 1000));
            Ok(Answer::Found(Instance { zone: Some(opened.to_string()), ..instance }))
        }
        Behavior::Heads => hoard::heads(),
        Behavior::FieldSets => hoard::field_sets(),
        Behavior::FieldCopies => hoard::field_copies(),
        Behavior::UnsentBodies => hoard::unsent_bodies(),
        Behavior::ManyBodies => {
            let written = attempts.first().map_or(0, hoard::many_bodies);
            Ok(Answer::Found(Instance { zone: Some(written.to_string()), ..instance }))
        }
        Behavior::Abandon => {
            attempt::abandon(attempts);
            Ok(Answer::Found(instance))
        }
        Behavior::FailOpen | Behavior::FailAside => {
            let name = instance.provider_id.rsplit('/').next().unwrap_or_default();
            for attempt in attempts.iter().filter_map(|attempt| attempt.about(name)) {
                black_box(attempt.outcome());
            }
            if behaviour == Behavior::FailOpen {
                return Ok(Answer::Absent);
            }
            Ok(Answer::Found(Instance { state: InstanceState::Stopped, ..instance }))
        }
        Behavior::Peek => Ok(Answer::Found(Instance { labels: peek(), ..instance })),
    }
}

pub(crate) fn overload(nodes: &[NodeReference]) -> Error {
    assert!(nodes.len() <= 4, "{} nodes", nodes.len());
    Error::throttled(Some(Duration::from_secs(7)), "the cloud throttles requests")
}

/// Settings with invalid entries of each kind, and more of them than a message shows.
pub(crate) fn wrong_settings() -> Settings {
    let rule = |path: &str| Rule::new("https://cloud", "GET", path, Effect::Read).cache_scope("{1}");
    let settings = Settings::default().endpoint(Endpoint::new("a b", "to see what happens"));
    let settings = settings.limit(Limit::new("reads", 0, 60)).rule(rule("machines"));
    (0..100).fold(settings, |settings, _| settings.rule(rule("/machines")))
}

pub(crate) fn forever() -> ! {
    let mut count = 0_u64;
    loop {
        count = black_box(count.wrapping_add(1));
    }
}

/// Sends a request where no network is allowed, and returns the outcome.
pub(crate) fn send_while_configuring() -> String {
    let request = OutgoingRequest::new(Fields::new());
    let is_set = request.set_scheme(Some(&Scheme::Http)).is_ok()
        && request.set_authority(Some("denied.example")).is_ok()
        && request.set_path_with_query(Some("/path?secret")).is_ok();
    match outgoing_handler::handle(request, None) {
        Ok(answer) => {
            answer.subscribe().block();
            format!("{is_set} {:?}", answer.get().map(|answer| answer.map(|answer| answer.map(drop))))
        }
        Err(code) => format!("{is_set} {code:?}"),
    }
}

#[expect(unconditional_recursion, reason = "the misbehavior")]
fn recurse(depth: u64) -> u64 {
    // Used after the call, so that the compiler can't make it a loop. Small, because Rust's stack in the guest's memory
    // would overflow first.
    let depth = black_box(depth);
    recurse(depth.wrapping_add(1)).wrapping_add(depth)
}

fn grow() -> ! {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    loop {
        // Not zero, so that the memory is written and not only reserved.
        taken.push(black_box(vec![1; 1 << 20]));
    }
}

fn trap() -> ! {
    #[cfg(target_arch = "wasm32")]
    std::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    std::process::abort();
}

#[expect(clippy::panic, reason = "the misbehavior")]
fn panic(about: &str) -> Error {
    panic!("hostile panic about {about}")
}

fn sleep(instance: Instance) -> Answer {
    wasip2::clocks::monotonic_clock::subscribe_duration(HOUR).block();
    Answer::Found(instance)
}

/// A text that is far too long.
pub(crate) fn long() -> String {
    "x".repeat(LONG)
}

fn huge(instance: Instance) -> Answer {
    let long = long();
    let labels = (0..16).map(|number| (format!("label-{number}"), long.clone())).collect();
    Answer::Found(Instance {
        provider_id: format!("{}{long}", instance.provider_id),
        instance_type: Some(long),
        labels,
        ..instance
    })
}

fn random(instance: Instance) -> Answer {
    for _ in 0..(1 << 30) / CHUNK {
        black_box(wasip2::random::random::get_random_bytes(CHUNK));
    }
    Answer::Found(instance)
}

fn handles() -> ! {
    let mut open = Vec::new();
    loop {
        open.push(wasip2::clocks::monotonic_clock::subscribe_duration(u64::MAX));
        black_box(&open);
    }
}

/// Reads everything that a process usually finds in its environment.
fn peek() -> Vec<(String, String)> {
    let shown = |name: &str, value: String| (name.to_owned(), value);
    vec![
        shown("variables", std::env::vars().count().to_string()),
        shown("arguments", std::env::args().count().to_string()),
        shown("file", outcome(std::fs::read("/etc/passwd"))),
        shown("listing", outcome(std::fs::read_dir("/"))),
        shown("socket", outcome(std::net::TcpStream::connect("127.0.0.1:443"))),
        shown("listener", outcome(std::net::TcpListener::bind("127.0.0.1:0"))),
        shown("datagram", outcome(std::net::UdpSocket::bind("127.0.0.1:0"))),
        shown("name", outcome(std::net::ToSocketAddrs::to_socket_addrs("denied.example:80"))),
        shown("input", input()),
    ]
}

fn input() -> String {
    match std::io::Read::read(&mut std::io::stdin(), &mut [0; 16]) {
        Ok(0) => "empty".to_owned(),
        other => outcome(other),
    }
}

fn outcome<T>(result: std::io::Result<T>) -> String {
    match result {
        Ok(_) => "allowed".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    }
}
