//! Command tools from the operator's configuration: argv with placeholders, never a shell.
//!
//! A call starts one process in its own group, writes the arguments as JSON to its stdin and reads
//! JSON or text from its stdout. The whole group is killed (R2) when the process ends, when its
//! output is too large and when the call is dropped, so no process outlives its call. When a call
//! is abandoned, processes that have left the group are ended, too.
//!
//! Not here: which configurations may start commands at all (the command line checks trust).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use segue_core::diagnostic::Code;
use segue_core::document::read_json_value;
use segue_core::expr::ArgsTemplate;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::schema::Schema;
use segue_core::tool::{Annotations, Backend, DeclaredRollback, ToolSpec, hex_digest};
use segue_core::value::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin};

use super::orphans::{self, AbandonedCall};
use super::{Tool, ToolError, ToolRequest, ToolRunner};

/// The namespace of commands.
pub const COMMAND: &str = "command";

/// How much of the end of stderr is kept.
const STDERR_BYTES_MAX: usize = 16 * 1024;

/// How long output is still read after the process has ended, in case a process outside its group
/// keeps the pipe open.
const DRAIN_MAX: Duration = Duration::from_millis(500);

/// The environment variables that a command inherits; secrets are not among them.
pub(super) const ENV_KEPT: &[&str] = &["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// A command tool.
// No `Debug`: the environment holds secrets.
#[derive(Clone, Default)]
pub struct CommandConfig {
    /// The program and its arguments; all but the program may hold `{{ args.… }}`.
    pub argv: Vec<Value>,
    /// JSON Schema of the arguments.
    pub input: Option<Value>,
    /// JSON Schema of the value.
    pub output: Option<Value>,
    /// Whether it changes nothing.
    pub read_only: Option<bool>,
    /// Whether it may destroy something.
    pub destructive: Option<bool>,
    /// Whether running it twice has the effect of running it once.
    pub idempotent: Option<bool>,
    /// The working directory.
    pub cwd: Option<PathBuf>,
    /// Additional environment variables, already expanded.
    pub env: BTreeMap<String, String>,
    /// The description for people and models.
    pub description: String,
    /// How long one call may take.
    pub timeout: Option<Duration>,
}

/// The tool of a command, or why its configuration is wrong.
pub fn tool(name: &str, config: &CommandConfig, limits: &Limits) -> Result<Tool, String> {
    let (program, rest) = config.argv.split_first().ok_or("`argv` is empty")?;
    let words: Result<Vec<ArgvItem>, String> = rest
        .iter()
        .enumerate()
        .map(|(index, item)| ArgvItem::parse(index + 1, item, limits))
        .collect();
    let spec = spec(name, config);
    let command = Command {
        program: program_path(program, config.cwd.as_deref())?,
        words: words?,
        cwd: config.cwd.clone(),
        env: config.env.clone(),
        timeout: config.timeout,
        read_only: config.read_only == Some(true),
        text_only: is_text(config.output.as_ref()),
        limits: limits.clone(),
    };
    Ok(Tool { spec: Arc::new(spec), runner: Arc::new(command) })
}

fn spec(name: &str, config: &CommandConfig) -> ToolSpec {
    let schema = |json: &Value| Arc::new(Schema::new(json.clone()));
    let reads = config.read_only == Some(true);
    ToolSpec {
        output: config.output.as_ref().map(schema),
        annotations: Annotations {
            read_only: config.read_only,
            destructive: config.destructive.or(reads.then_some(false)),
            idempotent: config.idempotent.or(reads.then_some(true)),
            open_world: None,
        },
        rollback: if reads { DeclaredRollback::NotNeeded } else { DeclaredRollback::Unknown },
        backend: Backend::Command,
        backend_hash: Some(source_description(config)),
        ..ToolSpec::new(
            ToolId::new(COMMAND, name),
            config.description.as_str(),
            config.input.as_ref().map_or_else(Schema::any_object, schema),
        )
    }
}

/// The hash of the command: its argv, its directory and the names of its environment variables.
fn source_description(config: &CommandConfig) -> Arc<str> {
    let cwd = config.cwd.as_ref().map(|cwd| cwd.display().to_string());
    let names = config.env.keys().map(|name| Value::from(name.as_str()));
    let started = Value::object([
        ("argv", Value::from(config.argv.clone())),
        ("cwd", cwd.map_or(Value::Null, |cwd| Value::from(cwd.as_str()))),
        ("env", Value::from(names.collect::<Vec<_>>())),
    ]);
    hex_digest(started.to_canonical_json().as_bytes()).into()
}

/// Whether the declared output is text, so that `42` stays text.
fn is_text(output: Option<&Value>) -> bool {
    output.and_then(|schema| schema.get("type")).and_then(Value::as_str) == Some("string")
}

/// The program is plain text: if arguments could choose it, the tool would be a shell.
fn program_path(program: &Value, cwd: Option<&Path>) -> Result<PathBuf, String> {
    let text = program.as_str().filter(|text| !text.is_empty() && !text.contains('\0'));
    let text = text.ok_or("`argv[0]` is not the name of a program")?;
    if text.contains("{{") {
        return Err("`argv[0]`, the program, cannot hold `{{ }}`".to_owned());
    }
    let path = PathBuf::from(text);
    // Systems differ in where they search for a relative program, so it is made absolute.
    Ok(match cwd {
        Some(cwd) if path.is_relative() && path.components().count() > 1 => cwd.join(path),
        _ => path,
    })
}

/// One item of argv, which becomes exactly one argument.
struct ArgvItem {
    index: usize,
    template: ArgsTemplate,
    /// Whether its first character comes from an argument.
    open_start: bool,
    /// `--`: no option follows.
    ends_options: bool,
}

impl ArgvItem {
    fn parse(index: usize, item: &Value, limits: &Limits) -> Result<ArgvItem, String> {
        if matches!(item, Value::Null | Value::Array(_) | Value::Object(_)) {
            return Err(format!("`argv[{index}]` is {}, not text", item.kind()));
        }
        let text = item.to_string();
        if text.contains('\0') {
            return Err(format!("`argv[{index}]` contains a NUL character"));
        }
        let template = ArgsTemplate::parse(&Value::from(text.as_str()), limits)
            .map_err(|why| format!("`argv[{index}]`: {why}"))?;
        let open_start = text.starts_with("{{");
        Ok(ArgvItem { index, template, open_start, ends_options: text == "--" })
    }

    fn fill(&self, args: &Value, limits: &Limits, options: bool) -> Result<String, ToolError> {
        let value = self.template.eval(args, limits).map_err(|error| {
            ToolError::refused(error.code, format!("`argv[{}]`: {}", self.index, error.message))
        })?;
        let refuse = |what: &str| {
            let message = format!("`argv[{}]` {what}", self.index);
            Err(ToolError::refused(Code::InputSchema, message))
        };
        if matches!(value, Value::Null | Value::Array(_) | Value::Object(_)) {
            return refuse(&format!("would be {}, not one argument", value.kind()));
        }
        let text = value.to_string();
        if text.contains('\0') {
            return refuse("would contain a NUL character");
        }
        if options && self.open_start && text.starts_with('-') {
            return refuse(
                "would begin with `-` and be taken for an option; put `--` before it in `argv`",
            );
        }
        Ok(text)
    }
}

struct Command {
    program: PathBuf,
    words: Vec<ArgvItem>,
    cwd: Option<PathBuf>,
    env: BTreeMap<String, String>,
    timeout: Option<Duration>,
    read_only: bool,
    text_only: bool,
    limits: Limits,
}

#[async_trait]
impl ToolRunner for Command {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let argv = self.argv(&call.args)?;
        orphans::is_free(&call.key).await;
        let started = self.start(&call, &argv)?;
        let family = AbandonedCall::unless_answered(call.key.clone());
        let running = started.finish(call.args.to_json(), &self.limits);
        let output = match self.timeout {
            None => running.await,
            Some(time) => match tokio::time::timeout(time, running).await {
                Ok(output) => output,
                Err(_) => {
                    family.end().await;
                    return Err(self.late(time));
                }
            },
        };
        let output = output?;
        family.answered();
        self.value(output)
    }
}

impl Command {
    fn argv(&self, args: &Value) -> Result<Vec<String>, ToolError> {
        let mut options = true;
        let mut argv = Vec::with_capacity(self.words.len());
        for word in &self.words {
            argv.push(word.fill(args, &self.limits, options)?);
            options &= !word.ends_options;
        }
        Ok(argv)
    }

    fn start(&self, call: &ToolRequest, argv: &[String]) -> Result<Running, ToolError> {
        let mut command = tokio::process::Command::new(&self.program);
        command.args(argv).env_clear();
        for name in ENV_KEPT {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.envs(&self.env);
        command
            .env(orphans::KEY, OsStr::new(&*call.key))
            .env("SEGUE_RUN", OsStr::new(&*call.run_id));
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let child = command.spawn().map_err(|error| {
            let message = format!("`{}` cannot be started: {error}", self.program.display());
            ToolError::Unreachable { message, retry_after: None }
        })?;
        orphans::note(child.id(), Some(&call.key));
        Ok(Running { group: Group(child.id()), child })
    }

    /// The failure of a command that was killed at its timeout.
    fn late(&self, time: Duration) -> ToolError {
        let message = format!("killed after {} ms without a result", time.as_millis());
        if self.read_only {
            return ToolError::Refused { code: Code::Timeout, message, retryable: true };
        }
        ToolError::NoAnswer { message }
    }

    fn value(&self, output: Output) -> Result<Value, ToolError> {
        if !output.status.success() {
            return Err(ToolError::failed(output.failure()));
        }
        let text = String::from_utf8(output.stdout).map_err(|_| {
            ToolError::refused(Code::ToolError, "the command's output is not UTF-8 text")
        })?;
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if self.text_only {
            return Ok(Value::from(text));
        }
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        match read_json_value(text, &self.limits) {
            Ok(value) => Ok(value),
            // Output that is not JSON is text; JSON that breaks a limit is a failure.
            Err(finding) if finding.code == Code::Parse => Ok(Value::from(text)),
            Err(finding) => Err(ToolError::refused(
                finding.code,
                format!("the command's output: {}", finding.message),
            )),
        }
    }
}

/// A process group. Dropping it kills every process in it, including their children.
pub(super) struct Group(pub(super) Option<u32>);

impl Group {
    /// Sends SIGTERM to every process in the group.
    pub(super) fn terminate(&self) {
        #[cfg(unix)]
        self.signal(rustix::process::Signal::TERM);
    }

    /// Kills every process in the group.
    pub(super) fn end(&mut self) {
        #[cfg(unix)]
        self.signal(rustix::process::Signal::KILL);
        self.0 = None;
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(pid) = self.0.and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())) {
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // In `Drop`, because a call ends when its future is dropped.
        self.end();
    }
}

/// A running process. The group is the first field, so that it is killed while its first process is
/// not reaped yet and the number cannot belong to another group.
struct Running {
    group: Group,
    child: Child,
}

struct Output {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Running {
    /// Writes the input, reads the output and waits for the end.
    async fn finish(mut self, input: String, limits: &Limits) -> Result<Output, ToolError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let stdin = self.child.stdin.take();
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        let status = {
            let reading = async {
                let ((), whole, ()) = tokio::join!(
                    feed(stdin, input),
                    read_whole(out, &mut stdout, limits.value_bytes_max),
                    read_end(err, &mut stderr)
                );
                whole
            };
            tokio::pin!(reading);
            let ended = tokio::select! {
                status = self.child.wait() => Some(status),
                whole = &mut reading => { whole?; None }
            };
            match ended {
                // All output is read; only the exit of the process is left.
                None => self.child.wait().await,
                Some(status) => {
                    // The command is over when its first process is. The group is killed at once,
                    // while its number cannot belong to another group; that also closes the pipes.
                    drop(self.group);
                    if let Ok(whole) = tokio::time::timeout(DRAIN_MAX, reading).await {
                        whole?;
                    }
                    status
                }
            }
        };
        let status = status.map_err(|error| ToolError::NoAnswer { message: error.to_string() })?;
        Ok(Output { status, stdout, stderr })
    }
}

/// Writes the arguments; a process need not read them.
async fn feed(stdin: Option<ChildStdin>, input: String) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(input.as_bytes()).await;
    }
}

async fn read_whole(
    from: Option<impl AsyncRead + Unpin>,
    into: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), ToolError> {
    let Some(from) = from else { return Ok(()) };
    // A broken pipe is an end of the output.
    let _ = from.take(bytes_max as u64 + 1).read_to_end(into).await;
    if into.len() > bytes_max {
        let message = format!("the command's output is over the limit of {bytes_max} bytes");
        return Err(ToolError::refused(Code::Limit, message));
    }
    Ok(())
}

/// Reads everything and keeps the end.
async fn read_end(from: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    while let Ok(1..) = from.read_buf(into).await {
        if into.len() > 2 * STDERR_BYTES_MAX {
            into.drain(..into.len() - STDERR_BYTES_MAX);
        }
    }
}

impl Output {
    /// The end of stderr, and the exit status.
    fn failure(&self) -> String {
        let start = self.stderr.len().saturating_sub(STDERR_BYTES_MAX);
        let said = String::from_utf8_lossy(&self.stderr[start..]);
        let end = describe(self.status);
        match said.trim() {
            "" => format!("ended with {end} and wrote nothing to stderr"),
            said => format!("{said} ({end})"),
        }
    }
}

pub(super) fn describe(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("signal {signal}");
    }
    status.code().map_or_else(|| "no exit code".to_owned(), |code| format!("exit code {code}"))
}
