//! `segue man`

use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory as _};
use clap_mangen::Man;

use super::{Cli, Exit};
use crate::print::{print_data, print_error, print_status};

/// Print the manual page of `segue`, or write one for each command
#[derive(Args, Debug)]
pub(super) struct ManArgs {
    /// Write `segue.1`, `segue-run.1` and so on into this folder
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

pub(super) fn man(args: &ManArgs) -> Exit {
    let mut root = Cli::command();
    root.build();
    let Some(folder) = &args.dir else {
        print_data(&page(root));
        return Exit::Success;
    };
    let mut pages = Vec::new();
    collect(root, &mut pages);
    match write(folder, &pages) {
        Ok(()) => {
            print_status(&format!("wrote {} pages to `{}`", pages.len(), folder.display()));
            Exit::Success
        }
        Err(error) => {
            print_error(&format!("cannot write to `{}`: {error}", folder.display()), None);
            Exit::RunFailed
        }
    }
}

/// The pages of a command and of those subcommands it, each under its name.
fn collect(command: Command, pages: &mut Vec<(String, String)>) {
    let subcommands =
        command.get_subcommands().filter(|subcommands| subcommands.get_name() != "help");
    let subcommands: Vec<Command> = subcommands.cloned().collect();
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    pages.push((name, page(command)));
    subcommands.into_iter().for_each(|subcommands| collect(subcommands, pages));
}

fn page(command: Command) -> String {
    let mut page = Vec::new();
    // Writing into memory cannot fail.
    let _ = Man::new(command).render(&mut page);
    String::from_utf8_lossy(&page).into_owned()
}

fn write(folder: &Path, pages: &[(String, String)]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    pages.iter().try_for_each(|(name, page)| std::fs::write(folder.join(format!("{name}.1")), page))
}
