//! The debug page as one JSON object. Fields may be added; existing ones keep their meaning. Missing values are null,
//! missing items an empty list.
//!
//! ```json
//! {
//!   "provider": "azure", "time": "2026-11-28T03:00:00Z", "writesInFlight": 0,
//!   "waiting": {"user": 0, "initialise": 2, "background": 40}, "waitingBytes": 5000, "pausedResources": 0,
//!   "limits": [{
//!     "key": "reads", "declared": {"perSecond": 25.0, "burst": 250.0}, "configured": null, "learned": null,
//!     "inForce": {"perSecond": 25.0, "burst": 250.0}, "tokens": 3.5, "buckets": 1, "pausedForSeconds": null
//!   }],
//!   "cache": {
//!     "entries": 3, "bytes": 4096, "flights": 0, "cached": 90, "shared": 8, "revalidated": 2, "missed": 5
//!   },
//!   "credentials": [{
//!     "name": "main", "kind": "clientSecret", "ready": true, "until": "2026-11-28T04:00:00Z",
//!     "failing": {"since": "2026-11-28T02:50:00Z", "cause": "…"}
//!   }],
//!   "requests": [{
//!     "began": "2026-11-28T02:59:59.5Z", "method": "GET", "url": "https://cloud.example/v1/machines",
//!     "grant": "https://cloud.example", "effect": "read", "urgency": "background", "result": "ok", "status": 200,
//!     "from": "cloud", "outlived": false, "sentBytes": 0, "receivedBytes": 4096,
//!     "waitedSeconds": 0.0, "answeredSeconds": 0.02, "tookSeconds": 0.025
//!   }]
//! }
//! ```

use pileus_gate::{CacheState, CredentialState, LimitState, LimitsState, Rate, RecentRequest};
use serde_json::{Map, Value, json};

use super::view::{View, seconds, timestamp};

/// The object for a view of a gate.
pub(super) fn object(view: &View) -> Value {
    let View { provider, at, now: _, writes_in_flight, limits, cache, credentials, requests } = view;
    let LimitsState { limits, paused_resources, waiting, waiting_bytes } = limits;
    let waiting: Map<_, _> =
        waiting.iter().map(|(urgency, count)| (urgency.label().to_owned(), json!(count))).collect();
    let CacheState { entries, bytes, fetches, cached, shared, revalidated, missed } = cache;
    json!({
        "provider": provider,
        "time": at.to_string(),
        "writesInFlight": writes_in_flight,
        "waiting": waiting,
        "waitingBytes": waiting_bytes,
        "pausedResources": paused_resources,
        "limits": limits.iter().map(limit_object).collect::<Vec<_>>(),
        "cache": {
            "entries": entries, "bytes": bytes, "flights": fetches,
            "cached": cached, "shared": shared, "revalidated": revalidated, "missed": missed,
        },
        "credentials": credentials.iter().map(credential_object).collect::<Vec<_>>(),
        "requests": requests.iter().map(|seen| request_object(view, seen)).collect::<Vec<_>>(),
    })
}

fn limit_object(limit: &LimitState) -> Value {
    let LimitState { key, declared, configured, learned, rate, tokens, buckets, paused_for } = limit;
    let rate_object = |rate: &Rate| json!({"perSecond": rate.per_second, "burst": rate.burst});
    json!({
        "key": key,
        "declared": declared.as_ref().map(rate_object),
        "configured": configured.as_ref().map(rate_object),
        "learned": learned.as_ref().map(rate_object),
        "inForce": rate_object(rate),
        "tokens": tokens,
        "buckets": buckets,
        "pausedForSeconds": paused_for.map(seconds),
    })
}

fn credential_object(credential: &CredentialState) -> Value {
    let CredentialState { name, kind, is_ready, until, failing } = credential;
    let time = |time| timestamp(time).map(|time| time.to_string());
    json!({
        "name": name,
        "kind": kind,
        "ready": is_ready,
        "until": until.and_then(time),
        "failing": failing.as_ref().map(|failing| json!({"since": time(failing.since), "cause": failing.cause})),
    })
}

fn request_object(view: &View, seen: &RecentRequest) -> Value {
    json!({
        "began": view.began_at(seen).to_string(),
        "method": seen.method,
        "url": seen.url,
        "grant": &*seen.grant,
        "effect": seen.effect,
        "urgency": seen.urgency.label(),
        "result": seen.result,
        "status": seen.status.map(|status| status.as_u16()),
        "from": seen.source.label(),
        "outlived": seen.outlived_caller,
        "sentBytes": seen.sent,
        "receivedBytes": seen.received,
        "waitedSeconds": seconds(seen.waited),
        "answeredSeconds": seen.answered.map(seconds),
        "tookSeconds": seconds(seen.took),
    })
}
