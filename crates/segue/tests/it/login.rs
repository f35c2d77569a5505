//! Logging in to MCP servers, against an authorization server of the tests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::support::{Done, SEGUE, World, repository};

/// A server with its own authorization server, which end with the test.
struct Guarded {
    child: Child,
    port: u16,
    log: std::path::PathBuf,
}

impl Guarded {
    fn start(world: &World, name: &str, seconds: u32) -> Guarded {
        let script = repository().join("crates/segue-runtime/tests/fixtures/mcp/oauth.py");
        let log = world.path(name);
        let mut command = Command::new("python3");
        command.arg(script).arg(&log).arg(seconds.to_string()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Guarded { child, port: line.trim().parse().unwrap(), log }
    }

    fn entry(&self) -> String {
        format!("{{ type: http, url: 'http://127.0.0.1:{}/mcp' }}", self.port)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What an address answers, in all.
fn fetched(url: &str) -> String {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Logs in, with a person who says yes on the page.
fn logged_in(world: &World, server: &str) -> Done {
    let mut command = world.command(SEGUE);
    command.args(["--config", "segue.yaml", "login", server]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let page = lines.find(|line| line.starts_with("http://")).expect("a page to look at");
    let answer = fetched(&page);
    let back = answer.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap();
    // A client that only guesses the address gets nothing, and does not end the wait.
    let other = back.split("/callback").next().unwrap().to_owned() + "/";
    assert!(fetched(&other).starts_with("HTTP/1.1 404"));
    assert!(fetched(back).contains("You may close this page"));
    let stderr = lines.collect::<Vec<_>>().join("\n");
    let done = child.wait_with_output().unwrap();
    Done { stderr, ..Done::of(done) }
}

fn call(world: &World, tool: &str) -> Done {
    world.segue(&["--config", "segue.yaml", "call", tool])
}

/// Issue 5: a logged-in user has access, also later and after the token has expired; the tokens are
/// readable only by the user, reach no output, and go to no other server.
#[test]
fn a_login_is_for_one_server_and_one_user() {
    let world = World::new();
    // One that expires at once, so that it is refreshed for every command.
    let (one, other) =
        (Guarded::start(&world, "one.log", 5), Guarded::start(&world, "other.log", 3600));
    let config = |first: &Guarded| {
        format!(
            "mcpServers: {{ one: {}, other: {}, pipe: {{ command: cat }} }}\n",
            first.entry(),
            other.entry()
        )
    };
    world.file("segue.yaml", config(&one));
    let refused = call(&world, "one:t").exits(4);
    assert!(refused.stderr.contains("segue login one"), "{}", refused.stderr);

    let done = logged_in(&world, "one").exits(0);
    assert!(done.stderr.contains("logged in to `one`"), "{}", done.stderr);
    for _ in 0..2 {
        let answer = call(&world, "one:t").exits(0).stdout;
        assert!(answer.contains("let in with «secret»"), "{answer}");
    }
    assert!(one.log().matches("POST /token").count() >= 3, "{}", one.log());
    let token = one.log().split("access-").nth(1).unwrap().lines().next().unwrap().to_owned();
    call(&world, "other:t").exits(4);
    assert!(!other.log().contains("access-") && !other.log().contains(&token), "{}", other.log());

    let folder = world.folder().parent().unwrap().join("home/data/segue/mcp");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|e| e == "token")).collect();
    assert_eq!(kept.len(), 1);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(kept[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    // The same name at another address is another server.
    world.file("segue.yaml", config(&other));
    call(&world, "one:t").exits(4);
    assert!(!other.log().contains("access-"), "{}", other.log());

    world.file("segue.yaml", config(&one));
    world.segue(&["--config", "segue.yaml", "login", "one", "--forget"]).exits(0);
    call(&world, "one:t").exits(4);
    let none = world.segue(&["--config", "segue.yaml", "login", "pipe"]).exits(4);
    assert!(none.stderr.contains("has no login"), "{}", none.stderr);
    world.segue(&["--config", "segue.yaml", "login", "nobody"]).exits(2);
}
