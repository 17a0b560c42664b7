//! The report of a conformance test, as text for a terminal and as one JSON object.
//!
//! ```json
//! {
//!   "component": {"file": "…", "digest": "sha256:…", "contract": "0.2.0", "name": "…", "version": "…"},
//!   "checks": [
//!     {
//!       "id": "trouble.down", "claim": "…", "matters": "…", "result": "failed",
//!       "sent": "…", "received": "…", "advice": "…", "needs": null
//!     }
//!   ],
//!   "summary": {"passed": 1, "failed": 1, "notRun": 1}
//! }
//! ```
//!
//! A result is `passed`, `failed` or `not-run`. `sent`, `received` and `advice` are null unless the check failed,
//! `needs` unless it was not run. Name and version are null if the provider failed to describe itself. Fields and
//! results may be added; existing ones keep their meaning.

use owo_colors::Style;
use pileus_host::sanitize;
use serde_json::{Value, json};

use super::check::{self, Check, CheckResult, Failure, NotPassed};
use super::facts::Facts;
use crate::terminal::styled;

/// The longest detail in the text, in characters; JSON has all of it.
const MAX_DETAIL: usize = 2_000;

/// The results of a conformance test.
pub(crate) struct Report {
    file: String,
    digest: String,
    contract: String,
    /// The provider's own name, and its version.
    provider: Option<(String, String)>,
    results: Vec<(&'static Check, CheckResult)>,
}

impl Report {
    /// Runs all checks on the observations.
    pub(crate) fn new(file: String, digest: String, contract: String, facts: &Facts) -> Self {
        let provider = facts.description().map(|known| (known.name.clone(), known.version.clone()));
        let results = check::all().map(|check| (check, (check.test)(facts))).collect();
        Self { file, digest, contract, provider, results }
    }

    /// How many checks failed.
    pub(crate) fn failed(&self) -> usize {
        self.count(|result| matches!(result, Err(NotPassed::Failed(_))))
    }

    /// How many checks were not run.
    pub(crate) fn not_run(&self) -> usize {
        self.count(|result| matches!(result, Err(NotPassed::NotRun(_))))
    }

    fn count(&self, what: impl Fn(&CheckResult) -> bool) -> usize {
        self.results.iter().filter(|(_, result)| what(result)).count()
    }

    fn passed(&self) -> usize {
        self.results.len() - self.failed() - self.not_run()
    }

    /// The report as a JSON object.
    pub(crate) fn json(&self) -> Value {
        let (name, version) = self.provider.clone().unzip();
        let check = |(check, result): &(&Check, CheckResult)| {
            let Check { id, claim, matters, test: _ } = check;
            let (failure, needs) = match result {
                Ok(()) => (None, None),
                Err(NotPassed::Failed(failure)) => (Some(failure), None),
                Err(NotPassed::NotRun(needs)) => (None, Some(needs)),
            };
            json!({
                "id": id,
                "claim": claim,
                "matters": matters,
                "result": result_name(result),
                "sent": failure.map(|Failure { sent, .. }| sent),
                "received": failure.map(|Failure { received, .. }| received),
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
            "checks": self.results.iter().map(check).collect::<Vec<_>>(),
            "summary": {"passed": self.passed(), "failed": self.failed(), "notRun": self.not_run()},
        })
    }

    /// The report as text, in color if standard output is a terminal that supports it.
    pub(crate) fn text(&self) -> String {
        let provider = match &self.provider {
            Some((name, version)) => format!("{name} {version}"),
            None => "a provider without a description".to_owned(),
        };
        let title = format!("{}: {provider}, contract {}", self.file, self.contract);
        let mut lines = vec![styled(&title, Style::new().bold()), self.digest.clone(), String::new()];
        let mut needed = None;
        for (Check { id, claim, matters, test: _ }, result) in &self.results {
            let word = format!("{:<8}", result_name(result).replace('-', " "));
            let (style, details) = match result {
                Ok(()) => (Style::new().green(), Vec::new()),
                Err(NotPassed::Failed(Failure { sent, received, advice })) => (
                    Style::new().red().bold(),
                    vec![("matters", *matters), ("sent", sent), ("received", received), ("advice", advice)],
                ),
                // A need that the check before has too is not repeated.
                Err(NotPassed::NotRun(needs)) if needed.replace(needs) == Some(needs) => {
                    (Style::new().yellow(), Vec::new())
                }
                Err(NotPassed::NotRun(needs)) => (Style::new().yellow(), vec![("needs", needs.as_str())]),
            };
            lines.push(format!("  {} {id:<30} {claim}", styled(&word, style)));
            lines.extend(details.into_iter().map(|(name, value)| {
                let name = styled(&format!("{name:<10}"), Style::new().dimmed());
                format!("           {name} {}", shorten(value))
            }));
        }
        let (passed, failed, not_run) = (self.passed(), self.failed(), self.not_run());
        let rest = if not_run > 0 { "; not a complete test: pass what the checks above need" } else { "" };
        lines.extend([String::new(), format!("{passed} passed, {failed} failed, {not_run} not run{rest}\n")]);
        lines.join("\n")
    }
}

fn shorten(detail: &str) -> String {
    let mut shown = sanitize(&detail.chars().take(MAX_DETAIL).collect::<String>());
    if detail.chars().nth(MAX_DETAIL).is_some() {
        shown.push('…');
    }
    shown
}

fn result_name(result: &CheckResult) -> &'static str {
    match result {
        Ok(()) => "passed",
        Err(NotPassed::Failed(_)) => "failed",
        Err(NotPassed::NotRun(_)) => "not-run",
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::LookupOutcome;
    use super::super::samples;
    use super::*;

    fn report() -> Report {
        let mut facts = samples::facts();
        let lookups = facts.lookups.as_mut().unwrap();
        lookups.gone = None;
        let hostile = pileus_cloud::Error::new(pileus_cloud::ErrorKind::Broken, "\x1b[31mred\nline");
        lookups.missing.outcome = LookupOutcome::Failed(hostile);
        Report::new("a.wasm".to_owned(), "sha256:1".to_owned(), "0.1.0".to_owned(), &facts)
    }

    #[test]
    fn text_and_json_have_the_same_results() {
        let (text, json) = (report().text(), report().json());
        let checks = json["checks"].as_array().unwrap();
        assert_eq!(checks.len(), check::all().count());
        for check in checks {
            let line = text.lines().find(|line| line.contains(check["id"].as_str().unwrap())).unwrap();
            let word = check["result"].as_str().unwrap().replace('-', " ");
            assert!(line.trim_start().starts_with(&word) && line.ends_with(check["claim"].as_str().unwrap()));
            for field in ["sent", "advice", "needs"] {
                assert!(check[field].as_str().is_none_or(|detail| text.contains(detail)), "{check}");
            }
        }
        let passed = checks.len() - 2;
        assert_eq!(json["summary"], json!({"passed": passed, "failed": 1, "notRun": 1}));
        let last = format!(
            "\n{passed} passed, 1 failed, 1 not run; not a complete test: pass what the checks above need\n"
        );
        assert!(text.ends_with(&last), "{text}");
        let whole = Report::new(String::new(), String::new(), String::new(), &samples::facts()).text();
        assert!(whole.ends_with(" passed, 0 failed, 0 not run\n"), "{whole}");
    }

    #[test]
    fn long_details_are_cut() {
        assert_eq!(shorten(&"ä".repeat(MAX_DETAIL)), "ä".repeat(MAX_DETAIL));
        assert_eq!(shorten(&"ä".repeat(MAX_DETAIL + 1)), format!("{}…", "ä".repeat(MAX_DETAIL)));
    }

    #[test]
    fn control_characters_of_a_provider_do_not_reach_the_terminal() {
        let text = report().text();
        assert!(text.contains("[31mred line"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
    }
}
