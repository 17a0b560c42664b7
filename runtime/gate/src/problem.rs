//! What is wrong with what a gate is made from, by its place in the operator's document (`spec.limits.reads.burst`) or
//! in the provider's settings (`settings.rules[3].path`). All of it is told at once, since whoever mends one mistake a
//! start has as many starts before them as mistakes.

use std::fmt;

/// How many problems are shown: a provider may make thousands, and whoever has mended the first sees the next.
const SHOWN: usize = 50;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where, as in `spec.grants[0].host`; empty for the whole.
    pub path: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Problem {
    /// One at this place.
    pub fn at(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }

    /// All of them, each on a line of its own below what they are about: the first 50, and how many more there are.
    pub fn list(problems: &[Self]) -> String {
        let mut lines: Vec<_> = problems.iter().take(SHOWN).map(Self::to_string).collect();
        if let Some(more) = problems.len().checked_sub(SHOWN).filter(|more| *more > 0) {
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
    fn a_list_shows_no_more_than_anybody_reads_and_says_how_many_there_are() {
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
