//! Thread pools. One thread serves connections and nothing else, so `/healthz` answers under any load. One
//! pool works on requests and another drives runs, so a run that evaluates for long does not keep clients
//! from reading or cancelling it.
//!
//! A panic stays within its task: a request gets an error, a run ends.

use std::any::Any;

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::{AbortHandle, JoinError};

/// How many threads drive runs at least. Each evaluation holds one until it ends.
const RUNS_MIN: usize = 16;

/// How many threads work on requests at least.
const REQUESTS_MIN: usize = 4;

/// The handles of the pools.
#[derive(Clone, Debug)]
pub struct Threads {
    /// Serves connections: one thread, which evaluates and compiles nothing.
    pub connections: Handle,
    /// Drives runs.
    pub runs: Handle,
    /// Works on requests.
    pub requests: Handle,
}

/// Our own code panicked; the log has the place.
#[derive(Debug)]
pub struct Panicked;

/// Evaluates or compiles for a request. Other threads of the pool take over the tasks of this one, so
/// requests that take long do not keep others waiting.
pub fn calculate<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

impl Threads {
    /// Works on a request, until its client disconnects.
    pub async fn answer<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Panicked> {
        let work = self.requests.spawn(work);
        let _abort = AbortOnDrop(work.abort_handle());
        work.await.map_err(|error| log_join_panic("a request", error))
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    // Work in `Drop`, because a request ends when its client disconnects.
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Logs a panic of a task.
pub fn log_join_panic(what: &str, error: JoinError) -> Panicked {
    if let Ok(panic) = error.try_into_panic() {
        log_panic(what, &*panic);
    }
    Panicked
}

/// Logs a panic that was caught.
pub fn log_panic(what: &str, panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("without a message");
    tracing::error!(target: "segue::panic", "{what} failed, which is a defect of Segue: {text}");
}

/// The thread pools of a server. Dropping them does not wait: an evaluation that cannot be interrupted
/// must not keep the process from ending.
#[derive(Debug)]
pub struct ThreadPools {
    connections: Option<Runtime>,
    runs: Option<Runtime>,
    requests: Option<Runtime>,
}

impl ThreadPools {
    /// Starts them.
    pub fn start() -> std::io::Result<ThreadPools> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let pool = |name: &str, threads: usize| {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(threads).thread_name(name).enable_all();
            builder.build().map(Some)
        };
        Ok(ThreadPools {
            connections: pool("connections", 1)?,
            runs: pool("runs", cores.max(RUNS_MIN))?,
            requests: pool("requests", cores.max(REQUESTS_MIN))?,
        })
    }

    /// Their handles.
    pub fn threads(&self) -> Threads {
        let handle = |pool: &Option<Runtime>| {
            pool.as_ref().expect("they live until they are dropped").handle().clone()
        };
        let connections = handle(&self.connections);
        Threads { connections, runs: handle(&self.runs), requests: handle(&self.requests) }
    }
}

impl Drop for ThreadPools {
    // Work in `Drop`, because a runtime that is merely dropped waits for its threads.
    fn drop(&mut self) {
        let pools = [self.connections.take(), self.runs.take(), self.requests.take()];
        for pool in pools.into_iter().flatten() {
            pool.shutdown_background();
        }
    }
}
