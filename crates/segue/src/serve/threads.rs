//! Threads that work. Connections are served by a thread that does nothing else, so `/healthz` answers
//! whatever somebody sends; requests are worked on by some threads, and runs are moved by others, so a
//! run that evaluates for long keeps nobody from looking at it or cancelling it.
//!
//! A panic stays within its task: of a request it becomes an answer, of a run its end.

use std::any::Any;

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::{AbortHandle, JoinError};

/// Threads that move runs, at least. Each evaluation holds one until it ends by itself or its budget.
const RUNS_MIN: usize = 16;

/// Threads that work on requests, at least.
const REQUESTS_MIN: usize = 4;

/// Where work is done.
#[derive(Clone, Debug)]
pub struct Threads {
    /// Serves connections: one thread, which evaluates and compiles nothing.
    pub connections: Handle,
    /// Moves runs.
    pub runs: Handle,
    /// Works on requests.
    pub requests: Handle,
}

/// Our own code panicked. A line in the log says where.
#[derive(Debug)]
pub struct Panicked;

/// Evaluates or compiles for a request. Another thread takes over what this one would do meanwhile, so
/// requests that take long keep no others waiting.
pub fn calculate<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

impl Threads {
    /// Works on a request, until whoever asked goes away.
    pub async fn answer<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Panicked> {
        let work = self.requests.spawn(work);
        let _ended = EndsOnDrop(work.abort_handle());
        work.await.map_err(|error| tell_panic("a request", error))
    }
}

struct EndsOnDrop(AbortHandle);

impl Drop for EndsOnDrop {
    // Work in `Drop`, because a request ends when its client goes away.
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Writes down that our own code panicked while it worked on something.
pub fn tell_panic(what: &str, error: JoinError) -> Panicked {
    if let Ok(panic) = error.try_into_panic() {
        tell(what, &*panic);
    }
    Panicked
}

/// The same of a panic that was caught.
pub fn tell(what: &str, panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("without a message");
    tracing::error!(target: "segue::panic", "{what} failed, which is a defect of Segue: {text}");
}

/// The threads of a server. When it goes away they are not waited for: an evaluation that hears nothing
/// must not keep the process from ending.
#[derive(Debug)]
pub struct Pools {
    connections: Option<Runtime>,
    runs: Option<Runtime>,
    requests: Option<Runtime>,
}

impl Pools {
    /// Starts them.
    pub fn start() -> std::io::Result<Pools> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let pool = |name: &str, threads: usize| {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(threads).thread_name(name).enable_all();
            builder.build().map(Some)
        };
        Ok(Pools {
            connections: pool("connections", 1)?,
            runs: pool("runs", cores.max(RUNS_MIN))?,
            requests: pool("requests", cores.max(REQUESTS_MIN))?,
        })
    }

    /// Where their work is done.
    pub fn threads(&self) -> Threads {
        let handle = |pool: &Option<Runtime>| {
            pool.as_ref().expect("they live until they are dropped").handle().clone()
        };
        let connections = handle(&self.connections);
        Threads { connections, runs: handle(&self.runs), requests: handle(&self.requests) }
    }
}

impl Drop for Pools {
    // Work in `Drop`, because a runtime that is merely dropped waits for its threads.
    fn drop(&mut self) {
        let pools = [self.connections.take(), self.runs.take(), self.requests.take()];
        for pool in pools.into_iter().flatten() {
            pool.shutdown_background();
        }
    }
}
