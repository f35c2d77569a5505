//! A line between a store and its database that falls silent, holds answers or loses them.

#![allow(dead_code, reason = "each test program uses its part")]

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;

/// What a proxy does with what the database answers, and with what it is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
pub(crate) enum Line {
    Open,
    /// Nothing passes, in either direction, until it is open again.
    Silent,
    /// The database gets every request, and its answers wait until the line is open again.
    HoldsAnswers,
    /// The database gets the next request, and the connection ends without its answer.
    LosesAnswers,
    /// Everything passes but what the database tells by itself: notifications.
    LosesNotifications,
}

/// Stands between a store and the database.
pub(crate) struct Proxy {
    folder: TempDir,
    line: Arc<AtomicU8>,
    connections: Arc<Mutex<Vec<UnixStream>>>,
}

impl Proxy {
    pub(crate) fn new(url: &str) -> Proxy {
        let folder = TempDir::new().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let server = url.split("host=").nth(1).unwrap();
        let server = Path::new(server).join(".s.PGSQL.5432");
        let (line, connections) = (Arc::new(AtomicU8::new(0)), Arc::<Mutex<Vec<_>>>::default());
        let proxy = Proxy { folder, line: line.clone(), connections: connections.clone() };
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, UnixStream::connect(&server)) else {
                    return;
                };
                let kept = [client.try_clone().unwrap(), server.try_clone().unwrap()];
                connections.lock().unwrap().extend(kept);
                let other = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (one, two) = (line.clone(), line.clone());
                std::thread::spawn(move || pass(client, server, &one, false));
                std::thread::spawn(move || pass(other.1, other.0, &two, true));
            }
        });
        proxy
    }

    pub(crate) fn set(&self, line: Line) {
        self.line.store(line as u8, Ordering::SeqCst);
    }

    /// Ends every connection; the next one passes as the line is.
    pub(crate) fn end_connections(&self) {
        self.connections.lock().unwrap().drain(..).for_each(|it| drop(it.shutdown(Shutdown::Both)));
    }

    /// The address of the same database, through this proxy.
    pub(crate) fn url(&self, url: &str) -> String {
        format!("{}host={}", url.split("host=").next().unwrap(), self.folder.path().display())
    }
}

/// Passes bytes on, as the line is.
fn pass(mut from: UnixStream, mut to: UnixStream, line: &AtomicU8, are_answers: bool) {
    let (mut bytes, mut unpassed) = ([0; 16_384], Vec::new());
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let is_held = |line: u8| {
            line == Line::Silent as u8 || are_answers && line == Line::HoldsAnswers as u8
        };
        while is_held(line.load(Ordering::SeqCst)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if are_answers && line.load(Ordering::SeqCst) == Line::LosesAnswers as u8 {
            break;
        }
        unpassed.extend_from_slice(&bytes[..count]);
        let passes = if are_answers {
            let loses = line.load(Ordering::SeqCst) == Line::LosesNotifications as u8;
            take_messages(&mut unpassed, loses)
        } else {
            std::mem::take(&mut unpassed)
        };
        if to.write_all(&passes).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Takes the whole messages of a database from what was read; each has a letter and its length. Notifications
/// may be left out.
fn take_messages(unpassed: &mut Vec<u8>, loses_notifications: bool) -> Vec<u8> {
    let (mut passes, mut at) = (Vec::new(), 0);
    while let Some(length) = unpassed.get(at + 1..at + 5) {
        let end = at + 1 + u32::from_be_bytes(length.try_into().unwrap()) as usize;
        let Some(message) = unpassed.get(at..end) else { break };
        if message[0] != b'A' || !loses_notifications {
            passes.extend_from_slice(message);
        }
        at = end;
    }
    unpassed.drain(..at);
    passes
}
