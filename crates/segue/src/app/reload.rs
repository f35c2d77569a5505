//! Keeps a server current: compositions, configuration and MCP servers as they change.
//!
//! Files of compositions are always watched. The configuration is watched on request and read again on
//! SIGHUP; one that cannot be used is reported, and the one before stays in use. MCP servers are polled
//! for listings that arrived or changed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use segue_runtime::engine::LoadError;

use super::App;
use super::engine::{not_loaded_note, open_library, untrusted_overwrites};
use super::service::recover;
use super::signals::{Hangup, HangupSignals};
use super::upstream::ServerChanges;
use crate::api::runs::RunService;
use crate::api::threads;
use crate::config::Config;
use crate::config::documents::{composition_files, composition_paths, template_paths};
use crate::print::{escape_control, print_diagnostics, print_note, print_status};

/// The time between two looks at the files.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A file's path, time of writing and size, by which a change is noticed.
type Stamp = (PathBuf, Option<SystemTime>, u64);

/// The files of a configuration, as they were when they were read.
#[derive(PartialEq, Eq)]
pub(crate) struct FileStamps {
    documents: Vec<Stamp>,
    config: Vec<Stamp>,
}

impl FileStamps {
    /// The files of a configuration, as they are now.
    pub(crate) fn of(config: &Config) -> FileStamps {
        let documents = composition_paths(config).into_iter().chain(template_paths(config));
        let project = config.project.as_ref().map(|project| project.file.as_path());
        let config = config.file.as_deref().into_iter().chain(project);
        FileStamps {
            documents: documents.map(|path| stamp(&path)).collect(),
            config: config.map(stamp).collect(),
        }
    }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok();
    let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
    (path.to_owned(), modified, metadata.map_or(0, |metadata| metadata.len()))
}

/// Applies changes to an app and to the service over it.
pub(crate) struct Reloader<'a> {
    pub(crate) app: &'a mut App,
    pub(crate) service: &'a Arc<RunService>,
    /// The files before they were read for `app`.
    pub(crate) seen: FileStamps,
    /// Whether to watch the configuration file, too.
    pub(crate) watches_config: bool,
    /// Whether a person reads along: every finding about a changed composition is printed.
    pub(crate) shows_findings: bool,
}

impl Reloader<'_> {
    /// Applies changes until the terminal closes. Calls `changed` with each new configuration.
    pub(crate) async fn watch(
        mut self,
        mut hangups: Option<HangupSignals>,
        mut changed: impl FnMut(&Config),
    ) {
        loop {
            let hangup = async {
                match &mut hangups {
                    Some(hangups) => hangups.next().await,
                    None => std::future::pending().await,
                }
            };
            let is_requested = tokio::select! {
                hangup = hangup => match hangup {
                    Hangup::Leave => return,
                    Hangup::Reload => true,
                },
                () = tokio::time::sleep(POLL_INTERVAL) => false,
                // A file that was saved here is served at once.
                () = self.service.changed_files() => false,
            };
            self.app.upstream.close_retired().await;
            let changes = self.app.upstream.poll_changes().await;
            if changes.is_changed {
                self.refresh(&changes).await;
            }
            let now = FileStamps::of(&self.app.config);
            let has_changed = self.watches_config && now.config != self.seen.config;
            if is_requested || has_changed {
                // Before the file is read, so that no change is missed.
                self.seen = now;
                if self.reconfigure().await {
                    changed(&self.app.config);
                    // The new configuration may name other files.
                    self.seen =
                        FileStamps { config: self.seen.config, ..FileStamps::of(&self.app.config) };
                }
            } else if now.documents != self.seen.documents {
                self.seen.documents = now.documents;
                self.reload_compositions();
            }
        }
    }

    /// Serves the tools that MCP servers list now, and resumes runs that waited for these servers.
    async fn refresh(&mut self, changes: &ServerChanges) {
        if let Err(error) = self.app.refresh().await {
            return error.print();
        }
        self.replace_engine();
        if !changes.answered.is_empty() {
            recover(self.app, self.service, Some(&changes.answered)).await;
        }
    }

    /// Serves the configuration as it is now. Returns whether it can be used.
    async fn reconfigure(&mut self) -> bool {
        if let Err(error) = self.app.reconfigure().await {
            error.print();
            print_status("the new configuration cannot be used; the previous one stays in use");
            return false;
        }
        self.replace_engine();
        print_status("configuration reloaded");
        true
    }

    fn replace_engine(&self) {
        let (engine, library) = (self.app.engine.clone(), self.app.library().clone());
        self.service.set_broken(self.app.not_loaded());
        self.service.set_pending_sources(self.app.upstream.pending());
        self.service.replace(engine, library, self.app.config.toolsets.clone());
        self.service.set_installation(self.app.installation());
        self.service.set_approvals(self.app.config.server.approvals);
        self.service.set_files(self.app.editable_files());
    }

    /// Serves the compositions as they are now.
    fn reload_compositions(&self) {
        let (config, quiet) = (&self.app.config, self.app.options.quiet);
        let reload = || {
            let files = composition_files(config);
            self.service.reload(files, |engine| {
                if let Some(note) = untrusted_overwrites(engine).filter(|_| !quiet) {
                    print_note(&escape_control(&note));
                }
                open_library(quiet, config, engine)
            })
        };
        // The service swaps its snapshot last, so a panic leaves the previous one in use.
        let not_loaded = match catch_unwind(AssertUnwindSafe(reload)) {
            Ok(not_loaded) => not_loaded,
            Err(panic) => {
                threads::log_panic("reading the compositions again", &*panic);
                return print_status(
                    "the changed compositions cannot be read; the previous ones stay in use",
                );
            }
        };
        if quiet {
            return;
        }
        if !self.shows_findings {
            return not_loaded.iter().for_each(|error| print_note(&not_loaded_note(error)));
        }
        for LoadError { source, diagnostics } in &not_loaded {
            print_diagnostics(diagnostics, source);
        }
        let served = self.service.full_catalog().tools.iter().count();
        let broken = match not_loaded.len() {
            0 => String::new(),
            count => format!("; {count} with errors, which the previous version does not replace"),
        };
        print_status(&format!("changed files read: {served} compositions{broken}"));
    }
}
