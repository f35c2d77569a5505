//! `segue run --record`: a run is written down as a test.

use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use segue_core::catalog::Catalog;
use segue_core::document::{ReadLimits, read};
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::{CallId, Entry, Options, Run};
use segue_core::source::{Notation, Source};
use segue_core::testing::{Recording, record};
use segue_runtime::driver::Observer;
use segue_runtime::recorder::Recorder;
use segue_runtime::tools::Progress;

use super::app::App;
use super::to_json;
use crate::config::documents::is_test_file;

/// A test that is to be written.
pub(super) struct TestRecording {
    file: PathBuf,
    /// What listens to the tools.
    pub(super) recorder: Recorder,
}

impl TestRecording {
    /// Refused before anything runs: a name that is no test's, and a file that would be lost.
    pub(super) fn new(file: &Path) -> Result<TestRecording, String> {
        let shown = file.display();
        if !is_test_file(file) {
            return Err(format!("`{shown}` must end in `.test.yaml` or `.test.json`"));
        }
        if file.exists() {
            return Err(format!("`{shown}` exists already"));
        }
        Ok(TestRecording { file: file.to_owned(), recorder: Recorder::default() })
    }

    /// Listens to a run, for whoever watches it, too.
    pub(super) fn observe_run<'a>(
        self,
        app: &'a App,
        plan: &Arc<Plan>,
        options: &Options,
        watcher: &'a dyn Observer,
    ) -> RecordingObserver<'a> {
        RecordingObserver {
            catalog: app.engine.catalog(),
            limits: app.engine.limits(),
            plan: plan.clone(),
            options: options.clone(),
            composition: composition_beside(&self.file, &plan.composition.source),
            record: self,
            watcher,
            text: Mutex::new(None),
        }
    }
}

/// Writes a run down when it stops. It has to be done while the run is under way: only then is it
/// known what must not be written.
pub(super) struct RecordingObserver<'a> {
    record: TestRecording,
    catalog: &'a Catalog,
    limits: &'a Arc<Limits>,
    plan: Arc<Plan>,
    options: Options,
    composition: Option<String>,
    watcher: &'a dyn Observer,
    text: Mutex<Option<Result<String, String>>>,
}

impl Observer for RecordingObserver<'_> {
    fn observe(&self, run: &Run, entries: &[Entry]) {
        self.watcher.observe(run, entries);
        if !run.is_finished() && !run.is_waiting() {
            return;
        }
        let text = record(&Recording {
            name: "recorded",
            composition: self.composition.as_deref(),
            plan: &self.plan,
            run,
            options: &self.options,
            calls: &self.record.recorder.calls(),
            catalog: self.catalog,
            limits: self.limits,
        });
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    fn progressed(&self, run: &Run, call: CallId, progress: &Progress) {
        self.watcher.progressed(run, call, progress);
    }
}

impl RecordingObserver<'_> {
    /// Writes the test, and says so.
    pub(super) fn write(self, composition: &str) -> Result<String, String> {
        let file = self.record.file;
        let shown = file.display();
        let text = self.text.into_inner().unwrap_or_else(PoisonError::into_inner);
        let text =
            text.ok_or_else(|| format!("`{composition}` did not run, so nothing was recorded"))?;
        let text = text.map_err(|why| format!("no test can tell this run again: {why}"))?;
        let text = in_notation(&file, text, self.limits);
        std::fs::write(&file, text).map_err(|error| format!("cannot write `{shown}`: {error}"))?;
        Ok(format!("wrote `{shown}`; `segue test {shown}` tells this run again"))
    }
}

/// The text in the notation that its file's name says.
fn in_notation(file: &Path, text: String, limits: &Limits) -> String {
    if Notation::detect(&file.display().to_string(), &text) == Notation::Yaml {
        return text;
    }
    let tree = read(&Source::new("recorded.yaml", text), ReadLimits::for_documents(limits));
    let tree = tree.expect("what was just written can be read");
    format!("{}\n", to_json(&tree.to_value()))
}

/// How a test names its composition: not at all where the name of its file does.
fn composition_beside(test: &Path, source: &Source) -> Option<String> {
    let path = Path::new(&**source.name());
    let folder = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or(Path::new(".")).canonicalize().unwrap_or_default()
    };
    let (here, there) = (folder(test), folder(path));
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if here == there {
        let own = test.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let stem = own.rsplitn(3, '.').last().unwrap_or_default();
        return (stem != path.file_stem().unwrap_or_default().to_string_lossy()).then_some(name);
    }
    Some(from(&here, &there).join(name).display().to_string())
}

/// The way from one folder to another.
fn from(here: &Path, there: &Path) -> PathBuf {
    let (mut here, mut there) = (here.components().peekable(), there.components().peekable());
    while here.peek().is_some() && here.peek() == there.peek() {
        here.next();
        there.next();
    }
    let up = here.map(|_| Component::ParentDir);
    up.chain(there).collect()
}
