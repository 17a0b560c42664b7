//! Arguments of `pileus completion`.

use clap::{Args, ValueEnum};

use super::EXIT_CODES;

const EXAMPLES: &str = "\
Examples:
  For this session of bash, which needs the package bash-completion:
    source <(pileus completion bash)
  For each session of zsh, in a folder of its fpath:
    pileus completion zsh >\"${fpath[1]}/_pileus\"
  For each session of fish:
    pileus completion fish >~/.config/fish/completions/pileus.fish";

/// Arguments of `pileus completion`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Completion {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// A shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// The GNU Bourne-Again Shell
    Bash,
    /// The Z shell
    Zsh,
    /// The friendly interactive shell
    Fish,
}
