//! The transport over standard input and output: a message per line.
//!
//! The library's own transport drops lines that are too long without an answer, and rounds large
//! numbers. Here every line is answered, and its bytes travel with its message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, GetExtensions as _, GetMeta as _,
    RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use segue_runtime::tools::mcp::{LineFrame, LineFrames, guess_id, unmark_numbers};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::exact_numbers::with_marks;

/// How many messages may wait to be written.
const UNWRITTEN_MAX: usize = 64;

/// The bytes of a message, which travel with the message that was read from them.
#[derive(Clone, Debug)]
pub(super) struct RawMessage(pub(super) Arc<[u8]>);

/// Whether the client has disconnected: its runs go on, and are not cancelled.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientGone(Arc<AtomicBool>);

impl ClientGone {
    /// Whether it has.
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The transport.
pub(super) struct StdioServerTransport<R> {
    frames: LineFrames<BufReader<R>>,
    bytes_max: usize,
    write: Option<mpsc::Sender<OutgoingMessage>>,
    writer: Option<JoinHandle<()>>,
    client_gone: ClientGone,
    /// Whether the client has sent its first request: messages before it are ignored.
    has_begun: bool,
    /// Whether a line that is too long was answered before its end.
    is_refused: bool,
}

struct OutgoingMessage {
    message: Vec<u8>,
    written: Option<oneshot::Sender<std::io::Result<()>>>,
}

impl<R: AsyncRead + Send + Unpin> StdioServerTransport<R> {
    /// A transport over these two streams, with messages of at most so many bytes.
    pub(super) fn new(
        read: R,
        write: impl AsyncWrite + Send + Unpin + 'static,
        bytes_max: usize,
        client_gone: ClientGone,
    ) -> StdioServerTransport<R> {
        let (sender, receiver) = mpsc::channel(UNWRITTEN_MAX);
        StdioServerTransport {
            frames: LineFrames::new(BufReader::with_capacity(64 * 1024, read), bytes_max),
            bytes_max,
            write: Some(sender),
            writer: Some(tokio::spawn(write_all(write, receiver))),
            client_gone,
            has_begun: false,
            is_refused: false,
        }
    }

    /// The message of a line; a line that is none is answered here.
    fn message(&mut self, line: Vec<u8>) -> Option<ClientJsonRpcMessage> {
        let marked = with_marks(&line);
        let read = serde_json::from_slice(marked.as_deref().unwrap_or(&line));
        let mut message: ClientJsonRpcMessage = match read {
            Ok(message) => message,
            Err(error) => {
                self.refuse_line(&line, &error);
                return None;
            }
        };
        match &mut message {
            ClientJsonRpcMessage::Request(request) => {
                self.has_begun |= begins(&request.request);
                request.request.extensions_mut().insert(RawMessage(line.into()));
            }
            // The library gives up on a client whose first message is no request.
            _ if !self.has_begun => return None,
            _ => {}
        }
        Some(message)
    }

    fn refuse_line(&self, line: &[u8], error: &serde_json::Error) {
        self.send_refusal(&no_message(line, error));
    }

    fn refuse_too_long(&self, piece: &[u8]) {
        let what = format!("a message has at most {} bytes", self.bytes_max);
        self.refuse(ErrorCode::INVALID_REQUEST, what, guess_id(piece));
    }

    fn refuse(&self, code: ErrorCode, what: String, id: Option<String>) {
        self.send_refusal(&refusal(code, what, id));
    }

    fn send_refusal(&self, answer: &ServerJsonRpcMessage) {
        let Ok(message) = serde_json::to_vec(answer) else { return };
        if let Some(write) = &self.write {
            // A client that sends invalid lines faster than they can be answered gets no answer.
            let _ = write.try_send(OutgoingMessage { message, written: None });
        }
    }
}

/// The answer to a text that is no message.
pub(super) fn no_message(text: &[u8], error: &serde_json::Error) -> ServerJsonRpcMessage {
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
    let (code, what) = if is_json {
        (ErrorCode::INVALID_REQUEST, "this is no message of the protocol".to_owned())
    } else {
        (ErrorCode::PARSE_ERROR, format!("this is not JSON: {error}"))
    };
    // A list has no id of its own.
    let is_one = is_json && text.trim_ascii_start().starts_with(b"{");
    refusal(code, what, is_one.then(|| guess_id(text)).flatten())
}

fn refusal(code: ErrorCode, what: String, id: Option<String>) -> ServerJsonRpcMessage {
    let id: Option<RequestId> = id.and_then(|id| serde_json::from_str(&id).ok());
    ServerJsonRpcMessage::error(ErrorData::new(code, what, None), id)
}

/// Whether a request names the protocol version of the client.
fn begins(request: &ClientRequest) -> bool {
    match request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::DiscoverRequest(_) => false,
        other => other.get_meta().protocol_version().is_some(),
    }
}

async fn write_all(mut to: impl AsyncWrite + Unpin, mut messages: mpsc::Receiver<OutgoingMessage>) {
    while let Some(OutgoingMessage { mut message, written }) = messages.recv().await {
        message.push(b'\n');
        let mut outcome = to.write_all(&message).await;
        if outcome.is_ok() {
            outcome = to.flush().await;
        }
        let failed = outcome.is_err();
        if let Some(written) = written {
            let _ = written.send(outcome);
        }
        if failed {
            return;
        }
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for StdioServerTransport<R> {
    type Error = std::io::Error;

    fn send(
        &mut self,
        item: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let write = self.write.clone();
        async move {
            let gone = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
            let message = unmark_numbers(serde_json::to_vec(&item)?);
            let (written, is_written) = oneshot::channel();
            let unwritten = OutgoingMessage { message, written: Some(written) };
            write.ok_or_else(gone)?.send(unwritten).await.map_err(|_| gone())?;
            is_written.await.map_err(|_| gone())?
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            match self.frames.next().await {
                LineFrame::Line(line) => {
                    if let Some(message) = self.message(line) {
                        return Some(message);
                    }
                }
                LineFrame::TooLong(head) => {
                    self.is_refused = true;
                    self.refuse_too_long(&head);
                }
                LineFrame::TooLongEnded(ends) => {
                    if !std::mem::take(&mut self.is_refused) {
                        self.refuse_too_long(&ends);
                    }
                }
                LineFrame::End(_) => {
                    self.client_gone.set();
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.write = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.await;
        }
        Ok(())
    }
}
