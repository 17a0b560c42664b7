//! The debug page as text: limits, waiting requests, credentials, and the results of the last requests.

use std::time::Duration;

use pileus_gate::{CacheState, CredentialState, LimitState, LimitsState, Rate, RecentRequest};

use super::table::{
    Column::{Number, Text},
    table,
};
use super::view::{View, seconds, timestamp};

/// The page for a view of a gate.
pub(super) fn page(view: &View) -> String {
    let View { provider, at, now: _, writes_in_flight, limits, cache, credentials, requests } = view;
    let LimitsState { limits, paused_resources, waiting, waiting_bytes } = limits;
    let waiting: Vec<_> =
        waiting.iter().map(|(urgency, count)| format!("{count} {}", urgency.label())).collect();
    [
        format!("provider {provider}, {at:.0}\n"),
        format!("waiting for limits: {} ({waiting_bytes} bytes)\n", waiting.join(", ")),
        format!("writes in flight: {writes_in_flight}\n"),
        format!("paused resources: {paused_resources}\n"),
        "\nLIMITS, in requests per second (and burst)\n".to_owned(),
        limits_table(limits),
        "\nCACHE\n".to_owned(),
        cache_table(cache),
        "\nCREDENTIALS\n".to_owned(),
        credentials_table(credentials),
        "\nLAST REQUESTS, times in seconds\n".to_owned(),
        requests_table(view, requests),
    ]
    .concat()
}

/// A cell without a value.
const NONE: &str = "-";

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| NONE.to_owned())
}

fn limits_table(limits: &[LimitState]) -> String {
    let rate = |rate: Rate| format!("{} ({})", rounded(rate.per_second), rounded(rate.burst));
    let row = |limit: &LimitState| {
        let LimitState { key, declared, configured, learned, rate: in_force, tokens, buckets, paused_for } =
            limit;
        let known = [declared, configured, learned].into_iter().any(Option::is_some);
        [
            key.clone(),
            or_none(declared.map(rate)),
            or_none(configured.map(rate)),
            or_none(learned.map(rate)),
            or_none(known.then(|| rate(*in_force))),
            or_none(known.then(|| rounded(tokens.floor()).to_string())),
            buckets.to_string(),
            paused_for.map_or_else(|| "open".to_owned(), |time| format!("paused for {} s", seconds(time))),
        ]
    };
    let columns = [
        Text("NAME"),
        Number("DECLARED"),
        Number("CONFIGURED"),
        Number("LEARNED"),
        Number("IN FORCE"),
        Number("TOKENS"),
        Number("BUCKETS"),
        Text("STATE"),
    ];
    table(&columns, limits.iter().map(row))
}

fn cache_table(cache: &CacheState) -> String {
    let CacheState { entries, bytes, fetches, cached, shared, revalidated, missed } = *cache;
    let columns = [
        Number("ENTRIES"),
        Number("BYTES"),
        Number("FLIGHTS"),
        Number("CACHED"),
        Number("SHARED"),
        Number("REVALIDATED"),
        Number("MISSED"),
    ];
    let held = [entries, bytes, fetches].map(|count| count.to_string());
    let answered = [cached, shared, revalidated, missed].map(|count| count.to_string());
    let ([entries, bytes, fetches], [cached, shared, revalidated, missed]) = (held, answered);
    table(&columns, [[entries, bytes, fetches, cached, shared, revalidated, missed]])
}

fn credentials_table(credentials: &[CredentialState]) -> String {
    let row = |credential: &CredentialState| {
        let CredentialState { name, kind, is_ready, until, failing } = credential;
        let time = |time| timestamp(time).map(|time| format!("{time:.0}"));
        [
            name.clone(),
            (*kind).to_owned(),
            if *is_ready { "ready" } else { "NOT READY" }.to_owned(),
            or_none(until.and_then(time)),
            or_none(failing.as_ref().and_then(|failing| time(failing.since))),
            or_none(failing.as_ref().map(|failing| failing.cause.clone())),
        ]
    };
    let columns =
        [Text("NAME"), Text("KIND"), Text("STATE"), Text("UNTIL"), Text("FAILING SINCE"), Text("CAUSE")];
    table(&columns, credentials.iter().map(row))
}

fn requests_table(view: &View, requests: &[RecentRequest]) -> String {
    let time = |time: Duration| format!("{:.3}", time.as_secs_f64());
    let row = |seen: &RecentRequest| {
        [
            format!("{:.3}", view.began_at(seen)),
            seen.method.clone(),
            or_none(seen.status.map(|status| status.as_u16().to_string())),
            seen.result.to_owned(),
            if seen.outlived_caller {
                format!("{}, unread", seen.source.label())
            } else {
                seen.source.label().to_owned()
            },
            seen.effect.to_owned(),
            seen.urgency.label().to_owned(),
            time(seen.waited),
            or_none(seen.answered.map(time)),
            time(seen.took),
            seen.sent.to_string(),
            seen.received.to_string(),
            seen.grant.to_string(),
            seen.url.clone(),
        ]
    };
    let columns = [
        Text("BEGAN"),
        Text("METHOD"),
        Number("STATUS"),
        Text("RESULT"),
        Text("FROM"),
        Text("EFFECT"),
        Text("URGENCY"),
        Number("WAITED"),
        Number("ANSWERED"),
        Number("TOOK"),
        Number("SENT"),
        Number("RECEIVED"),
        Text("GRANT"),
        Text("URL"),
    ];
    table(&columns, requests.iter().map(row))
}

/// A number with one decimal, or three if it is below 1.
fn rounded(number: f64) -> f64 {
    let places = if number < 1.0 { 1000.0 } else { 10.0 };
    (number * places).round() / places
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use pileus_gate::{Failing, Source, Urgency};
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::admin::debug::json::object;

    fn view() -> View {
        let rate = |per_second, burst| Rate { per_second, burst };
        let limit = LimitState {
            key: "reads".to_owned(),
            declared: Some(rate(25.0, 250.0)),
            configured: None,
            learned: Some(rate(0.123_456, 250.0)),
            rate: rate(0.123_456, 250.0),
            tokens: 1.9,
            buckets: 1,
            paused_for: Some(Duration::from_millis(1_500)),
        };
        let now = Instant::now();
        let seen = RecentRequest {
            begun: now - Duration::from_secs(2),
            grant: "cloud.example".into(),
            method: "GET".to_owned(),
            url: "https://cloud.example/v1/machines".to_owned(),
            effect: "read",
            urgency: Urgency::Background,
            result: "ok",
            status: Some(http::StatusCode::OK),
            source: Source::Shared,
            sent: 0,
            received: 4_096,
            waited: Duration::from_millis(250),
            answered: Some(Duration::from_millis(900)),
            took: Duration::from_secs(1),
            outlived_caller: false,
        };
        let failing = Failing { since: SystemTime::UNIX_EPOCH, cause: "the file\nis gone".to_owned() };
        let credential = CredentialState {
            name: "main".to_owned(),
            kind: "bearer",
            is_ready: true,
            until: Some(SystemTime::UNIX_EPOCH + Duration::from_mins(1)),
            failing: Some(failing),
        };
        let waiting = [(Urgency::User, 0), (Urgency::Initialise, 1), (Urgency::Background, 40)];
        View {
            provider: "azure".to_owned(),
            at: "2026-11-28T03:00:00Z".parse().unwrap(),
            now,
            writes_in_flight: 1,
            limits: LimitsState { limits: vec![limit], paused_resources: 2, waiting, waiting_bytes: 5_000 },
            cache: CacheState { entries: 3, bytes: 4_096, cached: 90, ..CacheState::default() },
            credentials: vec![credential],
            requests: vec![seen],
        }
    }

    #[test]
    fn the_page_shows_limits_waiting_requests_and_failing_credentials() {
        let page = page(&view());
        let expected = "\
provider azure, 2026-11-28T03:00:00Z
waiting for limits: 0 user, 1 initialise, 40 background (5000 bytes)
writes in flight: 1
paused resources: 2

LIMITS, in requests per second (and burst)
NAME   DECLARED  CONFIGURED      LEARNED     IN FORCE  TOKENS  BUCKETS  STATE
reads  25 (250)           -  0.123 (250)  0.123 (250)       1        1  paused for 1.5 s

CACHE
ENTRIES  BYTES  FLIGHTS  CACHED  SHARED  REVALIDATED  MISSED
      3   4096        0      90       0            0       0

CREDENTIALS
NAME  KIND    STATE  UNTIL                 FAILING SINCE         CAUSE
main  bearer  ready  1970-01-01T00:01:00Z  1970-01-01T00:00:00Z  the file is gone

LAST REQUESTS, times in seconds
BEGAN                     METHOD  STATUS  RESULT  FROM    EFFECT  URGENCY     WAITED  ANSWERED   TOOK  SENT  RECEIVED  GRANT          URL
2026-11-28T02:59:58.000Z  GET        200  ok      shared  read    background   0.250     0.900  1.000     0      4096  cloud.example  https://cloud.example/v1/machines
";
        assert_eq!(page, expected, "{page}");
    }

    #[test]
    fn the_object_has_the_same_values() {
        let object = object(&view());
        let limit = json!({
            "key": "reads", "declared": {"perSecond": 25.0, "burst": 250.0}, "configured": null,
            "learned": {"perSecond": 0.123_456, "burst": 250.0}, "inForce": {"perSecond": 0.123_456, "burst": 250.0},
            "tokens": 1.9, "buckets": 1, "pausedForSeconds": 1.5,
        });
        let credential = json!({
            "name": "main", "kind": "bearer", "ready": true, "until": "1970-01-01T00:01:00Z",
            "failing": {"since": "1970-01-01T00:00:00Z", "cause": "the file\nis gone"},
        });
        let request = json!({
            "began": "2026-11-28T02:59:58Z", "method": "GET", "url": "https://cloud.example/v1/machines",
            "grant": "cloud.example", "effect": "read", "urgency": "background", "result": "ok", "status": 200,
            "from": "shared", "outlived": false, "sentBytes": 0, "receivedBytes": 4096,
            "waitedSeconds": 0.25, "answeredSeconds": 0.9, "tookSeconds": 1.0,
        });
        assert_eq!(object["limits"], json!([limit]));
        assert_eq!(object["credentials"], json!([credential]));
        assert_eq!(object["requests"], json!([request]));
        assert_eq!(object["waiting"], json!({"user": 0, "initialise": 1, "background": 40}));
        assert_eq!((&object["provider"], &object["pausedResources"]), (&json!("azure"), &json!(2)));
        assert_eq!((&object["cache"]["cached"], &object["writesInFlight"]), (&json!(90), &json!(1)));
    }
}
