//! The page for people: what is closed, who waits, and what became of the last requests.

use std::time::Duration;

use pileus_gate::{CacheState, CredentialState, LimitState, LimitsState, Rate, Seen};

use super::table::{
    Column::{Number, Text},
    table,
};
use super::view::{View, seconds, timestamp};

/// The whole page.
pub(super) fn page(view: &View) -> String {
    let View { provider, at, now: _, writes_under_way, limits, cache, credentials, requests } = view;
    let LimitsState { limits, closed_resources, waiting, waiting_bytes } = limits;
    let waiting: Vec<_> =
        waiting.iter().map(|(urgency, count)| format!("{count} {}", urgency.label())).collect();
    [
        format!("provider {provider}, {at:.0}\n"),
        format!("waiting for limits: {} ({waiting_bytes} bytes)\n", waiting.join(", ")),
        format!("writes under way: {writes_under_way}\n"),
        format!("resources that the cloud closed: {closed_resources}\n"),
        "\nLIMITS, in requests a second (and at once)\n".to_owned(),
        of_limits(limits),
        "\nCACHE\n".to_owned(),
        of_cache(cache),
        "\nCREDENTIALS\n".to_owned(),
        of_credentials(credentials),
        "\nLAST REQUESTS, times in seconds\n".to_owned(),
        of_requests(view, requests),
    ]
    .concat()
}

/// What stands where there is nothing.
const NOTHING: &str = "-";

fn or_nothing(text: Option<String>) -> String {
    text.unwrap_or_else(|| NOTHING.to_owned())
}

fn of_limits(limits: &[LimitState]) -> String {
    let rate = |rate: Rate| format!("{} ({})", rounded(rate.per_second), rounded(rate.burst));
    let row = |limit: &LimitState| {
        let LimitState { key, declared, configured, learned, rate: in_force, tokens, buckets, closed_for } =
            limit;
        let known = [declared, configured, learned].into_iter().any(Option::is_some);
        [
            key.clone(),
            or_nothing(declared.map(rate)),
            or_nothing(configured.map(rate)),
            or_nothing(learned.map(rate)),
            or_nothing(known.then(|| rate(*in_force))),
            or_nothing(known.then(|| rounded(tokens.floor()).to_string())),
            buckets.to_string(),
            closed_for.map_or_else(|| "open".to_owned(), |time| format!("closed for {} s", seconds(time))),
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

fn of_cache(cache: &CacheState) -> String {
    let CacheState { entries, bytes, flights, cached, shared, revalidated, missed } = *cache;
    let columns = [
        Number("ENTRIES"),
        Number("BYTES"),
        Number("FLIGHTS"),
        Number("CACHED"),
        Number("SHARED"),
        Number("REVALIDATED"),
        Number("MISSED"),
    ];
    let held = [entries, bytes, flights].map(|count| count.to_string());
    let answered = [cached, shared, revalidated, missed].map(|count| count.to_string());
    let ([entries, bytes, flights], [cached, shared, revalidated, missed]) = (held, answered);
    table(&columns, [[entries, bytes, flights, cached, shared, revalidated, missed]])
}

fn of_credentials(credentials: &[CredentialState]) -> String {
    let row = |credential: &CredentialState| {
        let CredentialState { name, kind, is_ready, until, failing } = credential;
        let time = |time| timestamp(time).map(|time| format!("{time:.0}"));
        [
            name.clone(),
            (*kind).to_owned(),
            if *is_ready { "ready" } else { "NOT READY" }.to_owned(),
            or_nothing(until.and_then(time)),
            or_nothing(failing.as_ref().and_then(|failing| time(failing.since))),
            or_nothing(failing.as_ref().map(|failing| failing.cause.clone())),
        ]
    };
    let columns =
        [Text("NAME"), Text("KIND"), Text("STATE"), Text("UNTIL"), Text("FAILING SINCE"), Text("CAUSE")];
    table(&columns, credentials.iter().map(row))
}

fn of_requests(view: &View, requests: &[Seen]) -> String {
    let time = |time: Duration| format!("{:.3}", time.as_secs_f64());
    let row = |seen: &Seen| {
        [
            format!("{:.3}", view.came_at(seen)),
            seen.method.clone(),
            or_nothing(seen.status.map(|status| status.as_u16().to_string())),
            seen.result.to_owned(),
            if seen.outlived {
                format!("{}, to nobody", seen.source.label())
            } else {
                seen.source.label().to_owned()
            },
            seen.effect.to_owned(),
            seen.urgency.label().to_owned(),
            time(seen.waited),
            or_nothing(seen.answered.map(time)),
            time(seen.took),
            seen.sent.to_string(),
            seen.received.to_string(),
            seen.grant.to_string(),
            seen.url.clone(),
        ]
    };
    let columns = [
        Text("CAME"),
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

/// A number that is short, if it is none of the smallest.
fn rounded(number: f64) -> f64 {
    let places = if number < 1.0 { 1000.0 } else { 10.0 };
    (number * places).round() / places
}
