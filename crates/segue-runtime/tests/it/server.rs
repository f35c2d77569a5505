//! A small HTTP server for the tests: one reply per request, on a free port.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The server's reply to a request.
pub(crate) enum Reply {
    /// These bytes, then the end of the connection.
    Bytes(Vec<u8>),
    /// These bytes, then silence.
    Hang(Vec<u8>),
}

impl Reply {
    pub(crate) fn new(status: u16, headers: &str, body: &str) -> Reply {
        let head =
            format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
        Reply::Bytes(format!("{head}{body}").into_bytes())
    }

    pub(crate) fn json(status: u16, body: &str) -> Reply {
        Reply::new(status, "Content-Type: application/json\r\n", body)
    }

    pub(crate) fn redirect(status: u16, to: &str) -> Reply {
        Reply::new(status, &format!("Location: {to}\r\n"), "")
    }
}

pub(crate) struct Server {
    pub(crate) port: u16,
    /// Every request as received.
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers each request with the reply that `reply` makes.
pub(crate) async fn serve(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let (reply, seen) = (Arc::new(reply), requests.clone());
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, reply.clone(), seen.clone()));
        }
    });
    Server { port, requests, task }
}

async fn answer(
    mut stream: TcpStream,
    reply: Arc<dyn Fn(&str) -> Reply + Send + Sync>,
    seen: Arc<Mutex<Vec<String>>>,
) {
    let Some(request) = read_request(&mut stream).await else { return };
    let reply = reply(&request);
    seen.lock().unwrap().push(request);
    match reply {
        Reply::Bytes(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Reply::Hang(bytes) => {
            let _ = stream.write_all(&bytes).await;
            // Until the client goes away.
            let _ = stream.read(&mut [0; 16]).await;
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| {
                    line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok()
                })
                .unwrap_or(0);
            if body.len() >= length {
                return Some(text);
            }
        }
    }
}
