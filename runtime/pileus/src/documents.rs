//! The parts of `deploy/README.md` that are generated from the program: flags, metrics and exit codes, so that the document
//! can't differ from the code. The test compares them; with `PILEUS_WRITE_DOCUMENTS=1` it writes them instead.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use clap::CommandFactory as _;
use pileus_gate::Limit;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::cli::{self, Pileus};
use crate::leader::Election;
use crate::metrics::Metrics;

/// The flags that upstream has with another default; all others that it has, it has with ours.
const UPSTREAM_DEFAULTS: &[(&str, &str)] = &[
    ("concurrent-service-syncs", "1"),
    ("node-monitor-period", "5s"),
    ("node-status-update-frequency", "5m"),
    ("route-reconciliation-period", "10s"),
];

/// The flags that no upstream cloud-controller-manager has.
const OWN: &[&str] = &[
    "admin-address",
    "compiled-code",
    "debug-address",
    "load-balancer-audit-period",
    "log-filter",
    "log-format",
    "provider",
    "provider-files",
    "store",
    "taint-stopped-nodes-out-of-service",
    "wait-for-routes",
];

#[test]
fn the_operators_document_has_the_programs_flags_metrics_and_exit_codes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/README.md");
    let before = std::fs::read_to_string(&path).unwrap();
    let mut after = before.clone();
    for (name, text) in [
        ("flags", flags()),
        ("node manager flags", node_manager_flags()),
        ("upstream flags", upstream_flags()),
        ("metrics", metrics()),
        ("exit codes", format!("```text\n{}\n```\n", cli::EXIT_CODES)),
    ] {
        after = with_section(&after, name, &text);
    }
    if std::env::var_os("PILEUS_WRITE_DOCUMENTS").is_some() {
        std::fs::write(&path, &after).unwrap();
    } else {
        let line = before.lines().zip(after.lines()).find(|(before, after)| before != after);
        assert!(
            before == after,
            "deploy/README.md differs from the program, first at {line:?}: run \
             PILEUS_WRITE_DOCUMENTS=1 cargo test -p pileus --lib documents"
        );
    }
}

#[test]
fn the_definition_of_the_resource_is_that_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crd.yaml");
    let text = crate::schema::resource_definition();
    let read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(read, crate::document::schema::resource_definition(), "it is written as it is read");
    if std::env::var_os("PILEUS_WRITE_DOCUMENTS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == text,
        "deploy/crd.yaml differs from the program: run PILEUS_WRITE_DOCUMENTS=1 cargo test -p pileus --lib documents"
    );
}

/// The document with this text between the section's two marks.
fn with_section(document: &str, name: &str, text: &str) -> String {
    let (start, end) = (format!("<!-- generated: {name} -->\n"), "<!-- end -->");
    let (before, rest) = document.split_once(&start).unwrap_or_else(|| panic!("no {start}"));
    let (_, after) = rest.split_once(end).expect("each section has an end");
    format!("{before}{start}{text}{end}{after}")
}

fn flags() -> String {
    let mut command = Pileus::command();
    command.build();
    let run = command.find_subcommand("run").unwrap();
    let mut text = "| flag | default | upstream's default | meaning |\n|---|---|---|---|\n".to_owned();
    for argument in run.get_arguments().filter(|argument| argument.get_id() != "help") {
        let Some(flag) = argument.get_long() else { continue };
        let defaults: Vec<_> =
            argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let default = if defaults.is_empty() { String::new() } else { format!("`{}`", defaults.join(",")) };
        let others = UPSTREAM_DEFAULTS.iter().find(|(name, _)| *name == flag);
        let upstream = match others {
            Some((_, default)) => format!("`{default}`"),
            None if OWN.contains(&flag) => "not there".to_owned(),
            None => "the same".to_owned(),
        };
        let help = argument.get_help().unwrap().to_string();
        writeln!(text, "| `--{flag}` | {default} | {upstream} | {} |", cell(&help)).unwrap();
    }
    text
}

fn node_manager_flags() -> String {
    let mut command = Pileus::command();
    command.build();
    let own = command.find_subcommand("node-manager").unwrap();
    let mut text = "| flag | default | meaning |\n|---|---|---|\n".to_owned();
    for argument in own.get_arguments().filter(|argument| argument.get_id() != "help") {
        let Some(flag) = argument.get_long() else { continue };
        let defaults: Vec<_> =
            argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let default = if defaults.is_empty() { String::new() } else { format!("`{}`", defaults.join(",")) };
        let help = argument.get_help().unwrap().to_string();
        writeln!(text, "| `--{flag}` | {default} | {} |", cell(&help)).unwrap();
    }
    text
}

fn upstream_flags() -> String {
    let mut text = "| flag | instead |\n|---|---|\n".to_owned();
    for (instead, flags) in cli::UPSTREAM_FLAGS {
        let flags: Vec<_> = flags
            .iter()
            .map(|flag| format!("`--{flag}{}`", if flag.ends_with('-') { "…" } else { "" }))
            .collect();
        writeln!(text, "| {} | {} |", flags.join(", "), cell(instead)).unwrap();
    }
    text
}

/// All metric families: most are read from the registry's own descriptors, those of a gate's limits from what it writes.
fn metrics() -> String {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let _election = Election::new(election_flags(), "host", 0, &mut registry).unwrap();
    let config = pileus_gate::Config {
        refusals: Vec::new(),
        limits: vec![Limit::new("reads", 1, 1.0).unwrap()],
        ..pileus_gate::Config::new("provider")
    };
    let _gate = pileus_gate::Gate::new(config, &metrics.gate).unwrap();
    let mut families = BTreeMap::new();
    described(&format!("{registry:#?}"), &mut families);
    let mut written = String::new();
    encode(&mut written, &registry).unwrap();
    for line in written.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            families.insert(name.to_owned(), help.trim_end_matches('.').to_owned());
        }
    }
    let mut text =
        "A counter's sample has the suffix `_total` too.\n\n| family | meaning |\n|---|---|\n".to_owned();
    for (name, help) in families {
        writeln!(text, "| `{name}` | {} |", cell(&help)).unwrap();
    }
    text
}

fn election_flags() -> cli::LeaderElection {
    use clap::Parser as _;
    let line = ["pileus", "run", "--provider", "x"];
    match Pileus::try_parse_from(line).unwrap().command {
        cli::Command::Run(run) => run.leader_election,
        _ => unreachable!("the command is run"),
    }
}

/// Reads the families out of a registry's `Debug`, the one place where it shows all of them: a registry writes only those
/// that have a value.
fn described(registry: &str, families: &mut BTreeMap<String, String>) {
    // Each registry begins with its prefix, indented less than its metrics.
    let mut prefixes: Vec<(usize, String)> = Vec::new();
    let mut lines = registry.lines().map(|line| (line.len() - line.trim_start().len(), line.trim()));
    while let Some((indent, line)) = lines.next() {
        if line.starts_with("prefix: ") {
            prefixes.retain(|(other, _)| *other < indent);
            let value =
                if line.ends_with("None,") { None } else { lines.nth(1).map(|(_, line)| quoted(line)) };
            prefixes.push((indent, value.map(|prefix| format!("{prefix}_")).unwrap_or_default()));
        } else if line.starts_with("name: ") && line.ends_with("\",") {
            let Some((_, help)) = lines.next() else { return };
            // A label that is called `name` has no help.
            if !help.starts_with("help: ") {
                continue;
            }
            let Some((_, unit)) = lines.next() else { return };
            let unit = match unit {
                "unit: None," => String::new(),
                _ => lines
                    .next()
                    .map(|(_, unit)| format!("_{}", unit.to_lowercase().replace(',', "")))
                    .unwrap(),
            };
            let prefix = prefixes.last().map(|(_, prefix)| prefix.as_str()).unwrap_or_default();
            let name = format!("{prefix}{}{unit}", quoted(line));
            families.insert(name, quoted(help).trim_end_matches('.').to_owned());
        }
    }
}

/// What stands between the quotes of a line.
fn quoted(line: &str) -> String {
    let inside = line.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"'));
    inside.map(|(text, _)| text.to_owned()).unwrap_or_default()
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
