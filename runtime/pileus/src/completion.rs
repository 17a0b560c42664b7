//! `pileus completion`: prints the script with which a shell completes commands and flags.

use std::io::Write as _;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli;

/// Prints a script.
pub(crate) fn run(arguments: &cli::Completion) {
    let shell = match arguments.shell {
        cli::Shell::Bash => Shell::Bash,
        cli::Shell::Zsh => Shell::Zsh,
        cli::Shell::Fish => Shell::Fish,
    };
    let whole = cli::Pileus::command();
    // The generators complete hidden commands, too.
    let visible = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut command = clap::Command::new("pileus").version(env!("CARGO_PKG_VERSION")).subcommands(visible);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "pileus", &mut script);
    let _closed = std::io::stdout().write_all(&script);
}
