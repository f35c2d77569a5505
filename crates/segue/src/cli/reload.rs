//! Compositions and configuration, as they change while something is served.
//!
//! The files of compositions are always followed. The configuration is followed when somebody wants
//! that, and read again at a signal. One that cannot be used is said to be so, and the one before stays.
//! Tool servers are listened to: what they offer is taken in when they answer, and when it changes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::app::{App, library, not_loaded_message, untrusted_overwrites};
use super::mcp::recover;
use super::signals::{Hangup, HangupSignals};
use super::upstream::ServerChanges;
use super::{Global, print_status};
use crate::api::runs::RunService;
use crate::api::threads::log_panic;
use crate::config::Config;
use crate::config::documents::{composition_files, composition_paths, template_paths};
use crate::print::escape_control;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What tells that a file has changed: where it is, when it was written, and its size.
type Stamp = (PathBuf, Option<SystemTime>, u64);

/// What is known of files when they were last read.
#[derive(PartialEq, Eq)]
pub(super) struct FileStamps {
    documents: Vec<Stamp>,
    config: Vec<Stamp>,
}

impl FileStamps {
    /// The files of a configuration, as they are now.
    pub(super) fn of(config: &Config) -> FileStamps {
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
    let known = std::fs::metadata(path).ok();
    let modified = known.as_ref().and_then(|known| known.modified().ok());
    (path.to_owned(), modified, known.map_or(0, |known| known.len()))
}

/// What is looked after.
pub(super) struct Reloader<'a> {
    pub(super) app: &'a mut App,
    pub(super) service: &'a Arc<RunService>,
    /// What was known of the files before they were read.
    pub(super) seen: FileStamps,
    /// Whether the configuration is followed, too.
    pub(super) follows_config: bool,
}

impl Reloader<'_> {
    /// Serves what the files say as they change, until the terminal goes. `changed` is told of each
    /// configuration that is used from then on.
    pub(super) async fn watch(
        mut self,
        global: &Global,
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
            let is_wanted = tokio::select! {
                hangup = hangup => match hangup {
                    Hangup::Leave => return,
                    Hangup::Reload => true,
                },
                () = tokio::time::sleep(LOOK_EVERY) => false,
            };
            self.app.upstream.close_retired().await;
            let news = self.app.upstream.poll_changes().await;
            if news.is_changed {
                self.refresh(global, &news).await;
            }
            let now = FileStamps::of(&self.app.config);
            let has_changed = self.follows_config && now.config != self.seen.config;
            if is_wanted || has_changed {
                // Before it is read, so that no change is missed.
                self.seen = now;
                if self.reconfigure(global).await {
                    changed(&self.app.config);
                    // Another configuration may have other files.
                    self.seen =
                        FileStamps { config: self.seen.config, ..FileStamps::of(&self.app.config) };
                }
            } else if now.documents != self.seen.documents {
                self.seen.documents = now.documents;
                self.reload(global);
            }
        }
    }

    /// Serves what is known of the tool servers now, and goes on with what waited for them.
    async fn refresh(&mut self, global: &Global, news: &ServerChanges) {
        if self.app.refresh(global).await.is_err() {
            return;
        }
        let (engine, library) = (self.app.engine.clone(), self.app.library().clone());
        self.service.replace(engine, library, self.app.config.toolsets.clone());
        if !news.answered.is_empty() {
            recover(global, self.app, self.service, Some(&news.answered)).await;
        }
    }

    /// Serves the configuration as it is now, and says so.
    async fn reconfigure(&mut self, global: &Global) -> bool {
        if self.app.reconfigure(global).await.is_err() {
            print_status("the configuration cannot be used as it is now; the one before stays");
            return false;
        }
        let (engine, library) = (self.app.engine.clone(), self.app.library().clone());
        self.service.replace(engine, library, self.app.config.toolsets.clone());
        print_status("the configuration was read again");
        true
    }

    /// Serves the compositions as they are now.
    fn reload(&self, global: &Global) {
        let config = &self.app.config;
        let reload = || {
            let files = composition_files(config);
            self.service.reload(files, |engine| {
                if let Some(note) = untrusted_overwrites(engine).filter(|_| !global.quiet) {
                    print_status(&format!("note: {}", escape_control(&note)));
                }
                library(global.quiet, config, engine)
            })
        };
        // What is served is replaced as a whole, at the end.
        let unloaded = match catch_unwind(AssertUnwindSafe(reload)) {
            Ok(unloaded) => unloaded,
            Err(panic) => {
                log_panic("reading the compositions again", &*panic);
                return print_status(
                    "the compositions cannot be read as they are now; those before stay",
                );
            }
        };
        for unloaded in unloaded {
            if !global.quiet {
                print_status(&not_loaded_message(&unloaded.source, &unloaded.diagnostics));
            }
        }
    }
}
