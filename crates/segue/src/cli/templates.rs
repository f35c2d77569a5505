//! `segue templates`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use segue_core::duration::format_duration;
use segue_core::view::TemplateView;
use segue_runtime::library::LibraryError;
use serde_json::json;

use super::app::{App, print_diagnostics};
use super::run::{RunArgs, run};
use super::upstream::ServerSelection;
use super::{Exit, Global, print_data, print_error, print_status, to_json};
use crate::config::documents::read_source;
use crate::print::escape_control;

/// Look at the template library, run a template, keep one
#[derive(Args, Debug)]
pub(super) struct TemplatesArgs {
    #[command(subcommand)]
    command: Option<TemplatesCommand>,
}

#[derive(Debug, Subcommand)]
enum TemplatesCommand {
    /// List the templates, with how often they were used and how well that went
    List(ListArgs),
    /// Show one template, with its composition
    Show {
        /// Its id
        id: String,
    },
    /// Run a template; takes what `segue run` takes
    Run(Box<RunArgs>),
    /// Keep a template in the store, after checking it
    Add {
        /// A file with `id` and `composition`
        file: PathBuf,
        /// Replace the one that has its id
        #[arg(long)]
        replace: bool,
    },
    /// Take a template out of the store
    Remove {
        /// Its id
        id: String,
    },
}

#[derive(Args, Debug, Default)]
struct ListArgs {
    /// Only those that have all of these words, the best first
    #[arg(long, value_name = "WORDS")]
    search: Option<String>,
    /// Only those of this category
    #[arg(long)]
    category: Option<String>,
}

pub(super) fn templates(global: &Global, args: &TemplatesArgs) -> Exit {
    let all = ListArgs::default();
    let done = match &args.command {
        None => list(global, &all),
        Some(TemplatesCommand::List(args)) => list(global, args),
        Some(TemplatesCommand::Show { id }) => show(global, id),
        Some(TemplatesCommand::Run(args)) => return run(global, args),
        Some(TemplatesCommand::Add { file, replace }) => add(global, file, *replace),
        Some(TemplatesCommand::Remove { id }) => remove(global, id),
    };
    done.unwrap_or_else(|exit| exit)
}

fn open(global: &Global) -> Result<App, Exit> {
    App::open_stored(global, &ServerSelection::Recorded, &[])
}

fn list(global: &Global, args: &ListArgs) -> Result<Exit, Exit> {
    let app = open(global)?;
    let found = app.library().list(args.search.as_deref().unwrap_or(""));
    let mut found = app.runtime().block_on(found).map_err(|error| refused(&error))?;
    let fits = |view: &TemplateView| {
        args.category.as_ref().is_none_or(|category| *view.metadata.category == **category)
    };
    found.retain(fits);
    if global.is_json() {
        print_data(&to_json(&json!({ "templates": found })));
        return Ok(Exit::Success);
    }
    let width = found.iter().map(|view| view.id.len()).max().unwrap_or(0);
    let kinds = found.iter().map(|view| view.metadata.category.len()).max().unwrap_or(0);
    for view in &found {
        let metadata = &view.metadata;
        let used = match metadata.success_rate {
            None => "unused".to_owned(),
            Some(rate) => format!("{}× {:.0}%", metadata.usage_count, rate * 100.0),
        };
        print_data(&format!(
            "{:<width$}  {:<kinds$}  {used:<10}  {}",
            view.id,
            metadata.category,
            escape_control(&view.description)
        ));
    }
    Ok(Exit::Success)
}

fn show(global: &Global, id: &str) -> Result<Exit, Exit> {
    let app = open(global)?;
    let volume = app.runtime().block_on(app.library().stored_template(id));
    let volume = volume.map_err(|error| refused(&error))?;
    let view = app.runtime().block_on(app.library().get(id)).map_err(|error| refused(&error))?;
    if global.is_json() {
        print_data(&to_json(&json!(view)));
        return Ok(Exit::Success);
    }
    let metadata = &view.metadata;
    print_status(
        &format!("{} · {} · {:?}", view.name, metadata.category, view.origin).to_lowercase(),
    );
    if let Some(rate) = metadata.success_rate {
        print_status(&format!("{} runs, {:.0}% succeeded", metadata.usage_count, rate * 100.0));
    }
    if let Some(millis) = metadata.estimated_duration_ms {
        print_status(&format!("takes about {}", format_duration(millis)));
    }
    print_data(volume.source.text().trim_end());
    Ok(Exit::Success)
}

fn add(global: &Global, file: &std::path::Path, may_replace: bool) -> Result<Exit, Exit> {
    let app = App::open_stored(global, &ServerSelection::Everything, &[])?;
    let source = read_source(file, app.config.limits.document_bytes_max).map_err(|message| {
        print_error(&message, None);
        Exit::Usage
    })?;
    let put = app.runtime().block_on(app.library().put(source.text(), may_replace));
    match put {
        Ok(view) if global.is_json() => print_data(&to_json(&json!(view))),
        Ok(view) => {
            print_status(&format!("kept `{}`; `segue templates run {}` runs it", view.id, view.id))
        }
        Err(LibraryError::InvalidTemplate { diagnostics, .. }) => {
            print_diagnostics(&diagnostics, &source);
            return Err(Exit::Usage);
        }
        Err(error) => return Err(refused(&error)),
    }
    Ok(Exit::Success)
}

fn remove(global: &Global, id: &str) -> Result<Exit, Exit> {
    let app = open(global)?;
    app.runtime().block_on(app.library().remove(id)).map_err(|error| refused(&error))?;
    print_status(&format!("removed `{id}`"));
    Ok(Exit::Success)
}

fn refused(error: &LibraryError) -> Exit {
    let help = match error {
        LibraryError::Unknown(_) => Some("`segue templates` lists them"),
        LibraryError::NameTaken { may_replace: true, .. } => Some("`--replace` replaces it"),
        LibraryError::NameTaken { .. } => Some("choose another id"),
        _ => None,
    };
    print_error(&error.to_string(), help);
    Exit::Usage
}
