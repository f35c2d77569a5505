//! A journal by hand, with group commit: the floor of durable runs.
//!
//! One thread writes all waiting entries and syncs once for them. The file has its full length from the
//! beginning, so a sync moves data and no metadata; at its end writing begins again at its start. It has
//! no order, no checks, and cannot be read back.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::sync::oneshot;

/// The length of the file.
const BYTES: usize = 16 << 20;

/// Bytes to write, and the reply to the task that waits.
type Waiting = (Vec<u8>, oneshot::Sender<()>);

/// The queue to the writer thread, which ends with it.
pub(crate) struct Journal {
    queue: Sender<Waiting>,
    syncs: Arc<AtomicU64>,
}

impl Journal {
    pub(crate) fn new(path: &Path) -> Journal {
        let mut file = File::create(path).expect("a file can be made");
        file.write_all(&vec![0; BYTES]).and_then(|()| file.sync_all()).expect("there is room");
        let (queue, waiting) = channel();
        let syncs = Arc::<AtomicU64>::default();
        let counted = syncs.clone();
        std::thread::spawn(move || write_all(&mut file, &waiting, &counted));
        Journal { queue, syncs }
    }

    /// Returns when the bytes are durable.
    pub(crate) async fn append(&self, bytes: Vec<u8>) {
        let (reply, done) = oneshot::channel();
        self.queue.send((bytes, reply)).expect("the thread lives as long as the queue");
        done.await.expect("the thread replies to every request");
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}

fn write_all(file: &mut File, waiting: &Receiver<Waiting>, syncs: &AtomicU64) {
    let mut end = BYTES;
    while let Ok(first) = waiting.recv() {
        let together: Vec<Waiting> = std::iter::once(first).chain(waiting.try_iter()).collect();
        let bytes: Vec<u8> = together.iter().flat_map(|(bytes, _)| bytes).copied().collect();
        if end + bytes.len() > BYTES {
            file.seek(SeekFrom::Start(0)).expect("a file begins somewhere");
            end = 0;
        }
        end += bytes.len();
        file.write_all(&bytes).and_then(|()| file.sync_data()).expect("there is room");
        syncs.fetch_add(1, Ordering::Relaxed);
        for (_, reply) in together {
            // The task may have been dropped.
            let _ = reply.send(());
        }
    }
}
