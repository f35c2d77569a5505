//! Whether a server answers others while it is attacked: `/healthz` every few milliseconds, and its memory.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two requests.
const EVERY: Duration = Duration::from_millis(20);

/// A request that takes longer is counted as having taken this long.
const PROBE_MAX: Duration = Duration::from_secs(20);

/// Polls a server's health until it is stopped.
pub(super) struct Health {
    stop: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<Duration>>>,
    thread: Option<JoinHandle<()>>,
}

impl Health {
    pub(super) fn of(address: &str) -> Health {
        let (stop, samples) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<_>>>::default());
        let (ended, taken, address) = (stop.clone(), samples.clone(), address.to_owned());
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let begun = Instant::now();
                if probe(&address) {
                    taken.lock().unwrap().extend(due(begun.elapsed()));
                }
                std::thread::sleep(EVERY.saturating_sub(begun.elapsed()));
            }
        });
        Health { stop, samples, thread: Some(thread) }
    }

    /// How long the answers have taken since this was asked for last.
    pub(super) fn take(&self) -> Vec<Duration> {
        std::mem::take(&mut self.samples.lock().unwrap())
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Whether the server was there to be asked.
fn probe(address: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let _ = stream.set_read_timeout(Some(PROBE_MAX));
    let text = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let mut answer = [0; 12];
    let _ = stream.write_all(text.as_bytes());
    match stream.read_exact(&mut answer) {
        Ok(()) => answer.ends_with(b" 200"),
        // It was there and said nothing in all this time; one that died is noticed elsewhere.
        Err(error) => error.kind() != std::io::ErrorKind::UnexpectedEof,
    }
}

/// One slow answer stands for all requests that were due while it took: else a server that stands still
/// for ten seconds would have one bad sample among hundreds of good ones.
fn due(took: Duration) -> Vec<Duration> {
    let mut all = vec![took];
    while all[all.len() - 1] > EVERY * 2 {
        all.push(all[all.len() - 1].saturating_sub(EVERY));
    }
    all
}

/// The sample that so many of a thousand do not exceed.
pub(super) fn quantile(samples: &[Duration], per_mille: usize) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * per_mille / 1000).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

/// The most memory that a process has had, in bytes; 0 when it is not there.
pub(super) fn peak_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap_or(0);
    kib * 1024
}
