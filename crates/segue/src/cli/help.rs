//! The overview of commands in `segue --help`, grouped by what a person wants to do.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::print::print_status;

/// The commands, in the order in which the overview shows them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Start", &["init", "dev", "doctor", "trust", "login"]),
    ("Write and check", &["check", "plan", "test", "convert", "explain", "schema", "lsp"]),
    ("Run", &["run", "call", "templates", "plans"]),
    ("Look at runs and act on them", &["runs", "resume", "approve", "cancel", "rollback", "store"]),
    ("Tools and hosts", &["tools", "mcp", "serve", "worker", "export", "generate"]),
    ("About this program", &["completions", "man", "help"]),
];

/// The usage line that only the overview has.
const OVERVIEW: &str = " [OPTIONS] <COMMAND>\n";

/// Prints clap's answer to a command line that it did not parse: help, the version, or an error.
pub(super) fn print(error: &clap::Error) {
    let is_help = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    let plain = error.render().to_string();
    if !is_help || !plain.contains(OVERVIEW) {
        let _ = error.print();
        if let Some(pair) = forgotten_flag(error, &plain) {
            print_status(&format!("\n  tip: to give an input, use '-i {pair}'"));
        }
        return;
    }
    let help = grouped(&error.render().ansi().to_string());
    if error.use_stderr() {
        anstream::eprint!("{help}");
    } else {
        anstream::print!("{help}");
    }
}

/// The `name=value` that stands where no argument is expected, in a command that takes inputs.
fn forgotten_flag<'a>(error: &'a clap::Error, plain: &str) -> Option<&'a str> {
    let takes_inputs = ["segue run", "segue call"].iter().any(|it| plain.contains(it));
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let (name, _) = found.split_once('=')?;
    let is_pair = !name.is_empty() && !name.starts_with('-');
    (error.kind() == ErrorKind::UnknownArgument && takes_inputs && is_pair).then_some(found)
}

/// Splits the list of commands into the groups. What no group has stays in clap's own list.
fn grouped(help: &str) -> String {
    let (before, list, after) = sections(help);
    let mut entries: Vec<(String, String)> = Vec::new();
    for line in list.lines().skip(1) {
        let plain = anstream::adapter::strip_str(line).to_string();
        match (plain.strip_prefix("  ").filter(|it| !it.starts_with(' ')), entries.last_mut()) {
            (Some(entry), _) => {
                let name = entry.split(' ').next().unwrap_or("").to_owned();
                entries.push((name, format!("{line}\n")));
            }
            (None, Some((_, text))) => text.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    let mut shown = before.to_owned();
    let heading = list.lines().next().unwrap_or("Commands:");
    for (title, names) in GROUPS {
        shown.push_str(&heading.replace("Commands", title));
        shown.push('\n');
        for name in *names {
            let at = entries.iter().position(|(entry, _)| entry == name);
            shown.extend(at.map(|at| entries.remove(at).1));
        }
        shown.push('\n');
    }
    if !entries.is_empty() {
        shown.extend([heading, "\n"]);
        shown.extend(entries.into_iter().map(|(_, text)| text));
        shown.push('\n');
    }
    shown.push_str(after);
    shown
}

/// The help before, in and after the list of commands.
fn sections(help: &str) -> (&str, &str, &str) {
    let mut start = 0;
    for section in help.split_inclusive("\n\n") {
        let end = start + section.len();
        let first = section.lines().next().unwrap_or("");
        if anstream::adapter::strip_str(first).to_string() == "Commands:" {
            return (&help[..start], section.trim_end_matches('\n'), &help[end..]);
        }
        start = end;
    }
    (help, "", "")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .filter(|it| *it != "help")
            .collect();
        let command = Cli::command();
        let mut commands: Vec<&str> = command
            .get_subcommands()
            .filter(|it| !it.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        grouped.sort_unstable();
        commands.sort_unstable();
        assert_eq!(grouped, commands);
    }
}
