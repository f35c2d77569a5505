//! Messages to and from a server behind two pipes, one per line.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rmcp::model::ServerJsonRpcMessage;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{Mutex, mpsc};

use super::frame::{LineFrame, LineFrames};
use super::pending::PendingRequest;
use super::router::MessageRouter;
use crate::tools::mcp::process_output::ProcessOutput;

type Sink = Box<dyn AsyncWrite + Send + Unpin>;

/// A server's stdin, for whole lines. `None` when it is closed.
#[derive(Clone)]
pub(crate) struct Input(Arc<Mutex<Option<Sink>>>);

impl Input {
    pub(crate) fn new(sink: impl AsyncWrite + Send + Unpin + 'static) -> Input {
        Input(Arc::new(Mutex::new(Some(Box::new(sink)))))
    }

    /// Writes a line. A line that was begun is finished, even when the caller is gone.
    pub(crate) async fn write(
        &self,
        mut line: String,
        slot: Option<&PendingRequest>,
    ) -> io::Result<()> {
        line.push('\n');
        let mut sink = self.0.clone().lock_owned().await;
        let Some(open) = sink.as_mut() else { return Err(io::ErrorKind::BrokenPipe.into()) };
        if let Some(slot) = slot {
            slot.mark_sent();
        }
        let mut written = 0;
        let at_once = |context: &mut Context<'_>| {
            Poll::Ready(write_on(open, line.as_bytes(), &mut written, context))
        };
        // Most lines fit into a pipe.
        if let Poll::Ready(done) = std::future::poll_fn(at_once).await {
            return done;
        }
        let rest = tokio::spawn(async move {
            let Some(open) = sink.as_mut() else { return Ok(()) };
            let rest =
                |context: &mut Context<'_>| write_on(open, line.as_bytes(), &mut written, context);
            std::future::poll_fn(rest).await
        });
        rest.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    pub(crate) async fn close(&self) {
        if let Some(mut sink) = self.0.lock().await.take() {
            let _ = sink.shutdown().await;
        }
    }
}

/// Continues writing.
fn write_on(
    sink: &mut Sink,
    bytes: &[u8],
    written: &mut usize,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while *written < bytes.len() {
        match ready!(Pin::new(&mut *sink).poll_write(context, &bytes[*written..]))? {
            0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            count => *written += count,
        }
    }
    Pin::new(sink).poll_flush(context)
}

/// Reads messages until the stream ends, the server breaks a limit, or the receiver is gone.
pub(crate) async fn read(
    output: impl AsyncRead + Unpin,
    router: Arc<MessageRouter>,
    traces: Arc<ProcessOutput>,
    inbox: mpsc::Sender<ServerJsonRpcMessage>,
    bytes_max: usize,
) {
    let mut frames = LineFrames::new(BufReader::with_capacity(64 * 1024, output), bytes_max);
    let mut settled = false;
    loop {
        let frame = tokio::select! {
            biased;
            frame = frames.next() => frame,
            () = inbox.closed() => return,
        };
        let sorted = match frame {
            LineFrame::Line(line) => router.incoming(&line),
            LineFrame::TooLong(head) => {
                let message = router.too_long(&head);
                settled = message.is_some();
                Ok(Vec::from_iter(message))
            }
            LineFrame::TooLongEnded(_) if std::mem::take(&mut settled) => Ok(Vec::new()),
            LineFrame::TooLongEnded(end) => {
                Ok(Vec::from_iter(router.too_long(&end).or_else(|| router.too_long_for_all())))
            }
            LineFrame::End(None) => return,
            LineFrame::End(Some(why)) => Err(why),
        };
        match sorted {
            Ok(messages) => {
                for message in messages {
                    if inbox.send(message).await.is_err() {
                        return;
                    }
                }
            }
            Err(why) => {
                traces.note_end(format!("Segue disconnected it: {why}"));
                return;
            }
        }
    }
}
