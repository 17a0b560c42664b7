//! Arguments of `pileus provider new`, and the parser of a crate's name.

use std::path::PathBuf;

use clap::Args;

use super::EXIT_CODES;

const PROVIDER_NEW: &str = "\
Example, next to a checkout of Pileus:

  pileus provider new my-cloud --load-balancers --sdk ../pileus/guest-sdk

The crate builds, passes its tests and passes `pileus provider test` as it is, with the API of the simulated cloud. Its
README.md has the commands. Nothing is overwritten: the folder must not exist, or be empty.";

/// The longest name, which is also a DNS label.
const MAX_NAME_LENGTH: usize = 63;

/// Names that cargo or rustc refuse for a crate: Rust's keywords, crates of the compiler, and the scaffold's dependencies.
const RESERVED: &[&str] = &[
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "pileus-guest",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "schemars",
    "self",
    "serde",
    "serde-json",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// Arguments of `pileus provider new`.
#[derive(Debug, Args)]
#[command(after_help = format!("{PROVIDER_NEW}\n\n{EXIT_CODES}"))]
pub struct ProviderNew {
    /// The name of the crate, which is also the scheme of its provider IDs: lower-case letters, digits and -, as in my-cloud
    #[arg(value_parser = name)]
    pub name: String,

    /// Add load balancers to the instances
    #[arg(long)]
    pub load_balancers: bool,

    /// Write the crate to this folder [default: NAME in the current folder]
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,

    /// Take the SDK from this folder, guest-sdk of a checkout of Pileus: it isn't published yet
    #[arg(long, value_name = "FOLDER")]
    pub sdk: PathBuf,
}

/// Parses the name of a crate.
fn name(text: &str) -> Result<String, String> {
    let expected = "expected up to 63 lower-case letters, digits and -, with a letter first, as in my-cloud";
    if RESERVED.contains(&text) {
        return Err(format!("Rust or a dependency has this name; add a word, as in {text}-cloud"));
    }
    if is_name(text) {
        return Ok(text.to_owned());
    }
    let similar = similar_name(text);
    if is_name(&similar) { Err(format!("{expected}; try {similar}")) } else { Err(expected.to_owned()) }
}

fn is_name(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(is_allowed)
        && !text.ends_with('-')
        && text.len() <= MAX_NAME_LENGTH
        && !RESERVED.contains(&text)
}

/// The text in lower case, with each run of other characters as one `-`.
fn similar_name(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_crate_and_a_scheme_and_others_are_refused_with_advice() {
        for text in ["a", "my-cloud", "cloud9", &"a".repeat(63)] {
            assert_eq!(name(text).as_deref(), Ok(text));
        }
        let rows = [
            ("My Cloud", "try my-cloud"),
            ("my_cloud", "try my-cloud"),
            ("-my--cloud-", "try my-cloud"),
            ("../my/cloud", "try my-cloud"),
            ("9cloud", "a letter first"),
            ("", "lower-case letters"),
            ("wölkchen", "try w-lkchen"),
            ("serde", "serde-cloud"),
            ("crate", "crate-cloud"),
            (&"a".repeat(64), "up to 63"),
        ];
        for (text, advice) in rows {
            let problem = name(text).unwrap_err();
            assert!(problem.contains(advice), "{text}: {problem}");
        }
        assert!(!name("Serde").unwrap_err().contains("try"), "a reserved name is no advice");
    }

    #[test]
    fn reserved_names_are_sorted_so_that_one_is_found_quickly() {
        assert!(RESERVED.is_sorted());
    }
}
