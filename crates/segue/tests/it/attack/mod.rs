//! An attacker's harness: the built program as a process, attacked from outside, with loopback only.
//!
//! | part | what is attacked | what must hold |
//! |---|---|---|
//! | [`acknowledged`] | a server is killed right after it answered | what was acknowledged is there |
//! | [`late_effects`] | slow writes, failures beside them, cancels, timeouts, kills | a run's word is what happened |
//! | [`poison`] | documents made to hang, fill or end a server | it answers others meanwhile, and goes on |
//! | [`reach`] | a caller who wants more than it was given | refused, with a reason, and nothing changed |
//!
//! Each part has a short form, which `cargo test` runs, and a long one: `just attack`, which sets
//! `SEGUE_ATTACK_LONG`. `SEGUE_ATTACK_KILLS` and `SEGUE_ATTACK_RUNS` choose other counts, `SEGUE_ATTACK_SEED`
//! the random choices. Each part prints a table of what it counted and fails when a count that must be 0
//! is not, after all of its cases have been tried. `CONTRIBUTING.md` says how to read the tables.

#![cfg(unix)]

mod acknowledged;
mod client;
mod late_effects;
mod poison;
mod reach;

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};

use crate::served::Served;

/// The operator's token in the worlds of the harness.
const OPERATOR: &str = "operator-token-of-more-than-32-characters";

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

fn is_long() -> bool {
    environment("SEGUE_ATTACK_LONG").is_some_and(|value| value > 0)
}

/// A count: what the environment says, else that of the short or the long form.
fn count(name: &str, short: u64, long: u64) -> u64 {
    environment(name).unwrap_or(if is_long() { long } else { short })
}

/// The seed of the random choices, which is printed.
fn seed(part: &str) -> u64 {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = environment("SEGUE_ATTACK_SEED").unwrap_or_else(|| u64::from(now().subsec_nanos()));
    let form = if is_long() { "long" } else { "short" };
    say(&format!("{part}: {form} form, SEGUE_ATTACK_SEED={seed}"));
    seed
}

#[allow(clippy::print_stderr, reason = "the figures are for whoever runs the harness")]
fn say(text: &str) {
    eprintln!("attack: {text}");
}

/// `kill -9`, from whichever thread has just read an answer.
fn kill_now(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // It may have ended by itself, which is found out when it is waited for.
    let _ = kill_process(pid, Signal::KILL);
}

/// Kills a server, if it has not ended, and waits for its end.
fn kill(served: Served) {
    drop(served);
}

/// Counts by row and column, printed when all is done.
struct Table {
    title: &'static str,
    columns: &'static [&'static str],
    rows: Vec<(String, Vec<u64>)>,
}

impl Table {
    fn new(title: &'static str, columns: &'static [&'static str]) -> Table {
        Table { title, columns, rows: Vec::new() }
    }

    /// Adds to a count.
    fn add(&mut self, row: &str, column: &str, amount: u64) {
        let at = self.columns.iter().position(|known| *known == column).expect("a column of it");
        let found = self.rows.iter().position(|(name, _)| name == row);
        let row = found.unwrap_or_else(|| {
            self.rows.push((row.to_owned(), vec![0; self.columns.len()]));
            self.rows.len() - 1
        });
        self.rows[row].1[at] += amount;
    }

    /// Adds every count of another table.
    fn add_all(&mut self, other: &Table) {
        for (row, counts) in &other.rows {
            for (column, count) in self.columns.iter().zip(counts) {
                self.add(row, column, *count);
            }
        }
    }

    /// The sum of a column.
    fn sum(&self, column: &str) -> u64 {
        let at = self.columns.iter().position(|known| *known == column).expect("a column of it");
        self.rows.iter().map(|(_, counts)| counts[at]).sum()
    }

    /// Prints it, with a row of sums.
    fn print(&self) {
        let names = self.rows.iter().map(|(name, _)| name.len());
        let width = names.chain([self.title.len(), "sum".len()]).max().unwrap_or(0);
        let mut text = format!("\n{:<width$}", self.title);
        self.columns.iter().for_each(|column| {
            let _ = write!(text, "  {column:>12}");
        });
        let sums = self.columns.iter().map(|column| self.sum(column)).collect();
        for (name, counts) in self.rows.iter().chain([&("sum".to_owned(), sums)]) {
            let _ = write!(text, "\n{name:<width$}");
            for (column, count) in self.columns.iter().zip(counts) {
                let _ = write!(text, "  {count:>wide$}", wide = column.len().max(12));
            }
        }
        say(&format!("{text}\n"));
    }
}

/// Fails with the first of what was found, after everything has been tried.
#[track_caller]
fn nothing(found: &[String]) {
    let shown: Vec<&str> = found.iter().take(20).map(|line| &**line).collect();
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), shown.join("\n"));
}
