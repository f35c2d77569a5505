//! A server behind two pipes, with one message per line: a process, or a part of this one.
//!
//! A process leads a group of its own, so that `npx` and its children end together. It is ended as
//! the protocol specifies: its stdin is closed, then it gets SIGTERM, then SIGKILL. One task reads
//! its stdout into the [`MessageRouter`]; another keeps the end of its stderr.

use std::collections::BTreeMap;
use std::io;
#[cfg(unix)]
use std::os::fd::OwnedFd as OwnedPipe;
#[cfg(windows)]
use std::os::windows::io::OwnedHandle as OwnedPipe;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, DuplexStream};
use tokio::process::{Child, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::PROBE_MAX;
use super::calls::pipe::{Input, read};
use super::calls::request_line::encode;
use super::calls::router::MessageRouter;
use super::error_text::TRACE_MAX;
use super::process_output::ProcessOutput;
use crate::tools::command::{ENV_KEPT, Group, describe};
use crate::tools::orphans;

/// Environment variables that a server inherits in addition to those of a command. Without the proxies
/// and certificates of a company's network a server could not reach its own service.
const ENV_KEPT_TOO: &[&str] = &[
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
];

/// How long a server may take to exit after its stdin is closed, and after SIGTERM.
pub(crate) const STDIO_END_MAX: [Duration; 2] =
    [Duration::from_millis(1_500), Duration::from_secs(1)];

/// How many received messages may wait.
const INBOX_MAX: usize = 64;

/// How a server is started.
// No `Debug`: the environment holds secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StdioConfig {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Additional environment variables, already expanded.
    pub env: BTreeMap<String, String>,
    /// The working directory.
    pub cwd: Option<PathBuf>,
}

/// A server in this process.
#[derive(Clone)]
pub struct InProcess(Arc<dyn Fn() -> DuplexStream + Send + Sync>);

impl InProcess {
    /// A server that `open` starts, whenever there is no connection to it. `open` returns our end
    /// of the stream and is called within a runtime.
    pub fn new(open: impl Fn() -> DuplexStream + Send + Sync + 'static) -> InProcess {
        InProcess(Arc::new(open))
    }
}

impl PartialEq for InProcess {
    fn eq(&self, other: &InProcess) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for InProcess {}

/// The transport to a server behind two pipes.
pub(super) struct StdioTransport {
    /// The process, if it is not this one. The group is the first field: it is killed while its
    /// first process is not reaped yet.
    process: Option<(Group, Child)>,
    input: Input,
    inbox: mpsc::Receiver<ServerJsonRpcMessage>,
    router: Arc<MessageRouter>,
    traces: Arc<ProcessOutput>,
    /// Whether the server's era is unknown, so that it may ignore the question.
    is_guess: bool,
    /// That question, and the deadline of its answer.
    probe: Option<(RequestId, Instant)>,
}

impl StdioTransport {
    /// Starts a process.
    pub(super) fn start(
        config: &StdioConfig,
        router: Arc<MessageRouter>,
        traces: Arc<ProcessOutput>,
        bytes_max: usize,
        is_guess: bool,
    ) -> io::Result<StdioTransport> {
        let mut command = Command::new(&config.command);
        command.args(&config.args).env_clear();
        for name in ENV_KEPT.iter().chain(ENV_KEPT_TOO) {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        // Created here, because the server's environment holds the number of the pipe.
        let (output, theirs) = io::pipe()?;
        let owner = orphans::owner_of(&output);
        command.envs(&config.env).envs(owner.map(|owner| (orphans::OWNER, owner)));
        if let Some(cwd) = &config.cwd {
            command.current_dir(cwd);
        }
        command.stdin(Stdio::piped()).stdout(theirs).stderr(Stdio::piped());
        command.kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn()?;
        let group = Group(child.id());
        orphans::note(child.id(), None);
        // The command holds the server's end of the pipe. While that is open here, reading would
        // never end.
        drop(command);
        let output = ChildStdout::from_std(OwnedPipe::from(output).into())?;
        if let Some(errors) = child.stderr.take() {
            tokio::spawn(listen(errors, traces.clone()));
        }
        let Some(input) = child.stdin.take() else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let mut pipes = StdioTransport::between(input, output, router, traces, bytes_max, is_guess);
        pipes.process = Some((group, child));
        Ok(pipes)
    }

    /// Connects to a server in this process.
    pub(super) fn open(
        local: &InProcess,
        router: Arc<MessageRouter>,
        traces: Arc<ProcessOutput>,
        bytes_max: usize,
        is_guess: bool,
    ) -> StdioTransport {
        let (output, input) = tokio::io::split((local.0)());
        StdioTransport::between(input, output, router, traces, bytes_max, is_guess)
    }

    fn between(
        input: impl AsyncWrite + Send + Unpin + 'static,
        output: impl AsyncRead + Send + Unpin + 'static,
        router: Arc<MessageRouter>,
        traces: Arc<ProcessOutput>,
        bytes_max: usize,
        is_guess: bool,
    ) -> StdioTransport {
        let (sender, inbox) = mpsc::channel(INBOX_MAX);
        let reading = read(output, router.clone(), traces.clone(), sender, bytes_max);
        let ended = router.clone();
        tokio::spawn(async move {
            reading.await;
            ended.end();
        });
        let input = Input::new(input);
        StdioTransport { process: None, input, inbox, router, traces, is_guess, probe: None }
    }

    /// The stdin for direct calls, which bypass the library.
    pub(super) fn input(&self) -> Input {
        self.input.clone()
    }

    /// Closes stdin, then sends SIGTERM, then SIGKILL, as far as necessary.
    async fn end(&mut self) {
        self.input.close().await;
        let Some((group, child)) = &mut self.process else { return };
        for patience in STDIO_END_MAX {
            if let Ok(status) = tokio::time::timeout(patience, child.wait()).await {
                self.traces.note_end(status.map_or_else(|error| error.to_string(), describe));
                break;
            }
            group.terminate();
        }
        group.end();
        let _ = tokio::time::timeout(STDIO_END_MAX[1], child.wait()).await;
    }
}

impl Drop for StdioTransport {
    /// A failed handshake drops the process, whose exit status may be the reason. A process that
    /// has closed its stdout is about to exit, so it gets a moment.
    fn drop(&mut self) {
        // The group is dropped first, here too.
        let swapped = self.process.take().map(|(group, child)| (child, group));
        let Some((mut child, group)) = swapped else { return };
        if let Ok(Some(status)) = child.try_wait() {
            self.traces.note_end(describe(status));
        } else if self.inbox.is_closed()
            && let Ok(runtime) = Handle::try_current()
        {
            let traces = self.traces.clone();
            runtime.spawn(async move {
                // Dropped with this task, also when the runtime ends.
                let _group = group;
                if let Ok(Ok(status)) = tokio::time::timeout(TRACE_MAX, child.wait()).await {
                    traces.note_end(describe(status));
                }
            });
        }
    }
}

/// Keeps the end of stderr.
async fn listen(mut errors: impl AsyncRead + Unpin, traces: Arc<ProcessOutput>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = errors.read(&mut buffer).await {
        traces.stderr.push(&buffer[..count]);
    }
    traces.note_silence();
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        if self.is_guess
            && let ClientJsonRpcMessage::Request(request) = &message
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
        {
            self.probe = Some((request.id.clone(), Instant::now() + PROBE_MAX));
        }
        let slot = self.router.outgoing(&message);
        let line = encode(&message, slot.as_deref());
        let input = self.input.clone();
        async move { input.write(line?, slot.as_deref()).await }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        let Some((id, until)) = self.probe.clone() else { return self.inbox.recv().await };
        // A server that does not know the question may ignore it.
        match tokio::time::timeout_at(until, self.inbox.recv()).await {
            Ok(message) => {
                let about_it = |message: &ServerJsonRpcMessage| match message {
                    ServerJsonRpcMessage::Response(response) => response.id == id,
                    ServerJsonRpcMessage::Error(error) => error.id.as_ref() == Some(&id),
                    ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => {
                        false
                    }
                };
                if message.as_ref().is_some_and(about_it) {
                    self.probe = None;
                }
                message
            }
            Err(_) => {
                self.probe = None;
                self.router.give_up_probe(&id);
                let error = ErrorData::new(
                    rmcp::model::ErrorCode::METHOD_NOT_FOUND,
                    "server/discover was not answered",
                    None,
                );
                Some(ServerJsonRpcMessage::error(error, Some(id)))
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.end().await;
        Ok(())
    }
}
