//! Shows a run while it is under way: a live tree on a terminal, lines or JSON elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use segue_core::duration::format_duration;
use segue_core::plan::Plan;
use segue_core::run::{CallId, Entry, Fact, NodeId, Run};
use segue_runtime::driver::{NoObserver, Observer};
use segue_runtime::tools;

use super::{Global, Output};
use crate::print::{TerminalStyle, escape_control, print_data, print_status};
use crate::step_events::{self, StepChange, step_change};

/// The most steps that a tree keeps on the screen; a larger run shows only active and failed steps.
const LINES_MAX: usize = 30;

/// How a run is shown.
#[derive(Clone)]
pub(super) enum ProgressDisplay {
    /// Nothing.
    Silent,
    /// One line per change.
    Lines(Arc<LineDisplay>),
    /// One JSON document per change.
    Events(Arc<EventDisplay>),
    /// A live tree.
    Tree(Arc<TreeDisplay>),
}

/// The display for a run that this process drives.
pub(super) fn for_plan(global: &Global, plan: &Arc<Plan>) -> ProgressDisplay {
    match global.output() {
        _ if global.quiet => ProgressDisplay::Silent,
        Output::Json => ProgressDisplay::Silent,
        Output::Ndjson => ProgressDisplay::Events(Arc::new(EventDisplay::default())),
        Output::Plain => ProgressDisplay::Lines(Arc::new(LineDisplay {
            verbose: global.verbose,
            ..LineDisplay::default()
        })),
        Output::Rich => ProgressDisplay::Tree(Arc::new(TreeDisplay::new(plan.steps.len()))),
    }
}

/// The display for a run of another process. Its changes arrive late, so there is no live tree.
pub(super) fn for_followed(global: &Global) -> ProgressDisplay {
    match global.output() {
        Output::Json => ProgressDisplay::Silent,
        Output::Ndjson => ProgressDisplay::Events(Arc::new(EventDisplay::default())),
        Output::Plain | Output::Rich => ProgressDisplay::Lines(Arc::default()),
    }
}

impl ProgressDisplay {
    pub(super) fn observer(&self) -> &dyn Observer {
        match self {
            ProgressDisplay::Silent => &NoObserver,
            ProgressDisplay::Lines(lines) => &**lines,
            ProgressDisplay::Events(events) => &**events,
            ProgressDisplay::Tree(tree) => &**tree,
        }
    }

    /// Hides the tree while a question is on the terminal. The tree keeps recording changes.
    pub(super) fn hide(&self) {
        if let ProgressDisplay::Tree(tree) = self {
            let _ = tree.bars.clear();
            tree.bars.set_draw_target(ProgressDrawTarget::hidden());
        }
    }

    /// Shows the tree again, with all changes.
    pub(super) fn show(&self) {
        if let ProgressDisplay::Tree(tree) = self {
            tree.bars.set_draw_target(ProgressDrawTarget::stderr());
            tree.lines.lock().values().for_each(|line| line.bar.force_draw());
        }
    }

    pub(super) fn finish(&self) {
        if let ProgressDisplay::Tree(tree) = self {
            tree.finish();
        }
    }
}

/// When each step started, for durations.
type StepStarts = BTreeMap<NodeId, u64>;

fn step_starts(run: &Run, journal: &[Entry]) -> StepStarts {
    let mut started = StepStarts::new();
    for entry in journal {
        if let Some((node, _)) = step_change(run, entry) {
            started.entry(node).or_insert(entry.at_ms);
        }
    }
    started
}

/// One line per change.
#[derive(Default)]
pub(super) struct LineDisplay {
    /// Whether to print arguments and values, too.
    verbose: bool,
    started: Mutex<StepStarts>,
}

/// The arguments or the result of a step, for `--verbose`.
fn details(run: &Run, entry: &Entry) -> Option<String> {
    match &entry.fact {
        Fact::Called { node, candidate, args } => {
            let written = run.args_template(*node, *candidate).to_json();
            Some(format!(
                "  written {}\n  given {}",
                escape_control(&written),
                escape_control(&args.to_json())
            ))
        }
        Fact::Succeeded { output, .. } => {
            Some(format!("  returned {}", escape_control(&output.to_json())))
        }
        _ => None,
    }
}

/// The phase that a run enters, for `--verbose`.
fn phase(run: &Run, entry: &Entry) -> Option<String> {
    match &entry.fact {
        Fact::Started(started) => Some(format!(
            "executes: run {}, request {}, plan {}",
            started.run_id, started.request_id, started.plan_id
        )),
        Fact::Stopped { failure, .. } => {
            Some(format!("handles an error: {}", escape_control(&failure.message)))
        }
        Fact::RollbackStarted { .. } => Some("rolls back what was done".to_owned()),
        Fact::AttemptRollbackStarted { node, .. } => {
            Some(format!("rolls back the failed attempt of {}", run.path(*node)))
        }
        Fact::Finished { status, .. } => {
            Some(format!("aggregates results of request {}: {}", run.request_id(), status.as_str()))
        }
        _ => None,
    }
}

impl Observer for LineDisplay {
    fn observe(&self, run: &Run, entries: &[Entry]) {
        let mut started = self.started.lock();
        for entry in entries {
            if let (true, Some(phase)) = (self.verbose, phase(run, entry)) {
                print_status(&phase);
            }
            let Some((node, change)) = step_change(run, entry) else { continue };
            let is_known = started.contains_key(&node);
            let since = *started.entry(node).or_insert(entry.at_ms);
            let took = format_duration(entry.at_ms.saturating_sub(since));
            let path = run.path(node);
            print_status(&match change {
                StepChange::Opened(_) if is_known => continue,
                StepChange::Started(what)
                | StepChange::Opened(what)
                | StepChange::Retrying(what) => {
                    format!("[{path}] {what}")
                }
                StepChange::Done => format!("[{path}] done in {took}"),
                StepChange::Failed(message) => format!("[{path}] failed after {took}: {message}"),
                StepChange::Skipped(reason) => format!("[{path}] skipped: {reason}"),
                StepChange::Cancelled => format!("[{path}] cancelled after {took}"),
                StepChange::InDoubt(why) => format!("[{path}] in doubt after {took}: {why}"),
                StepChange::RolledBack => format!("[{path}] rolled back"),
            });
            if let (true, Some(details)) = (self.verbose, details(run, entry)) {
                print_status(&details);
            }
        }
    }

    fn resumed(&self, run: &Run, journal: &[Entry]) {
        *self.started.lock() = step_starts(run, journal);
    }

    fn progressed(&self, run: &Run, call: CallId, progress: &tools::Progress) {
        if self.verbose {
            print_status(&format!(
                "[{}] {}",
                run.path(call.node),
                escape_control(&progress.to_string())
            ));
        }
    }
}

/// One JSON document per change.
#[derive(Default)]
pub(super) struct EventDisplay {
    /// The number of the last entry.
    last: AtomicU64,
}

impl Observer for EventDisplay {
    fn observe(&self, run: &Run, entries: &[Entry]) {
        for entry in entries {
            self.last.store(entry.seq, Ordering::Relaxed);
            let Some(event) = step_events::step_event(run, entry) else { continue };
            print_data(event.json_line());
        }
    }

    fn progressed(&self, run: &Run, call: CallId, progress: &tools::Progress) {
        let last = self.last.load(Ordering::Relaxed);
        print_data(step_events::progress_event(run, call.node, last, progress).json_line());
    }
}

/// A live tree: one line per step that has started.
pub(super) struct TreeDisplay {
    bars: MultiProgress,
    colour: bool,
    small: bool,
    lines: Mutex<BTreeMap<NodeId, TreeLine>>,
    /// When steps started that ran before this process took the run over.
    started: Mutex<StepStarts>,
}

struct TreeLine {
    path: Arc<str>,
    bar: ProgressBar,
    /// The last line below this one that belongs to it.
    last_inside: Option<ProgressBar>,
    began_ms: u64,
    tool: String,
    retries: u32,
}

impl TreeDisplay {
    fn new(steps: usize) -> TreeDisplay {
        let colour = TerminalStyle::of_stderr().colour;
        let small = steps <= LINES_MAX;
        TreeDisplay {
            bars: MultiProgress::new(),
            colour,
            small,
            lines: Mutex::default(),
            started: Mutex::default(),
        }
    }

    /// Adds a line: below the enclosing step, or at the end.
    fn begin(
        &self,
        lines: &mut BTreeMap<NodeId, TreeLine>,
        path: &Arc<str>,
        depth: usize,
        at_ms: u64,
    ) -> TreeLine {
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
        TreeLine { path, bar, last_inside: None, began_ms: at_ms, tool: String::new(), retries: 0 }
    }

    fn end(line: &TreeLine, depth: usize, mark: &str, words: &str, keep: bool) {
        if !keep {
            return line.bar.finish_and_clear();
        }
        let indent = "  ".repeat(depth);
        let style = ProgressStyle::with_template(&format!("{indent}{mark} {{prefix}}  {{msg}}"));
        line.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        line.bar.finish_with_message(words.to_owned());
    }

    /// A sign, in colour if colours are on.
    fn mark(&self, colour: &str, sign: &str) -> String {
        if self.colour { format!("\u{1b}[{colour}m{sign}\u{1b}[0m") } else { sign.to_owned() }
    }

    fn finish(&self) {
        let lines = self.lines.lock();
        lines.values().filter(|line| !line.bar.is_finished()).for_each(|line| line.bar.abandon());
    }
}

impl Observer for TreeDisplay {
    fn observe(&self, run: &Run, entries: &[Entry]) {
        let mut lines = self.lines.lock();
        for entry in entries {
            let Some((node, change)) = step_change(run, entry) else { continue };
            let path = run.path(node);
            let depth = path.matches('/').count();
            if !lines.contains_key(&node) {
                let started = self.started.lock();
                let began_ms = started.get(&node).copied().unwrap_or(entry.at_ms);
                let line = self.begin(&mut lines, &path, depth, began_ms);
                lines.insert(node, line);
            }
            let Some(line) = lines.get_mut(&node) else { continue };
            let took = format_duration(entry.at_ms.saturating_sub(line.began_ms));
            let retries = match line.retries {
                0 => String::new(),
                1 => " · 1 retry".to_owned(),
                n => format!(" · {n} retries"),
            };
            match change {
                StepChange::Started(what) | StepChange::Opened(what) => {
                    line.bar.set_message(what.clone());
                    line.tool = what;
                }
                StepChange::Retrying(what) => {
                    line.retries += 1;
                    line.bar.set_message(what);
                }
                StepChange::Done => {
                    let words = format!("{} {took}{retries}", line.tool);
                    TreeDisplay::end(line, depth, &self.mark("32", "✓"), &words, self.small);
                }
                StepChange::Failed(message) => {
                    let words = format!("{} {took}{retries} · {message}", line.tool);
                    TreeDisplay::end(line, depth, &self.mark("31", "✗"), &words, true);
                }
                StepChange::Skipped(reason) => {
                    TreeDisplay::end(line, depth, "–", &reason, self.small);
                }
                StepChange::RolledBack => TreeDisplay::end(line, depth, "↩", "rolled back", true),
                StepChange::Cancelled => {
                    TreeDisplay::end(line, depth, "–", &format!("{} cancelled", line.tool), true);
                }
                StepChange::InDoubt(why) => {
                    let words = format!("{} {took}{retries} · in doubt: {why}", line.tool);
                    TreeDisplay::end(line, depth, &self.mark("33", "?"), &words, true);
                }
            }
        }
    }

    fn resumed(&self, run: &Run, journal: &[Entry]) {
        *self.started.lock() = step_starts(run, journal);
    }

    fn progressed(&self, _run: &Run, call: CallId, progress: &tools::Progress) {
        let lines = self.lines.lock();
        if let Some(line) = lines.get(&call.node) {
            line.bar.set_message(format!(
                "{} {}",
                line.tool,
                escape_control(&progress.to_string())
            ));
        }
    }
}
