//! The parts of `providers/azure/README.md` that are generated from the component's tables, and the coverage table, whose tests must
//! exist. With `PILEUS_WRITE_DOCUMENTS=1` the test writes the generated parts instead of comparing them.

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
    let path = folder().join("README.md");
    let before = std::fs::read_to_string(&path).unwrap();
    let mut after = before.clone();
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
    if std::env::var_os("PILEUS_WRITE_DOCUMENTS").is_some() {
        std::fs::write(&path, &after).unwrap();
    } else {
        let line = before.lines().zip(after.lines()).find(|(before, after)| before != after);
        assert!(
            before == after,
            "providers/azure/README.md differs from the component, first at {line:?}: run \
             PILEUS_WRITE_DOCUMENTS=1 cargo test -p azure-provider --lib documents"
        );
    }
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

/// Each row of the coverage table says how it is covered, and each test that it names exists.
#[test]
fn each_test_that_the_coverage_names_exists() {
    let text = std::fs::read_to_string(folder().join("COVERAGE.md")).unwrap();
    let sources = sources();
    let mut rows = 0;
    for line in text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what")) {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, how, where_to_look] = &cells[..] else { panic!("three cells: {line}") };
        match *how {
            "tested" => {
                let named: Vec<_> = where_to_look.split('`').skip(1).step_by(2).collect();
                assert!(!named.is_empty(), "no test is named: {line}");
                for test in named {
                    let name = test.rsplit("::").next().unwrap();
                    assert!(sources.contains(&format!("fn {name}(")), "there is no test {test}: {line}");
                }
            }
            "different" | "missing" | "next" => assert!(where_to_look.len() > 3, "no reason: {line}"),
            other => panic!("{other}: {line}"),
        }
        rows += 1;
    }
    assert!(rows > 100, "{rows} rows");
    // Each key of the configuration has a row.
    for key in KEYS {
        assert!(text.contains(&format!("`{}`", key.name)), "no row for {}", key.name);
    }
}

/// The sources of this component and of its tests.
fn sources() -> String {
    let mut folders = ["component/src", "component/tests"].map(|path| folder().join(path)).to_vec();
    let mut text = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    text
}
