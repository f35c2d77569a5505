//! What a person sees on a terminal while a command works, and what stays on the screen afterwards.

#![cfg(unix)]

use crate::run::at_a_terminal;
use crate::support::World;

/// The width of the terminal that `at_a_terminal.py` opens.
const COLUMNS: usize = 80;

/// What a screen shows after a program has written this to it: text, line breaks, and the sequences that
/// move the cursor up or down and clear lines.
fn screen(written: &str) -> Vec<String> {
    let mut rows: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0usize, 0usize);
    let mut chars = written.chars();
    while let Some(c) = chars.next() {
        match c {
            '\r' => column = 0,
            '\n' => row += 1,
            '\u{1b}' => {
                let sequence: Vec<char> = take_sequence(&mut chars);
                let count = sequence.iter().filter(|c| c.is_ascii_digit()).collect::<String>();
                let count = count.parse().unwrap_or(1);
                match sequence.last() {
                    Some('A') => row = row.saturating_sub(count),
                    Some('B') => row += count,
                    Some('K') => rows[row].clear(),
                    _ => {}
                }
            }
            // Nothing is shown, such as the Ctrl-C of the person.
            c if c.is_control() => {}
            c => {
                if column == COLUMNS {
                    (row, column) = (row + 1, 0);
                    rows.resize(rows.len().max(row + 1), Vec::new());
                }
                let line = &mut rows[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
            }
        }
        rows.resize(rows.len().max(row + 1), Vec::new());
    }
    let text = |row: &Vec<char>| row.iter().collect::<String>().trim_end().to_owned();
    rows.iter().map(text).collect()
}

/// The rest of an escape sequence, up to its letter.
fn take_sequence(chars: &mut std::str::Chars<'_>) -> Vec<char> {
    let mut sequence = Vec::new();
    for c in chars {
        sequence.push(c);
        if c.is_ascii_alphabetic() {
            break;
        }
    }
    sequence
}

#[test]
fn a_screen_is_read_like_a_terminal() {
    let shown = screen("one\r\ntwo\r\n\u{1b}[1A\r\u{1b}[2Kthree\r\n");
    assert_eq!(shown, ["one", "three", ""]);
}

/// A loop of 60 shows how far it is and which items failed, not its first items.
#[test]
fn a_long_loop_shows_its_count_and_its_failures() {
    let world = World::with(
        "name: many\nsteps:\n  - id: each\n    loop:\n      over: '{{ range(60) }}'\n      \
         on_item_failure: continue\n      steps:\n        - { id: say, tool: echo, parameters: { n: '{{ item }}' } }\n        \
         - { id: bad, tool: fail, when: '{{ say.n == 41 }}' }\n",
    );
    let done = at_a_terminal(&world, "", &["run", "c.yaml", "--store", "memory"]);
    let shown = screen(&done.stdout);
    let count = shown.iter().find(|line| line.contains("each")).unwrap();
    assert!(count.contains("60/60 · 1 failed"), "{shown:#?}");
    assert!(shown.iter().any(|line| line.contains("✗ [41] bad")), "{shown:#?}");
    assert!(!shown.iter().any(|line| line.contains("[0] say")), "{shown:#?}");
    // The count was shown while the loop went on.
    assert!(done.stdout.contains("/60"), "{:?}", done.stdout);
}

/// Ctrl-C ends a run without a spinner or a line that is there twice.
#[test]
fn an_interrupted_run_leaves_no_stale_lines() {
    let world = World::with(
        "name: slow\nsteps:\n  - { id: pause, wait: 1h }\n  - { id: other, wait: 1h, depends_on: [] }\n",
    );
    let done = at_a_terminal(&world, "@0 s 1s@\u{3}", &["run", "c.yaml", "--store", "memory"]);
    let shown = screen(&done.stdout);
    for step in ["pause", "other"] {
        let lines: Vec<_> = shown.iter().filter(|line| line.contains(step)).collect();
        assert_eq!(lines.len(), 1, "{step}: {shown:#?}");
    }
    assert!(shown.iter().any(|line| line.starts_with("stopping; press Ctrl-C")), "{shown:#?}");
    let is_spinner = |c: char| ('\u{2800}'..='\u{28ff}').contains(&c);
    assert!(!shown.iter().any(|line| line.contains(is_spinner)), "{shown:#?}");
}

/// While a server starts, a terminal says so; afterwards the line is gone. JSON output and `--quiet` say
/// nothing.
#[test]
fn a_slow_server_is_waited_for_by_name() {
    let world = World::with("name: c\nsteps: [{ id: a, tool: 'slow:t' }]\n");
    // It ends after a while, without an answer.
    world.file(
        "segue.yaml",
        "mcpServers:\n  slow: { command: sh, args: ['-c', 'sleep 0.7; exit 1'] }\n",
    );
    let text = "waiting for the MCP server `slow` to start";
    let done = at_a_terminal(&world, "", &["check", "c.yaml"]);
    assert!(done.stdout.contains(text), "{}", done.stdout);
    assert!(!screen(&done.stdout).iter().any(|line| line.contains(text)), "{}", done.stdout);
    for flag in ["--json", "-q"] {
        let done = at_a_terminal(&world, "", &["check", "c.yaml", flag]);
        assert!(!done.stdout.contains("waiting for"), "{flag}: {}", done.stdout);
    }
}

/// A server at a terminal opens its log there, and says where it listens and how to sign in.
#[test]
fn a_server_at_a_terminal_prints_a_link() {
    for command in ["serve", "dev"] {
        let world = World::with("name: c\nsteps: [{ id: a, tool: echo }]\n");
        let mut args = vec![command, "--port", "0", "--store", "memory"];
        args.extend((command == "dev").then_some("--no-open"));
        let done = at_a_terminal(&world, "@/sign-in#@\u{3}", &args);
        for part in ["listening at http://127.0.0.1:", "sign in: http://127.0.0.1:"] {
            assert!(done.stdout.contains(part), "{command}: no {part:?} in {}", done.stdout);
        }
        assert!(!done.stdout.contains("tracing-subscriber"), "{command}: {}", done.stdout);
    }
}
