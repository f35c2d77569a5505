//! The folders of an editor, each with the tools of its configuration.
//!
//! A document belongs to the nearest folder above it that has a configuration, else to the folder that
//! the editor opened. A thread per folder keeps the tools current (`app::language`) and sends snapshots to
//! the loop, so the loop never waits for a file or a server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::Input;
use crate::app::AppOptions;
use crate::app::language::{ToolSnapshot, follow_tools};
use crate::config::{CONFIG_NAMES, PROJECT_NAME};

/// The most folders whose tools are followed at a time.
const FOLDERS_MAX: usize = 64;

/// How long the MCP servers of all folders may take to end.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// A new snapshot of a folder's tools.
pub(super) struct NewTools {
    pub(super) folder: PathBuf,
    pub(super) tools: ToolSnapshot,
}

/// The folders of the editor and those with documents.
pub(super) struct Workspaces {
    options: AppOptions,
    inputs: Sender<Input>,
    /// The folders that the editor opened.
    roots: Vec<PathBuf>,
    folders: BTreeMap<PathBuf, FolderTools>,
    /// The number of the latest snapshot.
    last_snapshot: u64,
    /// Closed when every thread has ended.
    running: (Sender<()>, Receiver<()>),
}

/// The tools of a folder.
struct FolderTools {
    /// Dropping it ends the thread.
    wakes: UnboundedSender<()>,
    snapshot: Option<(u64, ToolSnapshot)>,
    /// The last note that was shown.
    shown: Option<String>,
}

impl Workspaces {
    pub(super) fn new(options: AppOptions, inputs: Sender<Input>) -> Workspaces {
        let (roots, folders) = (Vec::new(), BTreeMap::new());
        Workspaces { options, inputs, roots, folders, last_snapshot: 0, running: channel() }
    }

    /// Adds a folder that the editor opened.
    pub(super) fn add_root(&mut self, root: PathBuf) {
        if !self.roots.contains(&root) {
            self.follow(&root);
            self.roots.push(root);
        }
    }

    /// Removes a folder that the editor closed, and those below it.
    pub(super) fn remove_root(&mut self, root: &Path) {
        self.roots.retain(|it| it != root);
        let roots = &self.roots;
        let stays = |folder: &Path| roots.iter().any(|root| folder.starts_with(root));
        self.folders.retain(|folder, _| !folder.starts_with(root) || stays(folder));
    }

    /// The folder whose tools the compositions of a file call.
    pub(super) fn folder_of(&mut self, path: Option<&Path>) -> PathBuf {
        let here = || std::env::current_dir().unwrap_or_default();
        let first = self.roots.first().cloned().unwrap_or_else(here);
        let Some(parent) = path.and_then(Path::parent) else {
            return self.followed(first);
        };
        let inside = self.roots.iter().filter(|root| parent.starts_with(root));
        let root = inside.max_by_key(|root| root.components().count());
        let within = |folder: &&Path| root.is_none_or(|root| folder.starts_with(root));
        let names = || CONFIG_NAMES.iter().chain(&[PROJECT_NAME]);
        let configured = parent
            .ancestors()
            .take_while(within)
            .find(|folder| names().any(|name| folder.join(name).is_file()));
        let folder = configured.or(root.map(PathBuf::as_path)).unwrap_or(parent).to_owned();
        self.followed(folder)
    }

    /// The folder, or one that is followed already if there are too many.
    fn followed(&mut self, folder: PathBuf) -> PathBuf {
        self.follow(&folder);
        let other = || self.folders.keys().next().cloned();
        if self.folders.contains_key(&folder) { folder } else { other().unwrap_or(folder) }
    }

    /// The latest tools of a folder with the number of their snapshot, once there are any.
    pub(super) fn tools(&self, folder: &Path) -> Option<(u64, &ToolSnapshot)> {
        let (number, tools) = self.folders.get(folder)?.snapshot.as_ref()?;
        Some((*number, tools))
    }

    /// Takes new tools. Returns a note that the person has not seen yet.
    pub(super) fn update(&mut self, NewTools { folder, tools }: NewTools) -> Option<String> {
        let known = self.folders.get_mut(&folder)?;
        let note = tools.note.clone();
        let is_new = note.is_some() && note != known.shown;
        known.shown.clone_from(&note);
        self.last_snapshot += 1;
        known.snapshot = Some((self.last_snapshot, tools));
        note.filter(|_| is_new)
    }

    /// Looks at the files again at once: something has changed on disk.
    pub(super) fn wake(&self) {
        for folder in self.folders.values() {
            let _ = folder.wakes.send(());
        }
    }

    fn follow(&mut self, folder: &Path) {
        if self.folders.contains_key(folder) || self.folders.len() >= FOLDERS_MAX {
            return;
        }
        let (wakes, woken) = unbounded_channel();
        let (options, inputs) = (self.options.clone(), self.inputs.clone());
        let (here, running) = (folder.to_owned(), self.running.0.clone());
        let followed = thread::Builder::new().name("segue-tools".to_owned()).spawn(move || {
            let _running = running;
            follow_tools(options, &here, woken, &mut |tools| {
                // The loop may have ended.
                let _ = inputs.send(Input::Tools(NewTools { folder: here.clone(), tools }));
            });
        });
        match followed {
            Ok(_) => {
                let tools = FolderTools { wakes, snapshot: None, shown: None };
                self.folders.insert(folder.to_owned(), tools);
            }
            Err(error) => tracing::error!("no thread for `{}`: {error}", folder.display()),
        }
    }

    /// Ends the MCP servers of all folders.
    pub(super) fn leave(self) {
        let Workspaces { folders, running: (own, running), .. } = self;
        drop((folders, own));
        let until = Instant::now() + LEAVE_TIMEOUT;
        // Nothing is ever sent: it ends when every thread has dropped its end.
        let _ = running.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}
