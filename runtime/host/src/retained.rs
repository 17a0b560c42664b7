//! How much of a provider's answers the host keeps for as long as the provider is loaded, in bytes. Pure.
//!
//! Texts count with their length, and items with what they take beside their texts.

use crate::bindings::info;
use crate::fault::Fault;
use crate::limits::{MAX_RETAINED_BYTES, MAX_SCHEMA_BYTES};

/// An item beside its texts: an annotation or a rule with the patterns that it is parsed into.
const ITEM: usize = 512;

/// Checks what is kept of a description.
///
/// # Errors
/// [`Fault::Retained`].
pub(crate) fn check_description(answer: &info::Description) -> Result<(), Fault> {
    let info::Description {
        name,
        version,
        provider_id_schemes,
        configuration_schema,
        service_annotations,
        service_facts: _,
        node_labels,
        call_shapes,
        extra: _,
    } = answer;
    check(configuration_schema.len(), MAX_SCHEMA_BYTES)?;
    let annotation = |annotation: &info::Annotation| {
        let info::Annotation { name, value: _, default, written: _, description, extra: _ } = annotation;
        ITEM + name.len() + default.as_ref().map_or(0, String::len) + description.len()
    };
    let texts = |texts: &[String]| texts.iter().map(|text| ITEM + text.len()).sum::<usize>();
    let bytes = name.len()
        + version.len()
        + configuration_schema.len()
        + texts(provider_id_schemes)
        + texts(node_labels)
        + service_annotations.iter().map(annotation).sum::<usize>()
        + call_shapes.len() * ITEM;
    check(bytes, MAX_RETAINED_BYTES)
}

/// Checks what is kept of settings.
///
/// # Errors
/// [`Fault::Retained`].
pub(crate) fn check_settings(answer: &info::Settings) -> Result<(), Fault> {
    let info::Settings { endpoints, rules, limits, refusals, node_labels, notices, one_at_a_time, extra: _ } =
        answer;
    let place = |place: &info::Place| match place {
        info::Place::Query(name)
        | info::Place::Header(name)
        | info::Place::FormField(name)
        | info::Place::JsonField(name) => name.len(),
    };
    let rule = |rule: &info::Rule| {
        let operation =
            rule.operation.as_ref().map_or(0, |operation| place(&operation.place) + operation.name.len());
        let limits: usize = rule.limits.iter().map(|key| ITEM + key.len()).sum();
        let scope = rule.cache_scope.as_ref().map_or(0, String::len);
        let page = rule.page.as_ref().map_or(0, place);
        ITEM + rule.host.len() + rule.method.len() + rule.path.len() + operation + limits + scope + page
    };
    let pair = |(name, value): &(String, String)| name.len() + value.len();
    let endpoint = |endpoint: &info::Endpoint| {
        let info::Endpoint { tls: _, host, port: _, reason, credential, extra: _ } = endpoint;
        let hint = |hint: &info::CredentialHint| {
            hint.kind.len() + hint.values.iter().map(|value| ITEM + pair(value)).sum::<usize>()
        };
        ITEM + host.len() + reason.len() + credential.as_ref().map_or(0, hint)
    };
    let limit = |limit: &info::Limit| ITEM + limit.key.len() + limit.told_by.as_ref().map_or(0, pair);
    let refusal = |refusal: &info::Refusal| {
        let (info::CodePlace::Header(name) | info::CodePlace::Json(name) | info::CodePlace::Xml(name)) =
            &refusal.place;
        ITEM + refusal.host.len() + name.len() + refusal.code.len()
    };
    let bytes = endpoints.iter().map(endpoint).sum::<usize>()
        + rules.iter().map(rule).sum::<usize>()
        + limits.iter().map(limit).sum::<usize>()
        + refusals.iter().map(refusal).sum::<usize>()
        + node_labels.iter().map(|key| ITEM + key.len()).sum::<usize>()
        + problem_bytes(notices)
        + one_at_a_time.len();
    check(bytes, MAX_RETAINED_BYTES)
}

/// Checks the problems that a configuration has, which stay in the log and in the status.
///
/// # Errors
/// [`Fault::Retained`].
pub(crate) fn check_problems(problems: &[info::Problem]) -> Result<(), Fault> {
    check(problem_bytes(problems), MAX_RETAINED_BYTES)
}

fn problem_bytes(problems: &[info::Problem]) -> usize {
    problems.iter().map(|problem| ITEM + problem.path.len() + problem.message.len()).sum()
}

fn check(wanted: usize, limit: usize) -> Result<(), Fault> {
    if wanted > limit { Err(Fault::Retained { wanted, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> info::Description {
        info::Description {
            name: "cloud".to_owned(),
            version: "1.2.3".to_owned(),
            provider_id_schemes: Vec::new(),
            configuration_schema: "{}".to_owned(),
            service_annotations: Vec::new(),
            service_facts: info::ServiceFacts::empty(),
            node_labels: Vec::new(),
            call_shapes: Vec::new(),
            extra: Vec::new(),
        }
    }

    fn settings() -> info::Settings {
        info::Settings {
            endpoints: Vec::new(),
            rules: Vec::new(),
            limits: Vec::new(),
            refusals: Vec::new(),
            node_labels: Vec::new(),
            notices: Vec::new(),
            one_at_a_time: Vec::new(),
            extra: Vec::new(),
        }
    }

    fn annotation(text: &str) -> info::Annotation {
        info::Annotation {
            name: "example.com/a".to_owned(),
            value: info::AnnotationType::Text,
            default: None,
            written: false,
            description: text.to_owned(),
            extra: Vec::new(),
        }
    }

    fn rule(text: &str) -> info::Rule {
        info::Rule {
            host: "cloud.example".to_owned(),
            method: "GET".to_owned(),
            path: text.to_owned(),
            operation: None,
            effect: info::Effect::Read,
            limits: vec!["reads".to_owned()],
            cache_scope: None,
            page: None,
            fold_case: false,
            extra: Vec::new(),
        }
    }

    #[test]
    fn a_large_description_passes_and_one_that_is_made_of_one_kind_of_item_does_not() {
        type Change = fn(&mut info::Description);
        let sentence = "x".repeat(200);
        let large = info::Description {
            configuration_schema: " ".repeat(MAX_SCHEMA_BYTES),
            service_annotations: vec![annotation(&sentence); 256],
            node_labels: vec![sentence; 256],
            ..description()
        };
        assert_eq!(check_description(&large), Ok(()));
        let rows: [Change; 6] = [
            |it| it.configuration_schema = " ".repeat(MAX_SCHEMA_BYTES + 1),
            |it| it.version = "x".repeat(MAX_RETAINED_BYTES),
            |it| it.service_annotations = vec![annotation(&"x".repeat(MAX_RETAINED_BYTES / 4)); 4],
            |it| it.service_annotations = vec![annotation(""); MAX_RETAINED_BYTES / ITEM],
            |it| it.node_labels = vec![String::new(); MAX_RETAINED_BYTES / ITEM],
            |it| it.provider_id_schemes = vec!["x".repeat(MAX_RETAINED_BYTES / 2); 2],
        ];
        for (row, change) in rows.into_iter().enumerate() {
            let mut answer = description();
            change(&mut answer);
            assert!(matches!(check_description(&answer), Err(Fault::Retained { .. })), "row {row}");
        }
    }

    #[test]
    fn a_thousand_rules_pass_and_long_ones_do_not() {
        let large =
            info::Settings { rules: vec![rule("/subscriptions/*/groups/*/things/*"); 900], ..settings() };
        assert_eq!(check_settings(&large), Ok(()));
        let endpoint = info::Endpoint {
            tls: true,
            host: "cloud.example".to_owned(),
            port: None,
            reason: "x".repeat(MAX_RETAINED_BYTES),
            credential: None,
            extra: Vec::new(),
        };
        let limit = info::Limit {
            key: "x".repeat(1 << 10),
            capacity: 1,
            per_minute: 1,
            told_by: None,
            extra: Vec::new(),
        };
        let refusal = info::Refusal {
            host: "cloud.example".to_owned(),
            status: 400,
            place: info::CodePlace::Json("x".repeat(1 << 10)),
            code: "Throttling".to_owned(),
            meaning: info::RefusalMeaning::Throttled,
        };
        let notice = info::Problem { path: String::new(), message: "x".repeat(1 << 10) };
        let many_limits = info::Rule { limits: vec!["x".repeat(1 << 10); 16], ..rule("/") };
        for answer in [
            info::Settings { endpoints: vec![endpoint], ..settings() },
            info::Settings { limits: vec![limit; 1000], ..settings() },
            info::Settings { refusals: vec![refusal; 1000], ..settings() },
            info::Settings { node_labels: vec!["x".repeat(1 << 10); 1000], ..settings() },
            info::Settings { notices: vec![notice; 1000], ..settings() },
            info::Settings { rules: vec![many_limits; 100], ..settings() },
            info::Settings { rules: vec![rule(&"x".repeat(1 << 10)); 1000], ..settings() },
        ] {
            assert!(matches!(check_settings(&answer), Err(Fault::Retained { .. })));
        }
        let problem = info::Problem { path: "a".to_owned(), message: "x".repeat(1 << 10) };
        assert_eq!(check_problems(&vec![problem.clone(); 100]), Ok(()));
        assert!(check_problems(&vec![problem; 1 << 10]).is_err());
    }
}
