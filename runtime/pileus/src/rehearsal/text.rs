//! A plan for people: a sentence that sums it up, and then what would be done, one by one, with the reason and with what
//! the provider wanted to send.

use owo_colors::Style;
use pileus_gate::WantedWrite;
use pileus_host::sanitize;

use super::apart::Verdict;
use super::outlook::{Change, End, Findings, Outlook, Part, Shared, Verb, names};
use crate::terminal::styled;

/// What of a body people are shown, in characters; machines get what was kept.
const LONGEST_BODY: usize = 2_000;

/// The report, with colours where standard output is a terminal that wants them; with bodies where it is to be verbose.
pub(super) fn report(outlook: &Outlook, verbose: bool) -> String {
    let identity = &outlook.provider;
    let (cluster, uid) = &outlook.cluster;
    let uid = uid.as_ref().map(|uid| format!(" ({uid})")).unwrap_or_default();
    let title = format!(
        "provider {}: {} {}, cluster {cluster}{uid}",
        identity.name, identity.component, identity.version
    );
    let mut lines = vec![
        styled(&sanitize(&title), Style::new().bold()),
        identity.digest.clone(),
        String::new(),
        summary(outlook),
    ];
    for (kind, part) in outlook.parts() {
        match part {
            Part::Nothing(why) => lines.push(note(&format!("{kind}s: {why}"))),
            Part::Unseen(why) => lines.push(note(&format!("{kind}s could not be looked at: {why}"))),
            Part::Seen(findings) => say(&mut lines, kind, findings, verbose),
        }
    }
    if outlook.parts().iter().any(|(_, part)| part.findings().is_some_and(|found| !found.changes.is_empty()))
    {
        lines.push(String::new());
        lines.push(
            "Nothing was changed. Each write was answered as by a cloud that takes none now, so what would follow from its \
             answer is not shown."
                .to_owned(),
        );
    }
    lines.push(String::new());
    lines.join("\n")
}

/// What would be done, and what is as it should be.
fn summary(outlook: &Outlook) -> String {
    let parts = outlook.parts();
    let seen = || parts.iter().filter_map(|(kind, part)| Some((*kind, part.findings()?)));
    let mut clauses: Vec<_> = seen().filter_map(|(kind, findings)| clause(kind, findings)).collect();
    if seen().count() > 0 && clauses.is_empty() {
        clauses.push("nothing to do".to_owned());
    }
    let settled: Vec<_> = seen().filter(|(_, findings)| findings.settled > 0).collect();
    let named: Vec<_> = settled.iter().map(|(kind, findings)| plural(findings.settled, kind)).collect();
    match settled.iter().map(|(_, findings)| findings.settled).sum() {
        0 => {}
        1 => clauses.push(format!("{} is as it should be", named.join(" and "))),
        _ => clauses.push(format!("{} are as they should be", named.join(" and "))),
    }
    if parts.iter().any(|(_, part)| matches!(part, Part::Unseen(_))) {
        clauses.push("not all could be looked at".to_owned());
    }
    if clauses.is_empty() {
        clauses.push("nothing to do".to_owned());
    }
    let text = clauses.join("; ");
    let (first, rest) = text.split_at(text.floor_char_boundary(1));
    format!("{}{rest}.", first.to_uppercase())
}

/// What would be done about things of one kind.
fn clause(kind: &str, findings: &Findings) -> Option<String> {
    let ends = |is: fn(&End) -> bool| findings.changes.iter().filter(|change| is(&change.end)).count();
    let counts = [
        (findings.count(Verb::Create), "to create"),
        (findings.count(Verb::Change), "to change"),
        (findings.count(Verb::Delete), "to delete"),
        (ends(|end| matches!(end, End::Told(Verdict::UnderWay))), "under way"),
        (ends(|end| matches!(end, End::Told(Verdict::Failed(_)))), "failing"),
        (ends(|end| matches!(end, End::Refused(_))), "refused"),
        (ends(|end| matches!(end, End::Told(Verdict::Elsewhere))), "for somebody else to serve"),
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

fn say(lines: &mut Vec<String>, kind: &str, findings: &Findings, verbose: bool) {
    let Findings { settled: _, changes, together, left_out, notes } = findings;
    if !changes.is_empty() || !together.is_empty() {
        lines.push(String::new());
    }
    for change in changes {
        say_change(lines, kind, change, verbose);
    }
    for Shared { write, by } in together {
        let whom = match by.len() {
            0 => format!("for several {kind}s"),
            count => format!("once for {}: {}", plural(count, kind), names(by)),
        };
        lines.push(format!("  {} {}", styled(&format!("{:<7}", "write"), bold()), sanitize(&whom)));
        say_write(lines, write, verbose);
    }
    if *left_out > 0 {
        lines.push(note(&format!("{left_out} more writes than could be kept")));
    }
    lines.extend(notes.iter().map(|text| note(text)));
}

fn say_change(lines: &mut Vec<String>, kind: &str, change: &Change, verbose: bool) {
    let Change { verb, object, reason, end } = change;
    let (word, what) = match end {
        End::Told(Verdict::Settled | Verdict::Writes(_) | Verdict::Unclear) | End::Next => {
            (verb.as_str(), None)
        }
        End::Told(Verdict::UnderWay) => ("wait", Some("the cloud is at it".to_owned())),
        End::Told(Verdict::Elsewhere) => {
            ("leave", Some("the provider says that it is somebody else's to serve".to_owned()))
        }
        End::Told(Verdict::Failed(error)) => ("fails", Some(error.clone())),
        End::Refused(problem) => ("refuse", Some(problem.clone())),
    };
    let style = match (word, verb) {
        ("create", _) => Style::new().green().bold(),
        ("delete" | "fails", _) => Style::new().red().bold(),
        _ => Style::new().yellow().bold(),
    };
    let text = format!("{kind} {object}: {}", what.unwrap_or_else(|| reason.clone()));
    lines.push(format!("  {} {}", styled(&format!("{word:<7}"), style), sanitize(&text)));
    match end {
        End::Told(Verdict::Writes(writes)) => {
            for write in writes {
                say_write(lines, write, verbose);
            }
        }
        End::Told(Verdict::Unclear) => {
            lines.push(detail("its writes were not told apart from others' in time"));
        }
        End::Next => lines.push(detail("once the route that is there has been deleted")),
        _ => {}
    }
}

fn say_write(lines: &mut Vec<String>, write: &WantedWrite, verbose: bool) {
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
    use super::super::samples::{outlook, settled};
    use super::*;

    #[test]
    fn a_sentence_sums_it_up() {
        let sentence = |outlook: &Outlook| report(outlook, false).lines().nth(3).unwrap().to_owned();
        assert_eq!(
            sentence(&outlook()),
            "1 load balancer to create, 1 to change, 1 under way, 1 failing, 1 refused; 1 route to create, 1 to delete; 12 \
             load balancers and 40 routes are as they should be."
        );
        assert_eq!(sentence(&settled()), "Nothing to do; 1 load balancer is as it should be.");
        let unseen = Outlook { load_balancers: Part::Unseen("no".to_owned()), ..settled() };
        assert_eq!(sentence(&unseen), "Not all could be looked at.");
    }

    #[test]
    fn each_change_is_told_with_its_reason_its_writes_and_if_asked_for_their_bodies() {
        let told = |verbose| report(&outlook(), verbose);
        for line in [
            "  create  load balancer default/a: type LoadBalancer without a load balancer",
            "          PUT http://cloud.test/v1/a",
            "  wait    load balancer default/c: the cloud is at it",
            "  refuse  load balancer default/d: spec.ports is empty",
            "  fails   load balancer default/e: no quota",
            "  write   once for 2 load balancers: default/a, default/b",
            "  note    node n gets no route",
            "  delete  route 10.0.1.0/24 (r): blackhole: it leads nowhere",
            "          once the route that is there has been deleted",
        ] {
            assert!(told(false).lines().any(|found| found == line), "{line}: {}", told(false));
        }
        assert!(!told(false).contains(": 80"), "{}", told(false));
        assert!(told(true).contains("            {\"port\": 80}\n"), "{}", told(true));
        assert!(told(true).contains("            {\"many\":… (9000 bytes)\n"), "{}", told(true));
        assert!(told(false).contains("Nothing was changed."));
    }

    #[test]
    fn a_strangers_words_reach_no_terminal_unchecked() {
        let text = report(&outlook(), true);
        assert!(text.contains(" [31mred") && !text.contains('\x1b'), "{text}");
    }
}
