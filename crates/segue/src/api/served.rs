//! The catalog of what is served, and to whom: the engine, its compositions as tools, its templates.
//!
//! A caller who is held to a toolset sees only the tools of that toolset, and the compositions that do
//! with them. A reload replaces everything at once; runs that have started keep their engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use segue_core::access::INLINE;
use segue_core::source::Source;
use segue_core::toolset::{Filter, Toolset, ToolsetBuilder};
use segue_runtime::engine::{Engine, LoadError};
use segue_runtime::library::Library;
use tokio::sync::watch;

use super::catalog::ServedTools;

/// What is served to one caller at one moment.
#[derive(Clone)]
pub struct ServedCatalog {
    /// The engine.
    pub engine: Engine,
    /// Its compositions, as tools.
    pub tools: Arc<ServedTools>,
    /// Its templates.
    pub library: Library,
}

impl ServedCatalog {
    /// The part of it that a toolset allows.
    fn within(&self, toolset: ToolsetBuilder, reserved: &BTreeSet<&'static str>) -> ServedCatalog {
        let engine = self.engine.with_toolset(toolset);
        let tools = Arc::new(ServedTools::of(&engine, reserved));
        let library = self.library.with_engine(engine.clone());
        ServedCatalog { engine, tools, library }
    }
}

/// Everything that is served at one moment.
pub(super) struct ServedSnapshot {
    all: ServedCatalog,
    /// Toolsets by name, without their source.
    toolsets: BTreeMap<Arc<str>, ToolsetBuilder>,
    /// The catalog of each toolset; made when the first caller of it comes.
    within: Mutex<BTreeMap<Arc<str>, ServedCatalog>>,
}

/// The current snapshot, which a reload replaces.
pub(super) struct Catalogs {
    snapshot: RwLock<Arc<ServedSnapshot>>,
    /// Names that tools of compositions must not take.
    reserved: BTreeSet<&'static str>,
    /// Counts the changes of the served tools.
    changes: watch::Sender<u64>,
    /// Counts all reloads, also those that change no tool.
    reloads: watch::Sender<u64>,
    /// The configured compositions that could not be loaded.
    broken: Mutex<Arc<Vec<LoadError>>>,
}

impl Catalogs {
    pub(super) fn new(
        engine: Engine,
        library: Library,
        toolsets: BTreeMap<Arc<str>, ToolsetBuilder>,
        reserved: BTreeSet<&'static str>,
    ) -> Catalogs {
        let tools = Arc::new(ServedTools::of(&engine, &reserved));
        let all = ServedCatalog { engine, tools, library };
        let snapshot = Arc::new(ServedSnapshot { all, toolsets, within: Mutex::default() });
        Catalogs {
            snapshot: RwLock::new(snapshot),
            reserved,
            changes: watch::Sender::default(),
            reloads: watch::Sender::default(),
            broken: Mutex::default(),
        }
    }

    fn snapshot(&self) -> Arc<ServedSnapshot> {
        self.snapshot.read().clone()
    }

    /// The catalog without a toolset: everything.
    pub(super) fn all(&self) -> ServedCatalog {
        self.snapshot().all.clone()
    }

    /// The catalog of a toolset. A toolset that no longer exists allows nothing.
    pub(super) fn within(&self, toolset: Option<&Arc<str>>) -> ServedCatalog {
        let snapshot = self.snapshot();
        let Some(name) = toolset else { return snapshot.all.clone() };
        let mut within = snapshot.within.lock();
        let made = within.entry(name.clone()).or_insert_with(|| {
            let unknown = || match &**name {
                INLINE => ToolsetBuilder::inline(None),
                _ => Toolset::builder(name.clone()).filter(Filter::Allow(Vec::new())),
            };
            let known = snapshot.toolsets.get(name).cloned();
            snapshot.all.within(known.unwrap_or_else(unknown), &self.reserved)
        });
        made.clone()
    }

    /// A toolset by its name.
    pub(super) fn toolset(&self, name: &str) -> Option<ToolsetBuilder> {
        self.snapshot().toolsets.get(name).cloned()
    }

    /// The names of all toolsets.
    pub(super) fn toolset_names(&self) -> Vec<Arc<str>> {
        self.snapshot().toolsets.keys().cloned().collect()
    }

    /// Changes whenever the served tools do.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Changes whenever compositions or tools were read again.
    pub(super) fn reloads(&self) -> watch::Receiver<u64> {
        self.reloads.subscribe()
    }

    /// The configured compositions that could not be loaded.
    pub(super) fn broken(&self) -> Arc<Vec<LoadError>> {
        self.broken.lock().clone()
    }

    pub(super) fn set_broken(&self, broken: &[LoadError]) {
        *self.broken.lock() = Arc::new(broken.to_vec());
    }

    /// Serves other compositions, and the templates that `library` makes of the new engine.
    pub(super) fn reload(
        &self,
        sources: Vec<Source>,
        library: impl FnOnce(&Engine) -> Library,
    ) -> Vec<LoadError> {
        let before = self.snapshot();
        let (engine, unloaded) = before.all.engine.with_compositions(sources);
        let library = library(&engine);
        self.set_broken(&unloaded);
        self.replace(engine, library, before.toolsets.clone());
        unloaded
    }

    /// Serves another engine.
    pub(super) fn replace(
        &self,
        engine: Engine,
        library: Library,
        toolsets: BTreeMap<Arc<str>, ToolsetBuilder>,
    ) {
        let before = self.snapshot();
        let tools = Arc::new(ServedTools::of(&engine, &self.reserved));
        // A toolset may allow other tools now. Clients that are told of a change list the tools again.
        let is_same =
            tools.fingerprint() == before.all.tools.fingerprint() && toolsets == before.toolsets;
        let all = ServedCatalog { engine, tools, library };
        let snapshot = Arc::new(ServedSnapshot { all, toolsets, within: Mutex::default() });
        *self.snapshot.write() = snapshot;
        if !is_same {
            self.changes.send_modify(|count| *count += 1);
        }
        self.reloads.send_modify(|count| *count += 1);
    }
}
