//! Which part of a run is the result of its MCP task.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use crate::api::result::ResultPart;

/// How many tasks are remembered. The least recently read one is dropped first; the name of its
/// composition then decides.
const TASKS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("it is not zero");

/// The result parts of the tasks, by run id.
pub(super) struct TaskResults(Mutex<LruCache<Arc<str>, ResultPart>>);

impl Default for TaskResults {
    fn default() -> TaskResults {
        TaskResults(Mutex::new(LruCache::new(TASKS_MAX)))
    }
}

impl TaskResults {
    pub(super) fn insert(&self, run_id: Arc<str>, part: ResultPart) {
        self.0.lock().put(run_id, part);
    }

    pub(super) fn get(&self, run_id: &str) -> Option<ResultPart> {
        self.0.lock().get(run_id).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_too_many_drops_the_least_recently_read() {
        let results = TaskResults::default();
        for number in 0..TASKS_MAX.get() {
            results.insert(number.to_string().into(), ResultPart::Run);
        }
        let _ = results.get("0");
        let last = ResultPart::Output { is_wrapped: true };
        results.insert("last".into(), last);
        assert_eq!(results.get("last"), Some(last));
        assert_eq!(results.get("0"), Some(ResultPart::Run), "it was read just now");
        assert_eq!(results.get("1"), None, "it was not read for the longest time");
        assert_eq!(results.0.lock().len(), TASKS_MAX.get());
    }
}
