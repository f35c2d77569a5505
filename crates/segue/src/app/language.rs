//! A folder → the tools that compositions in it may call, for editors, and again whenever they change.
//!
//! One thread per folder holds an [`App`] and publishes a [`ToolSnapshot`] of it: first with the built-in
//! tools and the recorded definitions, which needs no server, then with what the MCP servers of a trusted
//! configuration list. It looks at the configuration, the compositions and the servers again at intervals and
//! when it is woken. Nothing here calls a tool.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use segue_runtime::engine::Engine;
use tokio::sync::mpsc::UnboundedReceiver;

use super::load::untrusted_note;
pub(crate) use super::past_runs::PastRuns;
use super::past_runs::PastRunsReader;
use super::reload::FileStamps;
use super::{App, AppError, AppOptions, ServerSelection};
use crate::config::documents::composition_paths;
use crate::config::{CONFIG_NAMES, PROJECT_NAME, TrustFile};
use crate::print::escape_control;

/// The time between two looks at files and servers.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The tools of a folder at one moment.
#[derive(Clone)]
pub(crate) struct ToolSnapshot {
    /// Their catalog and limits.
    pub(crate) engine: Engine,
    /// The configuration file.
    pub(crate) config_file: Option<PathBuf>,
    /// The files of the configured compositions.
    pub(crate) compositions: BTreeSet<PathBuf>,
    /// Whether these are all tools that the configuration names; not if it cannot be used.
    pub(crate) is_complete: bool,
    /// What earlier runs showed.
    pub(crate) past: Arc<PastRuns>,
    /// What a person should know: that the configuration is not trusted, or cannot be used.
    pub(crate) note: Option<String>,
}

/// Publishes the tools of a folder until `wakes` is closed.
pub(crate) fn follow_tools(
    options: AppOptions,
    folder: &Path,
    mut wakes: UnboundedReceiver<()>,
    publish: &mut dyn FnMut(ToolSnapshot),
) {
    let options = AppOptions { folder: Some(folder.to_owned()), quiet: true, ..options };
    loop {
        let mut seen = WatchedFiles::of(folder);
        let (mut app, problem) = match open(&options) {
            Ok(opened) => opened,
            Err(error) => return tracing::error!("no tools: {}", error.message()),
        };
        seen.documents = Some(FileStamps::of(&app.config));
        let mut past = Past::of(&app);
        publish(snapshot(&app, problem.is_some(), &past));
        let runtime = app.runtime().clone();
        let has_servers = app.upstream.servers().next().is_some();
        let next = runtime.block_on(async {
            // Starts the servers whose tools are needed, if the configuration is trusted.
            if problem.is_none() && has_servers && app.reconfigure().await.is_ok() {
                publish(snapshot(&app, false, &past));
            }
            let is_usable = problem.is_none();
            let mut following =
                Following { app: &mut app, folder, seen, past: &mut past, is_usable };
            following.follow(&mut wakes, publish).await
        });
        if next == Next::Leave {
            return;
        }
    }
}

/// The app of the folder's configuration; if that cannot be used, one without it, and the reason.
fn open(options: &AppOptions) -> Result<(App, Option<AppError>), AppError> {
    match App::open(options, &ServerSelection::Recorded) {
        Ok(app) => Ok((app, None)),
        Err(error) => Ok((App::open_unconfigured(options)?, Some(error))),
    }
}

/// What earlier runs showed, and what reads it again.
struct Past {
    reader: PastRunsReader,
    runs: Arc<PastRuns>,
}

impl Past {
    fn of(app: &App) -> Past {
        Past { reader: PastRunsReader::new(app.config.store.clone()), runs: Arc::default() }
    }

    /// Looks at the store; whether there is something new.
    async fn look(&mut self, app: &App) -> bool {
        let new = self.reader.look(app.engine.limits()).await.map(Arc::new);
        let has_new = new.is_some();
        self.runs = new.unwrap_or_else(|| self.runs.clone());
        has_new
    }
}

fn snapshot(app: &App, is_unconfigured: bool, past: &Past) -> ToolSnapshot {
    let note = is_unconfigured.then(|| {
        "the configuration cannot be used, so only built-in tools are known: `segue doctor` says what is \
         wrong"
            .to_owned()
    });
    ToolSnapshot {
        engine: app.engine.clone(),
        config_file: app.config.file.clone(),
        compositions: composition_paths(&app.config).into_iter().collect(),
        is_complete: !is_unconfigured,
        past: past.runs.clone(),
        note: note.or_else(|| trust_note(app)).map(|note| escape_control(&note).into_owned()),
    }
}

/// The note about a configuration, or a project's list of servers, that is not trusted.
fn trust_note(app: &App) -> Option<String> {
    if !TrustFile::load().allows(&app.config) {
        return Some(untrusted_note(&app.config));
    }
    let servers = app.upstream.untrusted();
    let names: Vec<String> = servers.iter().map(|name| format!("`{name}`")).collect();
    (!names.is_empty()).then(|| {
        format!(
            "the MCP servers {} come from a `{PROJECT_NAME}` that is not trusted, so they are not \
             started: read it, then run `segue trust`",
            names.join(", ")
        )
    })
}

/// How following ends.
#[derive(PartialEq, Eq)]
enum Next {
    /// A configuration that could not be used has changed: open it again.
    Open,
    /// The editor has closed the folder.
    Leave,
}

/// An app that is kept current.
struct Following<'a> {
    app: &'a mut App,
    folder: &'a Path,
    seen: WatchedFiles,
    past: &'a mut Past,
    /// Whether the configuration is in use.
    is_usable: bool,
}

impl Following<'_> {
    async fn follow(
        &mut self,
        wakes: &mut UnboundedReceiver<()>,
        publish: &mut dyn FnMut(ToolSnapshot),
    ) -> Next {
        loop {
            tokio::select! {
                wake = wakes.recv() => if wake.is_none() { return Next::Leave },
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            self.app.upstream.close_retired().await;
            let mut now = WatchedFiles::of(self.folder);
            now.documents = Some(FileStamps::of(&self.app.config));
            let servers = self.app.upstream.poll_changes().await;
            let is_configured = now.config == self.seen.config;
            if !is_configured && !self.is_usable {
                return Next::Open;
            }
            let has_changed = servers.is_changed || now.documents != self.seen.documents;
            self.seen = now;
            let has_runs = self.is_usable && self.past.look(self.app).await;
            let changed = match (is_configured, has_changed) {
                (true, false) if !has_runs => continue,
                (true, false) => Ok(()),
                (true, true) => self.app.refresh().await,
                (false, _) => self.app.reconfigure().await,
            };
            let mut new = snapshot(self.app, !self.is_usable, self.past);
            if changed.is_err() {
                let message = "the new configuration cannot be used; the previous one stays in use";
                new.note = Some(message.to_owned());
            }
            publish(new);
        }
    }
}

/// A file's path, time of writing and size, by which a change is noticed.
type FileStamp = (PathBuf, Option<SystemTime>, u64);

/// The files that the tools of a folder come from, as they are now.
struct WatchedFiles {
    /// Where a configuration is or may appear, and the list of trusted ones.
    config: Vec<FileStamp>,
    /// The files of the configuration.
    documents: Option<FileStamps>,
}

impl WatchedFiles {
    fn of(folder: &Path) -> WatchedFiles {
        let above = folder.ancestors();
        let names = || CONFIG_NAMES.iter().chain(&[PROJECT_NAME]);
        let found = above.flat_map(|folder| names().map(move |name| folder.join(name)));
        let config = found.chain(TrustFile::path()).map(|path| {
            let metadata = std::fs::metadata(&path).ok();
            let modified = metadata.as_ref().and_then(|it| it.modified().ok());
            (path, modified, metadata.map_or(0, |it| it.len()))
        });
        WatchedFiles { config: config.collect(), documents: None }
    }
}
