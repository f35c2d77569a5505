//! `segue completions`

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{Cli, Exit};
use crate::print::print_data;

/// Print a completion script for a shell
///
/// For example: `segue completions bash > ~/.local/share/bash-completion/completions/segue`
#[derive(Args, Debug)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(super) fn completions(args: &CompletionsArgs) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "segue", &mut script);
    print_data(&String::from_utf8_lossy(&script));
    Exit::Success
}
