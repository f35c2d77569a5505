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
use crate::print::{
    TerminalStyle, end_live_display, escape_control, print_data, print_status, start_live_display,
};
use crate::step_events::{self, StepChange, step_change};

/// The most steps that a tree keeps on the screen; a larger run shows only active and failed steps.
const LINES_MAX: usize = 30;

/// A loop with more items shows its count, the items under way and those that failed; of both at most
/// this many.
const ITEM_LINES_MAX: usize = 10;

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
    loops: Mutex<BTreeMap<NodeId, LoopCount>>,
    /// When steps started that ran before this process took the run over.
    started: Mutex<StepStarts>,
}

struct TreeLine {
    path: Arc<str>,
    bar: ProgressBar,
    began_ms: u64,
    tool: String,
    retries: u32,
    /// Whether it belongs to an item of a loop with many items.
    is_of_item: bool,
}

impl TreeLine {
    fn depth(&self) -> usize {
        self.path.matches('/').count()
    }
}

/// How far a loop is.
#[derive(Default)]
struct LoopCount {
    items: usize,
    done: usize,
    failed: usize,
}

impl LoopCount {
    fn text(&self) -> String {
        match self.failed {
            0 => format!("{}/{}", self.done, self.items),
            failed => format!("{}/{} · {failed} failed", self.done, self.items),
        }
    }
}

impl TreeDisplay {
    fn new(steps: usize) -> TreeDisplay {
        let colour = TerminalStyle::of_stderr().colour;
        let small = steps <= LINES_MAX;
        let bars = MultiProgress::new();
        start_live_display(bars.clone());
        TreeDisplay {
            bars,
            colour,
            small,
            lines: Mutex::default(),
            loops: Mutex::default(),
            started: Mutex::default(),
        }
    }

    /// Counts the items of loops: when a loop has its items, and when one of them has ended.
    fn count_items(&self, run: &Run, fact: &Fact, lines: &mut BTreeMap<NodeId, TreeLine>) {
        let mut loops = self.loops.lock();
        let node = match fact {
            Fact::Looped { node, items } => {
                loops.insert(*node, LoopCount { items: items.len(), ..LoopCount::default() });
                *node
            }
            Fact::Closed { frame, failed, .. } => {
                let Some(node) = run.parent_step((*frame, 0).into()) else { return };
                let Some(count) = loops.get_mut(&node) else { return };
                count.done += 1;
                count.failed += usize::from(*failed);
                node
            }
            _ => return,
        };
        if let (Some(line), Some(count)) = (lines.get_mut(&node), loops.get(&node)) {
            line.tool = count.text();
            line.bar.set_message(line.tool.clone());
        }
    }

    /// Whether a step belongs to an item of a loop with many items.
    fn is_of_many(&self, run: &Run, node: NodeId) -> bool {
        let loops = self.loops.lock();
        let mut outer = run.parent_step(node);
        while let Some(step) = outer {
            if loops.get(&step).is_some_and(|count| count.items > ITEM_LINES_MAX) {
                return true;
            }
            outer = run.parent_step(step);
        }
        false
    }

    /// Adds a line: below the enclosing step and the lines inside it, or at the end.
    fn begin(
        &self,
        lines: &BTreeMap<NodeId, TreeLine>,
        path: &Arc<str>,
        depth: usize,
        at_ms: u64,
    ) -> TreeLine {
        let (outer, name) = path.rsplit_once('/').unwrap_or(("", path));
        // `each[7]/say` stands below `each`, with its item.
        let (outer, name) = match outer.rsplit_once('[') {
            Some((outer, item)) if item.ends_with(']') => (outer, format!("[{item} {name}")),
            _ => (outer, name.to_owned()),
        };
        let is_inside = |line: &&TreeLine| {
            let rest = line.path.strip_prefix(outer);
            !outer.is_empty()
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '[']))
        };
        let bar = match lines.values().rfind(is_inside) {
            Some(above) => self.bars.insert_after(&above.bar, ProgressBar::new_spinner()),
            None => self.bars.add(ProgressBar::new_spinner()),
        };
        let indent = "  ".repeat(depth);
        let template = format!("{indent}{{spinner:.cyan}} {{prefix}}  {{msg}} {{elapsed:.dim}}");
        bar.set_style(
            ProgressStyle::with_template(&template)
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        bar.set_prefix(name);
        bar.enable_steady_tick(Duration::from_millis(80));
        let path = path.clone();
        TreeLine { path, bar, began_ms: at_ms, tool: String::new(), retries: 0, is_of_item: false }
    }

    fn end(line: &TreeLine, mark: &str, words: &str, keep: bool) {
        if !keep {
            return line.bar.finish_and_clear();
        }
        let indent = "  ".repeat(line.depth());
        let style = ProgressStyle::with_template(&format!("{indent}{mark} {{prefix}}  {{msg}}"));
        line.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        line.bar.finish_with_message(words.to_owned());
    }

    /// A sign, in colour if colours are on.
    fn mark(&self, colour: &str, sign: &str) -> String {
        if self.colour { format!("\u{1b}[{colour}m{sign}\u{1b}[0m") } else { sign.to_owned() }
    }

    /// Stops every spinner: a line that did not end shows what it last did.
    fn finish(&self) {
        let lines = self.lines.lock();
        for line in lines.values().filter(|line| !line.bar.is_finished()) {
            TreeDisplay::end(line, "·", &line.bar.message(), true);
        }
        end_live_display();
    }

    /// The line of a step; `None` if too many items of a loop are on the screen already.
    fn line_of<'a>(
        &self,
        run: &Run,
        (node, change): (NodeId, &StepChange),
        at_ms: u64,
        lines: &'a mut BTreeMap<NodeId, TreeLine>,
    ) -> Option<&'a mut TreeLine> {
        if !lines.contains_key(&node) {
            let is_of_item = self.is_of_many(run, node);
            let has_failed = matches!(change, StepChange::Failed(_) | StepChange::InDoubt(_));
            let shown = lines
                .values()
                .filter(|line| line.is_of_item && line.bar.is_finished() == has_failed);
            if is_of_item && shown.count() >= ITEM_LINES_MAX {
                return None;
            }
            let began_ms = self.started.lock().get(&node).copied().unwrap_or(at_ms);
            let path = run.path(node);
            let depth = path.matches('/').count();
            let line = self.begin(lines, &path, depth, began_ms);
            lines.insert(node, TreeLine { is_of_item, ..line });
        }
        lines.get_mut(&node)
    }

    /// Shows the change of a step. Returns whether its line stays on the screen.
    fn show_change(&self, line: &mut TreeLine, change: StepChange, at_ms: u64) -> bool {
        let took = format_duration(at_ms.saturating_sub(line.began_ms));
        let retries = match line.retries {
            0 => String::new(),
            1 => " · 1 retry".to_owned(),
            n => format!(" · {n} retries"),
        };
        let keeps_done = self.small && !line.is_of_item;
        let (mark, words, keep) = match change {
            StepChange::Started(what) | StepChange::Opened(what) => {
                line.bar.set_message(what.clone());
                line.tool = what;
                return true;
            }
            StepChange::Retrying(what) => {
                line.retries += 1;
                line.bar.set_message(what);
                return true;
            }
            StepChange::Done => {
                let words = format!("{} {took}{retries}", line.tool);
                (self.mark("32", "✓"), words, keeps_done)
            }
            StepChange::Failed(message) => {
                let words = format!("{} {took}{retries} · {message}", line.tool);
                (self.mark("31", "✗"), words, true)
            }
            StepChange::Skipped(reason) => ("–".to_owned(), reason, keeps_done),
            StepChange::RolledBack => ("↩".to_owned(), "rolled back".to_owned(), !line.is_of_item),
            StepChange::Cancelled => {
                ("–".to_owned(), format!("{} cancelled", line.tool), !line.is_of_item)
            }
            StepChange::InDoubt(why) => {
                let words = format!("{} {took}{retries} · in doubt: {why}", line.tool);
                (self.mark("33", "?"), words, true)
            }
        };
        TreeDisplay::end(line, &mark, &words, keep);
        keep
    }
}

impl Observer for TreeDisplay {
    fn observe(&self, run: &Run, entries: &[Entry]) {
        let mut lines = self.lines.lock();
        for entry in entries {
            let change = step_change(run, entry);
            if let Some((node, change)) = change {
                let at_ms = entry.at_ms;
                let line = self.line_of(run, (node, &change), at_ms, &mut lines);
                let is_kept = line
                    .is_none_or(|line| self.show_change(line, change, at_ms) || !line.is_of_item);
                if !is_kept {
                    // A loop of thousands keeps no line for finished items.
                    lines.remove(&node).into_iter().for_each(|line| self.bars.remove(&line.bar));
                }
            }
            self.count_items(run, &entry.fact, &mut lines);
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
