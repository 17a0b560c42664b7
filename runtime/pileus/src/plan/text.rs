//! A preview as text for a terminal: a summary, and then each change with its reason and the writes that the provider
//! wants.

use owo_colors::Style;
use pileus_gate::WantedWrite;
use pileus_host::sanitize;

use super::attribution::{DryRunResult, SharedWrite};
use super::preview::{Action, ChangeResult, Findings, Preview, PreviewedChange, Section, names};
use crate::terminal::styled;

/// How much of a body is shown, in characters. JSON has all that the gate kept.
const LONGEST_BODY: usize = 2_000;

/// The report, in color where standard output is a terminal that supports it; `verbose` includes bodies.
pub(super) fn report(preview: &Preview, verbose: bool) -> String {
    let identity = &preview.provider;
    let (cluster, uid) = &preview.cluster;
    let uid = uid.as_ref().map(|uid| format!(" ({uid})")).unwrap_or_default();
    let title = format!(
        "provider {}: {} {}, cluster {cluster}{uid}",
        identity.name, identity.component, identity.version
    );
    let mut lines = vec![
        styled(&sanitize(&title), Style::new().bold()),
        identity.digest.clone(),
        String::new(),
        summary(preview),
    ];
    for (kind, section) in preview.sections() {
        match section {
            Section::NotApplicable(why) => lines.push(note(&format!("{kind}s: {why}"))),
            Section::Unknown(why) => lines.push(note(&format!("{kind}s could not be read: {why}"))),
            Section::Planned(findings) => write_section(&mut lines, kind, findings, verbose),
        }
    }
    let has_changes = |section: &Section| section.findings().is_some_and(|found| !found.changes.is_empty());
    if preview.sections().iter().any(|(_, section)| has_changes(section)) {
        lines.push(String::new());
        lines.push(
            "Nothing was changed. Each write was refused, so requests that would follow from its answer are not shown."
                .to_owned(),
        );
    }
    lines.push(String::new());
    lines.join("\n")
}

/// One sentence about all sections.
fn summary(preview: &Preview) -> String {
    let sections = preview.sections();
    let planned = || sections.iter().filter_map(|(kind, section)| Some((*kind, section.findings()?)));
    let mut clauses: Vec<_> = planned().filter_map(|(kind, findings)| clause(kind, findings)).collect();
    if planned().count() > 0 && clauses.is_empty() {
        clauses.push("no changes are pending".to_owned());
    }
    let settled: Vec<_> = planned().filter(|(_, findings)| findings.settled > 0).collect();
    let named: Vec<_> = settled.iter().map(|(kind, findings)| plural(findings.settled, kind)).collect();
    match settled.iter().map(|(_, findings)| findings.settled).sum() {
        0 => {}
        1 => clauses.push(format!("{} is as it should be", named.join(" and "))),
        _ => clauses.push(format!("{} are as they should be", named.join(" and "))),
    }
    if sections.iter().any(|(_, section)| matches!(section, Section::Unknown(_))) {
        clauses.push("not everything could be read".to_owned());
    }
    if clauses.is_empty() {
        clauses.push("no changes are pending".to_owned());
    }
    let text = clauses.join("; ");
    let (first, rest) = text.split_at(text.floor_char_boundary(1));
    format!("{}{rest}.", first.to_uppercase())
}

/// The changes of one kind of resource; none where all are settled.
fn clause(kind: &str, findings: &Findings) -> Option<String> {
    let count =
        |is: fn(&ChangeResult) -> bool| findings.changes.iter().filter(|change| is(&change.result)).count();
    let counts = [
        (findings.count(Action::Create), "to create"),
        (findings.count(Action::Change), "to change"),
        (findings.count(Action::Delete), "to delete"),
        (count(|result| matches!(result, ChangeResult::DryRun(DryRunResult::InProgress))), "in progress"),
        (count(|result| matches!(result, ChangeResult::DryRun(DryRunResult::Failed(_)))), "failing"),
        (count(|result| matches!(result, ChangeResult::Rejected(_))), "rejected"),
        (count(|result| matches!(result, ChangeResult::DryRun(DryRunResult::Elsewhere))), "served elsewhere"),
    ];
    let counts: Vec<_> = counts.into_iter().filter(|(count, _)| *count > 0).collect();
    let (first, rest) = counts.split_first()?;
    let first = format!("{} {}", plural(first.0, kind), first.1);
    let rest = rest.iter().map(|(count, what)| format!("{count} {what}"));
    Some(std::iter::once(first).chain(rest).collect::<Vec<_>>().join(", "))
}

fn plural(count: usize, kind: &str) -> String {
    if count == 1 { format!("1 {kind}") } else { format!("{count} {kind}s") }
}

fn write_section(lines: &mut Vec<String>, kind: &str, findings: &Findings, verbose: bool) {
    let Findings { settled: _, changes, shared_writes, left_out, notes } = findings;
    if !changes.is_empty() || !shared_writes.is_empty() {
        lines.push(String::new());
    }
    for change in changes {
        write_change(lines, kind, change, verbose);
    }
    for SharedWrite { write, items } in shared_writes {
        let objects = match items.len() {
            0 => format!("for several {kind}s"),
            count => format!("once for {}: {}", plural(count, kind), names(items)),
        };
        lines.push(format!("  {} {}", styled(&format!("{:<7}", "write"), bold()), sanitize(&objects)));
        write_request(lines, write, verbose);
    }
    if *left_out > 0 {
        lines.push(note(&format!("{left_out} more writes, which are not shown")));
    }
    lines.extend(notes.iter().map(|text| note(text)));
}

fn write_change(lines: &mut Vec<String>, kind: &str, change: &PreviewedChange, verbose: bool) {
    let PreviewedChange { action, object, reason, result } = change;
    let (word, what) = match result {
        ChangeResult::DryRun(
            DryRunResult::Settled | DryRunResult::Writes(_) | DryRunResult::Unattributed,
        )
        | ChangeResult::Follows => (action.as_str(), None),
        ChangeResult::DryRun(DryRunResult::InProgress) => {
            ("wait", Some("the cloud is working on it".to_owned()))
        }
        ChangeResult::DryRun(DryRunResult::Elsewhere) => {
            ("leave", Some("the provider says that another controller serves it".to_owned()))
        }
        ChangeResult::DryRun(DryRunResult::Failed(error)) => ("fails", Some(error.clone())),
        ChangeResult::Rejected(problem) => ("reject", Some(problem.clone())),
    };
    let style = match (word, action) {
        ("create", _) => Style::new().green().bold(),
        ("delete" | "fails", _) => Style::new().red().bold(),
        _ => Style::new().yellow().bold(),
    };
    let text = format!("{kind} {object}: {}", what.unwrap_or_else(|| reason.clone()));
    lines.push(format!("  {} {}", styled(&format!("{word:<7}"), style), sanitize(&text)));
    match result {
        ChangeResult::DryRun(DryRunResult::Writes(writes)) => {
            for write in writes {
                write_request(lines, write, verbose);
            }
        }
        ChangeResult::DryRun(DryRunResult::Unattributed) => {
            lines.push(detail("its writes could not be told from those for other objects in time"));
        }
        ChangeResult::Follows => lines.push(detail("once the existing route is deleted")),
        _ => {}
    }
}

fn write_request(lines: &mut Vec<String>, write: &WantedWrite, verbose: bool) {
    let WantedWrite { method, url, body, body_size } = write;
    lines.push(detail(&format!("{method} {url}")));
    if verbose && *body_size > 0 {
        let text = String::from_utf8_lossy(body);
        let shown: String = text.chars().take(LONGEST_BODY).collect();
        let rest = if shown.len() < *body_size { format!("… ({body_size} bytes)") } else { String::new() };
        lines.push(detail(&format!("  {shown}{rest}")));
    }
}

fn detail(text: &str) -> String {
    format!("          {}", styled(&sanitize(text), Style::new().dimmed()))
}

fn note(text: &str) -> String {
    format!("  {} {}", styled(&format!("{:<7}", "note"), bold()), sanitize(text))
}

fn bold() -> Style {
    Style::new().bold()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{preview, settled};
    use super::*;

    #[test]
    fn the_summary_counts_changes_by_kind() {
        let sentence = |preview: &Preview| report(preview, false).lines().nth(3).unwrap().to_owned();
        assert_eq!(
            sentence(&preview()),
            "1 load balancer to create, 1 to change, 1 in progress, 1 failing, 1 rejected; 1 route to create, 1 to delete; 12 \
             load balancers and 40 routes are as they should be."
        );
        assert_eq!(sentence(&settled()), "No changes are pending; 1 load balancer is as it should be.");
        let unknown = Preview { load_balancers: Section::Unknown("no".to_owned()), ..settled() };
        assert_eq!(sentence(&unknown), "Not everything could be read.");
    }

    #[test]
    fn each_change_has_its_reason_and_writes_and_on_request_their_bodies() {
        let text = |verbose| report(&preview(), verbose);
        for line in [
            "  create  load balancer default/a: type LoadBalancer without a load balancer",
            "          PUT http://cloud.test/v1/a",
            "  wait    load balancer default/c: the cloud is working on it",
            "  reject  load balancer default/d: spec.ports is empty",
            "  fails   load balancer default/e: no quota",
            "  write   once for 2 load balancers: default/a, default/b",
            "  note    node n gets no route",
            "  delete  route 10.0.1.0/24 (r): blackhole: it leads nowhere",
            "          once the existing route is deleted",
        ] {
            assert!(text(false).lines().any(|found| found == line), "{line}: {}", text(false));
        }
        assert!(!text(false).contains(": 80"), "{}", text(false));
        assert!(text(true).contains("            {\"port\": 80}\n"), "{}", text(true));
        assert!(text(true).contains("            {\"many\":… (9000 bytes)\n"), "{}", text(true));
        assert!(text(false).contains("Nothing was changed."));
    }

    #[test]
    fn control_characters_of_a_provider_do_not_reach_the_terminal() {
        let text = report(&preview(), true);
        assert!(text.contains(" [31mred") && !text.contains('\x1b'), "{text}");
    }
}
