//! `segue mcp`

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use tokio::sync::{oneshot, watch};

use super::app::{
    App, composition_files, composition_paths, library, load_config, not_loaded, template_paths,
};
use super::run::interrupted;
use super::upstream::Wanted;
use super::{Exit, Global, complain, say};
use crate::config::Config;
use crate::serve::hall::Hall;
use crate::serve::{mcp, own};

/// How often the files of compositions are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
In a host's configuration:
  { \"mcpServers\": { \"segue\": { \"command\": \"segue\", \"args\": [\"--config\", \"/path/segue.yaml\", \"mcp\"] } } }

Every configured composition is a tool; see docs/mcp.md.";

/// Serve the configured compositions to an MCP host, over standard input and output
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct McpArgs {}

pub(super) fn mcp(global: &Global, _args: &McpArgs) -> Exit {
    let config = match load_config(global) {
        Ok(config) => config,
        Err(exit) => return exit,
    };
    // The client is greeted on a thread of its own, while tool servers may still be starting.
    let (open, opening) = watch::channel(None);
    let (gone, is_gone) = oneshot::channel();
    let limits = Arc::new(config.limits.clone());
    let door = std::thread::Builder::new().name("mcp".to_owned()).spawn(move || {
        super::run::runtime().block_on(mcp::serve_stdio(opening, limits));
        let _ = gone.send(());
    });
    if let Err(error) = door {
        complain(&format!("no thread for the client: {error}"), None);
        return Exit::RunFailed;
    }
    // Before they are read, so that no change is missed.
    let seen = stamps(&config);
    let app = match App::open_stored(global, &Wanted::Served, &[]) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let hall = hall(&app);
    app.runtime().block_on(recover(global, &hall));
    open.send_replace(Some(hall.clone()));
    app.runtime().block_on(serve(global, &app.config, &hall, seen, is_gone));
    Exit::Success
}

/// What the configured engine serves.
pub(super) fn hall(app: &App) -> Arc<Hall> {
    let handle = app.runtime().handle().clone();
    let toolsets = app.config.toolsets.clone();
    Hall::new(app.engine.clone(), app.library().clone(), toolsets, own::names(), handle)
}

/// Goes on with what was interrupted. Whoever asks for such a run finds it under way.
pub(super) async fn recover(global: &Global, hall: &Arc<Hall>) {
    match hall.recover().await {
        Ok(count) if global.verbose => say(&format!("{count} runs are not over")),
        Ok(_) => {}
        Err(error) => complain(&error.to_string(), None),
    }
}

/// Looks after the files until the client goes away.
async fn serve(
    global: &Global,
    config: &Config,
    hall: &Hall,
    seen: Vec<Stamp>,
    gone: oneshot::Receiver<()>,
) {
    tokio::select! {
        _ = gone => hall.settle(Duration::from_millis(hall.limits().served_leave_ms)).await,
        // Whoever ends us does not wait. What is under way goes on from its journal next time.
        () = interrupted() => {}
        () = look_after(global, config, hall, seen) => {}
    }
    hall.abandon().await;
}

/// Serves the compositions as their files change.
pub(super) async fn look_after(
    global: &Global,
    config: &Config,
    hall: &Hall,
    mut seen: Vec<Stamp>,
) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = stamps(config);
        if now == seen {
            continue;
        }
        seen = now;
        let files = composition_files(config);
        for unloaded in hall.reload(files, |engine| library(global.quiet, config, engine)) {
            if !global.quiet {
                say(&not_loaded(&unloaded.source, &unloaded.diagnostics));
            }
        }
    }
}

/// What tells that a file has changed: where it is, when it was written, and its size.
pub(super) type Stamp = (PathBuf, Option<SystemTime>, u64);

pub(super) fn stamps(config: &Config) -> Vec<Stamp> {
    let paths = composition_paths(config).into_iter().chain(template_paths(config));
    paths
        .map(|path| {
            let known = std::fs::metadata(&path).ok();
            let modified = known.as_ref().and_then(|known| known.modified().ok());
            (path, modified, known.map_or(0, |known| known.len()))
        })
        .collect()
}
