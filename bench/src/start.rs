//! Process start, measured from outside on the binary beside this one.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::measure::{Row, median_time, print, show};

const TIMES: usize = 21;

pub(crate) fn rows() -> Vec<Row> {
    let Some(binary) = binary() else {
        print(
            "no `segue` beside this program: `cargo build --profile dist` first; start is not measured",
        );
        return Vec::new();
    };
    let folder = std::env::temp_dir().join(format!("segue-bench-{}", std::process::id()));
    let one = folder.join("one.yaml");
    let written = std::fs::create_dir_all(&folder).and_then(|()| {
        std::fs::write(&one, "name: one\nsteps: [{ id: a, tool: echo, parameters: { x: 1 } }]\n")
    });
    if written.is_err() {
        return Vec::new();
    }
    let nothing = start(&PathBuf::from("true"), &[]);
    let help = start(&binary, &["--help"]);
    let run = start(&binary, &["--store", "memory", "--json", "run", &one.display().to_string()]);
    let _ = std::fs::remove_dir_all(&folder);
    let row = |name: &str, most_ms: u64, took: Duration| Row {
        name: name.to_owned(),
        floor: show(nothing),
        engine: show(took),
        ratio: format!("{:.1}", took.as_secs_f64() / nothing.as_secs_f64()),
        target: format!("≤ {most_ms} ms"),
        met: Some(took <= Duration::from_millis(most_ms)),
    };
    vec![
        row("start to `--help` (floor: `true`)", 10, help),
        row("start to the result of one step (floor: `true`)", 30, run),
    ]
}

fn binary() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?.with_file_name("segue");
    beside.is_file().then_some(beside)
}

fn start(program: &PathBuf, args: &[&str]) -> Duration {
    median_time((0..TIMES).map(|_| {
        let begun = Instant::now();
        let status = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(status.is_ok_and(|status| status.success()), "{} {args:?}", program.display());
        begun.elapsed()
    }))
}
