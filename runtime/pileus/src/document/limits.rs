//! The `limits` of a document: by a key of the provider's rules, or by a match of the operator's own.

use pileus_gate::{HostPattern, Limit, LimitScope, PathPattern, RequestKind};
use serde_json::Value;

use super::fields::Fields;
use super::parsed;

/// Reads one of the fields of `limits`.
pub(super) fn limit(key: &str, fields: &mut Fields<'_>) -> Option<Limit> {
    let (least, most) = (Limit::BURSTS.start(), Limit::BURSTS.end());
    let whole = |value: &Value| value.as_u64().and_then(|value| u32::try_from(value).ok());
    let burst = fields.number("burst", &format!("a whole number from {least} to {most}"), |value| {
        whole(value).filter(|value| Limit::BURSTS.contains(value))
    });
    let (least, most) = (Limit::RATES.start(), Limit::RATES.end());
    let per_second = fields.number("perSecond", &format!("a number from {least} to {most}"), |value| {
        value.as_f64().filter(|value| Limit::RATES.contains(value))
    });
    let is_matched = fields.has("match");
    let scope =
        is_matched.then(|| fields.object_of("match", "{requests: all}", |fields| Some(scope(fields))));
    let limit = Limit::new(key, burst?, per_second?);
    let limit = match scope {
        None => limit,
        Some(scope) => {
            let scope = scope?;
            limit.and_then(|limit| limit.of_requests(scope))
        }
    };
    limit.inspect_err(|error| fields.wrong(error.to_string())).ok()
}

fn scope(fields: &mut Fields<'_>) -> LimitScope {
    let kind = fields.optional("requests", kind).unwrap_or_default();
    let host = fields.optional("host", parsed::<HostPattern>);
    let path = fields.optional("path", parsed::<PathPattern>);
    LimitScope { kind, host, path }
}

fn kind(text: &str) -> Result<RequestKind, String> {
    let known = RequestKind::ALL.into_iter().find(|kind| kind.as_str() == text);
    known.ok_or_else(|| format!("unknown value {text:?}; expected all, reads or writes"))
}
