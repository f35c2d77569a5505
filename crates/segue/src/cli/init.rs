//! `segue init`

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Exit, Global, import, print_error, print_status};
use crate::config::{self, TrustFile};
use crate::print::escape_control;

/// Write a configuration and a working example
#[derive(Args, Debug)]
pub(super) struct InitArgs {
    /// Where
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Replace files that exist
    #[arg(long)]
    force: bool,
    /// Take over the MCP servers of another host's configuration: `mcpServers`, VS Code's
    /// `servers`, or Codex's TOML
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

/// What is written, and where.
const FILES: &[(&str, &str)] = &[
    ("segue.yaml", include_str!("init/segue.yaml")),
    ("compositions/hello.yaml", include_str!("init/hello.yaml")),
];

/// The folder of the file tools, apart from Segue's own files.
const FOLDER: &str = "files";

pub(super) fn init(global: &Global, args: &InitArgs) -> Exit {
    let present: Vec<&str> = FILES
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| args.folder.join(name).exists())
        .collect();
    if !present.is_empty() && !args.force {
        let verb = if present.len() == 1 { "exists" } else { "exist" };
        let message = format!("`{}` {verb} already", present.join("`, `"));
        print_error(&message, Some("`--force` replaces what is there"));
        return Exit::Usage;
    }
    let imported = match args.from.as_deref().map(import::read).transpose() {
        Ok(imported) => imported,
        Err(message) => {
            print_error(&message, None);
            return Exit::Usage;
        }
    };
    for (name, text) in FILES {
        let file = args.folder.join(name);
        let mut text = (*text).to_owned();
        if let (Some(imported), "segue.yaml") = (&imported, *name) {
            text = format!("{text}\n{}", imported.text);
        }
        if let Err(error) = write(&file, &text) {
            print_error(&format!("cannot write `{}`: {error}", file.display()), None);
            return Exit::Usage;
        }
        if !global.quiet {
            print_status(&format!("wrote {}", file.display()));
        }
    }
    let folder = args.folder.join(FOLDER);
    let is_new = !folder.is_dir();
    if let Err(error) = std::fs::create_dir_all(&folder) {
        print_error(&format!("cannot make `{FOLDER}`: {error}"), None);
        return Exit::Usage;
    }
    if is_new && !global.quiet {
        print_status(&format!("made {}/ for the file tools", folder.display()));
    }
    if imported.is_none() {
        trust(&args.folder.join("segue.yaml"));
    }
    for note in imported.iter().flat_map(|imported| &imported.notes) {
        print_status(&format!("note: {}", escape_control(note)));
    }
    if !global.quiet {
        let inside = if args.folder == Path::new(".") {
            String::new()
        } else {
            format!("cd {} && ", args.folder.display())
        };
        print_status(&format!("next: {inside}segue run hello -i name=Ada"));
    }
    Exit::Success
}

/// Trusts what was just written here; what compositions that were here before may overwrite is none of it.
/// It matters little when that cannot be remembered: commands ask
/// for it.
fn trust(file: &Path) {
    if let Ok(loaded) = config::load(Some(file)) {
        let _ = TrustFile::allow(&loaded.config, &[]);
    }
}

fn write(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(file, text)
}
