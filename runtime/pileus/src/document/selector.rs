//! The `nodeSelector` of a document: a label selector in the form of Kubernetes' resources.

use pileus_controllers::facts::service::NodeSelector;

use super::fields::Fields;

/// Reads the optional field `nodeSelector`. Without it, the provider serves all Nodes that have no provider ID.
pub(super) fn node_selector(spec: &mut Fields<'_>) -> NodeSelector {
    let mut fields = spec.object("nodeSelector");
    let labels = fields.texts("matchLabels", |key, value| requirement(key, "In", &[value.to_owned()]));
    let expressions = fields.objects("matchExpressions", expression);
    let mut all = NodeSelector::default();
    for one in labels.into_iter().chain(expressions.into_iter().flatten()) {
        match all.clone().and(one) {
            Ok(both) => all = both,
            Err(problem) => {
                fields.wrong(problem);
                break;
            }
        }
    }
    fields.end();
    all
}

fn expression(fields: &mut Fields<'_>) -> Option<NodeSelector> {
    let key = fields.required("key", |text| Ok(text.to_owned()));
    let operator = fields.required("operator", |text| match text {
        "In" | "NotIn" | "Exists" | "DoesNotExist" => Ok(text.to_owned()),
        other => Err(format!("unknown operator {other:?}; expected In, NotIn, Exists or DoesNotExist")),
    });
    let values = fields.list("values", &[], |text| Ok(text.to_owned()));
    requirement(&key?, &operator?, &values).map_err(|problem| fields.wrong(problem)).ok()
}

/// A selector with one requirement, by way of its text form.
fn requirement(key: &str, operator: &str, values: &[String]) -> Result<NodeSelector, String> {
    if key.is_empty() {
        return Err("a requirement needs the key of a label".to_owned());
    }
    // What the text form gives a meaning to is no part of a label.
    let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    if let Some(odd) =
        std::iter::once(key).chain(values.iter().map(String::as_str)).find(|text| !is_plain(text))
    {
        return Err(format!("{odd:?} is not valid in a label; use letters, digits, `-`, `_` and `.`"));
    }
    if key.is_empty() {
        return Err("invalid requirement for the label \"\": it needs a key".to_owned());
    }
    let wants_values = matches!(operator, "In" | "NotIn");
    let text = match (operator, values) {
        ("In" | "NotIn", []) => return Err(format!("the operator {operator} needs values")),
        ("In", [value]) => format!("{key}={value}"),
        ("NotIn", [value]) => format!("{key}!={value}"),
        ("In", values) => format!("{key} in ({})", values.join(",")),
        ("NotIn", values) => format!("{key} notin ({})", values.join(",")),
        _ if !wants_values && !values.is_empty() => {
            return Err(format!("the operator {operator} has no values; remove them"));
        }
        ("DoesNotExist", _) => format!("!{key}"),
        _ => key.to_owned(),
    };
    NodeSelector::parse(&text)
        .map_err(|problem| format!("invalid requirement for the label {key:?}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_those_of_the_text_form() {
        let values = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        for (key, operator, of, expected) in [
            ("pool", "In", values(&["web"]), "pool=web"),
            ("pool", "In", values(&[""]), "pool="),
            ("example.com/pool", "In", values(&["web", "db"]), "example.com/pool in (web,db)"),
            ("pool", "In", values(&["", "db"]), "pool in (,db)"),
            ("pool", "NotIn", values(&["web"]), "pool!=web"),
            ("pool", "NotIn", values(&["web", "db"]), "pool notin (web,db)"),
            ("in", "Exists", values(&[]), "in"),
            ("pool", "DoesNotExist", values(&[]), "!pool"),
        ] {
            let expected = NodeSelector::parse(expected).unwrap();
            assert_eq!(requirement(key, operator, &of), Ok(expected), "{key} {operator} {of:?}");
        }
        for (key, operator, of, expected) in [
            ("pool", "In", values(&[]), "needs values"),
            ("pool", "Exists", values(&["web"]), "has no values"),
            ("pool=web,zone", "Exists", values(&[]), "is not valid in a label"),
            ("pool", "In", values(&["a,b"]), "is not valid in a label"),
            ("pool", "In", values(&["a) , b"]), "is not valid in a label"),
            ("-pool", "Exists", values(&[]), "invalid requirement"),
            ("a/b/c", "Exists", values(&[]), "invalid requirement"),
            ("pool", "In", values(&["-"]), "invalid requirement"),
            ("", "In", values(&["a"]), "needs the key"),
            ("", "Exists", values(&[]), "needs the key"),
            ("pool", "In", values(&["a/b"]), "invalid requirement"),
        ] {
            let found = requirement(key, operator, &of).unwrap_err();
            assert!(found.contains(expected), "{key} {operator} {of:?}: {found}");
        }
    }
}
