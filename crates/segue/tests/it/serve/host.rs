//! A host that speaks the protocol message by message, so that tests can check their form.

#![allow(clippy::needless_pass_by_value, reason = "`json!` gives values, and tests read better so")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::support::{Json, SEGUE, World, json};

/// Nothing takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// A host and the Segue that it started.
pub(crate) struct Host {
    child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<(Json, String)>,
    /// The last line that was waited for, as it came.
    line: String,
    /// Messages that were not awaited yet.
    unread: Vec<Json>,
    asked: u64,
    /// What every request says of the client; the era with `initialize` says it once.
    meta: Option<Json>,
}

impl Host {
    /// Starts `segue mcp` in a world with a configuration.
    pub(crate) fn start(world: &World) -> Host {
        Host::start_with(world, &[], &[])
    }

    /// The same with variables of the environment, and more arguments.
    pub(crate) fn start_with(world: &World, env: &[(&str, &str)], args: &[&str]) -> Host {
        let mut command = world.command(SEGUE);
        command.envs(env.iter().copied());
        command.args(["--config", "segue.yaml", "--store", "sqlite:s.db", "mcp"]).args(args);
        Host::of(command)
    }

    /// The host of a server that a command starts.
    pub(crate) fn of(mut command: Command) -> Host {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let (sender, messages) = channel();
        let stdout = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
                if sender.send((message, line)).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let line = String::new();
        Host { child, stdin, messages, line, unread: Vec::new(), asked: 0, meta: None }
    }

    /// The era with `initialize`.
    pub(crate) fn legacy(world: &World, capabilities: &Json) -> Host {
        let mut host = Host::start(world);
        host.greet(capabilities);
        host
    }

    /// The same, and its configuration is followed.
    pub(crate) fn watching(world: &World) -> Host {
        let mut host = Host::start_with(world, &[], &["--watch"]);
        host.greet(&json!({}));
        host
    }

    /// Says hello in that era.
    pub(crate) fn greet(&mut self, capabilities: &Json) {
        let answer = self.ask(
            "initialize",
            json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities,
                    "clientInfo": { "name": "raw", "version": "1" } }),
        );
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        assert!(answer["result"]["capabilities"]["tools"]["listChanged"].as_bool().unwrap());
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }

    /// The era without: each request says everything.
    pub(crate) fn modern(world: &World, capabilities: &Json) -> Host {
        let mut host = Host::start(world);
        host.meta = Some(json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        }));
        let answer = host.ask("server/discover", json!({}));
        assert!(
            answer["result"]["supportedVersions"]
                .as_array()
                .unwrap()
                .contains(&json!("2026-07-28")),
            "{answer}"
        );
        host
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn send(&mut self, message: &Json) {
        self.send_line(&message.to_string());
    }

    pub(crate) fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Sends a request and returns its id.
    pub(crate) fn begin(&mut self, method: &str, mut params: Json) -> u64 {
        self.asked += 1;
        if let (Some(meta), Some(object)) = (&self.meta, params.as_object_mut()) {
            let all = object.entry("_meta").or_insert_with(|| json!({}));
            let all = all.as_object_mut().unwrap();
            all.extend(meta.as_object().unwrap().clone());
        }
        let id = self.asked;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// The answer to a request.
    pub(crate) fn answer(&mut self, id: u64) -> Json {
        self.wait(|message| message["id"] == json!(id) && message.get("method").is_none())
    }

    pub(crate) fn ask(&mut self, method: &str, params: Json) -> Json {
        let id = self.begin(method, params);
        self.answer(id)
    }

    /// The result of a tool.
    pub(crate) fn call(&mut self, tool: &str, arguments: Json) -> Json {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert!(answer.get("result").is_some(), "{answer}");
        answer["result"].clone()
    }

    /// The first message that fits, whatever comes before it.
    pub(crate) fn wait(&mut self, fits: impl Fn(&Json) -> bool) -> Json {
        if let Some(at) = self.unread.iter().position(&fits) {
            return self.unread.remove(at);
        }
        loop {
            let (message, line) = self.messages.recv_timeout(PATIENCE).expect("a message in time");
            if fits(&message) {
                self.line = line;
                return message;
            }
            self.unread.push(message);
        }
    }

    /// The last message that was waited for, as it came.
    pub(crate) fn line(&self) -> &str {
        &self.line
    }

    /// The next request to us.
    pub(crate) fn request(&mut self, method: &str) -> Json {
        self.wait(|message| message["method"] == method && message.get("id").is_some())
    }

    /// The next notification.
    pub(crate) fn notification(&mut self, method: &str) -> Json {
        self.wait(|message| message["method"] == method && message.get("id").is_none())
    }

    /// Answers a request to us.
    pub(crate) fn reply(&mut self, request: &Json, result: Json) {
        self.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }));
    }

    /// How many messages of a method have come and were not waited for.
    pub(crate) fn unread(&self, method: &str) -> usize {
        self.unread.iter().filter(|message| message["method"] == method).count()
    }

    /// Goes away as hosts do, and returns the exit code of Segue.
    pub(crate) fn leave(mut self) -> Option<i32> {
        drop(self.stdin.take());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of a result.
pub(crate) fn text(result: &Json) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

/// The value of a result, which its text says too.
#[track_caller]
pub(crate) fn value(result: &Json) -> Json {
    assert_ne!(result["isError"], true, "{}", text(result));
    let structured = result["structuredContent"].clone();
    assert_eq!(serde_json::from_str::<Json>(text(result)).unwrap(), structured);
    structured
}

/// What went wrong.
#[track_caller]
pub(crate) fn error(result: &Json) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    assert!(result.get("structuredContent").is_none());
    text(result)
}
