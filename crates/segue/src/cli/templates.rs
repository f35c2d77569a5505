//! `segue templates`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use segue_core::duration::format_duration;
use segue_core::view::TemplateView;
use segue_runtime::library::LibraryError;
use serde_json::json;

use super::error::{library_error, report_error};
use super::run::{RunArgs, run};
use super::{Exit, Global, to_json};
use crate::app::{App, ServerSelection};
use crate::config::documents::read_source;
use crate::print::{escape_control, print_data, print_diagnostics, print_error, print_status};

/// List, show, run, add and remove templates
///
/// Without a subcommand, lists all templates.
#[derive(Args, Debug)]
pub(super) struct TemplatesArgs {
    #[command(subcommand)]
    command: Option<TemplatesCommand>,
}

#[derive(Debug, Subcommand)]
enum TemplatesCommand {
    /// List templates with their usage and success rate
    List(ListArgs),
    /// Show one template and its composition
    Show {
        /// The id of the template
        id: String,
    },
    /// Run a template; the options are those of `segue run`
    Run(Box<RunArgs>),
    /// Check a template and add it to the store
    Add {
        /// A template file with `id` and `composition`
        file: PathBuf,
        /// Replace the template with the same id
        #[arg(long)]
        replace: bool,
    },
    /// Remove a template from the store
    Remove {
        /// The id of the template
        id: String,
    },
}

#[derive(Args, Debug, Default)]
struct ListArgs {
    /// Filter by words, the best match first
    #[arg(long, value_name = "WORDS")]
    search: Option<String>,
    /// Filter by category
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
    global.open_stored(&ServerSelection::Recorded)
}

fn list(global: &Global, args: &ListArgs) -> Result<Exit, Exit> {
    let app = open(global)?;
    let found = app.library().list(args.search.as_deref().unwrap_or(""));
    let mut found = app.runtime().block_on(found).map_err(report)?;
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
    let template = app.runtime().block_on(app.library().stored_template(id));
    let template = template.map_err(report)?;
    let view = app.runtime().block_on(app.library().get(id)).map_err(report)?;
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
    print_data(template.source.text().trim_end());
    Ok(Exit::Success)
}

fn add(global: &Global, file: &std::path::Path, may_replace: bool) -> Result<Exit, Exit> {
    let app = global.open_stored(&ServerSelection::Everything)?;
    let source = read_source(file, app.config.limits.document_bytes_max).map_err(|message| {
        print_error(&message, None);
        Exit::Usage
    })?;
    let put = app.runtime().block_on(app.library().put(source.text(), may_replace));
    match put {
        Ok(view) if global.is_json() => print_data(&to_json(&json!(view))),
        Ok(view) => {
            print_status(&format!(
                "added `{}`; `segue templates run {}` runs it",
                view.id, view.id
            ));
        }
        Err(LibraryError::InvalidTemplate { diagnostics, .. }) => {
            print_diagnostics(&diagnostics, &source);
            return Err(Exit::Usage);
        }
        Err(error) => return Err(report(error)),
    }
    Ok(Exit::Success)
}

fn remove(global: &Global, id: &str) -> Result<Exit, Exit> {
    let app = open(global)?;
    app.runtime().block_on(app.library().remove(id)).map_err(report)?;
    print_status(&format!("removed `{id}`"));
    Ok(Exit::Success)
}

fn report(error: LibraryError) -> Exit {
    report_error(&library_error(error))
}
