//! `segue serve` in a temporary folder, and a minimal client that sees every byte.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{Json, SEGUE, World, json};

/// The token that the worlds of these tests have.
pub(crate) const TOKEN: &str = "open-sesame-open-sesame-open-sesame";

/// What it says, it says in this time.
const SAID_MAX: Duration = Duration::from_mins(1);

/// A server.
pub(crate) struct Served {
    /// Its process, unless it is in this one.
    child: Option<Child>,
    pub(crate) address: String,
    /// Lines that it said before it listened.
    at_start: Vec<String>,
    /// Lines that it has said since.
    said: Arc<Mutex<Vec<String>>>,
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn parse(text: &str) -> Answer {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        Answer { status, headers: headers.collect(), body: body.to_owned() }
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The JSON of an answer of this status.
    #[track_caller]
    pub(crate) fn is(&self, status: u16) -> Json {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

    /// A problem of this status and code.
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, code: &str) -> Json {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        let problem = self.is(status);
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["type"], format!("urn:segue:error:{code}"));
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
        problem
    }
}

impl Served {
    /// Starts one with these arguments behind `serve`.
    pub(crate) fn start(world: &World, store: &str, args: &[&str]) -> Served {
        Served::start_by(world.command(SEGUE), store, args)
    }

    /// The same with variables of the environment.
    pub(crate) fn start_with(
        world: &World,
        store: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Served {
        let mut command = world.command(SEGUE);
        command.envs(env.iter().copied());
        Served::start_by(command, store, args)
    }

    /// The same by a command that knows more of its world.
    pub(crate) fn start_by(mut command: Command, store: &str, args: &[&str]) -> Served {
        command.args(["--config", "segue.yaml"]);
        Served::start_found(command, store, args)
    }

    /// The same without naming a configuration.
    pub(crate) fn start_found(mut command: Command, store: &str, args: &[&str]) -> Served {
        command.args(["--store", store, "serve"]);
        command.args(["--listen", "127.0.0.1:0"]).args(args);
        Served::spawn(command)
    }

    /// `segue dev` with these arguments.
    pub(crate) fn dev(world: &World, args: &[&str]) -> Served {
        let mut command = world.command(SEGUE);
        command.args(["--store", "memory", "dev", "--port", "0"]).args(args);
        Served::spawn(command)
    }

    fn spawn(mut command: Command) -> Served {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut at_start: Vec<String> = Vec::new();
        let first = loop {
            let line = lines.next().unwrap();
            if line.contains("listening at ") {
                break line;
            }
            at_start.push(line);
        };
        let address = first.split("://").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = said.clone();
        std::thread::spawn(move || lines.for_each(|line| heard.lock().unwrap().push(line)));
        let served = Served { child: Some(child), address, at_start, said };
        // Whatever is said at the start has been said when something is answered.
        assert_eq!(served.ask("GET", "/healthz", &[], "").status, 200);
        served
    }

    /// One that listens at this address already.
    pub(crate) fn at(address: String) -> Served {
        Served { child: None, address, at_start: Vec::new(), said: Arc::default() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// The first line that it said and that has this in it, waiting for it.
    pub(crate) fn said(&self, part: &str) -> String {
        let began = Instant::now();
        loop {
            let found = self.said.lock().unwrap().iter().find(|line| line.contains(part)).cloned();
            if let Some(line) = found {
                return line;
            }
            assert!(began.elapsed() < SAID_MAX, "it never said `{part}`");
            std::thread::yield_now();
        }
    }

    /// Whether a line with this in it came before it listened.
    pub(crate) fn said_at_start(&self, part: &str) -> bool {
        self.at_start.iter().any(|line| line.contains(part))
    }

    /// Every line that it has said since it listens.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    pub(crate) fn has_said(&self, part: &str) -> bool {
        self.said.lock().unwrap().iter().any(|line| line.contains(part))
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// Sends a request with exactly these headers, beside those that it could not be read without.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut stream = self.connect();
        let text = self.request(method, path, headers, body);
        // One that is refused may be answered before all of it is read.
        let _ = stream.write_all(text.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Answer::parse(&unchunked(&String::from_utf8(answer).unwrap()))
    }

    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> String {
        let has = |name: &str| headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut text = format!("{method} {path} HTTP/1.1\r\n");
        if !has("Host") {
            let _ = write!(text, "Host: {}\r\n", self.address);
        }
        if !has("Connection") {
            text += "Connection: close\r\n";
        }
        if !body.is_empty() {
            let _ = write!(text, "Content-Length: {}\r\n", body.len());
        }
        for (name, value) in headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        text + "\r\n" + body
    }

    /// The same with the token, and a body of JSON.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Json,
    ) -> Answer {
        self.send_by(TOKEN, method, path, headers, body)
    }

    /// The same with this token.
    pub(crate) fn send_by(
        &self,
        token: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Json,
    ) -> Answer {
        let bearer = format!("Bearer {token}");
        let mut all = vec![("Authorization", &*bearer), ("Content-Type", "application/json")];
        all.extend(headers);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.ask(method, path, &all, &body);
        super::rest::documented(method, path, &answer);
        answer
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], &json!(null))
    }

    pub(crate) fn post(&self, path: &str, body: &Json) -> Answer {
        self.send("POST", path, &[], body)
    }

    /// What a message of MCP is answered, in a session or before there is one.
    pub(crate) fn mcp(&self, session: Option<&str>, message: &Json) -> Answer {
        let bearer = format!("Bearer {TOKEN}");
        let mut headers = vec![
            ("Authorization", &*bearer),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        headers.extend(session.map(|id| ("Mcp-Session-Id", id)));
        self.ask("POST", "/mcp", &headers, &message.to_string())
    }

    /// Begins a session of MCP.
    pub(crate) fn mcp_session(&self) -> String {
        let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "raw", "version": "1" } } });
        let answer = self.mcp(None, &hello);
        let session = answer.headers["mcp-session-id"].clone();
        let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.mcp(Some(&session), &begun).status, 202);
        session
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.take().unwrap().wait().unwrap()
    }

    /// How it has ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().unwrap().try_wait().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// An answer without the frames of a body whose length is not known before.
fn unchunked(answer: &str) -> String {
    let Some((head, mut rest)) = answer.split_once("\r\n\r\n") else { return answer.to_owned() };
    if !head.to_lowercase().contains("transfer-encoding: chunked") {
        return answer.to_owned();
    }
    let mut body = String::new();
    while let Some((length, more)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        body.push_str(&more[..length]);
        rest = more[length..].strip_prefix("\r\n").unwrap_or("");
    }
    format!("{head}\r\n\r\n{body}")
}
