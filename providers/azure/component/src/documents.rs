//! The parts of `providers/azure/README.md` that are generated from the component's tables, and the coverage table. With
//! `PILEUS_WRITE_DOCUMENTS=1` the tests write them instead of comparing them.

mod coverage;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::arm::error::CODES;
use crate::configuration::describe;
use crate::configuration::keys::{Effect, KEYS, Kind, RATE_LIMITS};
use crate::environment::CLOUDS;
use crate::machine::{INTERCONNECT, MANAGED, RESOURCE_GROUP};
use crate::rules::LIMITS;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_readme_has_the_components_tables() {
    let mut after = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let sections = [
        ("configuration", configuration()),
        ("clouds", clouds()),
        ("labels", labels()),
        ("limits", limits()),
        ("errors", errors()),
    ];
    for (name, text) in sections {
        after = with_section(&after, name, &text);
    }
    is_written("README.md", &after);
}

/// Writes a document of this provider, or fails if its text is another.
fn is_written(name: &str, text: &str) {
    let path = folder().join(name);
    if std::env::var_os("PILEUS_WRITE_DOCUMENTS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let before = std::fs::read_to_string(&path).unwrap();
    let line = before.lines().zip(text.lines()).find(|(before, text)| before != text);
    assert!(
        before == text,
        "providers/azure/{name} differs from the component, first at {line:?}: run \
         PILEUS_WRITE_DOCUMENTS=1 cargo test -p azure-provider --lib documents"
    );
}

/// The document with this text between the section's two marks.
fn with_section(document: &str, name: &str, text: &str) -> String {
    let (start, end) = (format!("<!-- generated: {name} -->\n"), "<!-- end -->");
    let (before, rest) = document.split_once(&start).unwrap_or_else(|| panic!("no {start}"));
    let (_, after) = rest.split_once(end).expect("each section has an end");
    format!("{before}{start}{text}{end}{after}")
}

fn configuration() -> String {
    let mut text = "| key | type | meaning |\n|---|---|---|\n".to_owned();
    for key in KEYS {
        let kind = match key.kind {
            Kind::Text => "text",
            Kind::Flag => "boolean",
            Kind::Number => "number",
            Kind::Object => "object",
            Kind::List => "list",
        };
        let meaning = match key.effect {
            Effect::Credential => format!("{}. It describes the credential", key.meaning),
            effect => describe(effect, key.meaning),
        };
        writeln!(text, "| `{}` | {kind} | {meaning} |", key.name).unwrap();
    }
    let limits: Vec<_> = RATE_LIMITS.iter().map(|name| format!("`{name}`")).collect();
    writeln!(
        text,
        "| {} | object | limits of one kind of request. Without effect: as the other limits |",
        limits.join(", ")
    )
    .unwrap();
    text
}

fn clouds() -> String {
    let mut text =
        "| `cloud` | token service | resource manager | audience |\n|---|---|---|---|\n".to_owned();
    for (name, authority, arm, audience) in CLOUDS {
        writeln!(text, "| {name} | {authority} | {arm} | {audience} |").unwrap();
    }
    text.push_str(
        "| AzureStackCloud | `activeDirectoryEndpoint` | `resourceManagerEndpoint` | `tokenAudience` |\n",
    );
    text
}

fn labels() -> String {
    let mut text = "| label | direction | meaning |\n|---|---|---|\n".to_owned();
    let rows = [
        (
            MANAGED,
            "read",
            "`false`: the Node isn't Azure's. It is released: no taint, no request, no route, no deletion",
        ),
        (
            RESOURCE_GROUP,
            "read",
            "the resource group of a Node's machine, until the Node has a provider ID, which says it itself",
        ),
        (INTERCONNECT.0, "written", "the tag `Platform_Interconnect_Group` of the machine"),
        (
            crate::local::SUB_FAULT_DOMAIN,
            "written",
            "the sub-fault domain, which the metadata service alone tells",
        ),
    ];
    for (label, direction, meaning) in rows {
        writeln!(text, "| `{label}` | {direction} | {meaning} |").unwrap();
    }
    text
}

fn limits() -> String {
    let mut text = "| limit | at once | a minute |\n|---|---|---|\n".to_owned();
    for limit in LIMITS {
        writeln!(text, "| `{}-SUBSCRIPTION` | {} | {} |", limit.name, limit.burst, limit.per_minute).unwrap();
    }
    text
}

fn errors() -> String {
    let mut text = "| status | code | taken for |\n|---|---|---|\n".to_owned();
    for (status, code, meaning) in CODES {
        writeln!(text, "| {status} | `{code}` | {} |", format!("{meaning:?}").to_lowercase()).unwrap();
    }
    text
}
