//! Limits on real sockets: a cloud that throttles, and what the gate learns from its responses. Pauses are as short as
//! `Retry-After` can say: one second.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::join_all;
use http_body_util::Full;
use pileus_gate::{
    Body, Config, Deadlines, Effect, Error, Fence, Gate, GateFamily, Limit, LimitScope, Metrics, RequestKind,
    Rule, Urgency,
};
use prometheus_client::registry::Registry;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::OK;
use crate::cloud::{Answers, Cloud, NAME, Watched, get, nothing, plenty, rule, text, within};
use crate::environment::{is_child, run_with};

/// A gate to this cloud where everything is a read and counts against one limit.
fn gate(cloud: &Cloud, burst: u32, per_second: f64) -> Watched {
    gate_for(cloud, Effect::Read, burst, per_second)
}

fn gate_for(cloud: &Cloud, effect: Effect, burst: u32, per_second: f64) -> Watched {
    Watched::of(counted(cloud, effect, "reads", (burst, per_second)), Answers::new(&[&["127.0.0.1"]]))
}

/// A configuration where everything has this effect and counts against one limit.
fn counted(cloud: &Cloud, effect: Effect, limit: &str, (burst, per_second): (u32, f64)) -> Config {
    let rule = Rule { limits: vec![limit.parse().unwrap()], ..rule("*", "/**", effect) };
    Config {
        grants: vec![cloud.grant()],
        rules: vec![rule],
        limits: vec![Limit::new(limit, burst, per_second).unwrap()],
        ..nothing()
    }
}

const THROTTLED: &str = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";

/// A cloud whose responses come from this function, by the path of the request.
async fn answering(answer: impl Fn(&str) -> &'static str + Send + Sync + 'static) -> Cloud {
    let answer = Arc::new(answer);
    Cloud::serving(move |mut stream, seen| {
        let answer = answer.clone();
        async move {
            while let Some(request) = seen.request(&mut stream).await {
                let path = request.split(' ').nth(1).unwrap_or_default();
                if stream.write_all(answer(path).as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
    .await
}

/// The header that only the gate's own responses have.
fn own(answer: &http::Response<Body>) -> Option<&str> {
    answer.headers().get("pileus-gate").map(|value| value.to_str().unwrap())
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[tokio::test]
async fn a_limit_lower_than_declared_is_learned_kept_and_used_up() {
    // It takes 20 at once and 40 a second; declared is ten times as much.
    #[derive(Clone, Copy)]
    struct Bucket {
        tokens: f64,
        filled: Instant,
        given: f64,
        taken: u32,
        refused: u32,
    }
    let new = Bucket { tokens: 20.0, filled: Instant::now(), given: 0.0, taken: 0, refused: 0 };
    let bucket = Arc::new(Mutex::new(new));
    let clouds = bucket.clone();
    let cloud = answering(move |_| {
        let mut bucket = clouds.lock().unwrap();
        let given = (bucket.filled.elapsed().as_secs_f64() * 40.0).min(20.0 - bucket.tokens);
        bucket.filled = Instant::now();
        bucket.given += given;
        bucket.tokens += given;
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            bucket.taken += 1;
            OK
        } else {
            bucket.refused += 1;
            THROTTLED
        }
    })
    .await;
    let gate = gate(&cloud, 200, 400.0);
    let workers = (0..16).map(|worker| {
        let (gate, cloud) = (gate.gate.clone(), &cloud);
        async move {
            for number in 0.. {
                let answer = gate.send(get(&cloud.uri(&format!("/{worker}/{number}"))), plenty()).await;
                assert_eq!(own(answer.as_ref().unwrap()), None, "no request waits for 20 s");
            }
        }
    });
    // By the requests that it accepted, not by time: a busy machine sends fewer.
    let has_taken = async |count| loop {
        let now = *bucket.lock().unwrap();
        if now.taken >= count {
            return now;
        }
        tokio::time::sleep(seconds(0.01)).await;
    };
    let watch = async {
        let learning = has_taken(100).await;
        let (mut before, mut kept) = (learning, Vec::new());
        // The gate also learns from the pauses of a busy machine.
        for hundreds in 2..=6 {
            let now = has_taken(100 * hundreds).await;
            let (taken, refused) = (now.taken - before.taken, now.refused - before.refused);
            let given = now.given - before.given;
            kept.push((taken, refused, given));
            if refused * 20 <= taken && f64::from(taken) >= given / 2.0 {
                return (learning.refused, Ok(kept));
            }
            before = now;
        }
        (learning.refused, Err(kept))
    };
    let (learning, kept) = tokio::select! {
        _ = join_all(workers) => unreachable!("they go on for ever"),
        watched = timeout(Duration::from_mins(5), watch) => watched.expect("it takes what the limit lets through"),
    };
    let learned = gate.gate.limits().limits[0].learned.unwrap();
    println!("{learning} refused, then (taken, refused, given) {kept:?}; learned {learned:?}");
    assert!(learning <= 20, "{learning} refused while it was learned");
    assert!(kept.is_ok(), "more than one in 20 refused, or less than half of the limit used: {kept:?}");
}

#[tokio::test]
async fn an_urgent_request_overtakes_a_thousand_others_which_leave_nothing_behind() {
    let cloud = Cloud::answering(OK).await;
    let gate = gate(&cloud, 1, 4.0);
    let others: Vec<_> = (0..1000)
        .map(|number| {
            let (gate, uri) = (gate.gate.clone(), cloud.uri(&format!("/{number}")));
            tokio::spawn(async move { gate.send(get(&uri), within(seconds(600.0))).await.map(drop) })
        })
        .collect();
    let waiting = || gate.gate.limits().waiting[2].1;
    while waiting() < 990 {
        tokio::time::sleep(seconds(0.01)).await;
    }
    let begun = Instant::now();
    let urgent = gate.gate.clone().with_urgency(Urgency::User);
    let answer = urgent.send(get(&cloud.uri("/urgent")), plenty()).await.unwrap();
    assert_eq!((answer.status(), own(&answer)), (http::StatusCode::OK, None));
    assert!(waiting() > 900, "{} wait after {:?}", waiting(), begun.elapsed());
    others.iter().for_each(tokio::task::JoinHandle::abort);
    join_all(others).await;
    let state = gate.gate.limits();
    assert_eq!((state.waiting.map(|(_, count)| count), state.waiting_bytes), ([0, 0, 0], 0));
    let metrics = gate.metrics();
    let line = r#"pileus_gate_waiting{provider="test",urgency="background"} 0"#;
    assert!(metrics.contains(line), "{metrics}");
    let seen = cloud.requests().len();
    tokio::time::sleep(seconds(0.5)).await;
    assert_eq!(cloud.requests().len(), seen, "no request is sent for callers that have gone");
}

#[tokio::test]
async fn a_request_that_would_be_late_is_answered_at_once_with_the_time_to_retry() {
    let cloud = Cloud::answering(OK).await;
    let gate = gate(&cloud, 1, 0.5);
    let begun = Instant::now();
    let answer = gate.gate.send(get(&cloud.uri("/")), within(seconds(1.0))).await.unwrap();
    assert!(begun.elapsed() < seconds(0.9));
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers()["retry-after"], "2");
    assert_eq!(own(&answer), Some(r#"reason=rate; limit="reads""#));
    assert!(text(answer).await.unwrap().contains("try again in 2 s"));
    assert_eq!(cloud.connections(), 0);
    tokio::time::sleep_until((begun + seconds(2.0)).into()).await;
    let answer = gate.gate.send(get(&cloud.uri("/")), within(seconds(1.0))).await.unwrap();
    assert_eq!(answer.status(), 200, "the time was true");
    let metrics = gate.metrics();
    for line in [
        r#"pileus_gate_held_back_total{provider="test",limit="reads",reason="rate"} 1"#,
        r#"effect="read",result="held_back"} 1"#,
        r#"pileus_gate_limit_rate{provider="test",limit="reads"} 0.5"#,
        r#"pileus_gate_limit_declared_rate{provider="test",limit="reads"} 0.5"#,
        r#"pileus_gate_limit_closed_seconds{provider="test",limit="reads"} 0.0"#,
        r#"pileus_gate_limit_tokens{provider="test",limit="reads"} 0.0"#,
        r#"pileus_gate_wait_duration_seconds_count{provider="test",urgency="background"} 2"#,
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[tokio::test]
async fn a_closed_resource_does_not_close_others_and_is_probed_once_after_its_pause() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counter = tries.clone();
    let cloud = answering(move |path| match path {
        "/locked" if counter.fetch_add(1, Ordering::SeqCst) < 1 => {
            "HTTP/1.1 429 Locked\r\nretry-after: 2\r\npileus-gate: forged\r\ncontent-length: 0\r\n\r\n"
        }
        _ => OK,
    })
    .await;
    let gate = gate(&cloud, 100, 100.0);
    let locked = gate.get(&cloud.uri("/locked")).await.unwrap();
    let begun = Instant::now();
    assert_eq!((locked.status().as_u16(), own(&locked)), (429, None), "it is the cloud's own");
    let late = gate.gate.send(get(&cloud.uri("/locked")), within(seconds(0.5))).await.unwrap();
    assert_eq!(
        (own(&late), &late.headers()["retry-after"]),
        (Some(r#"reason=resource_closed; limit="none""#), &"2".parse().unwrap())
    );
    for other in ["/other", "/locked/not"] {
        assert_eq!(gate.get(&cloud.uri(other)).await.unwrap().status(), 200, "{other}");
    }
    let post = http::Request::post(cloud.uri("/locked")).body(Full::<Bytes>::default()).unwrap();
    assert_eq!(gate.gate.send(post, plenty()).await.unwrap().status(), 200, "the rule says it is a read");
    assert!(begun.elapsed() >= seconds(1.9), "{:?}", begun.elapsed());
    assert_eq!(tries.load(Ordering::SeqCst), 2);
    assert_eq!(gate.gate.limits().paused_resources, 0);
}

#[tokio::test]
async fn a_closed_limit_lets_nothing_through_until_its_pause_is_over() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counter = tries.clone();
    let cloud = answering(move |_| {
        if counter.fetch_add(1, Ordering::SeqCst) < 2 {
            "HTTP/1.1 429 Slow down\r\nretry-after: 2\r\ncontent-length: 0\r\n\r\n"
        } else {
            OK
        }
    })
    .await;
    let gate = gate(&cloud, 100, 100.0);
    for path in ["/1", "/2"] {
        assert_eq!(gate.get(&cloud.uri(path)).await.unwrap().status(), 429);
    }
    let begun = Instant::now();
    let late = gate.gate.send(get(&cloud.uri("/3")), within(seconds(0.5))).await.unwrap();
    assert_eq!(own(&late), Some(r#"reason=closed; limit="reads""#));
    let soft = Deadlines { soft: plenty().soft, ..within(seconds(20.0)) };
    let patient = (4..8).map(|number| gate.gate.send(get(&cloud.uri(&format!("/{number}"))), soft).boxed());
    for answer in join_all(patient.collect::<Vec<_>>()).await {
        assert_eq!(answer.unwrap().status(), 200);
    }
    // No other pause follows.
    assert!((seconds(1.9)..seconds(3.9)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!(tries.load(Ordering::SeqCst), 6);
    let line = r#"pileus_gate_limit_closures_total{provider="test",limit="reads"} 1"#;
    assert!(gate.metrics().contains(line), "{}", gate.metrics());
}

#[tokio::test]
async fn the_response_to_a_write_teaches_the_limits_after_its_caller_has_gone() {
    let answer = Arc::new(Notify::new());
    let told = answer.clone();
    let cloud = Cloud::serving(move |mut stream, seen| {
        let told = told.clone();
        async move {
            seen.request(&mut stream).await;
            told.notified().await;
            let _ = stream.write_all(THROTTLED.as_bytes()).await;
        }
    })
    .await;
    let gate = gate_for(&cloud, Effect::Write, 100, 100.0);
    let put = http::Request::put(cloud.uri("/a")).body(Full::<Bytes>::default()).unwrap();
    tokio::select! {
        _ = gate.gate.send(put, plenty()) => unreachable!("the cloud does not answer"),
        () = cloud.arrived(1) => {}
    }
    assert_eq!((gate.gate.writes_in_flight(), gate.gate.limits().paused_resources), (1, 0));
    answer.notify_one();
    timeout(seconds(5.0), gate.gate.wait_for_writes()).await.unwrap();
    assert_eq!(gate.gate.limits().paused_resources, 1);
}

#[tokio::test]
async fn a_closed_gate_ends_the_wait_for_limits() {
    let cloud = Cloud::answering(OK).await;
    let gate = gate(&cloud, 1, 0.1);
    let uri = cloud.uri("/");
    let waits = gate.get(&uri);
    let closes = async {
        while gate.gate.limits().waiting[2].1 == 0 {
            tokio::task::yield_now().await;
        }
        gate.gate.close();
    };
    let (refused, ()) = tokio::join!(waits, closes);
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    assert_eq!(gate.gate.limits().waiting[2].1, 0);
}

#[tokio::test]
async fn the_memory_of_waiting_requests_counts_everything_that_a_provider_can_make_long() {
    let cloud = Cloud::answering(OK).await;
    let gate = gate(&cloud, 1, 1.0);
    let long = "x".repeat(10_000);
    let request = http::Request::put(cloud.uri(&format!("/{long}?{long}"))).header("x-long", &long);
    let mut waits =
        std::pin::pin!(gate.gate.send(request.body(Full::<Bytes>::from(long)).unwrap(), plenty()));
    assert!((&mut waits).now_or_never().is_none());
    assert!(gate.gate.limits().waiting_bytes > 40_000, "{:?}", gate.gate.limits());
}

#[tokio::test]
async fn ten_thousand_requests_that_wait_take_less_than_32_mib() {
    if !is_child() {
        // In a process of its own, where nothing else takes memory.
        run_with("limits::ten_thousand_requests_that_wait_take_less_than_32_mib", &[]);
        return;
    }
    let cloud = Cloud::answering(OK).await;
    // The limit lets none of them through while the others arrive.
    let gate = gate(&cloud, 1, 0.001);
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
    };
    // Neither the test's own list nor the memory for the first request alone counts.
    let (mut before, mut waiting) = (0, Vec::new());
    waiting.resize_with(10_000, || None);
    for (number, place) in waiting.iter_mut().enumerate() {
        let mut request = http::Request::put(cloud.uri(&format!("/subscriptions/1/vms/{number}")));
        for header in ["accept", "content-type", "user-agent", "x-ms-client-request-id"] {
            request = request.header(header, "a value as long as they are");
        }
        let request = request.body(Full::new(Bytes::from(vec![b'x'; 64]))).unwrap();
        let deadlines = within(Duration::from_hours(365 * 24));
        let mut sending = Box::pin(gate.gate.send(request, deadlines));
        assert!(futures::poll!(sending.as_mut()).is_pending());
        *place = Some(sending);
        if number == 0 {
            before = resident();
        }
    }
    let taken = resident() - before;
    let state = gate.gate.limits();
    println!("{taken} KiB, {} bytes of them bodies and headers", state.waiting_bytes);
    assert!(taken < 32 << 10, "{taken} KiB");
    assert_eq!(state.waiting[2], (Urgency::Background, 10_000));
}

/// A provider that declares a limit and names it in no rule, so that nothing counts against it.
fn evasive(cloud: &Cloud, method: &str, effect: Effect, tightened: Vec<Limit>) -> Config {
    let rule = rule(method, "/**", effect);
    let limits = vec![Limit::new("quota", 1_000, 1_000.0).unwrap()];
    Config { grants: vec![cloud.grant()], rules: vec![rule], limits, tightened, ..nothing() }
}

#[tokio::test]
async fn a_limit_by_a_key_that_nothing_counts_against_is_refused() {
    let cloud = Cloud::answering(OK).await;
    let quota = vec![Limit::new("quota", 2, 0.001).unwrap()];
    let refused = evasive(&cloud, "*", Effect::Read, quota).check().unwrap_err().to_string();
    assert!(
        refused.contains("spec.limits.quota: the provider declares this limit, but no rule"),
        "{refused}"
    );
}

#[tokio::test]
async fn an_operators_limit_with_a_match_binds_whatever_the_provider_declares() {
    let scope = |kind, host: &str, path: &str| LimitScope {
        kind,
        host: Some(host.parse().unwrap()),
        path: Some(path.parse().unwrap()),
    };
    let everything = || LimitScope::default();
    let rows = [
        // A rule without limits, and a request without a rule.
        ("GET", Effect::Read, "GET", "/a", everything(), true),
        ("GET", Effect::Write, "GET", "/a", everything(), true),
        ("PUT", Effect::Read, "GET", "/a", everything(), true),
        ("*", Effect::Read, "POST", "/a", scope(RequestKind::Writes, NAME, "/**"), true),
        ("*", Effect::Read, "DELETE", "/a", scope(RequestKind::Writes, "*.test", "/*"), true),
        ("*", Effect::Write, "GET", "/a", scope(RequestKind::Reads, NAME, "/A/**"), true),
        ("*", Effect::OperationPoll, "GET", "/a", scope(RequestKind::Reads, NAME, "/a"), true),
        ("*", Effect::Read, "GET", "/a", scope(RequestKind::Writes, NAME, "/**"), false),
        ("*", Effect::Read, "GET", "/a", scope(RequestKind::All, "other.test", "/**"), false),
        ("*", Effect::Read, "GET", "/a", scope(RequestKind::All, NAME, "/b/**"), false),
    ];
    for (rule, effect, method, path, scope, binds) in rows {
        let cloud = Cloud::answering(OK).await;
        let limit = Limit::new("mine", 2, 0.001).unwrap().of_requests(scope.clone()).unwrap();
        let config = evasive(&cloud, rule, effect, vec![limit]);
        let gate = Watched::of(config, Answers::new(&[&["127.0.0.1"]])).gate;
        gate.refill_limits(Duration::MAX);
        for _ in 0..50 {
            let request = http::Request::builder().method(method).uri(cloud.uri(path));
            let answer = gate.send(request.body(Full::new(Bytes::new())).unwrap(), plenty()).await.unwrap();
            assert!(binds || own(&answer).is_none(), "{rule} {effect:?} {method} {scope}");
            let _whole = text(answer).await;
        }
        let passed = cloud.requests().len();
        assert_eq!(passed, if binds { 2 } else { 50 }, "{rule} {effect:?} {method} {scope}");
    }
}

#[tokio::test]
async fn limits_hold_what_has_flowed_in_since_a_predecessor_stopped() {
    for (idle, expected) in [(Duration::ZERO, 0), (seconds(20.0), 2), (Duration::MAX, 5)] {
        let cloud = Cloud::answering(OK).await;
        let gate = gate(&cloud, 5, 0.1).gate;
        gate.refill_limits(idle);
        let within_a_second = || within(Duration::from_secs(1));
        let mut passed = 0;
        while own(&gate.send(get(&cloud.uri("/a")), within_a_second()).await.unwrap()).is_none() {
            passed += 1;
        }
        assert_eq!(passed, expected, "{idle:?}");
    }
}

#[tokio::test]
async fn gates_of_one_family_together_send_no_more_than_the_limits_in_force() {
    let cloud = answering(|_| OK).await;
    let (answers, metrics) = (Answers::new(&[&["127.0.0.1"]]), Metrics::register(&mut Registry::default()));
    let family = GateFamily::with_resolver("test", Fence::default(), &metrics, answers);
    let before = family.gate(counted(&cloud, Effect::Read, "reads", (1, 40.0)), &metrics).unwrap();
    // Its own limits would let everything through.
    let next = family.gate(counted(&cloud, Effect::Read, "other", (1000, 1000.0)), &metrics).unwrap();
    let in_force = |gate: &Gate| gate.limits().limits[0].key.clone();
    let send_within = async |time: Duration| {
        let (begun, sent) = (Instant::now(), cloud.requests().len());
        let send = async |gate: &Gate| {
            while begun.elapsed() < time {
                text(gate.send(get(&cloud.uri("/")), plenty()).await.unwrap()).await.unwrap();
            }
        };
        join_all([&before, &next, &before, &next].map(send)).await;
        let most = begun.elapsed().as_secs_f64() * 40.0 + 2.0;
        let sent = u32::try_from(cloud.requests().len() - sent).unwrap();
        assert!(f64::from(sent) <= most, "{sent} requests, and not {most}");
        assert!(sent > 10, "{sent}: they are sent");
    };
    send_within(seconds(1.0)).await;
    next.take_over();
    assert_eq!((in_force(&before), in_force(&next)), ("other".to_owned(), "other".to_owned()));
    // A rollback: the former limits are in force again.
    before.take_over();
    assert_eq!(in_force(&next), "reads");
    send_within(seconds(0.5)).await;
}
