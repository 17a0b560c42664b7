//! A mistake in the configuration of a gate, with its place in the operator's document (`spec.limits.reads.burst`) or in
//! the provider's settings (`settings.rules[3].path`). All mistakes are reported at once, so that the operator doesn't need
//! one start for each.

use std::fmt;

/// How many problems are shown: a provider may cause thousands, and the next ones show when the first are fixed.
const MAX_SHOWN: usize = 50;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where, as in `spec.grants[0].host`; empty for the whole.
    pub path: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Problem {
    /// A mistake at this place.
    pub fn at(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }

    /// The mistakes, each on a line of its own that begins with a line break: the first 50, and how many more there are.
    pub fn list(problems: &[Self]) -> String {
        let mut lines: Vec<_> = problems.iter().take(MAX_SHOWN).map(Self::to_string).collect();
        if let Some(more) = problems.len().checked_sub(MAX_SHOWN).filter(|more| *more > 0) {
            lines.push(format!("and {more} more"));
        }
        lines.iter().flat_map(|line| ["\n  ", line]).collect()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_shows_the_first_fifty_and_says_how_many_more_there_are() {
        let lines = |count: usize| {
            let problems: Vec<_> =
                (0..count).map(|number| Problem::at(format!("rules[{number}]"), "wrong")).collect();
            Problem::list(&problems).lines().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(2), ["", "  rules[0]: wrong", "  rules[1]: wrong"]);
        assert_eq!(lines(50).last().unwrap(), "  rules[49]: wrong");
        let many = lines(1_000);
        assert_eq!((many.len(), many.last().unwrap().as_str()), (52, "  and 950 more"));
        assert_eq!(Problem::list(&[Problem::at("", "not YAML")]), "\n  not YAML");
    }
}
