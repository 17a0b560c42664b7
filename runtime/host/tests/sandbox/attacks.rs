//! The attacks of a guest that the gate must withstand: the hostile provider in its sandbox, the gate, and a cloud on a real
//! socket. The number in a test's name is its row in the list of attacks. Attacks on the wire are in the gate's own tests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pileus_cloud::{
    Answer, Cluster, LoadBalancers as _, LocalAnswer, LocalInstance as _, Purpose, Service, ServiceAction,
    ServiceCall, ServiceChange, ServiceProgress,
};
use pileus_gate::{
    Classification, Config, Effect, Fence, Gate, Grant, Interception, Interceptor, Request, Rule,
    thread_clock,
};
use pileus_host::{Fault, Guest, Limits};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::cloud::{Answers, Cloud, NAME, Watched, nothing, rule};
use crate::fixture::{configured, engine, metrics, node};

/// How long to wait for events that must happen, even on a busy machine.
const LONG: Duration = Duration::from_mins(5);

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Long enough for a busy machine, short enough for a test that reaches them to fail soon.
fn limits() -> Limits {
    let (lookup_soft, lookup_hard) = (Duration::from_secs(5), Duration::from_secs(15));
    Limits { lookup_soft, lookup_hard, ..Limits::default() }
}

async fn guest(gate: &Gate, limits: Limits, configuration: &Value) -> Arc<Guest> {
    configured(&engine(), &configuration.to_string(), gate.clone(), limits, &metrics()).await
}

/// The results of these requests, which one call sends one after the other.
async fn tried(gate: &Gate, attempts: &Value) -> Result<Vec<String>, Fault> {
    let configuration = json!({"behaviour": "attempt", "attempts": attempts});
    let guest = guest(gate, limits(), &configuration).await;
    let answers = guest.lookup_once(Purpose::Initialise, &[node("a")]).await?.unwrap();
    let [Ok(Answer::Found(found))] = answers.as_slice() else { panic!("{answers:?}") };
    Ok(found.labels.iter().map(|(_, outcome)| outcome.clone()).collect())
}

/// Requests that differ in one field.
fn each(field: &str, values: &[&str], others: &Value) -> Value {
    let attempt = |value: &&str| {
        let mut attempt = others.clone();
        attempt.as_object_mut().unwrap().insert(field.to_owned(), json!(value));
        attempt
    };
    values.iter().map(attempt).collect()
}

fn at(cloud: &Cloud) -> String {
    format!("{NAME}:{}", cloud.port)
}

/// A grant of this host on the port of HTTP, and of no address.
fn anything_at(host: &str) -> Grant {
    let [methods, paths] = ["*", "/"];
    Grant {
        tls: false,
        host: host.parse().unwrap(),
        port: 80,
        methods: vec![methods.parse().unwrap()],
        paths: vec![paths.parse().unwrap()],
        addresses: Vec::new(),
    }
}

/// Metadata services, and spellings that mean one.
const METADATA: [&str; 6] = [
    "169.254.169.254",
    "[fd00:ec2::254]",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "metadata.google.internal",
];
const SPELLINGS: [&str; 8] = [
    "2852039166",
    "0251.0376.0251.0376",
    "0xa9fea9fe",
    "0xA9.0xFE.43518",
    "169.254.43518",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::1]",
];

#[tokio::test(flavor = "multi_thread")]
async fn row_01_row_02_a_guest_reaches_no_metadata_service_however_it_is_spelled() {
    let hosts = [&METADATA[..], &SPELLINGS[..]].concat();
    let attempts = each("authority", &hosts, &json!({"path": "/latest/meta-data"}));
    let denied = tried(&Watched::new(Vec::new()).gate, &attempts).await.unwrap();
    let resolver = Answers::new(&[&["169.254.169.254"]]);
    let granted = hosts.iter().map(|host| anything_at(host)).collect();
    let blocked = tried(&Watched::resolving(granted, resolver).gate, &attempts).await.unwrap();
    for (position, host) in hosts.iter().enumerate() {
        assert!(denied[position].contains("HttpRequestDenied"), "{host}: {}", denied[position]);
        assert!(blocked[position].contains("DestinationIpProhibited"), "{host}: {}", blocked[position]);
    }
}

/// Computes for a while in the gate, as reading a request does.
#[derive(Debug)]
struct Spin(Duration);

impl Interceptor for Spin {
    fn intercept(&self, _: &Request, _: &[u8], _: &Classification) -> Interception {
        let until = thread_clock() + self.0;
        while thread_clock() < until {
            std::hint::spin_loop();
        }
        Interception::Respond(http::Response::new(Bytes::new()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_24_what_the_gate_computes_for_a_guest_that_waits_is_charged_to_its_call() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::new(vec![cloud.grant()]).gate;
    let cpu = Duration::from_millis(600);
    let attempts = json!(vec![json!({"authority": at(&cloud)}); 12]);
    let configuration = json!({"behaviour": "attempt", "attempts": attempts});
    for (spin, is_over) in [(Duration::ZERO, false), (cpu / 6, true)] {
        let gate = gate.clone().with_interceptor(Arc::new(Spin(spin)));
        let guest = guest(&gate, Limits { cpu, ..limits() }, &configuration).await;
        let ended = guest.lookup_once(Purpose::Initialise, &[node("a")]).await;
        let found = matches!(ended, Err(Fault::Cpu { limit }) if limit == cpu);
        assert_eq!(found, is_over, "{spin:?}: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_24_a_host_or_path_of_megabytes_is_refused_before_it_is_read() {
    let gate = Watched::new(Vec::new());
    let long = "a.".repeat(1 << 20);
    let attempts =
        json!([{"authority": long}, {"authority": "a.test", "path": format!("/{}", "a/".repeat(30_000))}]);
    let outcomes = tried(&gate.gate, &attempts).await.unwrap();
    assert!(outcomes[0].contains("no such authority"), "{}", outcomes[0]);
    assert!(outcomes[1].contains("HttpRequestDenied"), "a path of 60 KB is read: {}", outcomes[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_05_an_authority_of_a_guest_is_canonical_or_refused() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::new(vec![cloud.grant()]);
    let port = cloud.port;
    let refused = [
        format!("user@{NAME}:{port}"),
        format!("user:secret@{NAME}:{port}"),
        format!("{NAME}:0"),
        format!("{NAME}:{port}x"),
        format!("{NAME}:"),
        format!("cloud.tést:{port}"),
        format!("xn--cloud.test:{port}"),
        String::new(),
    ];
    let authorities: Vec<_> = refused.iter().map(String::as_str).collect();
    let outcomes = tried(&gate.gate, &each("authority", &authorities, &json!({}))).await.unwrap();
    for (authority, outcome) in authorities.iter().zip(&outcomes) {
        assert!(!outcome.starts_with("200"), "{authority:?}: {outcome}");
    }
    assert_eq!(cloud.connections(), 0);
    let canonical = [format!("Cloud.TEST.:{port}"), format!("{NAME}:0{port}")];
    let authorities: Vec<_> = canonical.iter().map(String::as_str).collect();
    let outcomes = tried(&gate.gate, &each("authority", &authorities, &json!({}))).await.unwrap();
    assert_eq!(outcomes, ["200 ok", "200 ok"]);
    let host = format!("\r\nhost: {}\r\n", at(&cloud));
    assert!(cloud.requests().iter().all(|request| request.contains(&host)), "{:?}", cloud.requests());
}

#[tokio::test(flavor = "multi_thread")]
async fn row_06_an_ambiguous_path_of_a_guest_is_refused() {
    let cloud = Cloud::answering(OK).await;
    let allowed = Grant { paths: vec!["/allowed".parse().unwrap()], ..cloud.grant() };
    let gate = Watched::new(vec![allowed]);
    let paths = [
        "http://evil.test/",
        "//evil.test/allowed",
        "/allowed/a b",
        "/allowed/a\r\nhost: evil.test",
        "/allowed/a\nb",
        "/allowed/a\0",
        "/allowed/%0d%0a",
        "/allowed/%00",
        "/allowed/../secret",
        "/allowed/%2e%2e/secret",
        "/allowed%2f..%2fsecret",
        "/allowed/..;/secret",
        "/allowed\\..\\secret",
        "/secret",
    ];
    let others = json!({"authority": at(&cloud)});
    let outcomes = tried(&gate.gate, &each("path", &paths, &others)).await.unwrap();
    for (path, outcome) in paths.iter().zip(&outcomes) {
        assert!(!outcome.starts_with("200"), "{path:?}: {outcome}");
    }
    assert_eq!(cloud.connections(), 0);
    assert_eq!(tried(&gate.gate, &each("path", &["/allowed/a"], &others)).await.unwrap(), ["200 ok"]);
}

/// The header lines and the body of the only request that arrived.
fn only(cloud: &Cloud) -> (Vec<String>, String) {
    let requests = cloud.requests();
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<_> = head.lines().skip(1).map(str::to_owned).collect();
    lines.sort_unstable();
    (lines, body.to_owned())
}

/// A lookup may send a POST that a rule calls a read.
fn reading_by_post(cloud: &Cloud) -> Watched {
    let rules = vec![rule("POST", "/**", Effect::Read)];
    Watched::with(vec![cloud.grant()], loopback(), rules, Fence::default())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_07_a_guests_framing_is_removed_and_exactly_one_request_arrives() {
    let cloud = Cloud::answering(OK).await;
    let gate = reading_by_post(&cloud);
    let attempt = json!({
        "method": "POST", "authority": at(&cloud), "body": ["ab", "c"], "trailers": true,
        "headers": [
            ["host", "evil.test"], ["transfer-encoding", "chunked"], ["connection", "authorization, x-hop"],
            ["te", "trailers"], ["trailer", "authorization"], ["x-hop", "1"], ["upgrade", "h2c"],
            ["accept", "text/plain"],
        ],
    });
    assert_eq!(tried(&gate.gate, &json!([attempt])).await.unwrap(), ["200 ok"]);
    let host = format!("host: {}", at(&cloud));
    let (lines, body) = only(&cloud);
    let expected = ["accept: text/plain", "content-length: 3", host.as_str()];
    // WASI refuses the `connection` header, so x-hop isn't known as a hop-by-hop header and may arrive.
    let lines: Vec<_> = lines.iter().map(String::as_str).filter(|line| *line != "x-hop: 1").collect();
    assert_eq!((&lines[..], body.as_str()), (&expected[..], "abc"));

    // The sandbox keeps one of two lengths. The request is framed by the body that was really written.
    for (lengths, arrives) in [
        (json!([["content-length", "3"], ["content-length", "9000"]]), true),
        (json!([["content-length", "9000"]]), false),
    ] {
        let cloud = Cloud::answering(OK).await;
        let gate = reading_by_post(&cloud);
        let attempt = json!({"method": "POST", "authority": at(&cloud), "body": ["abc"], "headers": lengths});
        let outcomes = tried(&gate.gate, &json!([attempt])).await.unwrap();
        assert_eq!(outcomes[0] == "200 ok", arrives, "{lengths}: {outcomes:?}");
        if arrives {
            let host = format!("host: {}", at(&cloud));
            assert_eq!(only(&cloud), (vec!["content-length: 3".to_owned(), host], "abc".to_owned()));
        } else {
            assert_eq!(cloud.connections(), 0, "an unfinished body isn't sent");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_08_credentials_and_metadata_headers_of_a_guest_are_stripped_without_an_error() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::new(vec![cloud.grant()]);
    let attempt = json!({
        "authority": at(&cloud),
        "headers": [
            ["Authorization", "Bearer own"], ["Cookie", "a=b"], ["Metadata", "true"],
            ["X-aws-ec2-metadata-token", "t"], ["X-Auth-Token", "t"], ["Metadata-Flavor", "Google"],
            ["accept", "text/plain"],
        ],
    });
    assert_eq!(tried(&gate.gate, &json!([attempt])).await.unwrap(), ["200 ok"]);
    let host = format!("host: {}", at(&cloud));
    assert_eq!(only(&cloud).0, ["accept: text/plain", &host]);
    let stripped = format!(
        "pileus_gate_stripped_headers_total{{provider=\"test\",grant=\"http://{NAME}:{}\"}} 6",
        cloud.port
    );
    assert!(gate.metrics().contains(&stripped), "{}", gate.metrics());
}

#[tokio::test(flavor = "multi_thread")]
async fn row_09_too_many_too_long_or_invalid_headers_of_a_guest_are_refused() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::new(vec![cloud.grant()]);
    let with = |times: u32, value: &str| json!([{"authority": at(&cloud), "times": times, "headers": [["x-a", value]]}]);
    // The sandbox accepts at most 32 KiB of headers, the gate sends at most 100 of them.
    for (name, attempts) in [("10,000", with(10_000, "b")), ("1 MiB", with(1, &"b".repeat(1 << 20)))] {
        let fault = tried(&gate.gate, &attempts).await.expect_err(name);
        assert!(matches!(fault, Fault::Exhausted(_)), "{name}: {fault:?}");
    }
    let many = tried(&gate.gate, &with(101, "b")).await.unwrap();
    assert!(many[0].contains("HttpRequestHeaderSectionSize"), "{many:?}");
    assert_eq!(cloud.connections(), 0);
    for value in ["a\r\nb: c", "a\nb", "a\0b", "a\x7fb"] {
        assert_eq!(tried(&gate.gate, &with(1, value)).await.unwrap(), ["200 ok"], "WASI leaves it out");
    }
    assert!(cloud.requests().iter().all(|request| !request.contains("x-a")), "{:?}", cloud.requests());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_and_a_list_of_a_guest_send_no_write() {
    let cloud = Cloud::answering(OK).await;
    let rules = vec![reads(), rule("POST", "/search", Effect::Read), rule("DELETE", "/**", Effect::Read)];
    let gate = Watched::with(vec![cloud.grant()], loopback(), rules, Fence::default());
    let writes = [("DELETE", "/lb"), ("PUT", "/lb"), ("POST", "/lb"), ("GET", "/lb?_method=DELETE")];
    let reads = [("POST", "/search"), ("GET", "/lb")];
    let attempt =
        |(method, path): &(&str, &str)| json!({"method": method, "authority": at(&cloud), "path": path});
    let attempts: Value = writes.iter().chain(&reads).map(attempt).collect();
    let guest = guest(&gate.gate, limits(), &json!({"behaviour": "attempt", "attempts": attempts})).await;
    let is_read = |request: &String| request.starts_with("POST /search ") || request.starts_with("GET /lb ");

    let answers = guest.lookup_once(Purpose::Refresh, &[node("a")]).await.unwrap().unwrap();
    let [Ok(Answer::Found(looked_up))] = answers.as_slice() else { panic!("{answers:?}") };
    let described = guest.describe(&node("a")).await.unwrap();
    let LocalAnswer::Found(described) = described else { panic!("{described:?}") };
    for found in [looked_up, &described] {
        let outcomes: Vec<_> = found.labels.iter().map(|(_, outcome)| outcome.as_str()).collect();
        let (denied, sent) = outcomes.split_at(writes.len());
        assert!(denied.iter().all(|outcome| outcome.contains("HttpRequestDenied")), "{outcomes:?}");
        assert_eq!(sent, ["200 ok", "200 ok"]);
    }
    let _doubted = guest.list_owned(&Cluster { name: "c".to_owned(), uid: None }).await;
    let requests = cloud.requests();
    assert!(requests.len() == 3 * reads.len() && requests.iter().all(is_read), "{requests:?}");
    assert!(gate.metrics().contains(r#"effect="write",result="read_only"} 12"#), "{}", gate.metrics());
}

#[tokio::test(flavor = "multi_thread")]
async fn row_10_an_endless_body_of_a_guest_is_capped_in_bytes_and_in_pieces() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::new(vec![cloud.grant()]);
    for piece in ["x".repeat(4096), "x".to_owned(), String::new()] {
        let attempt = json!({"method": "PUT", "authority": at(&cloud), "body": [piece], "endless": true});
        let ended = tried(&gate.gate, &json!([attempt])).await;
        let is_bounded = match &ended {
            // With such small pieces, the guest may run out of time first.
            Ok(outcomes) => {
                outcomes[0].contains("HttpRequestBodySize")
                    || piece.len() < 2 && outcomes[0].contains("Timeout")
            }
            Err(fault) => piece.len() < 2 && matches!(fault, Fault::Cpu { .. } | Fault::Deadline { .. }),
        };
        assert!(is_bounded, "pieces of {}: {ended:?}", piece.len());
    }
    assert_eq!(cloud.connections(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_12_responses_that_a_guest_never_reads_are_limited_and_freed_with_its_call() {
    let cloud = Cloud::answering(OK).await;
    let gate = Watched::with(vec![cloud.grant()], loopback(), vec![reads()], Fence::default());
    let configuration = json!({"behaviour": "hoard", "attempts": [{"authority": at(&cloud)}]});
    let soft = Duration::from_secs(1);
    let limits = Limits { lookup_soft: soft, ..limits() };
    let hoarder = guest(&gate.gate, limits, &configuration).await;
    // A second call gets all that the first one held.
    for call in 1..=2 {
        let answers = hoarder.lookup_once(Purpose::Initialise, &[node("a")]).await.unwrap().unwrap();
        let [Ok(Answer::Found(found))] = answers.as_slice() else { panic!("{answers:?}") };
        assert_eq!(found.zone.as_deref(), Some("64"), "the limit of requests in flight");
        assert_eq!(cloud.requests().len(), 64 * call);
    }
    let counted = format!(r#"effect="read",result="ok"}} {}"#, 2 * 64);
    assert!(gate.metrics().contains(&counted), "{}", gate.metrics());
}

/// A `GET` is a read. Without a rule, everything else is a write.
fn reads() -> Rule {
    rule("GET", "/**", Effect::Read)
}

#[tokio::test(flavor = "multi_thread")]
async fn row_13_timeouts_of_a_guest_are_clamped_between_a_millisecond_and_what_is_left() {
    let cloud = Cloud::by_path().await;
    let gate = Watched::with(vec![cloud.grant()], loopback(), vec![reads()], Fence::default());
    let limits =
        Limits { lookup_soft: Duration::from_secs(1), lookup_hard: Duration::from_secs(3), ..limits() };
    // The gate stops waiting halfway between the deadlines.
    let left = Duration::from_secs(2);
    let (zero, negative, huge) = (0, (-1_i64).cast_unsigned(), u64::MAX / 2);
    for (path, timeout, expected) in [
        ("/silent", zero, "Timeout"),
        ("/silent", negative, "HttpResponseTimeout"),
        ("/silent", huge, "HttpResponseTimeout"),
        ("/200", huge, "200 []"),
    ] {
        let attempts = json!([{"authority": at(&cloud), "path": path, "timeout": timeout}]);
        let configuration = json!({"behaviour": "attempt", "attempts": attempts});
        let guest = guest(&gate.gate, limits.clone(), &configuration).await;
        let started = Instant::now();
        let answers = guest.lookup_once(Purpose::Initialise, &[node("a")]).await.unwrap().unwrap();
        let took = started.elapsed();
        let [Ok(Answer::Found(found))] = answers.as_slice() else { panic!("{answers:?}") };
        assert!(found.labels[0].1.contains(expected), "{timeout}: {:?}", found.labels);
        // The call ended by itself, so before its hard deadline.
        assert_eq!(took >= left, expected == "HttpResponseTimeout", "{timeout}: {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_14_an_unfinished_read_is_aborted_with_its_call_and_an_unfinished_write_is_finished() {
    let (closed, mut watch) = tokio::sync::mpsc::unbounded_channel();
    let over = Arc::new(Notify::new());
    let released = Arc::clone(&over);
    let cloud = Cloud::serving(move |mut stream, seen| {
        let (closed, released) = (closed.clone(), Arc::clone(&released));
        async move {
            let request = seen.request(&mut stream).await.unwrap();
            if request.starts_with("PUT") {
                // Longer than the call lasts.
                released.notified().await;
                stream.write_all(OK.as_bytes()).await.unwrap();
            }
            let rest = stream.read(&mut [0]).await.unwrap_or(0);
            let _received = closed.send((request[..3].to_owned(), rest));
        }
    })
    .await;
    let gate = Watched::with(vec![cloud.grant()], loopback(), vec![reads()], Fence::default());
    let attempts = json!([{"authority": at(&cloud)}, {"method": "PUT", "authority": at(&cloud)}]);
    let guest = guest(&gate.gate, limits(), &json!({"behaviour": "abandon", "attempts": attempts})).await;
    let started = Instant::now();
    let (cluster, service) =
        (Cluster { name: "c".to_owned(), uid: None }, Service::named("default", "a", "uid-a"));
    let changes = [ServiceChange { action: ServiceAction::Ensure(service), resume: None }];
    let call =
        ServiceCall { cluster: &cluster, targets: &[], known: &[], changes: &changes, is_audit: false };
    let outcomes = guest.change_load_balancers_once(call).await.unwrap().unwrap();
    assert!(matches!(outcomes.as_slice(), [Ok(ServiceProgress::Done { .. })]), "{outcomes:?}");
    assert!(started.elapsed() < limits().lookup_soft, "nothing delays the call");
    assert_eq!(gate.gate.writes_in_flight(), 1, "the write continues");
    let closed = timeout(LONG, watch.recv()).await;
    assert_eq!(closed, Ok(Some(("GET".to_owned(), 0))), "the read's connection is closed");
    over.notify_one();
    timeout(LONG, gate.gate.wait_for_writes()).await.expect("the write ends");
    assert_eq!(cloud.requests().len(), 2);
    // The write is counted when the rest of its response has been read, which happens in the background.
    let is_counted = async {
        while !gate.metrics().contains("effect=\"write\"") {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, is_counted).await.expect("the write is counted");
    let metrics = gate.metrics();
    for counted in [r#"effect="read",result="cancelled"} 1"#, r#"effect="write",result="ok"} 1"#] {
        assert!(metrics.contains(counted), "{metrics}");
    }
    assert_eq!(metrics.matches("pileus_gate_requests_total{").count(), 2, "nothing else: {metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_15_a_guest_can_not_use_the_grants_of_another_provider() {
    let (ones, others) = (Cloud::answering(OK).await, Cloud::answering(OK).await);
    let one = Watched::of(
        Config { provider: "one".to_owned(), grants: vec![ones.grant()], ..nothing() },
        loopback(),
    );
    let other = Watched::of(
        Config { provider: "other".to_owned(), grants: vec![others.grant()], ..nothing() },
        loopback(),
    );
    let attempts = json!([{"authority": at(&ones)}, {"authority": at(&others)}]);
    let (of_one, of_other) =
        (tried(&one.gate, &attempts).await.unwrap(), tried(&other.gate, &attempts).await.unwrap());
    assert!(of_one[0] == "200 ok" && of_one[1].contains("HttpRequestDenied"), "{of_one:?}");
    assert!(of_other[1] == "200 ok" && of_other[0].contains("HttpRequestDenied"), "{of_other:?}");
    assert_eq!((ones.connections(), others.connections()), (1, 1));
    assert!(!one.metrics().contains("\"other\"") && !other.metrics().contains("\"one\""));
}

fn loopback() -> Arc<Answers> {
    Answers::new(&[&["127.0.0.1"]])
}
