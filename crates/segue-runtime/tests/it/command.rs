//! Command tools over real processes: R2, hostile input 11 and 17.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process_group};
use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::tool::Impact;
use segue_core::value::Value;
use segue_runtime::tools::command::{CommandConfig, tool};
use segue_runtime::tools::{Tool, ToolError};
use tempfile::TempDir;

use crate::support::{Json, call, call_of, json, refusal};

fn config(argv: Json) -> CommandConfig {
    let argv = Value::from(argv).as_array().unwrap().to_vec();
    CommandConfig { argv, ..CommandConfig::default() }
}

fn command(argv: Json) -> Tool {
    tool("test", &config(argv), &Limits::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn script(dir: &TempDir, text: &str) -> PathBuf {
    let path = dir.path().join("script.sh");
    fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn sh(dir: &TempDir, text: &str) -> Tool {
    command(json!(["sh", script(dir, text)]))
}

#[tokio::test]
async fn arguments_come_as_json_on_stdin() {
    let args = json!({"text": "{{ 7 * 7 }} $(id) `id` ; rm -rf /", "n": [1, null]});
    assert_eq!(call(&command(json!(["cat"])), args.clone()).await.unwrap(), args);
    // A process that does not read them is no failure, however many they are.
    let large = json!({"text": "x".repeat(1 << 20)});
    assert_eq!(call(&command(json!(["true"])), large).await.unwrap(), Json::Null);
}

#[tokio::test]
async fn stdout_is_json_or_text() {
    for (printed, value) in [
        (r#"{"a": 1}"#, json!({"a": 1})),
        ("42", json!(42)),
        ("hello world", json!("hello world")),
        ("", Json::Null),
        ("  ", Json::Null),
        ("[1,", json!("[1,")),
        ("{{ args.x }}", json!("{{ args.x }}")),
    ] {
        let tool = command(json!(["printf", "%s\n", "{{ args.text }}"]));
        assert_eq!(call(&tool, json!({"text": printed})).await.unwrap(), value, "{printed}");
    }
    let text = CommandConfig {
        output: Some(json!({"type": "string"}).into()),
        ..config(json!(["echo", "42"]))
    };
    let text = tool("text", &text, &Limits::default()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(call(&text, json!({})).await.unwrap(), json!("42"));
    let twice = call(&command(json!(["echo", r#"{"a":1,"a":2}"#])), json!({})).await;
    assert_eq!(refusal(twice).0, Code::DuplicateKey);
    let binary = call(&command(json!(["printf", "\\377"])), json!({})).await;
    assert!(refusal(binary).1.contains("UTF-8"));
}

/// Hostile input 11: a value becomes exactly one argument, whatever it contains.
#[tokio::test]
async fn a_template_is_one_argument() {
    let tool = command(json!(["printf", "[%s]", "--", "a={{ args.a }}", "{{ args.b }}", 7, true]));
    let value = call(&tool, json!({"a": "x y; $(id)", "b": "-n *"})).await.unwrap();
    assert_eq!(value, json!("[--][a=x y; $(id)][-n *][7][true]"));
    for args in [json!({"a": "-rf"}), json!({"a": "--help"}), json!({"a": -5})] {
        let (code, message) = refusal(call(&command(json!(["echo", "{{ args.a }}"])), args).await);
        assert_eq!(code, Code::InputSchema);
        assert!(message.contains("put `--` before it"), "{message}");
    }
    let fine = command(json!(["echo", "--x={{ args.a }}", "--", "{{ args.a }}"]));
    assert_eq!(call(&fine, json!({"a": "-r"})).await.unwrap(), json!("--x=-r -- -r"));
    for value in [json!([1]), json!({}), Json::Null, json!("a\0b")] {
        let result = call(&command(json!(["echo", "{{ args.a }}"])), json!({"a": value})).await;
        assert_eq!(refusal(result).0, Code::InputSchema, "{value}");
    }
    let missing = call(&command(json!(["echo", "{{ args.none }}"])), json!({})).await;
    assert_eq!(refusal(missing).0, Code::UnresolvedReference);
}

#[test]
fn wrong_configurations_are_refused_when_they_are_read() {
    for argv in [
        json!([]),
        json!([""]),
        json!([1]),
        json!(["{{ args.program }}"]),
        json!(["a{{ args.b }}"]),
        json!(["echo", null]),
        json!(["echo", ["x"]]),
        json!(["echo", "a\0"]),
        json!(["ec\0ho"]),
        json!(["echo", "{{ args."]),
        json!(["echo", "{{ secrets.x }}"]),
        json!(["echo", "{{ env.HOME }}"]),
    ] {
        assert!(tool("x", &config(argv.clone()), &Limits::default()).is_err(), "{argv}");
    }
}

#[tokio::test]
async fn failures_say_what_the_command_said() {
    let dir = TempDir::new().unwrap();
    let failed = sh(&dir, "echo out; echo 'no such thing' >&2; exit 3");
    match call(&failed, json!({})).await {
        Err(ToolError::Refused { code: Code::ToolError, message, retryable: true }) => {
            assert_eq!(message, "no such thing (exit code 3)");
        }
        other => panic!("{other:?}"),
    }
    let (_, message) = refusal(call(&command(json!(["false"])), json!({})).await);
    assert!(message.contains("exit code 1"), "{message}");
    let (_, message) = refusal(call(&sh(&dir, "kill -9 $$"), json!({})).await);
    assert!(message.contains("signal 9"), "{message}");
    let loud = sh(&dir, "yes line | head -c 3000000 >&2; echo last >&2; exit 1");
    let (_, message) = refusal(call(&loud, json!({})).await);
    assert!(message.ends_with("last (exit code 1)") && message.len() < 17_000, "{}", message.len());
    match call(&command(json!(["/no/such/program"])), json!({})).await {
        Err(ToolError::Unreachable { message, .. }) => {
            assert!(message.contains("/no/such/program"));
        }
        other => panic!("{other:?}"),
    }
}

/// D2: a command sees the environment of its configuration, and nothing else of ours.
#[tokio::test]
async fn the_environment_is_clean() {
    let env = BTreeMap::from([("TOKEN".to_owned(), "t0ken".to_owned())]);
    let cwd = TempDir::new().unwrap();
    let config = CommandConfig {
        env,
        cwd: Some(cwd.path().to_owned()),
        ..config(json!(["sh", "-c", "pwd; env"]))
    };
    let tool = tool("env", &config, &Limits::default()).unwrap_or_else(|error| panic!("{error}"));
    let text = call(&tool, json!({})).await.unwrap();
    let mut lines = text.as_str().unwrap().lines();
    assert_eq!(lines.next().map(Path::new), Some(cwd.path()));
    let vars: BTreeMap<&str, &str> = lines.filter_map(|line| line.split_once('=')).collect();
    assert_eq!(vars["TOKEN"], "t0ken");
    assert!(vars["SEGUE_KEY"].starts_with("run-1/step/do/"), "{vars:?}");
    assert_eq!(vars["SEGUE_RUN"], "run-1");
    let known = [
        "PATH",
        "HOME",
        "LANG",
        "TZ",
        "TMPDIR",
        "TOKEN",
        "SEGUE_KEY",
        "SEGUE_RUN",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
    ];
    assert!(vars.keys().all(|name| known.contains(name)), "{vars:?}");
}

#[tokio::test]
async fn a_program_beside_its_directory_is_found() {
    let dir = TempDir::new().unwrap();
    script(&dir, "echo found");
    let config =
        CommandConfig { cwd: Some(dir.path().to_owned()), ..config(json!(["./script.sh"])) };
    let tool = tool("x", &config, &Limits::default()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(call(&tool, json!({})).await.unwrap(), json!("found"));
}

/// Hostile input 2: endless output kills the command and is a failure.
#[tokio::test]
async fn too_much_output_ends_the_command() {
    let limits = Limits { value_bytes_max: 100_000, ..Limits::default() };
    for argv in [json!(["yes"]), json!(["cat", "/dev/zero"])] {
        let tool = tool("x", &config(argv), &limits).unwrap_or_else(|error| panic!("{error}"));
        let start = Instant::now();
        assert_eq!(refusal(call(&tool, json!({})).await).0, Code::Limit);
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

fn is_gone(group: Pid) -> bool {
    test_kill_process_group(group).is_err()
}

/// Waits for an action of another process.
async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn pid_in(path: &Path) -> Option<Pid> {
    let text = fs::read_to_string(path).ok()?;
    text.ends_with('\n').then(|| Pid::from_raw(text.trim().parse().unwrap()).unwrap())
}

/// A script that starts children and prints its process id.
const FAMILY: &str = "sleep 1000 & (sleep 1000 & sleep 1000) & echo $$ > \"$1\"; ";

/// R2: a dropped call leaves no process behind, children included.
#[tokio::test]
async fn dropping_a_call_ends_the_whole_family() {
    let dir = TempDir::new().unwrap();
    let pid_file = dir.path().join("pid");
    let tool = command(json!(["sh", script(&dir, &format!("{FAMILY} wait")), pid_file]));
    let mut running = tool.runner.call(call_of(&tool, json!({})));
    tokio::select! {
        result = &mut running => panic!("{result:?}"),
        () = until("the script starts", || pid_in(&pid_file).is_some()) => {}
    }
    let group = pid_in(&pid_file).unwrap();
    assert!(!is_gone(group));
    drop(running);
    until("the group is gone", || is_gone(group)).await;
    assert!(!Path::new(&format!("/proc/{}", group.as_raw_nonzero())).exists(), "no zombie either");
}

/// R2: neither does a command that exits; its background processes do not block the call.
#[tokio::test]
async fn what_a_command_leaves_in_the_background_is_ended() {
    let dir = TempDir::new().unwrap();
    let pid_file = dir.path().join("pid");
    let tool = command(json!(["sh", script(&dir, &format!("{FAMILY} echo done")), pid_file]));
    let start = Instant::now();
    assert_eq!(call(&tool, json!({})).await.unwrap(), json!("done"));
    assert!(start.elapsed() < Duration::from_secs(5));
    let group = pid_in(&pid_file).unwrap();
    until("the group is gone", || is_gone(group)).await;
}

/// A script that moves a child into its own session, and prints the child's process id.
const AWAY: &str = "setsid sh -c 'echo $$ > \"$1\"; exec sleep 1000' sh \"$1\" & wait; sleep 1000";

fn is_over(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    !stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
}

/// D6: a call that times out or is dropped also ends processes that have left its group.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn what_left_the_group_ends_with_a_call_that_is_given_up() {
    let dir = TempDir::new().unwrap();
    let pid_file = dir.path().join("pid");
    let argv = json!(["sh", script(&dir, AWAY), pid_file]);
    let child_of = |call: Json| async {
        let mut running = Box::pin(call_away(call));
        tokio::select! {
            result = &mut running => panic!("{result:?}"),
            () = until("the child is away", || pid_in(&pid_file).is_some()) => {}
        }
        (running, pid_in(&pid_file).unwrap())
    };
    let (running, child) = child_of(argv.clone()).await;
    assert!(!is_over(child));
    drop(running);
    until("the child of a dropped call is over", || is_over(child)).await;
    fs::remove_file(&pid_file).unwrap();
    let slow = CommandConfig { timeout: Some(Duration::from_secs(1)), ..config(argv) };
    let slow = tool("slow", &slow, &Limits::default()).unwrap_or_else(|error| panic!("{error}"));
    let ended = call(&slow, json!({})).await;
    assert!(matches!(ended, Err(ToolError::NoAnswer { .. })), "{ended:?}");
    let child = pid_in(&pid_file).unwrap();
    assert!(is_over(child), "it is over when the call is");
}

async fn call_away(argv: Json) -> Result<Json, ToolError> {
    call(&command(argv), json!({})).await
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_in_doubt_unless_it_only_reads() {
    let timeout = Some(Duration::from_millis(50));
    let slow = |read_only| CommandConfig { timeout, read_only, ..config(json!(["sleep", "1000"])) };
    let tool = |config: &CommandConfig| {
        tool("slow", config, &Limits::default()).unwrap_or_else(|error| panic!("{error}"))
    };
    let writes = call(&tool(&slow(None)), json!({})).await;
    assert!(matches!(writes, Err(ToolError::NoAnswer { .. })), "{writes:?}");
    let (code, _) = refusal(call(&tool(&slow(Some(true))), json!({})).await);
    assert_eq!(code, Code::Timeout);
}

#[test]
fn the_effect_of_a_command_without_annotations_is_unknown() {
    let spec = |config: &CommandConfig| {
        tool("x", config, &Limits::default()).unwrap_or_else(|error| panic!("{error}")).spec
    };
    let unknown = spec(&config(json!(["true"])));
    assert_eq!(unknown.annotations.impact(), Impact::Unknown);
    assert_eq!(unknown.id.as_str(), "command:x");
    let reads = spec(&CommandConfig { read_only: Some(true), ..config(json!(["true"])) });
    assert!(reads.is_repeatable() && !reads.needs_confirmation());
}
