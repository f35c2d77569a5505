//! Findings and words for a terminal.

use std::borrow::Cow;
use std::io::IsTerminal as _;
use std::path::Path;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Patch, Renderer, Snippet};
use segue_core::diagnostic::{Diagnostic, Severity};
use segue_core::source::{Source, Span};

/// How to write to a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalStyle {
    /// With colours.
    pub colour: bool,
    /// With signs beyond ASCII.
    pub unicode: bool,
}

impl TerminalStyle {
    /// What standard error can show: colours on a terminal, unless `NO_COLOR` says no.
    pub fn of_stderr() -> TerminalStyle {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let terminal = std::io::stderr().is_terminal();
        let colour = set("CLICOLOR_FORCE") || (terminal && !dumb);
        TerminalStyle { colour: colour && !set("NO_COLOR"), unicode: terminal && !dumb }
    }
}

/// Draws a finding as rustc does, with the lines that it is about.
pub fn render(finding: &Diagnostic, source: &Source, look: TerminalStyle) -> String {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Hint => Level::NOTE.with_name("hint"),
    };
    let text = source.text();
    let window = SourceWindow::around(text, finding);
    if window.end - window.start > WINDOW_BYTES_MAX {
        return plainly(finding, source);
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
    let renderer = if look.colour { Renderer::styled() } else { Renderer::plain() };
    let decor = if look.unicode { DecorStyle::Unicode } else { DecorStyle::Ascii };
    renderer.decor_style(decor).render(&report)
}

/// A window of longer lines than this is not drawn: nobody could read it, and drawing takes time.
const WINDOW_BYTES_MAX: usize = 64 * 1024;

/// A finding without the lines that it is about.
fn plainly(finding: &Diagnostic, source: &Source) -> String {
    let view = finding.view(source);
    let severity = format!("{:?}", finding.severity).to_lowercase();
    let (code, message) = (finding.code, escape_control(&finding.message));
    let help = finding
        .help
        .as_deref()
        .map_or_else(String::new, |h| format!("\nhelp: {}", escape_control(h)));
    format!("{severity}[{code}]: {message}\n --> {}:{}:{}{help}", view.file, view.line, view.column)
}

/// A foreign text as people are shown it, wherever that is: what would command a terminal, turn around
/// what stands beside it or not be seen at all is written out, as `\u{202e}`. Lines stay lines.
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

/// The name of a file as people are shown it: on one line, like [`clean`] texts.
pub fn display_path(path: &Path) -> String {
    escape_control(&path.display().to_string()).replace('\n', "\\n")
}

/// Whether a character shows something else than itself, or nothing.
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

/// The lines that a finding is about. Rendering looks at every line it is given, so a finding in
/// a large file is shown a part of it.
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
