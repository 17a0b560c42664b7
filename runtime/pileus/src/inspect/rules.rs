//! The rules of a provider as a table: what each kind of request means to the gate.
//!
//! If every rule fits on a line, each has one. Otherwise each rule has its path on lines of their own and the rest
//! below, so that nothing is cut off and no row of the table is broken.

use pileus_gate::{Effect, KeyPattern, Operation, Place, Rule};
use pileus_host::sanitize;

/// The maximum width of the table, in characters, without its indentation.
const WIDTH: usize = 96;

/// The gap between columns.
const GAP: &str = "  ";

const HEADS: [&str; 6] = ["METHOD", "EFFECT", "PATH", "LIMITS", "CACHE", "PAGE"];

/// A rule, with a text for each column.
type Row = [String; HEADS.len()];

/// The lines of the table. A host is a line above its rules. Rules are not grouped by host, because their order matters.
pub(super) fn table(rules: &[Rule]) -> Vec<String> {
    let rows: Vec<Row> = rules.iter().map(row).collect();
    let heads: Row = HEADS.map(str::to_owned);
    let widths: [usize; HEADS.len()] = std::array::from_fn(|column| {
        let cells = rows.iter().chain([&heads]).filter_map(|row| row.get(column));
        cells.map(|cell| width(cell)).max().unwrap_or_default()
    });
    let is_wide = widths.iter().sum::<usize>() + GAP.len() * (HEADS.len() - 1) <= WIDTH;
    let mut lines = Vec::new();
    let mut host = None;
    for (rule, row) in rules.iter().zip(&rows) {
        if host.replace(&rule.host) != Some(&rule.host) {
            lines.push(sanitize(&rule.host.to_string()));
            if is_wide {
                lines.push(one_line_row(&heads, &widths));
            }
        }
        if is_wide { lines.push(one_line_row(row, &widths)) } else { lines.extend(multi_line_row(row)) }
    }
    lines
}

/// The name of an effect in the contract.
pub(super) const fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Read => "read",
        Effect::Write => "write",
        Effect::OperationPoll => "operation-poll",
    }
}

/// The kind of a place, as in the contract, and its name.
pub(super) fn place(place: &Place) -> (&'static str, &str) {
    match place {
        Place::Query(name) => ("query", name),
        Place::Header(name) => ("header", name.as_str()),
        Place::FormField(name) => ("form-field", name),
        Place::JsonField(name) => ("json-field", name),
    }
}

fn row(rule: &Rule) -> Row {
    let Rule { host: _, method, path, operation, effect, limits, cache_scope, fold_case, page } = rule;
    let text = |at: &Place| {
        let (kind, name) = place(at);
        format!("{kind} {name}")
    };
    let mut path = path.to_string();
    if let Some(Operation { place, name }) = operation {
        path.extend([" where ", &text(place), " is ", &name.to_string()]);
    }
    if *fold_case {
        path.push_str(" (case-insensitive)");
    }
    let limits: Vec<_> = limits.iter().map(KeyPattern::to_string).collect();
    let limits = if limits.is_empty() { "none".to_owned() } else { limits.join(", ") };
    let cache = cache_scope.as_ref().map_or_else(|| "all".to_owned(), KeyPattern::to_string);
    let page = page.as_ref().map(text).unwrap_or_default();
    let row = [method.to_string(), self::effect(*effect).to_owned(), path, limits, cache, page];
    row.map(|cell| sanitize(&cell))
}

fn one_line_row(row: &Row, widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}", width = *width));
    cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
}

fn multi_line_row([method, effect, path, limits, cache, page]: &Row) -> Vec<String> {
    let page = if page.is_empty() { String::new() } else { format!(", pages by {page}") };
    let rest = format!("{effect}, limits {limits}, cache {cache}{page}");
    // A method that isn't one of HTTP's may be longer.
    let is_long = width(method) > METHOD;
    let (method, path) =
        if is_long { ("", format!("{method} {path}")) } else { (method.as_str(), path.clone()) };
    let mut lines = Vec::new();
    for (head, text) in [(method, path), ("", rest)] {
        for (number, part) in parts(&text).into_iter().enumerate() {
            let head = if number == 0 { head } else { "" };
            lines.push(format!("{head:<METHOD$}{GAP}{part}"));
        }
    }
    lines
}

/// The length of the longest HTTP method.
const METHOD: usize = "OPTIONS".len();

/// Splits a text into parts that fit beside a method, after slashes and spaces if possible.
fn parts(text: &str) -> Vec<String> {
    let most = WIDTH - METHOD - GAP.len();
    let (mut parts, mut part) = (Vec::new(), String::new());
    for piece in text.split_inclusive(['/', ' ']) {
        if !part.is_empty() && width(&part) + width(piece.trim_end()) > most {
            parts.push(std::mem::take(&mut part));
        }
        part.push_str(piece);
        while let Some((end, _)) = part.char_indices().nth(most).filter(|_| width(part.trim_end()) > most) {
            let rest = part.split_off(end);
            parts.push(std::mem::replace(&mut part, rest));
        }
    }
    parts.push(part);
    parts.into_iter().map(|part| part.trim_end().to_owned()).collect()
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(method: &str, path: &str) -> Rule {
        Rule {
            host: "cloud.example".parse().unwrap(),
            method: method.parse().unwrap(),
            path: path.parse().unwrap(),
            operation: None,
            effect: Effect::Read,
            limits: vec!["reads".parse().unwrap()],
            cache_scope: Some("things-{1}".parse().unwrap()),
            page: None,
            fold_case: false,
        }
    }

    #[test]
    fn rules_that_fit_have_one_line_each_below_their_host() {
        let page = Some(Place::Query("cursor".to_owned()));
        let write = Rule {
            effect: Effect::Write,
            limits: Vec::new(),
            cache_scope: None,
            fold_case: true,
            ..rule("*", "/b/**")
        };
        let name = "Describe*".parse().unwrap();
        let operation = Some(Operation { place: Place::FormField("Action".to_owned()), name });
        let limits = ["reads", "all/{1}"].map(|key| key.parse().unwrap()).to_vec();
        let other = Rule { host: "*.example".parse().unwrap(), operation, limits, ..rule("POST", "/") };
        let rules = [Rule { page, ..rule("GET", "/a/*") }, write, other, rule("GET", "/c/*")];
        let expected = "\
cloud.example
METHOD  EFFECT  PATH                                    LIMITS          CACHE       PAGE
GET     read    /a/*                                    reads           things-{1}  query cursor
*       write   /b/** (case-insensitive)                none            all
*.example
METHOD  EFFECT  PATH                                    LIMITS          CACHE       PAGE
POST    read    / where form-field Action is Describe*  reads, all/{1}  things-{1}
cloud.example
METHOD  EFFECT  PATH                                    LIMITS          CACHE       PAGE
GET     read    /c/*                                    reads           things-{1}";
        assert_eq!(table(&rules).join("\n"), expected);
    }

    #[test]
    fn long_rules_are_wrapped_and_nothing_is_cut_off() {
        let azure = "/subscriptions/*/resourceGroups/*/providers/Microsoft.Compute/virtualMachineScaleSets/*/virtualMachines/*";
        let poll = Rule { effect: Effect::OperationPoll, ..rule("GET", "/operations/*") };
        let solid = format!("/{}", "z".repeat(500));
        let page = Some(Place::Header("next".parse().unwrap()));
        let rules =
            [rule("DELETE", azure), Rule { page, ..poll }, rule("GET", &solid), rule(&"Z".repeat(200), "/")];
        let lines = table(&rules);
        let expected = "\
cloud.example
DELETE   /subscriptions/*/resourceGroups/*/providers/Microsoft.Compute/virtualMachineScaleSets/
         */virtualMachines/*
         read, limits reads, cache things-{1}
GET      /operations/*
         operation-poll, limits reads, cache things-{1}, pages by header next
GET      /";
        assert!(lines.join("\n").starts_with(expected), "{}", lines.join("\n"));
        assert!(lines.iter().all(|line| width(line) <= WIDTH), "{}", lines.join("\n"));
        assert_eq!(["z", "Z"].map(|letter| lines.join("").matches(letter).count()), [500, 200]);
    }

    #[test]
    fn rules_have_no_control_characters() {
        let page = Some(Place::Query("\u{1b}[2J\u{202e}".to_owned()));
        let text = table(&[Rule { page, ..rule("GET", "/") }]).join("");
        assert!(!text.contains(pileus_host::is_control), "{text:?}");
    }
}
