//! The texts that are edited, and variations of how they are written.

use std::path::{Path, PathBuf};

use segue_core::compile::read_header;
use segue_core::composition::Dialect;
use segue_core::document::{ReadLimits, read};
use segue_core::limits::Limits;
use segue_core::source::{Notation, Source};

use crate::random::Random;

#[derive(Clone)]
pub(crate) struct Text {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Text {
    pub(crate) fn source(&self) -> Source {
        Source::new(self.name.as_str(), self.text.as_str())
    }

    pub(crate) fn is_crlf(&self) -> bool {
        self.text.contains("\r\n")
    }

    /// The same composition as JSON, with other line endings or with more comments.
    pub(crate) fn varied(&self, random: &mut Random) -> Text {
        let mut text = self.clone();
        text.text = text.text.replace('\r', "");
        let is_yaml = self.source().notation() == Notation::Yaml;
        match random.below(8) {
            0 if is_yaml => text.text = text.text.replace('\n', "\r\n"),
            1 | 2 if is_yaml => text.text = with_comments(&text.text, random),
            3 if is_yaml => text.text = text.text.trim_end().to_owned(),
            4 => text = text.as_json(false),
            5 => text = text.as_json(true),
            6 if is_yaml => {
                text.text = with_comments(&text.text, random).replace('\n', "\r\n");
            }
            _ => {}
        }
        text
    }

    fn as_json(&self, pretty: bool) -> Text {
        let limits = Limits::default();
        let node = read(&self.source(), ReadLimits::for_documents(&limits)).unwrap();
        let json = node.to_value().to_json();
        let text = if pretty { spread(&json) } else { json };
        Text { name: format!("{}.json", self.name), text }
    }
}

/// JSON over lines, in its own order.
fn spread(json: &str) -> String {
    let (mut out, mut depth, mut in_text, mut escaped) = (String::new(), 0_usize, false, false);
    let mut previous = ' ';
    for c in json.chars() {
        let opens = matches!(previous, '{' | '[') && !in_text;
        if opens && !matches!(c, '}' | ']') {
            out.push('\n');
            out.push_str(&"  ".repeat(depth));
        }
        if !in_text && matches!(c, '}' | ']') {
            depth -= 1;
            if !opens {
                out.push('\n');
                out.push_str(&"  ".repeat(depth));
            }
        }
        out.push(c);
        match c {
            _ if escaped => escaped = false,
            '\\' if in_text => escaped = true,
            '"' => in_text = !in_text,
            '{' | '[' if !in_text => depth += 1,
            ',' if !in_text => {
                out.push('\n');
                out.push_str(&"  ".repeat(depth));
            }
            ':' if !in_text => out.push(' '),
            _ => {}
        }
        previous = if in_text { 'x' } else { c };
    }
    out.push('\n');
    out
}

/// Comments on lines before items of lists that begin with `id`.
fn with_comments(text: &str, random: &mut Random) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let indent = &line[..line.len() - line.trim_start().len()];
        if line.trim_start().starts_with("- id:") && random.one_in(2) {
            if random.one_in(3) {
                out.push('\n');
            }
            let number = random.below(1_000);
            out.push_str(&format!("{indent}# remark {number}: {{ not [ a value\n"));
        }
        out.push_str(line);
    }
    out
}

fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [
        "tests/corpus/check/correct",
        "tests/corpus/run",
        "tests/corpus/edit",
        "../../examples",
        "../../templates",
    ];
    let mut files = Vec::new();
    for folder in folders {
        below(&root.join(folder), &mut files);
    }
    files.sort();
    files
}

fn below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            below(&path, files);
        } else if path.extension().is_some_and(|end| end == "yaml" || end == "json") {
            files.push(path);
        }
    }
}

fn texts(wanted: impl Fn(Dialect) -> bool) -> Vec<Text> {
    let mut texts = Vec::new();
    for file in files() {
        let name =
            file.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(&file).display().to_string();
        let text = Text { name, text: std::fs::read_to_string(&file).unwrap() };
        let header = read_header(&text.source(), &Limits::default());
        if header.is_some_and(|header| !header.body.steps.is_empty() && wanted(header.dialect)) {
            texts.push(text);
        }
    }
    texts
}

/// Compositions and chains.
pub(crate) fn all() -> Vec<Text> {
    let texts = texts(|dialect| matches!(dialect, Dialect::Composition | Dialect::Chain));
    assert!(texts.len() > 200, "only {} texts", texts.len());
    texts
}

pub(crate) fn of_other_dialects() -> Vec<Text> {
    texts(|dialect| !matches!(dialect, Dialect::Composition | Dialect::Chain))
}
