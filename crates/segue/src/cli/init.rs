//! `segue init`

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Exit, Global, complain, say};

/// Write a configuration and a working example
#[derive(Args, Debug)]
pub(super) struct InitArgs {
    /// Where
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Replace files that exist
    #[arg(long)]
    force: bool,
}

/// What is written, and where.
const FILES: &[(&str, &str)] = &[
    ("segue.yaml", include_str!("init/segue.yaml")),
    ("compositions/hello.yaml", include_str!("init/hello.yaml")),
];

pub(super) fn init(global: &Global, args: &InitArgs) -> Exit {
    let present: Vec<&str> = FILES
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| args.folder.join(name).exists())
        .collect();
    if !present.is_empty() && !args.force {
        let verb = if present.len() == 1 { "exists" } else { "exist" };
        let message = format!("`{}` {verb} already", present.join("`, `"));
        complain(&message, Some("`--force` replaces what is there"));
        return Exit::Usage;
    }
    for (name, text) in FILES {
        let file = args.folder.join(name);
        if let Err(error) = write(&file, text) {
            complain(&format!("cannot write `{}`: {error}", file.display()), None);
            return Exit::Usage;
        }
        if !global.quiet {
            say(&format!("wrote {}", file.display()));
        }
    }
    if !global.quiet {
        let inside = if args.folder == Path::new(".") {
            String::new()
        } else {
            format!("cd {} && ", args.folder.display())
        };
        say(&format!("next: {inside}segue run hello -i name=Ada"));
    }
    Exit::Success
}

fn write(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(file, text)
}
