//! `segue generate`

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use segue_core::composition::Dialect;
use segue_core::generate::{ClientSubject, Language, generate as write};
use segue_core::result::chain_schema;
use segue_core::schema::Schema;
use serde::Serialize;

use super::{Exit, Global, print_json, source_of};
use crate::api::catalog::ServedTools;
use crate::app::{App, ServerSelection};
use crate::config::documents::composition_files;
use crate::mcp::builtin;
use crate::print::{print_diagnostics, print_error, print_note, print_status};

const EXAMPLES: &str = "\
Examples:
  segue generate search-fold-store --lang python -o clients/python
  segue generate orders.yaml --lang rust -o clients/rust --force

The client calls a running Segue: `segue mcp`, or `segue serve` with its address and token.";

/// Generate a typed client of a composition in another language, with a test
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct GenerateArgs {
    /// The name of a configured composition, or a file
    #[arg(value_name = "NAME|FILE", add = super::completions::compositions())]
    composition: String,
    /// The language of the client
    #[arg(long = "lang", value_enum)]
    language: Lang,
    /// The folder to write to; `-o DIR` is the same
    #[arg(long = "dir", value_name = "DIR")]
    folder: PathBuf,
    /// Replace existing files
    #[arg(long)]
    force: bool,
}

/// The language of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Lang {
    /// A Rust crate
    Rust,
    /// A Python module with its project file
    Python,
    /// An npm package
    Typescript,
}

impl Lang {
    fn language(self) -> Language {
        match self {
            Lang::Rust => Language::Rust,
            Lang::Python => Language::Python,
            Lang::Typescript => Language::TypeScript,
        }
    }
}

#[derive(Serialize)]
struct Report {
    tool: String,
    files: Vec<String>,
}

/// Replaces `-o` after `generate` by `--dir`. For all other commands `-o` is the output format, and clap
/// allows one meaning per letter.
pub(super) fn with_folder(mut args: Vec<OsString>) -> Vec<OsString> {
    const WITH_VALUE: &[&str] = &["-o", "--output", "--config", "--store", "--toolset"];
    let mut at = 1;
    while let Some(arg) = args.get(at).and_then(|arg| arg.to_str())
        && arg.starts_with('-')
    {
        at += 1 + usize::from(WITH_VALUE.contains(&arg));
    }
    if args.get(at).is_some_and(|command| command == "generate") {
        args.iter_mut().skip(at).filter(|arg| *arg == "-o").for_each(|arg| *arg = "--dir".into());
    }
    args
}

pub(super) fn generate(global: &Global, args: &GenerateArgs) -> Exit {
    let app = match global.open(&ServerSelection::Compositions(vec![&args.composition])) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let subject = match subject(global, &app, &args.composition) {
        Ok(subject) => subject,
        Err(exit) => return exit,
    };
    let files = write(&subject, args.language.language());
    let paths: Vec<PathBuf> = files.iter().map(|file| args.folder.join(&file.path)).collect();
    if let Some(path) = paths.iter().find(|path| path.exists() && !args.force) {
        let help = "`--force` replaces it";
        print_error(&format!("`{}` exists already", path.display()), Some(help));
        return Exit::Usage;
    }
    for (file, path) in files.iter().zip(&paths) {
        let folder = path.parent().unwrap_or(&args.folder);
        let written =
            std::fs::create_dir_all(folder).and_then(|()| std::fs::write(path, &file.text));
        if let Err(error) = written {
            print_error(&format!("cannot write `{}`: {error}", path.display()), None);
            return Exit::Usage;
        }
    }
    let files: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    if global.is_json() {
        print_json(global, &Report { tool: subject.tool, files });
    } else if !global.quiet {
        files.iter().for_each(|file| print_status(&format!("wrote {file}")));
    }
    Exit::Success
}

/// The tool as `segue mcp` would serve it, also if the composition is not configured yet.
fn subject(global: &Global, app: &App, name: &str) -> Result<ClientSubject, Exit> {
    let source = source_of(app, name)?;
    let (plan, diagnostics, unreachable) = app.plan(&source);
    let Some(plan) = plan else {
        print_diagnostics(&diagnostics, &source);
        return Err(if unreachable { Exit::Unreachable } else { Exit::Usage });
    };
    let composition = &plan.composition;
    let mut engine = app.engine.clone();
    let known = engine.plan_named(&composition.name);
    if known.is_none_or(|known| known.hash() != plan.hash()) {
        let others = composition_files(&app.config);
        let others = others.into_iter().filter(|other| !other.is_same_place(&source));
        engine = app.engine.with_compositions(others.chain([source.clone()])).0;
        if !global.quiet {
            let name = &composition.name;
            print_note(&format!(
                "`{name}` is not configured; add its file to `compositions` to serve it"
            ));
        }
    }
    let offers = ServedTools::of(&engine, &builtin::names());
    let Some(offer) = offers.of_composition(&composition.name) else {
        print_error(&format!("`{}` cannot be served", composition.name), None);
        return Err(Exit::Usage);
    };
    let tool = segue_core::plan::composition_tool(composition);
    let is_dialect_result = composition.dialect == Dialect::Chain;
    let output = if is_dialect_result {
        Some(Arc::new(Schema::new(chain_schema(composition))))
    } else {
        tool.output
    };
    Ok(ClientSubject {
        composition: composition.name.clone(),
        tool: offer.name.clone(),
        description: composition.description.clone(),
        input: tool.input,
        output: output.unwrap_or_else(Schema::any),
        is_wrapped: offer.is_wrapped,
        is_dialect_result,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_generate_has_a_folder_behind_its_letter() {
        let read = |line: &str| {
            let args = with_folder(line.split(' ').map(OsString::from).collect());
            args.into_iter().map(|arg| arg.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(read("segue -q generate x -o d"), "segue -q generate x --dir d");
        assert_eq!(read("segue -o json generate x -o d"), "segue -o json generate x --dir d");
        assert_eq!(read("segue run generate -o json"), "segue run generate -o json");
        assert_eq!(read("segue -o json runs"), "segue -o json runs");
    }
}
