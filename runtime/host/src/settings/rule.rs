//! A rule as a provider declares it, in the gate's types.

use std::str::FromStr;

use pileus_gate::{Effect, KeyPattern, Operation, PathPattern, Place, Rule, TextPattern};

use super::{Mistakes, short};
use crate::bindings::info;

/// The most limits that a request counts against: one of the account, and one of the kind of thing, most often.
const KEYS: usize = 16;

/// Reads a rule. Of one that is wrong all is told that is.
pub(super) fn rule(answer: info::Rule, mistakes: &mut Mistakes<'_>) -> Option<Rule> {
    let info::Rule { host, method, path, operation, effect, limits, cache_scope, page, fold_case, extra: _ } =
        answer;
    let effect = match effect {
        info::Effect::Read => Effect::Read,
        info::Effect::Write => Effect::Write,
        info::Effect::OperationPoll => Effect::OperationPoll,
    };
    let (host, method) = (mistakes.parse("host", &host), mistakes.parse("method", &method));
    let path: Option<PathPattern> = mistakes.parse("path", &path);
    let operation = optional(operation, |answer| rule_operation(answer, mistakes));
    let limits = rule_limits(&limits, path.as_ref(), mistakes);
    let cache_scope = optional(cache_scope, |key| rule_key("cache-scope", &key, path.as_ref(), mistakes));
    if page.is_some() && effect != Effect::Read {
        mistakes.note("page", "only a read has pages");
    }
    let page = optional(page, |answer| mistakes.right("page", rule_place(answer)));
    Some(Rule {
        host: host?,
        method: method?,
        path: path?,
        operation: operation.ok()?,
        effect,
        limits: limits?,
        cache_scope: cache_scope.ok()?,
        page: page.ok()?,
        fold_case,
    })
}

/// Something is there, and wrong.
struct Wrong;

fn optional<A, T>(answer: Option<A>, read: impl FnOnce(A) -> Option<T>) -> Result<Option<T>, Wrong> {
    answer.map(|answer| read(answer).ok_or(Wrong)).transpose()
}

fn rule_limits(
    limits: &[String],
    path: Option<&PathPattern>,
    mistakes: &mut Mistakes<'_>,
) -> Option<Vec<KeyPattern>> {
    if limits.len() > KEYS {
        mistakes.note("limits", &format!("{} limits, where at most {KEYS} are taken", limits.len()));
        return None;
    }
    let each = limits.iter().enumerate();
    let keys: Vec<_> =
        each.map(|(number, key)| rule_key(&format!("limits[{number}]"), key, path, mistakes)).collect();
    keys.into_iter().collect()
}

/// Reads a key, and whether it refers only to what the path has, where that is right.
fn rule_key(
    field: &str,
    text: &str,
    path: Option<&PathPattern>,
    mistakes: &mut Mistakes<'_>,
) -> Option<KeyPattern> {
    let key: KeyPattern = mistakes.parse(field, text)?;
    let fits = path.map_or(Ok(()), |path| key.check(path));
    mistakes.right(field, fits.map(|()| key).map_err(|error| error.to_string()))
}

fn rule_operation(answer: info::Operation, mistakes: &mut Mistakes<'_>) -> Option<Operation> {
    let info::Operation { place, name } = answer;
    let name = mistakes.parse::<TextPattern>("operation.name", &name);
    let place = mistakes.right("operation.place", rule_place(place));
    Some(Operation { place: place?, name: name? })
}

fn rule_place(answer: info::Place) -> Result<Place, String> {
    let (info::Place::Query(name)
    | info::Place::Header(name)
    | info::Place::FormField(name)
    | info::Place::JsonField(name)) = &answer;
    short(name)?;
    Ok(match answer {
        info::Place::Query(name) => Place::Query(name),
        info::Place::Header(name) => {
            let header = http::HeaderName::from_str(&name);
            Place::Header(header.map_err(|_| format!("{name:?} is no header name"))?)
        }
        info::Place::FormField(name) => Place::FormField(name),
        info::Place::JsonField(name) => Place::JsonField(name),
    })
}
