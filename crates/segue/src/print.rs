//! Output for a terminal: data, status lines, errors, and findings with their source lines.

use std::borrow::Cow;
use std::io::IsTerminal as _;
use std::path::Path;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Patch, Renderer, Snippet};
use imara_diff::{Algorithm, BasicLineDiffPrinter, Diff, InternedInput, UnifiedDiffConfig};
use indicatif::{MultiProgress, ProgressDrawTarget};
use parking_lot::Mutex;
use segue_core::diagnostic::{Diagnostic, Severity};
use segue_core::source::{Source, Span};

use crate::observe::log;

/// What a terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalStyle {
    /// Whether it shows colours.
    pub colour: bool,
    /// Whether it shows characters beyond ASCII.
    pub unicode: bool,
}

impl TerminalStyle {
    /// The style of standard error: colours on a terminal, unless `NO_COLOR` is set.
    pub fn of_stderr() -> TerminalStyle {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let terminal = std::io::stderr().is_terminal();
        let colour = set("CLICOLOR_FORCE") || (terminal && !dumb);
        TerminalStyle { colour: colour && !set("NO_COLOR"), unicode: terminal && !dumb }
    }
}

/// Renders a finding as rustc does, with its source lines.
pub fn render(finding: &Diagnostic, source: &Source, style: TerminalStyle) -> String {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Hint => Level::NOTE.with_name("hint"),
    };
    let text = source.text();
    let window = SourceWindow::around(text, finding);
    if window.end - window.start > WINDOW_BYTES_MAX {
        return render_without_source(finding, source);
    }
    let mut snippet = Snippet::source(&text[window.start..window.end])
        .path(source.name().to_string())
        .line_start(window.first_line)
        .annotation(AnnotationKind::Primary.span(window.range(text, finding.span)));
    for (span, label) in &finding.related {
        if window.holds(*span) {
            let range = window.range(text, *span);
            snippet = snippet.annotation(AnnotationKind::Context.span(range).label(label.as_str()));
        }
    }
    let title = level.primary_title(escape_control(&finding.message)).id(finding.code.as_str());
    let mut report: Vec<Group<'_>> = vec![title.element(snippet)];
    if let Some(help) = &finding.help {
        let title = Level::HELP.secondary_title(escape_control(help));
        report.push(match &finding.fix {
            Some(fix) if window.holds(fix.span) => {
                let patch = Patch::new(window.range(text, fix.span), fix.replacement.as_str());
                title.element(
                    Snippet::source(&text[window.start..window.end])
                        .path(source.name().to_string())
                        .line_start(window.first_line)
                        .patch(patch),
                )
            }
            _ => Group::with_title(title),
        });
    }
    let renderer = if style.colour { Renderer::styled() } else { Renderer::plain() };
    let decor = if style.unicode { DecorStyle::Unicode } else { DecorStyle::Ascii };
    renderer.decor_style(decor).render(&report)
}

/// Longer excerpts are not drawn: they would be unreadable and slow.
const WINDOW_BYTES_MAX: usize = 64 * 1024;

/// A finding without its source lines.
fn render_without_source(finding: &Diagnostic, source: &Source) -> String {
    let view = finding.view(source);
    let severity = format!("{:?}", finding.severity).to_lowercase();
    let (code, message) = (finding.code, escape_control(&finding.message));
    let help = finding
        .help
        .as_deref()
        .map_or_else(String::new, |h| format!("\nhelp: {}", escape_control(h)));
    format!("{severity}[{code}]: {message}\n --> {}:{}:{}{help}", view.file, view.line, view.column)
}

/// Escapes characters of a foreign text that could control a terminal, change the direction of text or
/// stay invisible, as `\u{202e}`. Line breaks stay.
pub fn escape_control(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hidden(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown.into()
}

/// A path for display: escaped, and on one line.
pub fn display_path(path: &Path) -> String {
    escape_control(&path.display().to_string()).replace('\n', "\\n")
}

/// Whether a character is invisible or controls its surroundings.
fn is_hidden(c: char) -> bool {
    let is_format = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180e}'
        // Zero width, directions, lines and paragraphs.
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
        // Tags, and variants that no font has.
        | '\u{e0000}'..='\u{e0fff}');
    is_format || (c.is_control() && c != '\n')
}

/// The excerpt around a finding. Rendering processes every line it gets, so a large file is cut.
struct SourceWindow {
    start: usize,
    end: usize,
    first_line: usize,
}

impl SourceWindow {
    const LINES_AROUND: usize = 60;

    fn around(text: &str, finding: &Diagnostic) -> SourceWindow {
        let at = (finding.span.start as usize).min(text.len());
        let mut start = at;
        for _ in 0..SourceWindow::LINES_AROUND {
            match text.get(..start.saturating_sub(1)).and_then(|before| before.rfind('\n')) {
                Some(newline) => start = newline + 1,
                None => {
                    start = 0;
                    break;
                }
            }
        }
        let mut end = (finding.span.end as usize).clamp(at, text.len());
        for _ in 0..SourceWindow::LINES_AROUND {
            match text.get(end..).and_then(|after| after.find('\n')) {
                Some(newline) => end += newline + 1,
                None => {
                    end = text.len();
                    break;
                }
            }
        }
        let first_line = text[..start].bytes().filter(|byte| *byte == b'\n').count() + 1;
        SourceWindow { start, end, first_line }
    }

    fn holds(&self, span: Span) -> bool {
        span.start as usize >= self.start && span.end as usize <= self.end
    }

    fn range(&self, text: &str, span: Span) -> std::ops::Range<usize> {
        let clamp = |offset: u32| {
            let mut offset = (offset as usize).clamp(self.start, self.end);
            while !text.is_char_boundary(offset) {
                offset -= 1;
            }
            offset - self.start
        };
        clamp(span.start)..clamp(span.end)
    }
}

/// Writes data to standard output. A closed pipe is ignored; any other failure ends the process, because
/// data that was not written is not a success.
pub fn print_data(text: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(out, "{text}{newline}").and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        print_error(&format!("cannot write to standard output: {error}"), None);
        std::process::exit(1);
    }
}

/// A live display on standard error. It is cleared while other text is written, which would otherwise
/// leave stale lines of it.
struct LiveDisplay {
    lines: MultiProgress,
    /// Restored at the end.
    #[cfg(unix)]
    terminal: Option<rustix::termios::Termios>,
}

static LIVE_DISPLAY: Mutex<Option<LiveDisplay>> = Mutex::new(None);

/// Starts the live display on standard error.
pub(crate) fn start_live_display(lines: MultiProgress) {
    *LIVE_DISPLAY.lock() = Some(LiveDisplay {
        lines,
        #[cfg(unix)]
        terminal: without_control_echo(),
    });
}

/// Ends the live display. Its lines stay on the screen.
pub(crate) fn end_live_display() {
    let display = LIVE_DISPLAY.lock().take();
    #[cfg(unix)]
    if let Some(terminal) = display.and_then(|display| display.terminal) {
        use rustix::termios::{OptionalActions, tcsetattr};
        let _ = tcsetattr(std::io::stderr(), OptionalActions::Now, &terminal);
    }
    #[cfg(not(unix))]
    drop(display);
}

/// Clears the live display before the process ends.
pub(crate) fn clear_live_display() {
    if let Some(LiveDisplay { lines, .. }) = &*LIVE_DISPLAY.lock() {
        let _ = lines.clear();
        lines.set_draw_target(ProgressDrawTarget::hidden());
    }
    end_live_display();
}

/// Stops the terminal from showing `^C`, which would move the cursor below the live display. Returns the
/// settings before.
#[cfg(unix)]
fn without_control_echo() -> Option<rustix::termios::Termios> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let before = tcgetattr(std::io::stderr()).ok()?;
    let mut changed = before.clone();
    changed.local_modes.remove(LocalModes::ECHOCTL);
    tcsetattr(std::io::stderr(), OptionalActions::Now, &changed).ok()?;
    Some(before)
}

/// Writes a status line to standard error.
pub fn print_status(text: &str) {
    use std::io::Write as _;
    if log::is_json() {
        log::write_json_line("INFO", text, None);
        return;
    }
    let write = || {
        let _ = writeln!(anstream::stderr().lock(), "{text}");
    };
    let display = LIVE_DISPLAY.lock().as_ref().map(|display| display.lines.clone());
    match display {
        Some(display) => display.suspend(write),
        None => write(),
    }
}

/// Writes a note about something that a person may want to change to standard error.
pub fn print_note(text: &str) {
    if log::is_json() {
        return log::write_json_line("WARN", text, None);
    }
    print_status(&format!("note: {text}"));
}

/// Writes a warning to standard error.
pub fn print_warning(message: &str, help: &str) {
    if log::is_json() {
        return log::write_json_line("WARN", message, Some(help));
    }
    let bold = anstyle::Style::new().bold();
    let yellow = bold.fg_color(Some(anstyle::AnsiColor::Yellow.into()));
    print_status(&format!("{yellow}warning{yellow:#}{bold}: {}{bold:#}", escape_control(message)));
    print_status(&format!("{bold}help{bold:#}: {}", escape_control(help)));
}

/// Writes an error to standard error.
pub fn print_error(message: &str, help: Option<&str>) {
    if log::is_json() {
        log::write_json_line("ERROR", message, help);
        return;
    }
    let bold = anstyle::Style::new().bold();
    let red = bold.fg_color(Some(anstyle::AnsiColor::Red.into()));
    print_status(&format!("{red}error{red:#}{bold}: {}{bold:#}", escape_control(message)));
    if let Some(help) = help {
        print_status(&format!("{bold}help{bold:#}: {}", escape_control(help)));
    }
}

/// Writes findings with their source lines to standard error.
pub fn print_diagnostics(diagnostics: &[Diagnostic], source: &Source) {
    for finding in diagnostics {
        print_finding(finding, source);
        if !log::is_json() {
            print_status("");
        }
    }
}

/// Writes one finding to standard error, with its source lines where people read.
pub fn print_finding(finding: &Diagnostic, source: &Source) {
    if !log::is_json() {
        return print_status(&render(finding, source, TerminalStyle::of_stderr()));
    }
    let level = match finding.severity {
        Severity::Error => "ERROR",
        Severity::Warning => "WARN",
        Severity::Hint => "INFO",
    };
    let view = finding.view(source);
    let message = format!("{}:{}:{}: {}", view.file, view.line, view.column, finding.message);
    log::write_json_line(level, &message, finding.help.as_deref());
}

/// Two texts as a unified diff without file names, with `context` unchanged lines around each change.
pub fn unified_diff(before: &str, after: &str, context: u32) -> String {
    let input = InternedInput::new(before, after);
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let mut config = UnifiedDiffConfig::default();
    config.context_len(context);
    diff.unified_diff(&BasicLineDiffPrinter(&input.interner), config, &input).to_string()
}
