//! `segue init`

use std::path::{Path, PathBuf};

use clap::Args;

use super::import::ImportedServers;
use super::schema::write_for_new;
use super::{Exit, Global, import};
use crate::config::{self, TrustFile};
use crate::print::{escape_control, print_error, print_note, print_status};

/// Write a configuration and a working example
///
/// Writes `segue.yaml`, `compositions/hello.yaml`, the folder `files`, and a JSON Schema with the tools for
/// editors. If the folder has a `.mcp.json`, its MCP servers are imported.
#[derive(Args, Debug)]
pub(super) struct InitArgs {
    /// The folder to write to
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Replace existing files
    #[arg(long)]
    force: bool,
    /// Import the MCP servers of another host's configuration: `mcpServers`, VS Code's `servers`, or
    /// Codex's TOML
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

/// The files that are written.
const FILES: &[(&str, &str)] = &[
    ("segue.yaml", include_str!("init/segue.yaml")),
    ("compositions/hello.yaml", include_str!("init/hello.yaml")),
];

/// The root of the file tools, separate from Segue's own files.
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
        print_error(&message, Some("`--force` replaces existing files"));
        return Exit::Usage;
    }
    let imported = match imported_servers(global, args) {
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
        print_error(&format!("cannot create `{FOLDER}`: {error}"), None);
        return Exit::Usage;
    }
    if is_new && !global.quiet {
        print_status(&format!("created {}/ for the file tools", folder.display()));
    }
    match write_for_new(global, &args.folder) {
        Ok(file) if !global.quiet => {
            print_status(&format!("wrote {} for editors", file.display()));
        }
        Ok(_) => {}
        Err(exit) => return exit,
    }
    if imported.is_none() {
        trust(&args.folder.join("segue.yaml"));
    }
    for note in imported.iter().flat_map(|imported| &imported.notes) {
        print_note(&escape_control(note));
    }
    if !global.quiet {
        let inside = if args.folder == Path::new(".") {
            String::new()
        } else {
            format!("cd {} && ", args.folder.display())
        };
        // Imported servers are programs: their configuration is not trusted before it was read.
        let (read, trust) = match &imported {
            Some(_) => {
                let file = args.folder.join("segue.yaml");
                (format!("read {}, then run: ", file.display()), "segue trust && ")
            }
            None => (String::new(), ""),
        };
        print_status(&format!("next: {read}{inside}{trust}segue run hello -i name=Ada"));
    }
    Exit::Success
}

/// The MCP servers of the file that `--from` names, else of the folder's own `.mcp.json`. Only a named
/// file has to be readable.
fn imported_servers(global: &Global, args: &InitArgs) -> Result<Option<ImportedServers>, String> {
    if let Some(file) = &args.from {
        return import::read(file).map(Some);
    }
    let file = args.folder.join(".mcp.json");
    if !file.is_file() {
        return Ok(None);
    }
    match import::read(&file) {
        Ok(imported) => {
            if !global.quiet {
                print_status(&format!("imported the MCP servers of {}", file.display()));
            }
            Ok(Some(imported))
        }
        Err(message) => {
            print_note(&format!("not imported: {}", escape_control(&message)));
            Ok(None)
        }
    }
}

/// Trusts the configuration that was just written, but not the `overwrites` of compositions that were
/// here before. If trust cannot be stored, later commands say that it is missing.
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
