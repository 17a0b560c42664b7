//! The `resources` of a document: what a call to the provider may use.

use pileus_host::Limits;
use serde_json::Value;

use super::fields::Fields;

const MEBIBYTE: usize = 1 << 20;

/// Reads the optional field `resources.memory`: the memory of one call, in bytes.
pub(super) fn memory(spec: &mut Fields<'_>) -> usize {
    let default = Limits::default().memory;
    let mut resources = spec.object("resources");
    let [least, most] = [Limits::MEMORY.start(), Limits::MEMORY.end()].map(|bytes| bytes / MEBIBYTE);
    let expected = format!("a quantity of bytes from {least}Mi to {most}Mi");
    let read = |value: &Value| bytes(value).filter(|bytes| Limits::MEMORY.contains(bytes));
    let memory = resources.has("memory").then(|| resources.number("memory", &expected, read)).flatten();
    resources.end();
    memory.unwrap_or(default)
}

/// Parses a quantity as Kubernetes writes it: a number, as in `67108864`, `64Mi`, `0.5G` or `64e6`. A fraction of a byte counts as one.
fn bytes(value: &Value) -> Option<usize> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.as_u64()?.to_string(),
    };
    let end = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let factor = match suffix {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        _ => 10_f64.powi(suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let bytes = (number.parse::<f64>().ok()? * factor).ceil();
    // As large as this, a float is exact.
    if (0.0..=1e12).contains(&bytes) { format!("{bytes:.0}").parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        for (value, expected) in [
            (json!("64Mi"), Some(64 << 20)),
            (json!("65536Ki"), Some(64 << 20)),
            (json!("0.25Gi"), Some(256 << 20)),
            (json!("100M"), Some(100_000_000)),
            (json!("0.1G"), Some(100_000_000)),
            (json!("100000k"), Some(100_000_000)),
            (json!("1e8"), Some(100_000_000)),
            (json!("1E8"), Some(100_000_000)),
            (json!("67108864"), Some(64 << 20)),
            (json!(67_108_864), Some(64 << 20)),
            (json!("1.5"), Some(2)),
            (json!("64MB"), None),
            (json!("64 Mi"), None),
            (json!("-1Mi"), None),
            (json!("1.2.3Mi"), None),
            (json!("Mi"), None),
            (json!("1e"), None),
            (json!("1e300"), None),
            (json!(""), None),
            (json!(1.5), None),
            (json!(true), None),
        ] {
            assert_eq!(bytes(&value), expected, "{value}");
        }
    }
}
