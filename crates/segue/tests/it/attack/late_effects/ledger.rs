//! The world: tools that take their time, and a ledger of what they did that Segue does not know.
//!
//! A line is `WHAT PID NAME`: `START` and `END` of a call, `EFFECT` when it wrote, `UNDO` when that
//! was rolled back, `FAIL` when it failed without an effect. Commands and an MCP server write into
//! the file by themselves; the HTTP service lives in the test, so its effects land whatever happens
//! to Segue.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Json, World, json, until};

/// The configuration; `PORT` is that of the HTTP service.
const CONFIG: &str = r#"
compositions: [inner.yaml]
limits: { calls_max: 64 }
commands:
  write: { argv: [sh, tool.sh, write, "{{ args.name }}", "{{ args.before }}", "{{ args.after }}"], destructive: false, idempotent: false }
  fail: { argv: [sh, tool.sh, fail, "{{ args.name }}", "{{ args.before }}", "{{ args.after }}"], destructive: false, idempotent: false }
  undo:
    argv: [sh, tool.sh, undo, "{{ args.name }}", "0.02", "0"]
    input: { type: object, required: [name, token], properties: { name: { type: string }, token: { type: string } } }
    destructive: false
    idempotent: true
http:
  write: { method: POST, url: "http://127.0.0.1:PORT/write", body: { name: "{{ args.name }}", before: "{{ args.before }}", after: "{{ args.after }}" }, idempotent: false }
  undo: { method: POST, url: "http://127.0.0.1:PORT/undo", body: { name: "{{ args.name }}", token: "{{ args.token }}" }, idempotent: true }
mcpServers: { world: { command: python3, args: [server.py] } }
tools: { "world:write": { destructive: false, idempotent: false }, "world:undo": { destructive: false, idempotent: true } }
"#;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) what: String,
    pub(super) pid: u32,
    pub(super) name: String,
}

/// The ledger of a folder.
#[derive(Clone)]
pub(super) struct Ledger(PathBuf);

impl Ledger {
    /// Writes the world into a folder and opens its HTTP service.
    pub(super) fn make(world: &World, more: &str) -> Ledger {
        world.file("ledger", "");
        world.file("tool.sh", include_str!("world/tool.sh"));
        world.file("server.py", include_str!("world/server.py"));
        world.file("inner.yaml", include_str!("world/inner.yaml"));
        let ledger = Ledger(world.path("ledger"));
        let port = ledger.clone().serve();
        world.file("segue.yaml", CONFIG.replace("PORT", &port.to_string()) + more);
        ledger
    }

    fn mark(&self, what: &str, name: &str) {
        let mut file: File = OpenOptions::new().append(true).open(&self.0).unwrap();
        let line = format!("{what} {} {name}\n", std::process::id());
        file.write_all(line.as_bytes()).unwrap();
    }

    /// The HTTP service: a thread per call, for as long as the test lives.
    fn serve(self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let ledger = Arc::new(self);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let ledger = ledger.clone();
                std::thread::spawn(move || ledger.answer(&stream));
            }
        });
        port
    }

    /// Handles one call. It is finished although its caller may be gone; then the answer is lost.
    fn answer(&self, stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<u64>().ok())?
        })?;
        let mut body = String::new();
        reader.take(length).read_to_string(&mut body).ok()?;
        let args: Json = serde_json::from_str(&body).ok()?;
        let name = args["name"].as_str()?;
        let rest = |key: &str| {
            let seconds = args[key].as_str().and_then(|text| text.parse().ok()).unwrap_or(0.0);
            std::thread::sleep(Duration::from_secs_f64(seconds));
        };
        self.mark("START", name);
        rest("before");
        self.mark(if head.starts_with("POST /undo ") { "UNDO" } else { "EFFECT" }, name);
        rest("after");
        self.mark("END", name);
        let body = value(name).to_string();
        let length = body.len();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
        let mut writer = stream;
        write!(writer, "{head}\r\nContent-Length: {length}\r\n\r\n{body}").ok()
    }

    /// Every line so far.
    pub(super) fn read(&self) -> Vec<Mark> {
        let text = std::fs::read_to_string(&self.0).unwrap();
        // The last line of a process that is killed while it writes may be cut.
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let mark = |line: &str| {
            let mut words = line.splitn(3, ' ').map(ToOwned::to_owned);
            let (what, pid, name) = (words.next()?, words.next()?, words.next()?);
            Some(Mark { what, pid: pid.parse().ok()?, name })
        };
        whole.lines().map(|line| mark(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }

    /// Every line, once every call has ended or its process has: nothing lands any more.
    pub(super) fn settled(&self) -> Vec<Mark> {
        until(|| {
            let marks = self.read();
            let mut open: BTreeMap<(u32, &str), i64> = BTreeMap::new();
            for mark in &marks {
                let change = match &*mark.what {
                    "START" => 1,
                    "END" | "FAIL" => -1,
                    _ => 0,
                };
                *open.entry((mark.pid, &mark.name)).or_default() += change;
            }
            let is_under_way =
                |((pid, _), count): (&(u32, &str), &i64)| *count > 0 && is_alive(*pid);
            let settled = !open.iter().any(is_under_way);
            settled.then(|| marks.clone())
        })
    }
}

/// What a call answers, which follows from its name: so a person can say it of one that is in doubt.
pub(super) fn value(name: &str) -> Json {
    json!({ "name": name, "token": format!("token of {name}") })
}

/// The runs that a ledger names.
pub(super) fn runs(marks: &[Mark]) -> BTreeSet<String> {
    marks.iter().filter_map(|mark| Some(mark.name.split_once(':')?.0.to_owned())).collect()
}

fn is_alive(pid: u32) -> bool {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(Path::new(&path)).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}
