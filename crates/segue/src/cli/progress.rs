//! What a person sees while a run is under way: a live tree on a terminal, lines elsewhere.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use segue_core::plan::Plan;
use segue_core::run::{CallId, Entry, Fact, NodeId, Run};
use segue_core::view::duration;
use segue_runtime::driver::{Observer, Unobserved};
use segue_runtime::tools;

use super::{Global, Output, print_data, say};
use crate::change::{self, Change, change};
use crate::print::{Look, clean};

/// Steps that a tree shows line by line; of a larger run only what is under way or wrong.
const LINES_MAX: usize = 30;

/// One way of showing a run.
#[derive(Clone)]
pub(super) enum Progress {
    /// Nothing.
    Silent,
    /// A line per change.
    Lines(Arc<Lines>),
    /// A JSON document per change.
    Events(Arc<Events>),
    /// A live tree.
    Tree(Arc<Tree>),
}

/// The way that fits the output.
pub(super) fn of(global: &Global, plan: &Arc<Plan>) -> Progress {
    match global.output() {
        _ if global.quiet => Progress::Silent,
        Output::Json => Progress::Silent,
        Output::Ndjson => Progress::Events(Arc::new(Events::default())),
        Output::Plain => {
            Progress::Lines(Arc::new(Lines { verbose: global.verbose, ..Lines::default() }))
        }
        Output::Rich => Progress::Tree(Arc::new(Tree::new(plan.steps.len()))),
    }
}

/// The way that fits a run that somebody else works on: it is seen a little late, so without a tree.
pub(super) fn watching(global: &Global) -> Progress {
    match global.output() {
        Output::Json => Progress::Silent,
        Output::Ndjson => Progress::Events(Arc::new(Events::default())),
        Output::Plain | Output::Rich => Progress::Lines(Arc::default()),
    }
}

impl Progress {
    pub(super) fn observer(&self) -> &dyn Observer {
        match self {
            Progress::Silent => &Unobserved,
            Progress::Lines(lines) => &**lines,
            Progress::Events(events) => &**events,
            Progress::Tree(tree) => &**tree,
        }
    }

    /// Takes the tree away while something else is on the terminal. Whatever happens meanwhile is
    /// remembered: nobody waits.
    pub(super) fn hide(&self) {
        if let Progress::Tree(tree) = self {
            let _ = tree.bars.clear();
            tree.bars.set_draw_target(ProgressDrawTarget::hidden());
        }
    }

    /// Brings the tree back, as it is now.
    pub(super) fn show(&self) {
        if let Progress::Tree(tree) = self {
            tree.bars.set_draw_target(ProgressDrawTarget::stderr());
            tree.lines().values().for_each(|line| line.bar.force_draw());
        }
    }

    pub(super) fn finish(&self) {
        if let Progress::Tree(tree) = self {
            tree.finish();
        }
    }
}

/// When each step began, to say how long it took.
type Begun = BTreeMap<NodeId, u64>;

fn begun(run: &Run, journal: &[Entry]) -> Begun {
    let mut begun = Begun::new();
    for entry in journal {
        if let Some((node, _)) = change(run, entry) {
            begun.entry(node).or_insert(entry.at_ms);
        }
    }
    begun
}

/// A line per change.
#[derive(Default)]
pub(super) struct Lines {
    /// Whether arguments and values are shown too.
    verbose: bool,
    begun: Mutex<Begun>,
}

/// What a step was given or returned, for those who want to know more.
fn details(run: &Run, entry: &Entry) -> Option<String> {
    match &entry.fact {
        Fact::Called { node, candidate, args } => {
            let written = run.written(*node, *candidate).to_json();
            Some(format!("  written {}\n  given {}", clean(&written), clean(&args.to_json())))
        }
        Fact::Succeeded { output, .. } => Some(format!("  returned {}", clean(&output.to_json()))),
        _ => None,
    }
}

/// Which part of its life a run enters, for those who want to know more.
fn phase(run: &Run, entry: &Entry) -> Option<String> {
    match &entry.fact {
        Fact::Started(started) => Some(format!(
            "executes: run {}, request {}, plan {}",
            started.run_id, started.request_id, started.plan_id
        )),
        Fact::Stopped { failure, .. } => {
            Some(format!("handles an error: {}", clean(&failure.message)))
        }
        Fact::RollbackStarted { .. } => Some("rolls back what was done".to_owned()),
        Fact::Finished { status, .. } => {
            Some(format!("aggregates results of request {}: {}", run.request_id(), status.as_str()))
        }
        _ => None,
    }
}

impl Observer for Lines {
    fn observe(&self, run: &Run, entries: &[Entry]) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in entries {
            if let (true, Some(phase)) = (self.verbose, phase(run, entry)) {
                say(&phase);
            }
            let Some((node, change)) = change(run, entry) else { continue };
            let is_known = begun.contains_key(&node);
            let since = *begun.entry(node).or_insert(entry.at_ms);
            let took = duration(entry.at_ms.saturating_sub(since));
            let path = run.path(node);
            say(&match change {
                Change::Opened(_) if is_known => continue,
                Change::Started(what) | Change::Opened(what) | Change::Retrying(what) => {
                    format!("[{path}] {what}")
                }
                Change::Done => format!("[{path}] done in {took}"),
                Change::Failed(message) => format!("[{path}] failed after {took}: {message}"),
                Change::Skipped(reason) => format!("[{path}] skipped: {reason}"),
                Change::Cancelled => format!("[{path}] cancelled after {took}"),
                Change::InDoubt(why) => format!("[{path}] in doubt after {took}: {why}"),
                Change::Undone => format!("[{path}] undone"),
            });
            if let (true, Some(details)) = (self.verbose, details(run, entry)) {
                say(&details);
            }
        }
    }

    fn resumed(&self, run: &Run, journal: &[Entry]) {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = begun(run, journal);
    }

    fn progressed(&self, run: &Run, call: CallId, progress: &tools::Progress) {
        if self.verbose {
            say(&format!("[{}] {}", run.path(call.node), clean(&progress.to_string())));
        }
    }
}

/// A JSON document per change.
#[derive(Default)]
pub(super) struct Events {
    /// The number of the last entry.
    last: AtomicU64,
}

impl Observer for Events {
    fn observe(&self, run: &Run, entries: &[Entry]) {
        for entry in entries {
            self.last.store(entry.seq, Ordering::Relaxed);
            let Some(event) = change::event(run, entry) else { continue };
            print_data(event.line());
        }
    }

    fn progressed(&self, run: &Run, call: CallId, progress: &tools::Progress) {
        let last = self.last.load(Ordering::Relaxed);
        print_data(change::progress_event(run, call.node, last, progress).line());
    }
}

/// A live tree: one line per step that has begun.
pub(super) struct Tree {
    bars: MultiProgress,
    colour: bool,
    small: bool,
    lines: Mutex<BTreeMap<NodeId, Line>>,
    /// Steps that began before the run went on here.
    begun: Mutex<Begun>,
}

struct Line {
    path: Arc<str>,
    bar: ProgressBar,
    /// The last line below this one that belongs to it.
    last_inside: Option<ProgressBar>,
    began_ms: u64,
    tool: String,
    retries: u32,
}

impl Tree {
    fn new(steps: usize) -> Tree {
        let colour = Look::of_stderr().colour;
        let small = steps <= LINES_MAX;
        Tree {
            bars: MultiProgress::new(),
            colour,
            small,
            lines: Mutex::default(),
            begun: Mutex::default(),
        }
    }

    fn lines(&self) -> MutexGuard<'_, BTreeMap<NodeId, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new line: below the step that it is inside of, else at the end.
    fn begin(
        &self,
        lines: &mut BTreeMap<NodeId, Line>,
        path: &Arc<str>,
        depth: usize,
        at_ms: u64,
    ) -> Line {
        let (outer, name) = path.rsplit_once('/').unwrap_or(("", path));
        let outer = outer.split_once('[').map_or(outer, |(outer, _)| outer);
        let parent = lines.values_mut().find(|line| &*line.path == outer);
        let bar = match parent {
            Some(parent) => {
                let above = parent.last_inside.as_ref().unwrap_or(&parent.bar);
                let bar = self.bars.insert_after(above, ProgressBar::new_spinner());
                parent.last_inside = Some(bar.clone());
                bar
            }
            None => self.bars.add(ProgressBar::new_spinner()),
        };
        let indent = "  ".repeat(depth);
        let template = format!("{indent}{{spinner:.cyan}} {{prefix}}  {{msg}} {{elapsed:.dim}}");
        bar.set_style(
            ProgressStyle::with_template(&template)
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        bar.set_prefix(name.to_owned());
        bar.enable_steady_tick(Duration::from_millis(80));
        let path = path.clone();
        Line { path, bar, last_inside: None, began_ms: at_ms, tool: String::new(), retries: 0 }
    }

    fn end(line: &Line, depth: usize, mark: &str, words: &str, keep: bool) {
        if !keep {
            return line.bar.finish_and_clear();
        }
        let indent = "  ".repeat(depth);
        let style = ProgressStyle::with_template(&format!("{indent}{mark} {{prefix}}  {{msg}}"));
        line.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        line.bar.finish_with_message(words.to_owned());
    }

    /// A sign in a colour, where colours are wanted.
    fn mark(&self, colour: &str, sign: &str) -> String {
        if self.colour { format!("\u{1b}[{colour}m{sign}\u{1b}[0m") } else { sign.to_owned() }
    }

    fn finish(&self) {
        let lines = self.lines();
        lines.values().filter(|line| !line.bar.is_finished()).for_each(|line| line.bar.abandon());
    }
}

impl Observer for Tree {
    fn observe(&self, run: &Run, entries: &[Entry]) {
        let mut lines = self.lines();
        for entry in entries {
            let Some((node, change)) = change(run, entry) else { continue };
            let path = run.path(node);
            let depth = path.matches('/').count();
            if !lines.contains_key(&node) {
                let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
                let began_ms = begun.get(&node).copied().unwrap_or(entry.at_ms);
                let line = self.begin(&mut lines, &path, depth, began_ms);
                lines.insert(node, line);
            }
            let Some(line) = lines.get_mut(&node) else { continue };
            let took = duration(entry.at_ms.saturating_sub(line.began_ms));
            let retries = match line.retries {
                0 => String::new(),
                1 => " · 1 retry".to_owned(),
                n => format!(" · {n} retries"),
            };
            match change {
                Change::Started(what) | Change::Opened(what) => {
                    line.bar.set_message(what.clone());
                    line.tool = what;
                }
                Change::Retrying(what) => {
                    line.retries += 1;
                    line.bar.set_message(what);
                }
                Change::Done => {
                    let words = format!("{} {took}{retries}", line.tool);
                    Tree::end(line, depth, &self.mark("32", "✓"), &words, self.small);
                }
                Change::Failed(message) => {
                    let words = format!("{} {took}{retries} · {message}", line.tool);
                    Tree::end(line, depth, &self.mark("31", "✗"), &words, true);
                }
                Change::Skipped(reason) => Tree::end(line, depth, "–", &reason, self.small),
                Change::Undone => Tree::end(line, depth, "↩", "undone", true),
                Change::Cancelled => {
                    Tree::end(line, depth, "–", &format!("{} cancelled", line.tool), true);
                }
                Change::InDoubt(why) => {
                    let words = format!("{} {took}{retries} · in doubt: {why}", line.tool);
                    Tree::end(line, depth, &self.mark("33", "?"), &words, true);
                }
            }
        }
    }

    fn resumed(&self, run: &Run, journal: &[Entry]) {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = begun(run, journal);
    }

    fn progressed(&self, _run: &Run, call: CallId, progress: &tools::Progress) {
        let lines = self.lines();
        if let Some(line) = lines.get(&call.node) {
            line.bar.set_message(format!("{} {}", line.tool, clean(&progress.to_string())));
        }
    }
}
