//! `segue run --record`: a run → a test file.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
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

use super::to_json;
use crate::app::App;
use crate::config::documents::is_test_file;

/// A test file to write.
pub(super) struct TestRecording {
    file: PathBuf,
    /// Records what tools answer.
    pub(super) recorder: Recorder,
}

impl TestRecording {
    /// Refuses a name that is not a test file, and an existing file, before anything runs.
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

    /// An observer that records a run and passes everything on to `watcher`.
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

/// Makes the text of the test when the run stops. Only a run in memory still knows which texts are
/// secret.
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
        *self.text.lock() = Some(text);
    }

    fn progressed(&self, run: &Run, call: CallId, progress: &Progress) {
        self.watcher.progressed(run, call, progress);
    }
}

impl RecordingObserver<'_> {
    /// Writes the test file and returns a note.
    pub(super) fn write(self, composition: &str) -> Result<String, String> {
        let file = self.record.file;
        let shown = file.display();
        let text = self.text.into_inner();
        let text =
            text.ok_or_else(|| format!("`{composition}` did not run, so nothing was recorded"))?;
        let text = text.map_err(|why| format!("no test can repeat this run: {why}"))?;
        let text = in_notation(&file, text, self.limits);
        std::fs::write(&file, text).map_err(|error| format!("cannot write `{shown}`: {error}"))?;
        Ok(format!("wrote `{shown}`; `segue test {shown}` repeats this run"))
    }
}

/// The text as YAML or JSON, by the name of the file.
fn in_notation(file: &Path, text: String, limits: &Limits) -> String {
    if Notation::detect(&file.display().to_string(), &text) == Notation::Yaml {
        return text;
    }
    let tree = read(&Source::new("recorded.yaml", text), ReadLimits::for_documents(limits));
    let tree = tree.expect("a text that was just written can be read");
    format!("{}\n", to_json(&tree.to_value()))
}

/// How the test names its composition; `None` if the file name says it.
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
    Some(relative_path(&here, &there).join(name).display().to_string())
}

/// The relative path from one folder to another.
fn relative_path(here: &Path, there: &Path) -> PathBuf {
    let (mut here, mut there) = (here.components().peekable(), there.components().peekable());
    while here.peek().is_some() && here.peek() == there.peek() {
        here.next();
        there.next();
    }
    let up = here.map(|_| Component::ParentDir);
    up.chain(there).collect()
}
