//! The Service annotations that a provider reads or sets.

use pileus_cloud::AnnotationType;

use crate::bindings::info;
use crate::error::Error;
use crate::metadata_key::{is_key, is_own_key};
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
