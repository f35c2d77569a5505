//! The changes of all runs, for clients that show lists: whichever process writes a run, every client
//! learns of it.
//!
//! One watcher serves all clients. It asks the store ten times a second which runs got entries, as long
//! as a client listens; the store answers from an index, and reads no journal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use segue_core::access::Principal;
use segue_core::view::RunStatus;
use segue_runtime::store::{RunRow, Store, StoreError};
use tokio::sync::{broadcast, watch};

use super::summaries::is_interrupted;
use super::{RunService, owner};

/// How often the watcher asks the store.
const WATCH_EVERY: Duration = Duration::from_millis(100);

/// After how many times the watcher looks whether the processes of running runs are alive.
const OWNERS_EVERY: u32 = 10;

/// How many running runs are looked after so.
const OWNED_MAX: usize = 1_000;

/// How many waiting runs are read to count their questions; each further one counts as one question.
const QUESTIONS_READ_MAX: usize = 200;

/// How many changes a client may be behind before it has to ask the store itself.
const BEHIND_MAX: usize = 1_024;

/// A run that changed.
pub struct ChangedRun {
    /// Its place among the changes; nothing if only its process died.
    pub at: Option<u64>,
    /// Its id.
    pub run_id: Arc<str>,
    /// The principal that started it.
    pub owner: Option<Arc<str>>,
    /// Whether it may get further entries.
    pub is_open: bool,
    /// Its summary, as JSON.
    pub json: String,
}

/// How many questions wait, by the principal that started the run.
pub type OpenQuestions = BTreeMap<Option<Arc<str>>, usize>;

/// What a client listens to.
pub struct FeedSubscription {
    /// The changes.
    pub runs: broadcast::Receiver<Arc<ChangedRun>>,
    /// The questions; nothing until they are counted.
    pub questions: watch::Receiver<Option<Arc<OpenQuestions>>>,
    /// The place from which on the changes come.
    pub since: u64,
}

/// The changes of all runs.
pub struct RunFeed {
    service: Arc<RunService>,
    runs: broadcast::Sender<Arc<ChangedRun>>,
    questions: watch::Sender<Option<Arc<OpenQuestions>>>,
    /// Whether the watcher is at work.
    is_watched: Mutex<bool>,
}

impl RunFeed {
    /// A feed without clients.
    pub fn new(service: Arc<RunService>) -> Arc<RunFeed> {
        Arc::new(RunFeed {
            service,
            runs: broadcast::Sender::new(BEHIND_MAX),
            questions: watch::Sender::default(),
            is_watched: Mutex::new(false),
        })
    }

    /// Listens from now on.
    pub async fn subscribe(self: &Arc<RunFeed>) -> Result<FeedSubscription, StoreError> {
        let (runs, questions) = (self.runs.subscribe(), self.questions.subscribe());
        let since = self.service.store().changes(None).await?.next;
        let mut is_watched = self.is_watched.lock();
        if !*is_watched {
            *is_watched = true;
            let watcher = Watcher::new(self.clone(), since);
            self.service.threads().requests.spawn(watcher.watch());
        }
        Ok(FeedSubscription { runs, questions, since })
    }

    /// What a client is told of a run.
    pub async fn changed(&self, at: Option<u64>, row: &RunRow) -> ChangedRun {
        let summary = self.service.summary(row).await;
        ChangedRun {
            at,
            run_id: row.run_id.clone(),
            owner: owner(row),
            is_open: row.ended_ms.is_none(),
            json: serde_json::to_string(&summary).unwrap_or_default(),
        }
    }
}

/// How many questions a principal sees.
pub fn visible_questions(questions: &OpenQuestions, who: &Principal) -> usize {
    let visible = questions.iter().filter(|(owner, _)| who.can_see(owner.as_deref()));
    visible.map(|(_, count)| count).sum()
}

struct Watcher {
    feed: Arc<RunFeed>,
    /// The place up to which the changes are known.
    since: u64,
    /// Running runs whose processes may be alive.
    running: BTreeMap<Arc<str>, RunRow>,
    /// The owner of each run that waits, and how many questions it has.
    waiting: BTreeMap<Arc<str>, (Option<Arc<str>>, usize)>,
    /// Whether it has said that it stops.
    has_stopped: bool,
}

impl Drop for Watcher {
    // Work in `Drop`, so that a watcher that panicked is replaced.
    fn drop(&mut self) {
        if !self.has_stopped {
            *self.feed.is_watched.lock() = false;
        }
    }
}

impl Watcher {
    fn new(feed: Arc<RunFeed>, since: u64) -> Watcher {
        let (running, waiting) = (BTreeMap::new(), BTreeMap::new());
        Watcher { feed, since, running, waiting, has_stopped: false }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.feed.service.store()
    }

    /// Watches as long as a client listens.
    async fn watch(mut self) {
        if let Ok(found) = self.store().unfinished().await {
            for row in found.runs {
                self.note(row).await;
            }
        }
        self.count_questions();
        let mut rounds: u32 = 0;
        loop {
            tokio::time::sleep(WATCH_EVERY).await;
            if self.is_alone() {
                return;
            }
            // A store that cannot be read now is read the next time.
            let _ = self.read_changes().await;
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(OWNERS_EVERY) {
                let _ = self.look_for_dead_owners().await;
            }
        }
    }

    /// Whether no client listens. Decided under the lock, so that a client that comes now starts another
    /// watcher.
    fn is_alone(&mut self) -> bool {
        let mut is_watched = self.feed.is_watched.lock();
        self.has_stopped = self.feed.runs.receiver_count() == 0;
        if self.has_stopped {
            *is_watched = false;
            self.feed.questions.send_replace(None);
        }
        self.has_stopped
    }

    async fn read_changes(&mut self) -> Result<(), StoreError> {
        loop {
            let changes = self.store().changes(Some(self.since)).await?;
            self.since = changes.next;
            let is_quiet = changes.runs.is_empty();
            for change in changes.runs {
                let told = self.feed.changed(Some(change.at), &change.row).await;
                // The last client may have gone.
                let _ = self.feed.runs.send(Arc::new(told));
                self.note(change.row).await;
            }
            if !is_quiet {
                self.count_questions();
            }
            if !changes.has_more {
                return Ok(());
            }
        }
    }

    /// Remembers which runs run, and which wait with how many questions.
    async fn note(&mut self, row: RunRow) {
        self.running.remove(&row.run_id);
        if row.status != RunStatus::Waiting {
            self.waiting.remove(&row.run_id);
        }
        match row.status {
            RunStatus::Waiting => {
                let count = self.questions_of(&row).await;
                self.waiting.insert(row.run_id.clone(), (owner(&row), count));
            }
            // Also if its process is dead already: it may have died after the client was told of the run.
            RunStatus::Running if self.running.len() < OWNED_MAX => {
                self.running.insert(row.run_id.clone(), row);
            }
            _ => {}
        }
    }

    async fn questions_of(&self, row: &RunRow) -> usize {
        if self.waiting.len() >= QUESTIONS_READ_MAX {
            return 1;
        }
        let engine = self.feed.service.full_catalog().engine;
        let loaded = engine.load_run(&row.run_id).await;
        loaded.map_or(1, |loaded| loaded.run.questions().len())
    }

    fn count_questions(&self) {
        let mut counted = OpenQuestions::new();
        for (owner, count) in self.waiting.values() {
            *counted.entry(owner.clone()).or_default() += count;
        }
        self.feed.questions.send_if_modified(|known| {
            let is_new = known.as_deref() != Some(&counted);
            if is_new {
                *known = Some(Arc::new(counted));
            }
            is_new
        });
    }

    /// Tells of runs whose processes died: that writes no entry.
    async fn look_for_dead_owners(&mut self) -> Result<(), StoreError> {
        let mut dead = Vec::new();
        for row in self.running.values() {
            if is_interrupted(&*self.store(), row).await? {
                dead.push(row.run_id.clone());
            }
        }
        for run_id in dead {
            self.running.remove(&run_id);
            // Its last entries may not have been told yet.
            if let Some(row) = self.store().run(&run_id).await? {
                let told = self.feed.changed(None, &row).await;
                let _ = self.feed.runs.send(Arc::new(told));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use segue_core::source::Source;
    use segue_runtime::engine::Engine;
    use segue_runtime::library::Library;
    use segue_runtime::store::{
        AppendRecord, JournalStore as _, MemoryStore, NewRun, RunHistory as _,
    };

    use super::*;
    use crate::api::threads::Threads;
    use crate::observe::Observers;

    /// A run whose process dies while its change is reported was reported as alive. The watcher still
    /// reports that it is interrupted.
    #[tokio::test]
    async fn a_run_whose_process_dies_meanwhile_is_reported() {
        let store = MemoryStore::default();
        let other_process = store.peer();
        let (engine, _) = Engine::builder().store(Arc::new(store)).build();
        let (library, _) = Library::new(engine.clone(), Vec::new());
        let here = tokio::runtime::Handle::current;
        let threads = Threads { connections: here(), runs: here(), requests: here() };
        let (toolsets, reserved) = (BTreeMap::new(), BTreeSet::new());
        let service = RunService::new(
            engine.clone(),
            library,
            toolsets,
            reserved,
            threads,
            Observers::default(),
        );
        let plan = engine.plan(&Source::new("c", "name: c\nsteps: [{ id: a, wait: 1h }]\n")).0;
        let (run_id, plan) = (engine.new_run_id(), plan.unwrap());
        let status = RunStatus::Running;
        let record =
            AppendRecord { expected: 0, entries: &[], status, measured: &[], is_part: false };
        let run = NewRun { run_id: &run_id, plan: &plan };
        other_process.create(run, record).await.unwrap();
        let row = other_process.run(&run_id).await.unwrap().unwrap();
        let feed = RunFeed::new(service);
        let mut heard = feed.runs.subscribe();
        let mut watcher = Watcher::new(feed.clone(), 0);

        watcher.note(row.clone()).await;
        watcher.look_for_dead_owners().await.unwrap();
        assert!(heard.try_recv().is_err(), "its process is alive");
        drop(other_process);
        watcher.note(row).await;
        watcher.look_for_dead_owners().await.unwrap();
        let told = heard.try_recv().unwrap();
        assert_eq!(told.run_id, run_id);
        assert!(told.json.contains("\"interrupted\":true"), "{}", told.json);
        watcher.look_for_dead_owners().await.unwrap();
        assert!(heard.try_recv().is_err(), "told once");
    }
}
