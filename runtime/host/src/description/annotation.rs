//! The Service annotations that a provider reads or sets, and the keys that it may name.

use pileus_cloud::AnnotationType;

use crate::bindings::info;
use crate::error::Error;
use crate::sanitize::sanitize_message;

/// A Service annotation that a provider reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// Its key, or a pattern with one `*`.
    pub name: String,
    /// The type of its value.
    pub value: AnnotationType,
    /// The default where the annotation is absent.
    pub default: Option<String>,
    /// Whether the provider sets it.
    pub is_written: bool,
    /// What it does.
    pub description: String,
}

/// Whether Kubernetes may accept it as the key of a label or an annotation.
pub(crate) fn is_key(key: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    !key.is_empty() && key.len() <= 317 && key.chars().all(is_allowed) // a domain of 253, a slash, a name of 63
}

/// Checks an annotation's name, because the host compares the annotations of Services with it and shows it to users.
pub(super) fn annotation(answer: info::Annotation) -> Result<Annotation, Error> {
    let info::Annotation { name, value, default, written, description, extra: _ } = answer;
    if !is_key(&name.replacen('*', "", 1)) {
        let problem =
            format!("invalid annotation {:?}: expected a key, or a key with one *", sanitize_message(&name));
        return Err(Error::Description(problem));
    }
    if written && !is_own_key(&name) {
        let problem = format!(
            "annotation {:?} can't be written: expected a key with a domain outside of kubernetes.io and k8s.io, without *",
            sanitize_message(&name)
        );
        return Err(Error::Description(problem));
    }
    let value = match value {
        info::AnnotationType::Text => AnnotationType::Text,
        info::AnnotationType::Boolean => AnnotationType::Boolean,
        info::AnnotationType::Integer => AnnotationType::Integer,
        info::AnnotationType::TextList => AnnotationType::TextList,
        info::AnnotationType::RangeList => AnnotationType::RangeList,
        info::AnnotationType::NodeSelector => AnnotationType::NodeSelector,
    };
    Ok(Annotation {
        name,
        value,
        default: default.map(|value| sanitize_message(&value)),
        is_written: written,
        description: sanitize_message(&description),
    })
}

/// Whether a provider may set an annotation with this key: one with a domain that isn't Kubernetes' own.
fn is_own_key(name: &str) -> bool {
    let is_kubernetes = |domain: &str| {
        ["kubernetes.io", "k8s.io"]
            .iter()
            .any(|own| domain.strip_suffix(own).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
    };
    !name.contains('*') && name.split_once('/').is_some_and(|(domain, _)| !is_kubernetes(domain))
}
