//! The cache on real sockets: which requests the cloud doesn't get, and which it must get. Unit tests cover which request
//! gets which response; these tests cover callers that come and go.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http_body_util::Full;
use pileus_gate::{Body, Config, Effect, Error, Gate, Limit, Phase, Place, Rule, Urgency, View};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::SHORT;
use crate::cloud::{Answers, Cloud, NAME, Watched, get, nothing, plenty, rule, text, within};
use crate::credentials::pass;

const MINUTE: Duration = Duration::from_mins(1);

/// A gate to this cloud where GET reads, `/list` has pages, each first segment is a scope, and any other method changes
/// something in it.
fn gate(cloud: &Cloud) -> Watched {
    let rule = |method: &str, path: &str, effect| Rule {
        host: NAME.parse().unwrap(),
        method: method.parse().unwrap(),
        path: path.parse().unwrap(),
        operation: None,
        effect,
        limits: vec!["all".parse().unwrap()],
        cache_scope: Some("{1}".parse().unwrap()),
        fold_case: false,
        page: None,
    };
    let page = Some(Place::Query("page".to_owned()));
    let rules = vec![
        Rule { cache_scope: None, page, ..rule("GET", "/list", Effect::Read) },
        rule("GET", "/*/**", Effect::Read),
        rule("*", "/*/**", Effect::Write),
    ];
    let limits = vec![Limit::new("all", 1000, 1000.0).unwrap()];
    Watched::of(
        Config { grants: vec![cloud.grant()], rules, limits, ..nothing() },
        Answers::new(&[&["127.0.0.1"]]),
    )
}

/// A cloud whose responses come from this function, which gets each request as text.
async fn answering<F>(answer: impl Fn(String) -> F + Send + Sync + 'static) -> Cloud
where
    F: Future<Output = String> + Send + 'static,
{
    let answer = Arc::new(answer);
    Cloud::serving(move |mut stream, seen| {
        let answer = answer.clone();
        async move {
            while let Some(request) = seen.request(&mut stream).await {
                let answer = answer(request).await;
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
    .await
}

/// A cloud that answers each request with its number.
async fn counting() -> Cloud {
    let count = AtomicUsize::new(0);
    answering(move |_| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        async move { ok("", &number.to_string()) }
    })
    .await
}

/// A cloud that doesn't answer until the test lets it.
async fn holding() -> (Cloud, Arc<Notify>) {
    let go = Arc::new(Notify::new());
    let cloud = {
        let go = go.clone();
        answering(move |_| {
            let go = go.clone();
            async move {
                go.notified().await;
                ok("", "late")
            }
        })
        .await
    };
    (cloud, go)
}

fn ok(lines: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{lines}content-length: {}\r\n\r\n{body}", body.len())
}

async fn read(gate: &Gate, uri: &str, view: &View) -> String {
    text(gate.clone().with_view(view.clone()).send(get(uri), plenty()).await.unwrap()).await.unwrap()
}

/// Starts a read in a task of its own.
fn reading(gate: &Gate, uri: &str) -> tokio::task::JoinHandle<Result<String, Error>> {
    let (gate, request) = (gate.clone().with_view(View::at_most(MINUTE)), get(uri));
    tokio::spawn(async move { text(gate.send(request, plenty()).await?).await })
}

/// How many requests ended with this result.
fn counted(gate: &Watched, result: &str) -> u64 {
    let label = format!("result=\"{result}\"}} ");
    let metrics = gate.metrics();
    let lines = metrics.lines().filter(|line| line.starts_with("pileus_gate_requests_total"));
    lines.filter_map(|line| line.split_once(&label)?.1.parse::<u64>().ok()).sum()
}

fn with_control(uri: &str, control: &str) -> http::Request<Full<Bytes>> {
    http::Request::get(uri).header("cache-control", control).body(Full::default()).unwrap()
}

#[tokio::test]
async fn five_hundred_equal_reads_at_once_make_one_exchange() {
    let (cloud, go) = holding().await;
    let gate = gate(&cloud);
    let uri = cloud.uri("/a/b");
    let readers: Vec<_> = (0..500).map(|_| reading(&gate.gate, &uri)).collect();
    cloud.arrived(1).await;
    sleep(SHORT).await;
    assert_eq!(gate.gate.cache().fetches, 1);
    go.notify_one();
    for reader in join_all(readers).await {
        assert_eq!(reader.unwrap().unwrap(), "late");
    }
    assert_eq!(cloud.requests().len(), 1);
    assert_eq!((counted(&gate, "ok"), counted(&gate, "shared")), (1, 499));
    assert_eq!(gate.gate.cache().fetches, 0);
}

#[tokio::test]
async fn a_view_gets_responses_that_are_young_enough_and_their_age() {
    let cloud = counting().await;
    let gate = gate(&cloud);
    let uri = cloud.uri("/a/b");
    let (first, begun) = (View::fresh(), Instant::now());
    assert_eq!(read(&gate.gate, &uri, &first).await, "1");
    assert_eq!(first.evidence().oldest, None, "it asked itself");
    sleep(Duration::from_millis(1100)).await;
    let old = View::at_most(MINUTE);
    let answer = gate.gate.clone().with_view(old.clone()).send(get(&uri), plenty()).await.unwrap();
    let age: u64 = answer.headers()["age"].to_str().unwrap().parse().unwrap();
    assert!((1..=begun.elapsed().as_secs()).contains(&age), "{age}");
    assert_eq!(text(answer).await.unwrap(), "1");
    let age = old.evidence().oldest.unwrap().elapsed();
    assert!(age > Duration::from_secs(1) && age < Duration::from_secs(10), "{age:?}");
    assert_eq!(read(&gate.gate, &uri, &View::at_most(Duration::from_secs(1))).await, "2");
    assert_eq!(read(&gate.gate, &uri, &first).await, "2", "asked for after the view was made");
    assert_eq!(read(&gate.gate, &uri, &View::fresh()).await, "3");
    for (control, expected) in [("no-cache", "4"), ("no-store", "5")] {
        let gate = gate.gate.clone().with_view(View::at_most(MINUTE));
        let answer = gate.send(with_control(&uri, control), plenty()).await.unwrap();
        assert_eq!(text(answer).await.unwrap(), expected);
    }
    assert_eq!(read(&gate.gate, &uri, &View::at_most(MINUTE)).await, "4", "what wasn't to be kept isn't");
    assert_eq!(text(gate.get(&uri).await.unwrap()).await.unwrap(), "6", "without a view");
    assert_eq!(read(&gate.gate, &cloud.uri("/a/c"), &View::at_most(MINUTE)).await, "7");
    assert_eq!((counted(&gate, "ok"), counted(&gate, "cached")), (7, 3));
    let state = gate.gate.cache();
    assert_eq!((state.entries, state.cached, state.missed), (2, 3, 5));
    assert!(gate.metrics().contains("pileus_gate_cache_entries{provider=\"test\"} 2"), "{}", gate.metrics());
}

#[tokio::test]
async fn a_change_reads_from_the_cache_only_what_its_request_allows() {
    let cloud = counting().await;
    let gate = gate(&cloud);
    let uri = cloud.uri("/a/b");
    let call = gate.gate.clone().with_view(View::as_requested());
    let send = async |control: &str| {
        let response = call.send(with_control(&uri, control), plenty()).await.unwrap();
        let status = response.status().as_u16();
        let text = text(response).await.unwrap();
        if status == 200 { text } else { status.to_string() }
    };
    let read_plainly = async || text(call.send(get(&uri), plenty()).await.unwrap()).await.unwrap();
    assert_eq!(read(&gate.gate, &uri, &View::fresh()).await, "1");
    assert_eq!(read_plainly().await, "2", "without max-age the cloud is asked");
    for (control, expected) in [
        ("max-age=60", "1"),
        ("max-stale=60", "3"),
        ("only-if-cached", "504"),
        ("only-if-cached, max-age=60", "1"),
        ("no-store, max-age=60", "4"),
        ("max-age=60", "1"),
        ("max-age=0", "5"),
        ("max-age=60", "5"),
    ] {
        assert_eq!(send(control).await, expected, "{control}");
    }
    pass(Duration::from_secs(30)).await;
    assert_eq!(send("max-age=60").await, "5");
    assert_eq!(send("max-age=29").await, "6", "it is older than that");
    assert_eq!(send("max-age=29").await, "6", "a change fills the cache where it may read it");
    let put = http::Request::put(&uri).body(Full::default()).unwrap();
    assert_eq!(text(call.send(put, plenty()).await.unwrap()).await.unwrap(), "7");
    assert_eq!(send("max-age=60").await, "8", "its own write drops it");
}

#[tokio::test]
async fn an_old_response_is_revalidated_and_is_then_as_new_as_the_clouds_answer() {
    let cloud = answering(|request| async move {
        if request.contains("if-none-match: \"v1\"") {
            "HTTP/1.1 304 Not Modified\r\netag: \"v1\"\r\n\r\n".to_owned()
        } else {
            ok("etag: \"v1\"\r\ncache-control: no-store\r\nset-cookie: a=b\r\n", "body")
        }
    })
    .await;
    let gate = gate(&cloud);
    let uri = cloud.uri("/a/b");
    assert_eq!(read(&gate.gate, &uri, &View::fresh()).await, "body");
    let fresh = View::fresh();
    let answer = gate.gate.clone().with_view(fresh.clone()).send(get(&uri), plenty()).await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["etag"]), (200, &"\"v1\"".parse().unwrap()));
    assert!(!answer.headers().contains_key("set-cookie"));
    assert_eq!(text(answer).await.unwrap(), "body");
    assert_eq!(read(&gate.gate, &uri, &fresh).await, "body");
    assert_eq!(cloud.requests().len(), 2);
    assert!(!cloud.requests()[0].contains("if-none-match"));
    assert_eq!((counted(&gate, "ok"), counted(&gate, "revalidated"), counted(&gate, "cached")), (1, 1, 1));
    // A request with its own condition gets the cloud's response to it.
    let own = http::Request::get(&uri).header("if-none-match", "\"v1\"").body(Full::default()).unwrap();
    let own = gate.gate.clone().with_view(View::at_most(MINUTE)).send(own, plenty()).await.unwrap();
    assert_eq!(own.status(), 304);
}

#[tokio::test]
async fn a_change_drops_its_scope_at_its_beginning_and_its_end_even_if_its_caller_has_gone() {
    let go = Arc::new(Notify::new());
    let (held, count) = (go.clone(), AtomicUsize::new(0));
    let cloud = answering(move |request| {
        let (held, number) = (held.clone(), count.fetch_add(1, Ordering::SeqCst) + 1);
        async move {
            if request.starts_with("PUT") || request.contains("/a/slow") {
                held.notified().await;
            }
            ok("", &number.to_string())
        }
    })
    .await;
    let gate = gate(&cloud);
    let old = || View::at_most(MINUTE);
    let (here, elsewhere) = (cloud.uri("/a/b"), cloud.uri("/c/d"));
    assert_eq!(read(&gate.gate, &here, &old()).await, "1");
    assert_eq!(read(&gate.gate, &elsewhere, &old()).await, "2");
    let put = http::Request::put(&here).body(Full::from("x")).unwrap();
    {
        let caller = gate.gate.send(put, plenty());
        let arrives = cloud.arrived(3);
        tokio::select! {
            _ = caller => unreachable!("the cloud does not answer"),
            () = arrives => {}
        }
    }
    assert_eq!(gate.gate.writes_in_flight(), 1);
    assert_eq!(read(&gate.gate, &here, &old()).await, "4", "dropped at its begin");
    assert_eq!(read(&gate.gate, &here, &old()).await, "5", "and not kept meanwhile");
    assert_eq!(read(&gate.gate, &elsewhere, &old()).await, "2", "another scope");
    let slow = cloud.uri("/a/slow");
    let before = reading(&gate.gate, &slow);
    cloud.arrived(6).await;
    let joins = reading(&gate.gate, &slow);
    sleep(SHORT).await;
    assert_eq!(cloud.requests().len(), 6, "asked for during the change, shared during the change");
    go.notify_one();
    gate.gate.wait_for_writes().await;
    let after = reading(&gate.gate, &slow);
    cloud.arrived(7).await;
    go.notify_waiters();
    assert_eq!(before.await.unwrap().unwrap(), "6");
    assert_eq!(joins.await.unwrap().unwrap(), "6");
    assert_eq!(
        after.await.unwrap().unwrap(),
        "7",
        "what was asked for before the change ended is not for it"
    );
    assert_eq!(read(&gate.gate, &elsewhere, &old()).await, "2");
    let everything = http::Request::delete(cloud.uri("/")).body(Full::default()).unwrap();
    gate.gate.send(everything, plenty()).await.unwrap();
    assert_eq!(read(&gate.gate, &elsewhere, &old()).await, "9", "of no known scope");
}

#[tokio::test]
async fn an_exchange_goes_on_as_long_as_a_caller_waits_for_it() {
    let (cloud, go) = holding().await;
    let gate = gate(&cloud);
    let uri = cloud.uri("/a/b");
    let (first, second) = (reading(&gate.gate, &uri), reading(&gate.gate, &uri));
    cloud.arrived(1).await;
    sleep(SHORT).await;
    first.abort();
    sleep(SHORT).await;
    go.notify_one();
    assert_eq!(second.await.unwrap().unwrap(), "late", "the first caller has gone");
    let uri = cloud.uri("/a/c");
    let both = [reading(&gate.gate, &uri), reading(&gate.gate, &uri)];
    cloud.arrived(2).await;
    both.iter().for_each(tokio::task::JoinHandle::abort);
    join_all(both).await;
    timeout(plenty_of_time(), async {
        while gate.gate.cache().fetches > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    let again = reading(&gate.gate, &uri);
    cloud.arrived(3).await;
    // The request that was given up takes the first, if its connection was still open.
    go.notify_waiters();
    assert_eq!(again.await.unwrap().unwrap(), "late");
}

fn plenty_of_time() -> Duration {
    Duration::from_secs(10)
}

#[tokio::test]
async fn a_caller_with_more_time_than_the_first_one_gets_the_answer_to_its_request() {
    let (cloud, go) = holding().await;
    let gate = gate(&cloud);
    let uri = cloud.uri("/a/b");
    let short = gate.gate.clone().with_view(View::at_most(MINUTE));
    let short = async {
        let refused = short.send(get(&uri), within(Duration::from_secs(2))).await;
        go.notify_one();
        refused
    };
    let long = async {
        cloud.arrived(1).await;
        read(&gate.gate, &uri, &View::at_most(MINUTE)).await
    };
    let (short, long) = tokio::join!(short, long);
    assert!(matches!(short, Err(Error::Timeout { phase: Phase::FirstByte, .. })), "{short:?}");
    assert_eq!((long.as_str(), cloud.requests().len()), ("late", 1));
}

/// A cloud that answers with a body of ten bytes, one each time that the test lets it.
async fn dripping() -> (Cloud, Arc<Notify>) {
    let go = Arc::new(Notify::new());
    let drops = go.clone();
    let cloud = Cloud::serving(move |mut stream, seen| {
        let drops = drops.clone();
        async move {
            while seen.request(&mut stream).await.is_some() {
                let _sent = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n").await;
                for _ in 0..10 {
                    drops.notified().await;
                    let _sent = stream.write_all(b".").await;
                }
            }
        }
    })
    .await;
    (cloud, go)
}

/// A call that has 1.5 s, and reads what is at most this old.
async fn impatient(gate: &Gate, uri: &str, age: Duration) -> Result<String, Error> {
    let gate = gate.clone().with_view(View::at_most(age));
    text(gate.send(get(uri), within(Duration::from_millis(1_500))).await?).await
}

#[tokio::test]
async fn a_read_that_its_caller_has_no_time_for_serves_the_next_call() {
    let (cloud, go) = dripping().await;
    let gate = gate(&cloud);
    let uri = cloud.uri("/a/b");
    let first = impatient(&gate.gate, &uri, Duration::from_secs(1)).await;
    assert!(matches!(first, Err(Error::Timeout { phase: Phase::Call, .. })), "{first:?}");
    assert_eq!(gate.gate.cache().fetches, 1, "it goes on");
    let drips = async {
        for _ in 0..10 {
            go.notify_one();
            sleep(Duration::from_millis(20)).await;
        }
    };
    // The fetch is older than what the next call reads from the cache, but there is no other.
    let (next, ()) = tokio::join!(impatient(&gate.gate, &uri, Duration::from_millis(100)), drips);
    assert_eq!((next.unwrap().as_str(), cloud.requests().len()), ("..........", 1));
    assert_eq!(gate.gate.cache().fetches, 0);
}

#[tokio::test]
async fn an_answer_that_is_lost_is_asked_for_again() {
    // The first request has no answer, on a connection that stays open.
    let count = Arc::new(AtomicUsize::new(0));
    let cloud = answering(move |_| {
        let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if is_first {
                std::future::pending::<()>().await;
            }
            ok("", "here")
        }
    })
    .await;
    let gate = gate(&cloud);
    let uri = cloud.uri("/a/b");
    assert!(impatient(&gate.gate, &uri, MINUTE).await.is_err());
    assert_eq!(impatient(&gate.gate, &uri, MINUTE).await.unwrap(), "here");
    assert_eq!(cloud.requests().len(), 2);
}

#[tokio::test]
async fn few_reads_go_on_without_a_caller_and_none_in_a_closed_gate() {
    let (cloud, _go) = holding().await;
    let gate = gate(&cloud);
    let uris: Vec<_> = (0..40).map(|number| cloud.uri(&format!("/a/{number}"))).collect();
    let all = uris.iter().map(|uri| impatient(&gate.gate, uri, MINUTE));
    // The gate's own limits answer those that they don't let through.
    let is_late = |answer: &Result<String, Error>| answer.as_ref().is_ok_and(|text| text == "late");
    assert!(!join_all(all).await.iter().any(is_late));
    let left = async |expected: usize| {
        let waits = timeout(plenty_of_time(), async {
            while gate.gate.cache().fetches != expected {
                sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(waits.await.is_ok(), "{} instead of {expected}", gate.gate.cache().fetches);
    };
    let going_on = gate.gate.cache().fetches;
    assert!((1..=16).contains(&going_on), "{going_on}");
    gate.gate.close();
    left(0).await;
}

#[tokio::test]
async fn a_caller_with_less_time_leaves_the_exchange_to_the_others() {
    let (cloud, go) = holding().await;
    let gate = gate(&cloud);
    let uri = cloud.uri("/a/b");
    let long = reading(&gate.gate, &uri);
    cloud.arrived(1).await;
    let short = gate.gate.clone().with_view(View::at_most(MINUTE));
    let short = short.send(get(&uri), within(Duration::from_millis(200))).await;
    assert!(matches!(short, Err(Error::Timeout { .. })), "{short:?}");
    go.notify_one();
    assert_eq!(long.await.unwrap().unwrap(), "late");
    assert_eq!(cloud.requests().len(), 1);
}

#[tokio::test]
async fn a_more_urgent_caller_does_not_wait_behind_a_less_urgent_exchange() {
    let cloud = counting().await;
    let gate = {
        let rule = Rule { limits: vec!["reads".parse().unwrap()], ..rule("GET", "/**", Effect::Read) };
        let limits = vec![Limit::new("reads", 1, 2.0).unwrap()];
        let config = Config { grants: vec![cloud.grant()], rules: vec![rule], limits, ..nothing() };
        Watched::of(config, Answers::new(&[&["127.0.0.1"]]))
    };
    let uri = cloud.uri("/a/b");
    let others: Vec<_> =
        (0..20).map(|number| reading(&gate.gate, &cloud.uri(&format!("/{number}")))).collect();
    let patient = reading(&gate.gate, &uri);
    sleep(SHORT).await;
    let urgent = gate.gate.clone().with_urgency(Urgency::User).with_view(View::at_most(MINUTE));
    let urgent = timeout(Duration::from_secs(3), urgent.send(get(&uri), plenty())).await;
    assert!(urgent.unwrap().is_ok());
    assert!(!patient.is_finished());
    others.iter().chain([&patient]).for_each(tokio::task::JoinHandle::abort);
    let is_waiting = || gate.gate.limits().waiting.iter().any(|(_, count)| *count > 0);
    timeout(plenty_of_time(), async {
        while is_waiting() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_request_for_a_cached_response_only_gets_504_if_there_is_none() {
    let cloud = counting().await;
    let gate = gate(&cloud);
    let uri = cloud.uri("/a/b");
    let send = async || {
        let gate = gate.gate.clone().with_view(View::at_most(MINUTE));
        gate.send(with_control(&uri, "only-if-cached"), plenty()).await.unwrap()
    };
    let answer: http::Response<Body> = send().await;
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["pileus-gate"]),
        (504, &"reason=not_cached".parse().unwrap())
    );
    assert_eq!(cloud.requests().len(), 0);
    read(&gate.gate, &uri, &View::fresh()).await;
    assert_eq!(text(send().await).await.unwrap(), "1");
    assert_eq!((counted(&gate, "not_cached"), counted(&gate, "cached"), counted(&gate, "ok")), (1, 1, 1));
}

#[tokio::test]
async fn a_refusal_goes_to_all_waiting_callers_and_is_not_kept() {
    let (count, go) = (AtomicUsize::new(0), Arc::new(Notify::new()));
    let held = go.clone();
    let cloud = answering(move |_| {
        let (held, number) = (held.clone(), count.fetch_add(1, Ordering::SeqCst));
        async move {
            if number > 0 {
                return ok("", "good");
            }
            held.notified().await;
            "HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n".to_owned()
        }
    })
    .await;
    let gate = gate(&cloud);
    let uri = cloud.uri("/a/b");
    let sends: Vec<_> = (0..3)
        .map(|_| {
            let (gate, request) = (gate.gate.clone().with_view(View::fresh()), get(&uri));
            tokio::spawn(async move { gate.send(request, plenty()).await.unwrap().status() })
        })
        .collect();
    cloud.arrived(1).await;
    sleep(SHORT).await;
    go.notify_one();
    assert!(join_all(sends).await.into_iter().all(|status| status.unwrap() == 500));
    assert_eq!(cloud.requests().len(), 1);
    assert_eq!(read(&gate.gate, &uri, &View::at_most(MINUTE)).await, "good");
}

#[tokio::test]
async fn the_pages_of_a_list_come_from_one_paged_read_or_the_view_says_so() {
    let cloud = counting().await;
    let gate = gate(&cloud);
    let pages = ["/list?a=1", "/list?page=2&a=1", "/list?a=1&page=3"].map(|path| cloud.uri(path));
    let all = async |view: &View| {
        let mut found = Vec::new();
        for page in &pages {
            found.push(read(&gate.gate, page, view).await);
        }
        found.join(" ")
    };
    let (one, two, three) = (View::fresh(), View::at_most(MINUTE), View::fresh());
    assert_eq!(all(&one).await, "1 2 3");
    assert_eq!(all(&two).await, "1 2 3");
    assert_eq!(all(&three).await, "1 2 3", "it was begun after this view was made");
    assert_eq!(read(&gate.gate, &pages[0], &two).await, "1");
    drop((one, three));
    let four = View::fresh();
    assert_eq!(all(&four).await, "4 5 6");
    assert_eq!(read(&gate.gate, &pages[1], &two).await, "7", "the sweep that it reads is no more");
    assert!(two.evidence().is_torn && !four.evidence().is_torn);
    let five = View::at_most(MINUTE);
    assert_eq!(read(&gate.gate, &pages[2], &five).await, "8", "of which no first page was seen");
    assert!(five.evidence().is_torn);
    let six = View::at_most(MINUTE);
    assert_eq!(all(&six).await, "4 5 6");
    assert!(!six.evidence().is_torn);
    assert_eq!(gate.gate.cache().entries, 3);
}

#[tokio::test]
async fn views_that_read_a_list_at_once_follow_one_sweep_and_a_stricter_one_waits_for_its_end() {
    let cloud = answering(|request| async move {
        sleep(SHORT).await;
        ok("", request.split(' ').nth(1).unwrap())
    })
    .await;
    let gate = gate(&cloud);
    let pages = ["/list", "/list?page=2", "/list?page=3"].map(|path| cloud.uri(path));
    let all = |view: View| {
        let (gate, pages) = (gate.gate.clone(), pages.clone());
        tokio::spawn(async move {
            for page in &pages {
                read(&gate, page, &view).await;
            }
            view.evidence().is_torn
        })
    };
    let mut views: Vec<_> = (0..50).map(|_| all(View::fresh())).collect();
    cloud.arrived(2).await;
    views.extend((0..50).map(|_| all(View::fresh())));
    for torn in join_all(views).await {
        assert!(!torn.unwrap());
    }
    assert_eq!(cloud.requests().len(), 6, "two sweeps of three pages");
}

#[tokio::test]
async fn a_closed_gate_ends_the_wait_for_the_rest_of_a_response() {
    let cloud = answering(|_| async { "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".to_owned() }).await;
    let gate = gate(&cloud);
    let reads = [reading(&gate.gate, &cloud.uri("/a/1")), reading(&gate.gate, &cloud.uri("/a/1"))];
    cloud.arrived(1).await;
    sleep(SHORT).await;
    gate.gate.close();
    for read in reads {
        let answer = timeout(plenty_of_time(), read).await.unwrap().unwrap();
        assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
    }
    assert_eq!(counted(&gate, "closed"), 2);
}

#[tokio::test]
async fn responses_that_are_being_read_take_bounded_memory() {
    // Five of 15 MiB at once are more than 64 MiB.
    let body = "x".repeat(15 << 20);
    let (count, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let cloud = answering(move |_| {
        let (answer, count, go) = (ok("", &body), count.clone(), go.clone());
        async move {
            if count.fetch_add(1, Ordering::SeqCst) >= 4 {
                go.notify_waiters();
            } else {
                go.notified().await;
            }
            answer
        }
    })
    .await;
    let gate = gate(&cloud);
    let view = View::fresh();
    let sends = (0..5).map(|number| {
        let (gate, uri) = (gate.gate.clone().with_view(view.clone()), cloud.uri(&format!("/a/{number}")));
        // So many bytes take a busy machine a while.
        async move { gate.send(get(&uri), within(4 * MINUTE)).await }
    });
    let answers = join_all(sends).await;
    let failed: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert!(matches!(failed[..], [Error::ResponseTooLarge { .. }]), "{failed:?}");
    assert_eq!(counted(&gate, "response_too_large"), 1);
    drop(answers);
    assert!(gate.gate.with_view(view).send(get(&cloud.uri("/a/6")), within(MINUTE)).await.is_ok());
}
