//! The keys of labels and annotations that a provider may name: the host compares Nodes and Services with them, and writes some.

/// Whether Kubernetes may accept it as the key of a label or an annotation.
pub(crate) fn is_key(key: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    !key.is_empty() && key.len() <= 317 && key.chars().all(is_allowed) // a domain of 253, a slash, a name of 63
}

/// Whether a provider may set an annotation with this key: one with a domain that isn't Kubernetes' own.
pub(crate) fn is_own_key(name: &str) -> bool {
    let is_kubernetes = |domain: &str| {
        ["kubernetes.io", "k8s.io"]
            .iter()
            .any(|own| domain.strip_suffix(own).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
    };
    !name.contains('*') && name.split_once('/').is_some_and(|(domain, _)| !is_kubernetes(domain))
}
