//! How single texts of a document are written: names, classes, ranges of addresses.

use ipnet::IpNet;

pub(super) fn cidr(text: &str) -> Result<IpNet, String> {
    let cidr = text.parse::<IpNet>().ok().or_else(|| text.parse().ok().map(|ip: std::net::IpAddr| ip.into()));
    cidr.ok_or_else(|| format!("invalid CIDR {text:?}; write it as in 10.0.0.0/8"))
}

pub(super) fn non_empty(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("expected a non-empty string".to_owned()) } else { Ok(text.to_owned()) }
}

pub(super) fn parsed<T: std::str::FromStr<Err = pileus_gate::Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: pileus_gate::Error| error.to_string())
}

/// Parses a name that is valid in metrics, logs, and `metadata.name` of a Kubernetes object.
pub(super) fn name(text: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = !text.is_empty() && text.len() <= 63 && text.chars().all(good) && !text.starts_with('-');
    if is_name && !text.ends_with('-') {
        Ok(text.to_owned())
    } else {
        Err(format!("invalid name {text:?}; use 1 to 63 lower-case letters, digits and dashes"))
    }
}

/// Parses a class as the API server accepts it in `spec.loadBalancerClass`; no Service can have another one.
pub(super) fn class(text: &str) -> Result<String, String> {
    let (prefix, class) = text.split_once('/').map_or((None, text), |(prefix, class)| (Some(prefix), class));
    let is_part = |part: &str, inside: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric();
        !part.is_empty()
            && part.chars().all(|c| is_plain(c) || inside.contains(c))
            && part.starts_with(is_plain)
            && part.ends_with(is_plain)
    };
    let is_prefix = |prefix: &str| {
        let is_label = |label| is_part(label, "-") && !prefix.contains(|c: char| c.is_ascii_uppercase());
        prefix.len() <= 253 && prefix.split('.').all(is_label)
    };
    if class.len() <= 63 && is_part(class, "-_.") && prefix.is_none_or(is_prefix) {
        Ok(text.to_owned())
    } else {
        Err(format!("invalid load balancer class {text:?}; write it as in example.com/internal"))
    }
}

pub(super) fn first_line(error: &impl ToString) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}
