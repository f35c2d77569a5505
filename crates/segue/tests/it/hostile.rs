//! Hostile texts: each ends in an error, soon, in little memory, and without a panic.

use std::fmt::Write as _;
use std::fs::File;
use std::time::{Duration, Instant};

use crate::support::{Done, SEGUE, World};

/// Processor time, which other tests beside this one hardly change. Unoptimised programs get more.
const TIME_MAX: Duration =
    Duration::from_millis(if cfg!(debug_assertions) { 8_000 } else { 1_000 });

/// The limit of the address space, which is larger than the memory in use.
const MEMORY_KIB_MAX: u32 = 1_500_000;

/// Something to do with a hostile text, and the code that it should end with.
struct Case {
    name: &'static str,
    write: fn(&World),
    args: &'static [&'static str],
    code: i32,
}

const fn check(name: &'static str, file: &'static [&'static str], write: fn(&World)) -> Case {
    Case { name, write, args: file, code: 2 }
}

const YAML: &[&str] = &["check", "c.yaml"];
const JSON: &[&str] = &["check", "c.json"];
const RUN: &[&str] = &["run", "c.yaml", "--json"];

const CASES: &[Case] = &[
    check("alias bomb", YAML, |world| {
        let mut text = "name: x\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..20 {
            let before = format!("*a{}", level - 1);
            let _ = writeln!(text, "a{level}: &a{level} [{}]", [&*before; 10].join(", "));
        }
        world.file("c.yaml", text);
    }),
    check("alias of itself", YAML, |world| {
        world.file("c.yaml", "name: x\nsteps: &s\n  - { id: a, set: { x: *s } }\n");
    }),
    check("merge keys", YAML, |world| {
        let mut text = "name: x\na0: &a0 { k0: 1 }\n".to_owned();
        for level in 1..2_000 {
            let _ = writeln!(text, "a{level}: &a{level} {{ <<: *a{}, k{level}: 1 }}", level - 1);
        }
        world.file("c.yaml", text);
    }),
    check("100,000 deep, JSON", JSON, |world| {
        world.file("c.json", format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    }),
    check("100,000 deep objects, JSON", JSON, |world| {
        world.file("c.json", r#"{"a":"#.repeat(100_000));
    }),
    check("100,000 deep, YAML flow", YAML, |world| {
        world.file("c.yaml", format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    }),
    check("100,000 deep, YAML braces", YAML, |world| {
        world.file("c.yaml", "{a: ".repeat(100_000));
    }),
    check("100,000 deep, YAML block", YAML, |world| {
        world.file("c.yaml", format!("{}x\n", "- ".repeat(100_000)));
    }),
    check("100,000 deep, YAML keys", YAML, |world| {
        world.file("c.yaml", format!("{}x\n", "? ".repeat(100_000)));
    }),
    check("a million keys, JSON", JSON, |world| {
        world.file("c.json", format!("{{{}\"z\":0}}", members(1_000_000, "\"k", "\":0,")));
    }),
    check("a million keys, YAML", YAML, |world| {
        world.file("c.yaml", members(1_000_000, "k", ": 0\n"));
    }),
    // Below the limit of bytes, so that the limits of keys and values have to hold.
    check("300,000 keys, JSON", JSON, |world| {
        world.file("c.json", format!("{{{}\"z\":0}}", members(300_000, "\"", "\":0,")));
    }),
    check("300,000 keys, YAML", YAML, |world| {
        world.file("c.yaml", members(300_000, "k", ": 0\n"));
    }),
    check("300,000 items, YAML", YAML, |world| {
        world.file("c.yaml", format!("name: x\nsteps:\n{}", "- 1\n".repeat(300_000)));
    }),
    check("100,000 steps", YAML, |world| {
        let steps = members(100_000, "- {id: s", ", wait: 0s}\n");
        world.file("c.yaml", format!("name: x\nsteps:\n{steps}"));
    }),
    check("duplicate keys, JSON", JSON, |world| {
        world.file("c.json", r#"{"name":"x","name":"y","steps":[{"id":"a","tool":"echo"}]}"#);
    }),
    check("duplicate keys, YAML", YAML, |world| {
        world.file("c.yaml", "name: x\nname: y\nsteps: [ { id: a, tool: echo } ]\n");
    }),
    check("duplicate keys through escapes", JSON, |world| {
        let text = r#"{"name":"x","n\u0061me":"y","steps":[{"id":"a","tool":"echo"}]}"#;
        world.file("c.json", text);
    }),
    check("a lone surrogate, JSON", JSON, |world| {
        let text = r#"{"name":"x","description":"\ud83d","steps":[{"id":"a","tool":"echo"}]}"#;
        world.file("c.json", text);
    }),
    check("a low surrogate first, JSON", JSON, |world| {
        let text =
            r#"{"name":"x","description":"\ude00\ud83d","steps":[{"id":"a","tool":"echo"}]}"#;
        world.file("c.json", text);
    }),
    check("a lone surrogate, YAML", YAML, |world| {
        let text = "name: x\ndescription: \"\\ud83d\"\nsteps: [ { id: a, tool: echo } ]\n";
        world.file("c.yaml", text);
    }),
    check("an expression of 10 MB", YAML, |world| expression(world, 10_000_000)),
    check("an expression of 3 MB", YAML, |world| expression(world, 3_000_000)),
    check("an expression 5,000 deep", YAML, |world| {
        let (open, close) = ("(".repeat(5_000), ")".repeat(5_000));
        world.file("c.yaml", sets(&format!("{open}1{close}")));
    }),
    check("an expression with 8,000 signs", YAML, |world| {
        world.file("c.yaml", sets(&format!("{}1", "-".repeat(8_000))));
    }),
    check("an expression with 2,000 filters", YAML, |world| {
        world.file("c.yaml", sets(&format!("nothing{}", "|uper".repeat(2_000))));
    }),
    check("invalid UTF-8", YAML, |world| {
        world.file("c.yaml", b"name: \xff\xfe\nsteps: []\n");
    }),
    check("an empty file, YAML", YAML, |world| world.file("c.yaml", "")),
    check("an empty file, JSON", JSON, |world| world.file("c.json", "")),
    check("only a byte order mark", YAML, |world| world.file("c.yaml", "\u{feff}")),
    check("NUL bytes", YAML, |world| world.file("c.yaml", "\0\0\0\0")),
    check("a directory", YAML, |world| std::fs::create_dir(world.path("c.yaml")).unwrap()),
    check("100 MB", YAML, |world| {
        File::create(world.path("c.yaml")).unwrap().set_len(100_000_000).unwrap();
    }),
    check("a huge number, JSON", JSON, |world| {
        let number = "9".repeat(1_000_000);
        world.file("c.json", format!(r#"{{"name":"x","steps":[{{"id":"a","wait":{number}}}]}}"#));
    }),
    Case {
        name: "an input 100,000 deep",
        write: |world| {
            world.file("c.yaml", "name: x\nsteps: [ { id: a, tool: echo } ]\n");
            let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
            world.file("in.json", format!("{{\"x\":{deep}}}"));
        },
        args: &["run", "c.yaml", "--input", "@in.json"],
        code: 2,
    },
    Case {
        name: "a configuration 100,000 deep",
        write: |world| {
            world.file("c.yaml", "name: x\nsteps: [ { id: a, tool: echo } ]\n");
            world.file("segue.yaml", "[".repeat(100_000));
        },
        args: &["check", "c.yaml"],
        code: 2,
    },
    run("range(10**9)", |world| world.file("c.yaml", sets("range(10**9)"))),
    run("the sum of range(10**9)", |world| world.file("c.yaml", sets("range(10**9) | sum"))),
    run("a power of a power", |world| world.file("c.yaml", sets("10**10**10**10"))),
    run("a text a billion times", |world| world.file("c.yaml", sets("'x' * 1000000000"))),
    run("exponential replace", |world| {
        let doubled = "|replace('x','xx')".repeat(60);
        world.file("c.yaml", sets(&format!("'x'{doubled}")));
    }),
    Case {
        name: "a text that doubles step by step",
        write: |world| {
            let mut text =
                "name: x\nsteps:\n  - { id: s0, tool: echo, parameters: { v: xx } }\n".to_owned();
            for level in 1..60 {
                let doubled = format!("{{{{ s{0}.v ~ s{0}.v }}}}", level - 1);
                let parameters = format!("parameters: {{ v: '{doubled}' }}");
                let _ = writeln!(text, "  - {{ id: s{level}, tool: echo, {parameters} }}");
            }
            world.file("c.yaml", format!("{text}output: nothing\n"));
        },
        args: &["run", "c.yaml", "-q"],
        code: 1,
    },
    check("a jq program without end", RUN, |world| {
        world.file("c.yaml", sets("1 | json_query('def f: f; f')"));
    }),
    check("a jq program that collects without end", RUN, |world| {
        world.file("c.yaml", sets("1 | json_query('[repeat(1)]')"));
    }),
    check("a jq program that counts to a billion", RUN, |world| {
        world.file("c.yaml", sets("1 | json_query('[range(1000000000)] | length')"));
    }),
    Case {
        name: "10 MB of input, doubled",
        write: |world| {
            world.file("c.yaml", sets("input.s ~ input.s"));
            world.file("s.txt", "x".repeat(10_000_000));
        },
        args: &["run", "c.yaml", "--json", "-i", "s=@s.txt"],
        code: 1,
    },
];

const fn run(name: &'static str, write: fn(&World)) -> Case {
    Case { name, write, args: RUN, code: 1 }
}

/// A composition that evaluates one expression.
fn sets(expression: &str) -> String {
    let quoted = expression.replace('\'', "''");
    format!("name: x\nsteps:\n  - {{ id: a, set: {{ v: '{{{{ {quoted} }}}}' }} }}\n")
}

fn expression(world: &World, bytes: usize) {
    world.file("c.yaml", sets(&format!("'{}'", "x".repeat(bytes))));
}

fn members(count: usize, before: &str, after: &str) -> String {
    let mut text = String::new();
    (0..count).for_each(|n| {
        let _ = write!(text, "{before}{n}{after}");
    });
    text
}

/// What the program makes of a case, and the processor time that it takes.
fn meet(case: &Case) -> (Done, Duration) {
    let world = World::new();
    (case.write)(&world);
    // The shell counts the time, and its bounds end what would never end.
    let script = format!(
        "ulimit -t 20; ulimit -v {MEMORY_KIB_MAX}; \"$0\" \"$@\"; code=$?; times > times; exit $code"
    );
    let mut command = world.command("sh");
    let done = Done::of(command.args(["-c", &script, SEGUE]).args(case.args).output().unwrap());
    let times = std::fs::read_to_string(world.path("times")).unwrap();
    (done, times.lines().last().unwrap().split_whitespace().map(duration).sum())
}

/// `0m1.230s`, as shells write it.
fn duration(text: &str) -> Duration {
    let (minutes, seconds) = text.trim_end_matches('s').split_once('m').unwrap();
    let (minutes, seconds): (u32, f64) = (minutes.parse().unwrap(), seconds.parse().unwrap());
    Duration::from_secs_f64(f64::from(minutes) * 60.0 + seconds)
}

/// The violations in how a case ended.
fn objections(case: &Case, done: &Done, took: Duration) -> Vec<String> {
    let mut wrong = Vec::new();
    if done.code != Some(case.code) {
        wrong.push(format!("ended with {:?}, not {}", done.code, case.code));
    }
    if took > TIME_MAX {
        wrong.push(format!("took {took:?}"));
    }
    for word in ["panicked", "overflow", "allocation", "RUST_BACKTRACE"] {
        if done.stderr.contains(word) || done.stdout.contains(word) {
            wrong.push(format!("said {word:?}"));
        }
    }
    if done.stderr.is_empty() && done.stdout.is_empty() {
        wrong.push("said nothing".to_owned());
    }
    // A finding in a hostile text shows a part of it, never all.
    if done.stderr.len() > 200_000 || done.stdout.len() > 1_000_000 {
        wrong.push(format!("wrote {} + {} bytes", done.stdout.len(), done.stderr.len()));
    }
    wrong
}

#[cfg(unix)]
#[test]
fn hostile_texts_end_in_an_error() {
    let mut wrong = String::new();
    for case in CASES {
        let (done, took) = meet(case);
        let objections = objections(case, &done, took);
        if !objections.is_empty() {
            let said = |text: &str| text.chars().take(300).collect::<String>();
            let _ = writeln!(wrong, "\n{}: {}", case.name, objections.join("; "));
            let _ = writeln!(wrong, "{}{}", said(&done.stdout), said(&done.stderr));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Each name reads the one before it twice: what follows names back to their beginning without
/// remembering what it found does so 2⁵⁹ times.
#[cfg(unix)]
#[test]
fn names_that_read_names_are_checked_in_time() {
    let case = check("names that read names", YAML, |world| {
        let mut text = "name: x\nsteps:\n  - { id: s0, set: { v0: x } }\n".to_owned();
        for level in 1..60 {
            let doubled = format!("{{{{ v{0} ~ v{0} }}}}", level - 1);
            let _ = writeln!(text, "  - {{ id: s{level}, set: {{ v{level}: '{doubled}' }} }}");
        }
        world.file("c.yaml", text);
    });
    let case = Case { code: 0, ..case };
    let (done, took) = meet(&case);
    assert_eq!(objections(&case, &done, took), Vec::<String>::new());
}

#[cfg(unix)]
#[test]
fn the_bound_on_memory_is_a_bound() {
    let script = format!("ulimit -v {MEMORY_KIB_MAX}; ulimit -v");
    let done = Done::of(World::new().command("sh").args(["-c", &script]).output().unwrap());
    assert_eq!(done.stdout.trim(), MEMORY_KIB_MAX.to_string());
}

/// `cargo test --release --test it -- --ignored --nocapture figures`
#[cfg(target_os = "linux")]
#[test]
#[ignore = "prints figures, for a release build"]
fn figures() {
    println!("{:<46} {:>4} {:>10} {:>12}", "text", "exit", "time", "peak memory");
    for case in CASES {
        let world = World::new();
        (case.write)(&world);
        let begun = Instant::now();
        let mut command = world.command(SEGUE);
        command.args(case.args).stdout(std::process::Stdio::null());
        let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        let status_file = format!("/proc/{}/status", child.id());
        let mut peak = String::new();
        let status = loop {
            let status = std::fs::read_to_string(&status_file).unwrap_or_default();
            if let Some(line) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
                line.trim().clone_into(&mut peak);
            }
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            std::thread::yield_now();
        };
        let (code, took) = (status.code().unwrap_or(-1), begun.elapsed());
        println!("{:<46} {code:>4} {took:>10.1?} {peak:>12}", case.name);
    }
}
