//! The `identity` of a document: public facts about the identity under which requests are sent, such as a project or a
//! subscription. The provider may read them, so that its configuration need not repeat them.

use std::collections::BTreeMap;

use pileus_host::is_control;

use super::fields::Fields;

/// The most facts. A cloud has a handful.
const MAX_FACTS: usize = 32;

/// The longest name of a fact, in bytes.
const MAX_NAME_BYTES: usize = 63;

/// The longest fact, in bytes.
const MAX_FACT_BYTES: usize = 1 << 10;

/// Reads the optional field `identity`: facts by their names.
pub(super) fn identity(spec: &mut Fields<'_>) -> BTreeMap<String, String> {
    let facts: BTreeMap<_, _> = spec.texts("identity", fact).into_iter().collect();
    if facts.len() > MAX_FACTS {
        spec.wrong_at("identity", format!("{} facts; the limit is {MAX_FACTS}", facts.len()));
    }
    facts
}

fn fact(name: &str, text: &str) -> Result<(String, String), String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_allowed) {
        return Err(format!(
            "invalid name; use 1 to {MAX_NAME_BYTES} letters, digits, hyphens, underscores and dots"
        ));
    }
    if text.trim().is_empty() || text.len() > MAX_FACT_BYTES || text.contains(is_control) {
        return Err(format!("expected a text of 1 to {MAX_FACT_BYTES} bytes without control characters"));
    }
    Ok((name.to_owned(), text.to_owned()))
}
