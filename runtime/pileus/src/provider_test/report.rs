//! What authors and machines read: the same verdicts, as lines for a terminal and as one JSON object.
//!
//! ```json
//! {
//!   "component": {"file": "…", "digest": "sha256:…", "contract": "0.1.0", "name": "…", "version": "…"},
//!   "checks": [
//!     {
//!       "id": "trouble.down", "claim": "…", "matters": "…", "result": "failed",
//!       "sent": "…", "came": "…", "advice": "…", "needs": null
//!     }
//!   ],
//!   "summary": {"passed": 1, "failed": 1, "notRun": 1}
//! }
//! ```
//!
//! A result is `passed`, `failed` or `not-run`. `sent`, `came` and `advice` are there where it failed, `needs` where it was
//! not run, else null; name and version are null where the provider couldn't tell them. Fields and results may be added,
//! none goes and none changes its meaning.

use owo_colors::Style;
use pileus_host::sanitize;
use serde_json::{Value, json};

use super::check::{self, Check, Failure, Shortfall, Verdict};
use super::facts::Facts;
use crate::terminal::styled;

/// The longest detail that people are shown, in characters; machines get all of it.
const LONGEST: usize = 2_000;

/// The outcome of a conformance test.
pub(crate) struct Report {
    file: String,
    digest: String,
    contract: String,
    /// What the provider calls itself, and its version.
    provider: Option<(String, String)>,
    verdicts: Vec<(&'static Check, Verdict)>,
}

impl Report {
    /// Holds all checks against what was seen.
    pub(crate) fn new(file: String, digest: String, contract: String, facts: &Facts) -> Self {
        let provider = facts.description().map(|known| (known.name.clone(), known.version.clone()));
        let verdicts = check::all().map(|check| (check, (check.judge)(facts))).collect();
        Self { file, digest, contract, provider, verdicts }
    }

    /// How many checks failed.
    pub(crate) fn failed(&self) -> usize {
        self.count(|verdict| matches!(verdict, Err(Shortfall::Failed(_))))
    }

    fn not_run(&self) -> usize {
        self.count(|verdict| matches!(verdict, Err(Shortfall::NotRun(_))))
    }

    fn count(&self, what: impl Fn(&Verdict) -> bool) -> usize {
        self.verdicts.iter().filter(|(_, verdict)| what(verdict)).count()
    }

    fn passed(&self) -> usize {
        self.verdicts.len() - self.failed() - self.not_run()
    }

    /// The report for machines.
    pub(crate) fn json(&self) -> Value {
        let (name, version) = self.provider.clone().unzip();
        let check = |(check, verdict): &(&Check, Verdict)| {
            let Check { id, claim, matters, judge: _ } = check;
            let (failure, needs) = match verdict {
                Ok(()) => (None, None),
                Err(Shortfall::Failed(failure)) => (Some(failure), None),
                Err(Shortfall::NotRun(needs)) => (None, Some(needs)),
            };
            json!({
                "id": id,
                "claim": claim,
                "matters": matters,
                "result": result(verdict),
                "sent": failure.map(|Failure { sent, .. }| sent),
                "came": failure.map(|Failure { came, .. }| came),
                "advice": failure.map(|Failure { advice, .. }| advice),
                "needs": needs,
            })
        };
        json!({
            "component": {
                "file": self.file,
                "digest": self.digest,
                "contract": self.contract,
                "name": name,
                "version": version,
            },
            "checks": self.verdicts.iter().map(check).collect::<Vec<_>>(),
            "summary": {"passed": self.passed(), "failed": self.failed(), "notRun": self.not_run()},
        })
    }

    /// The report for people, with colours where standard output is a terminal that wants them.
    pub(crate) fn text(&self) -> String {
        let provider = match &self.provider {
            Some((name, version)) => format!("{name} {version}"),
            None => "a provider that doesn't say what it is".to_owned(),
        };
        let title = format!("{}: {provider}, contract {}", self.file, self.contract);
        let mut lines = vec![styled(&title, Style::new().bold()), self.digest.clone(), String::new()];
        let mut needed = None;
        for (Check { id, claim, matters, judge: _ }, verdict) in &self.verdicts {
            let word = format!("{:<8}", result(verdict).replace('-', " "));
            let (style, details) = match verdict {
                Ok(()) => (Style::new().green(), Vec::new()),
                Err(Shortfall::Failed(Failure { sent, came, advice })) => (
                    Style::new().red().bold(),
                    vec![("matters", *matters), ("sent", sent), ("came back", came), ("to do", advice)],
                ),
                // What the one before lacked too is not said again.
                Err(Shortfall::NotRun(needs)) if needed.replace(needs) == Some(needs) => {
                    (Style::new().yellow(), Vec::new())
                }
                Err(Shortfall::NotRun(needs)) => (Style::new().yellow(), vec![("needs", needs.as_str())]),
            };
            lines.push(format!("  {} {id:<30} {claim}", styled(&word, style)));
            lines.extend(details.into_iter().map(|(name, value)| {
                let name = styled(&format!("{name:<10}"), Style::new().dimmed());
                format!("           {name} {}", shown(value))
            }));
        }
        let (passed, failed, not_run) = (self.passed(), self.failed(), self.not_run());
        lines.extend([String::new(), format!("{passed} passed, {failed} failed, {not_run} not run\n")]);
        lines.join("\n")
    }
}

fn shown(detail: &str) -> String {
    let mut shown = sanitize(&detail.chars().take(LONGEST).collect::<String>());
    if detail.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

fn result(verdict: &Verdict) -> &'static str {
    match verdict {
        Ok(()) => "passed",
        Err(Shortfall::Failed(_)) => "failed",
        Err(Shortfall::NotRun(_)) => "not-run",
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::Outcome;
    use super::super::samples;
    use super::*;

    fn report() -> Report {
        let mut facts = samples::facts();
        let lookups = facts.lookups.as_mut().unwrap();
        lookups.gone = None;
        let hostile = pileus_cloud::Error::new(pileus_cloud::ErrorKind::Broken, "\x1b[31mred\nline");
        lookups.missing.outcome = Outcome::Failed(hostile);
        Report::new("a.wasm".to_owned(), "sha256:1".to_owned(), "0.1.0".to_owned(), &facts)
    }

    #[test]
    fn text_and_json_tell_the_same() {
        let (text, json) = (report().text(), report().json());
        let checks = json["checks"].as_array().unwrap();
        assert_eq!(checks.len(), check::all().count());
        for check in checks {
            let line = text.lines().find(|line| line.contains(check["id"].as_str().unwrap())).unwrap();
            let word = check["result"].as_str().unwrap().replace('-', " ");
            assert!(line.trim_start().starts_with(&word) && line.ends_with(check["claim"].as_str().unwrap()));
            for field in ["sent", "advice", "needs"] {
                assert!(check[field].as_str().is_none_or(|told| text.contains(told)), "{check}");
            }
        }
        let passed = checks.len() - 2;
        assert_eq!(json["summary"], json!({"passed": passed, "failed": 1, "notRun": 1}));
        assert!(text.ends_with(&format!("\n{passed} passed, 1 failed, 1 not run\n")), "{text}");
    }

    #[test]
    fn a_detail_is_shown_up_to_a_length() {
        assert_eq!(shown(&"ä".repeat(LONGEST)), "ä".repeat(LONGEST));
        assert_eq!(shown(&"ä".repeat(LONGEST + 1)), format!("{}…", "ä".repeat(LONGEST)));
    }

    #[test]
    fn a_providers_words_reach_no_terminal_unchecked() {
        let text = report().text();
        assert!(text.contains("[31mred line"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
    }
}
