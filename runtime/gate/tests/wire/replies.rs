//! How the requests of a call were answered, on real sockets: what counts as an answer, and what as a failure.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use pileus_gate::{
    Classification, Config, Effect, Fence, Gate, Interception, Interceptor, Limit, Replies, ReplyCounts,
    Request, Rule, View,
};

use crate::cloud::{Answers, Cloud, Watched, get, nothing, plenty, rule, within};

fn watched(cloud: &Cloud, rules: Vec<Rule>) -> Watched {
    Watched::with(vec![cloud.grant()], Answers::new(&[&["127.0.0.1"]]), rules, Fence::default())
}

const NONE: ReplyCounts =
    ReplyCounts { complete: 0, gone: 0, incomplete: 0, changed: 0, refused: 0, failed: 0 };

/// How much of an answer is read.
#[derive(Debug, Clone, Copy)]
enum Reader {
    Whole,
    FirstFrame,
    Nothing,
}

async fn send(gate: &Gate, method: &str, uri: &str, reader: Reader) {
    let request = http::Request::builder().method(method).uri(uri).body(Full::<Bytes>::default()).unwrap();
    let Ok(response) = gate.send(request, plenty()).await else { return };
    let mut body = response.into_body();
    match reader {
        Reader::Whole => while let Some(Ok(_)) = body.frame().await {},
        Reader::FirstFrame => drop(body.frame().await),
        Reader::Nothing => {}
    }
}

#[tokio::test]
async fn each_answer_counts_as_what_it_says_however_it_is_sent() {
    let cloud = Cloud::by_path().await;
    let (complete, gone) = (ReplyCounts { complete: 1, ..NONE }, ReplyCounts { gone: 1, ..NONE });
    let (incomplete, changed) = (ReplyCounts { incomplete: 1, ..NONE }, ReplyCounts { changed: 1, ..NONE });
    let (refused, failed) = (ReplyCounts { refused: 1, ..NONE }, ReplyCounts { failed: 1, ..NONE });
    let mut rows = vec![
        ("GET", "/200", Reader::Whole, complete),
        ("GET", "/chunks", Reader::Whole, complete),
        ("GET", "/204", Reader::Nothing, complete),
        ("GET", "/200", Reader::FirstFrame, incomplete),
        ("GET", "/chunks", Reader::FirstFrame, incomplete),
        ("GET", "/200", Reader::Nothing, incomplete),
        ("GET", "/cut", Reader::Whole, failed),
        ("GET", "/302", Reader::Whole, NONE),
        ("GET", "/404", Reader::Nothing, gone),
        ("GET", "/410", Reader::Whole, gone),
        ("PUT", "/200", Reader::Nothing, changed),
        ("DELETE", "/204", Reader::Nothing, changed),
        ("DELETE", "/404", Reader::Nothing, changed),
        ("DELETE", "/500", Reader::Whole, failed),
    ];
    for status in ["/400", "/405", "/409", "/412", "/422"] {
        rows.push(("GET", status, Reader::Whole, refused));
        rows.push(("DELETE", status, Reader::Whole, refused));
    }
    for status in ["/401", "/403", "/407", "/408", "/425", "/429", "/500", "/503", "/504"] {
        rows.push(("GET", status, Reader::Whole, failed));
    }
    for (method, path, reader, expected) in rows {
        // A read goes by the cache where a view allows it, and past it otherwise.
        for view in [None, Some(View::fresh()), Some(View::fresh())] {
            for rules in [Vec::new(), vec![rule("GET", "/**", Effect::Read)]] {
                let (gate, replies) = (watched(&cloud, rules).gate, Replies::default());
                let gate = match &view {
                    Some(view) => gate.with_view(view.clone()),
                    None => gate,
                };
                send(&gate.with_replies(replies.clone()), method, &cloud.uri(path), reader).await;
                assert_eq!(replies.counts(), expected, "{method} {path} {reader:?} {view:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_poll_of_an_operation_is_no_read_and_a_post_is_one_only_by_a_rule() {
    let cloud = Cloud::by_path().await;
    let rules = vec![rule("GET", "/200", Effect::OperationPoll), rule("POST", "/200", Effect::Read)];
    for (rules, method, expected) in [
        (rules.clone(), "GET", ReplyCounts { changed: 1, ..NONE }),
        (rules, "POST", ReplyCounts { complete: 1, ..NONE }),
        (Vec::new(), "POST", ReplyCounts { changed: 1, ..NONE }),
    ] {
        let replies = Replies::default();
        let gate = watched(&cloud, rules).gate.with_replies(replies.clone());
        send(&gate, method, &cloud.uri("/200"), Reader::Whole).await;
        assert_eq!(replies.counts(), expected, "{method}");
    }
}

#[tokio::test]
async fn the_last_answer_to_a_request_counts_and_one_that_is_given_up_takes_nothing_back() {
    let (cloud, replies) = (Cloud::by_path().await, Replies::default());
    let gate = watched(&cloud, Vec::new()).gate.with_replies(replies.clone());
    send(&gate, "GET", &cloud.uri("/flaky"), Reader::Whole).await;
    assert_eq!(replies.counts(), ReplyCounts { failed: 1, ..NONE });
    send(&gate, "GET", &cloud.uri("/flaky"), Reader::Whole).await;
    assert_eq!(replies.counts(), ReplyCounts { complete: 1, ..NONE });
    send(&gate, "GET", &cloud.uri("/flaky"), Reader::Nothing).await;
    assert_eq!(replies.counts(), ReplyCounts { complete: 1, ..NONE });
    let again = gate.send(get(&cloud.uri("/flaky")), plenty());
    drop(Box::pin(again));
    assert_eq!(replies.counts(), ReplyCounts { complete: 1, ..NONE });
    for _ in 0..2 {
        send(&gate, "GET", &cloud.uri("/404"), Reader::Nothing).await;
        send(&gate, "GET", "http://denied.example/", Reader::Nothing).await;
    }
    assert_eq!(replies.counts(), ReplyCounts { complete: 1, gone: 1, failed: 2, ..NONE });
}

#[tokio::test]
async fn a_request_without_an_answer_has_failed_while_it_waits_and_afterwards() {
    let (cloud, replies) = (Cloud::by_path().await, Replies::default());
    let rules = vec![rule("GET", "/**", Effect::Read)];
    let gate = watched(&cloud, rules).gate.with_replies(replies.clone());
    let mut waiting = Box::pin(gate.send(get(&cloud.uri("/silent")), plenty()));
    tokio::select! {
        biased;
        _ = &mut waiting => unreachable!("the cloud is silent"),
        () = cloud.arrived(1) => {}
    }
    assert_eq!(replies.counts(), ReplyCounts { failed: 1, ..NONE });
    drop(waiting);
    assert_eq!(replies.counts(), ReplyCounts { failed: 1, ..NONE });
    let short = within(Duration::from_millis(50));
    assert!(gate.send(get(&cloud.uri("/silent")), short).await.is_err());
    assert_eq!(replies.counts(), ReplyCounts { failed: 1, ..NONE }, "the same request");
    drop(replies.expect());
    assert_eq!(replies.counts(), ReplyCounts { failed: 2, ..NONE }, "it never came");
    let expected = replies.expect();
    assert_eq!(replies.counts(), ReplyCounts { failed: 3, ..NONE });
    expected.arrive();
    assert_eq!(replies.counts(), ReplyCounts { failed: 2, ..NONE });
}

#[derive(Debug)]
struct Empty;

impl Interceptor for Empty {
    fn intercept(&self, _: &Request, _: &[u8], _: &Classification) -> Interception {
        Interception::Respond(http::Response::new(Bytes::from("[]")))
    }
}

#[tokio::test]
async fn what_the_gate_answers_is_no_answer_of_the_cloud_and_the_cache_has_one() {
    let cloud = Cloud::by_path().await;
    let rules = vec![rule("GET", "/**", Effect::Read)];
    let failed = ReplyCounts { failed: 1, ..NONE };

    let replies = Replies::default();
    let gate = watched(&cloud, rules.clone()).gate.with_interceptor(Arc::new(Empty));
    send(&gate.with_replies(replies.clone()), "GET", &cloud.uri("/200"), Reader::Whole).await;
    assert_eq!(replies.counts(), failed);

    let (limits, replies) = (vec![Limit::new("all", 1, 0.1).unwrap()], Replies::default());
    let limited = Rule { limits: vec!["all".parse().unwrap()], ..rule("GET", "/**", Effect::Read) };
    let config = Config { grants: vec![cloud.grant()], rules: vec![limited], limits, ..nothing() };
    let gate = Watched::of(config, Answers::new(&[&["127.0.0.1"]])).gate;
    send(&gate, "GET", &cloud.uri("/200"), Reader::Whole).await;
    let gate = gate.with_replies(replies.clone());
    let held_back = gate.send(get(&cloud.uri("/404")), within(Duration::from_millis(100))).await;
    assert!(held_back.is_ok_and(|response| response.status() == 429));
    assert_eq!(replies.counts(), failed);

    let gate = watched(&cloud, rules).gate;
    let view = View::at_most(Duration::from_mins(1));
    for expected in [NONE, ReplyCounts { complete: 1, ..NONE }] {
        let replies = Replies::default();
        let gate = gate.clone().with_view(view.clone()).with_replies(replies.clone());
        let uri = cloud.uri("/200");
        let request = http::Request::get(&uri).header("cache-control", "only-if-cached");
        let response = gate.send(request.body(Full::<Bytes>::default()).unwrap(), plenty()).await.unwrap();
        drop(response.into_body().collect().await);
        assert_eq!(replies.counts(), expected);
        send(&gate, "GET", &uri, Reader::Whole).await;
    }
}
