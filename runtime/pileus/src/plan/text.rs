//! A plan for people: a sentence that sums it up, and then what would be done, one by one, with the reason and with what
//! the provider wanted to send.

use owo_colors::Style;
use pileus_gate::WantedWrite;
use pileus_host::one_line;

use super::apart::Verdict;
use super::outlook::{Change, End, Findings, Outlook, Part, Shared, Verb};
use super::rehearsal::names;
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
        styled(&one_line(&title), Style::new().bold()),
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
    let mut sentences = Vec::new();
    let mut settled = Vec::new();
    for (kind, findings) in outlook.parts().map(|(kind, part)| (kind, part.findings())) {
        let Some(findings) = findings else { continue };
        settled.push(plural(findings.settled, kind));
        let counts = Verb::ALL.map(|verb| (verb, findings.count(verb)));
        let mut parts: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
        let first = parts.first().map(|(_, count)| *count).unwrap_or_default();
        let mut told: Vec<_> =
            parts.drain(..).map(|(verb, count)| format!("{count} to {}", verb.as_str())).collect();
        if let Some(head) = told.first_mut() {
            *head = head.replacen(' ', &format!(" {} ", kinds(first, kind)), 1);
        }
        if findings.others() > 0 {
            told.push(format!(
                "{} not as {} should be",
                plural(findings.others(), kind),
                it(findings.others())
            ));
        }
        if !told.is_empty() {
            sentences.push(told.join(", "));
        }
    }
    let is_nothing = sentences.is_empty();
    let settled = match settled.as_slice() {
        [] => None,
        all => Some(format!("{} as it should be", all.join(" and "))),
    };
    match (is_nothing, settled) {
        (true, None) => "Nothing to do.".to_owned(),
        (true, Some(settled)) => format!("Nothing to do; {settled}."),
        (false, settled) => {
            sentences.extend(settled);
            format!("{}.", sentences.join("; "))
        }
    }
}

fn plural(count: usize, kind: &str) -> String {
    format!("{count} {}", kinds(count, kind))
}

fn kinds(count: usize, kind: &str) -> String {
    if count == 1 { kind.to_owned() } else { format!("{kind}s") }
}

fn it(count: usize) -> &'static str {
    if count == 1 { "it" } else { "they" }
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
        lines.push(format!("  {} {}", styled(&format!("{:<7}", "write"), bold()), one_line(&whom)));
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
    lines.push(format!("  {} {}", styled(&format!("{word:<7}"), style), one_line(&text)));
    match end {
        End::Told(Verdict::Writes(writes)) => {
            writes.iter().for_each(|write| say_write(lines, write, verbose));
        }
        End::Told(Verdict::Unclear) => {
            lines.push(detail("its writes were not told apart from others' in time"))
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
    format!("          {}", styled(&one_line(text), Style::new().dimmed()))
}

fn note(text: &str) -> String {
    format!("  {} {}", styled(&format!("{:<7}", "note"), bold()), one_line(text))
}

fn bold() -> Style {
    Style::new().bold()
}
