//! Tags of what the provider creates, by cloud-provider-azure's rules. Pure.

use std::collections::BTreeMap;

use crate::configuration::Values;

/// The tags that the operator wants.
#[derive(Default)]
pub(crate) struct Tags {
    wanted: Vec<(String, String)>,
    /// The prefixes of tags that stay. With one, all others than these and the wanted tags are removed.
    protected: Vec<String>,
}

impl Tags {
    /// Reads the tags. The error is about a key.
    pub(crate) fn read(values: &Values) -> Result<Self, (&'static str, String)> {
        let mut wanted = Vec::new();
        for pair in values.whole_text("tags").into_iter().flat_map(|text| text.split(',')) {
            let invalid = || ("tags", format!("expected key=value, found `{pair}`"));
            let (key, value) = pair.split_once('=').ok_or_else(invalid)?;
            set(&mut wanted, key.trim(), value);
        }
        for (key, value) in values.texts("tagsMap").map_err(|message| ("tagsMap", message))? {
            set(&mut wanted, key.trim(), &value);
        }
        if wanted.iter().any(|(key, _)| key.is_empty()) {
            return Err(("tags", "a tag has no key".to_owned()));
        }
        let protected = values.text("systemTags").into_iter().flat_map(|text| text.split(','));
        let protected =
            protected.map(|prefix| prefix.trim().to_lowercase()).filter(|prefix| !prefix.is_empty());
        Ok(Self { wanted, protected: protected.collect() })
    }

    /// Brings tags to what is wanted. A value that differs only in case stays.
    pub(crate) fn apply(&self, tags: &mut BTreeMap<String, String>) {
        if !self.protected.is_empty() {
            let is_wanted = |key: &str| self.wanted.iter().any(|(name, _)| name.eq_ignore_ascii_case(key));
            let is_protected =
                |key: &str| self.protected.iter().any(|prefix| key.to_lowercase().starts_with(prefix));
            tags.retain(|key, _| is_wanted(key) || is_protected(key));
        }
        for (key, value) in &self.wanted {
            match tags.iter_mut().find(|(name, _)| name.eq_ignore_ascii_case(key)) {
                Some((_, there)) if there.eq_ignore_ascii_case(value) => {}
                Some((_, there)) => there.clone_from(value),
                None => drop(tags.insert(key.clone(), value.clone())),
            }
        }
    }
}

/// Sets a tag, in place of one whose key differs only in case.
fn set(tags: &mut Vec<(String, String)>, key: &str, value: &str) {
    // Azure reserves the value "null", so such a value keeps the blanks around it.
    let is_null = value.trim().eq_ignore_ascii_case("null");
    let value = if is_null { value } else { value.trim() }.to_owned();
    match tags.iter_mut().find(|(name, _)| name.eq_ignore_ascii_case(key)) {
        Some((_, there)) => *there = value,
        None => tags.push((key.to_owned(), value)),
    }
}

#[cfg(test)]
mod tests {
    use pileus_guest::testing::Host;
    use serde_json::{Value, json};

    use super::*;
    use crate::configuration::Configuration;

    fn tags(more: &Value) -> Tags {
        let mut document = json!({"subscriptionId": "s", "resourceGroup": "g"});
        document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value::<Configuration>(document).unwrap().check().ok().unwrap().tags
    }

    fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// Section 1.3 and bug 40 (CPA#7048).
    #[test]
    fn tags_are_added_changed_and_removed_by_the_rules() {
        type Row<'a> = (&'a str, Value, &'a [(&'a str, &'a str)], &'a [(&'a str, &'a str)]);
        let rows: [Row<'_>; 8] = [
            ("added", json!({"tags": "a=b, c = d"}), &[("x", "y")], &[("a", "b"), ("c", "d"), ("x", "y")]),
            ("the map wins", json!({"tags": "a=b", "tagsMap": {"A": "c"}}), &[], &[("a", "c")]),
            ("keys without case", json!({"tags": "A=c"}), &[("a", "b")], &[("a", "c")]),
            ("a value that differs in case stays", json!({"tags": "a=B"}), &[("a", "b")], &[("a", "b")]),
            ("null keeps its blanks", json!({"tags": "a= null "}), &[], &[("a", " null ")]),
            (
                "without protected tags nothing goes",
                json!({"tags": "a=b"}),
                &[("x", "y")],
                &[("a", "b"), ("x", "y")],
            ),
            (
                "others than protected ones go",
                json!({"tags": "a=b", "systemTags": "Sys, foo"}),
                &[("sys1", "1"), ("x", "y"), ("Foo", "2"), ("A", "c")],
                &[("sys1", "1"), ("Foo", "2"), ("A", "b")],
            ),
            ("nothing", json!({}), &[("x", "y")], &[("x", "y")]),
        ];
        for (row, document, before, after) in rows {
            let mut found = pairs(before);
            let wanted = tags(&document);
            wanted.apply(&mut found);
            assert_eq!(found, pairs(after), "{row}");
            wanted.apply(&mut found);
            assert_eq!(found, pairs(after), "{row}, applied again");
        }
    }

    #[test]
    fn tags_that_are_none_are_a_problem() {
        for document in [json!({"tags": "a"}), json!({"tags": "=b"}), json!({"tagsMap": {"a": 1}})] {
            let mut all = json!({"subscriptionId": "s", "resourceGroup": "g"});
            all.as_object_mut().unwrap().extend(document.as_object().unwrap().clone());
            let problems = Host::new().configuration(&all).configure::<crate::Azure>().unwrap_err();
            assert!(problems[0].path.starts_with("tags"), "{document}: {problems:?}");
        }
    }
}
