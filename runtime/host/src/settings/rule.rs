//! A rule as a provider declares it, in the gate's types.

use std::str::FromStr;

use pileus_gate::{Effect, KeyPattern, Operation, PathPattern, Place, Rule, TextPattern};

use super::{ProblemCollector, check_length};
use crate::bindings::info;

/// The most limits that a request counts against. Mostly there are two: of the account, and of the kind of resource.
const MAX_LIMIT_KEYS: usize = 16;

/// Reads a rule. Reports all its problems, not just the first.
pub(super) fn rule(declared: info::Rule, problems: &mut ProblemCollector<'_>) -> Option<Rule> {
    let info::Rule { host, method, path, operation, effect, limits, cache_scope, page, fold_case, extra: _ } =
        declared;
    let effect = match effect {
        info::Effect::Read => Effect::Read,
        info::Effect::Write => Effect::Write,
        info::Effect::OperationPoll => Effect::OperationPoll,
    };
    let (host, method) = (problems.parse("host", &host), problems.parse("method", &method));
    let path: Option<PathPattern> = problems.parse("path", &path);
    let operation = optional(operation, |answer| rule_operation(answer, problems));
    let limits = rule_limits(&limits, path.as_ref(), problems);
    let cache_scope = optional(cache_scope, |key| rule_key("cache-scope", &key, path.as_ref(), problems));
    if page.is_some() && effect != Effect::Read {
        problems.add("page", "only a read has pages");
    }
    let page = optional(page, |answer| problems.check("page", rule_place(answer)));
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

/// An optional field that is present and invalid.
struct InvalidField;

fn optional<A, T>(declared: Option<A>, read: impl FnOnce(A) -> Option<T>) -> Result<Option<T>, InvalidField> {
    declared.map(|declared| read(declared).ok_or(InvalidField)).transpose()
}

fn rule_limits(
    limits: &[String],
    path: Option<&PathPattern>,
    problems: &mut ProblemCollector<'_>,
) -> Option<Vec<KeyPattern>> {
    if limits.len() > MAX_LIMIT_KEYS {
        problems.add("limits", &format!("{} limits; the limit is {MAX_LIMIT_KEYS}", limits.len()));
        return None;
    }
    let each = limits.iter().enumerate();
    let keys: Vec<_> =
        each.map(|(number, key)| rule_key(&format!("limits[{number}]"), key, path, problems)).collect();
    keys.into_iter().collect()
}

/// Reads a key. Checks that it refers only to wildcards of the path, where the path is valid.
fn rule_key(
    field: &str,
    text: &str,
    path: Option<&PathPattern>,
    problems: &mut ProblemCollector<'_>,
) -> Option<KeyPattern> {
    let key: KeyPattern = problems.parse(field, text)?;
    let fits = path.map_or(Ok(()), |path| key.check(path));
    problems.check(field, fits.map(|()| key).map_err(|error| error.to_string()))
}

fn rule_operation(answer: info::Operation, problems: &mut ProblemCollector<'_>) -> Option<Operation> {
    let info::Operation { place, name } = answer;
    let name = problems.parse::<TextPattern>("operation.name", &name);
    let place = problems.check("operation.place", rule_place(place));
    Some(Operation { place: place?, name: name? })
}

fn rule_place(answer: info::Place) -> Result<Place, String> {
    let (info::Place::Query(name)
    | info::Place::Header(name)
    | info::Place::FormField(name)
    | info::Place::JsonField(name)) = &answer;
    check_length(name)?;
    Ok(match answer {
        info::Place::Query(name) => Place::Query(name),
        info::Place::Header(name) => {
            let header = http::HeaderName::from_str(&name);
            Place::Header(header.map_err(|_| format!("invalid header name {name:?}"))?)
        }
        info::Place::FormField(name) => Place::FormField(name),
        info::Place::JsonField(name) => Place::JsonField(name),
    })
}
