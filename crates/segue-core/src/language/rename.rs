//! Definition, references and renaming of names.
//!
//! A rename is refused unless the compiler reads the new text as it read the old one: every name
//! means what it meant, and there are no other findings.

use std::sync::Arc;

use super::edit::whole_input;
use super::symbols::{Occurrence, Symbol};
use super::{Analysis, EditError, TextEdit, apply};
use crate::composition::Dialect;
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::{Member, Node, NodeKind, plain_kind};
use crate::id::is_step_id;
use crate::source::{Notation, Span};

impl Analysis {
    /// Where the name at a position is declared.
    pub fn definition(&self, at: u32) -> Option<Span> {
        let symbol = &self.occurrence(at)?.symbol;
        let declares = |other: &&Occurrence| other.is_declaration && other.symbol == *symbol;
        self.occurrences().iter().find(declares).map(|other| other.span)
    }

    /// Every place that means the same as the name at a position, its declaration included, in the
    /// order of the text.
    pub fn references(&self, at: u32) -> Vec<Span> {
        let Some(Occurrence { symbol, .. }) = self.occurrence(at) else { return Vec::new() };
        let same = self.occurrences().iter().filter(|other| other.symbol == *symbol);
        same.filter(|other| other.is_exact).map(|other| other.span).collect()
    }

    /// The name that a rename at a position would replace; `None` if it cannot be renamed.
    pub fn rename_span(&self, at: u32) -> Option<Span> {
        self.renamable(at).ok().map(|occurrence| occurrence.span)
    }

    /// The edits that rename the step, output key, loop variable, property of the input or name of the state
    /// at a position.
    pub fn rename(&self, at: u32, to: &str) -> Result<Vec<TextEdit>, EditError> {
        let symbol = self.renamable(at)?.symbol.clone();
        if let Symbol::Input(name) = &symbol {
            self.refuse_hidden_uses(name)?;
        }
        if !is_step_id(to) {
            let message = format!("`{to}` cannot be a name");
            let help = "use letters, digits, `_`, `-` and `$`";
            return Err(EditError::new(Code::InvalidField, message).help(help));
        }
        let mut edits = Vec::new();
        for occurrence in self.occurrences().iter().filter(|other| other.symbol == symbol) {
            if !occurrence.is_exact {
                let line = self.source.position(occurrence.span.start).line;
                let message = format!("line {line} refers to it in a text with escapes");
                let help = "write the text without escapes, then rename";
                return Err(EditError::new(Code::Unsupported, message).help(help));
            }
            if self.source.slice(occurrence.span) != to {
                edits.push(TextEdit::replace(occurrence.span, self.written(occurrence, to)));
            }
        }
        self.keeps_its_meaning(&symbol, to, &edits)?;
        Ok(edits)
    }

    fn renamable(&self, at: u32) -> Result<&Occurrence, EditError> {
        let nothing = || EditError::new(Code::NotFound, "there is nothing to rename here");
        let occurrence = self.occurrence(at).ok_or_else(nothing)?;
        let dialect = self.composition.as_ref().map_or(Dialect::Composition, |it| it.dialect);
        if !matches!(dialect, Dialect::Composition | Dialect::Chain) {
            let message = format!("names of the `{}` dialect cannot be renamed", dialect.as_str());
            return Err(EditError::new(Code::Unsupported, message));
        }
        match &occurrence.symbol {
            Symbol::Tool(_) => Err(nothing()),
            Symbol::Input(_) if dialect != Dialect::Composition => {
                let message = "a parameter of a chain cannot be renamed";
                Err(EditError::new(Code::Unsupported, message))
            }
            Symbol::Input(_) | Symbol::Item(_) if self.definition(at).is_none() => Err(nothing()),
            _ => Ok(occurrence),
        }
    }

    /// Fails if something may read a property of the input without naming it, or names it where a rename
    /// does not reach.
    fn refuse_hidden_uses(&self, name: &Arc<str>) -> Result<(), EditError> {
        if let Some(span) = self.composition.as_deref().and_then(whole_input) {
            let line = self.source.position(span.start).line;
            let message = format!("line {line} reads the whole input, and perhaps its `{name}`");
            return Err(EditError::new(Code::Unsupported, message)
                .help("read its properties one by one there, then rename"));
        }
        let input = self.native_tree().and_then(|tree| tree.get("input"));
        if let Some(span) = input.and_then(|schema| other_mention(schema, name)) {
            let line = self.source.position(span.start).line;
            let message = format!("line {line} of the input's schema names `{name}`, too");
            return Err(EditError::new(Code::Unsupported, message).help("rename it there by hand"));
        }
        Ok(())
    }

    /// The name as it is written there: a plain scalar of YAML that would be a number needs quotes.
    fn written(&self, occurrence: &Occurrence, to: &str) -> String {
        let before = self.source.text()[..occurrence.span.start as usize].chars().next_back();
        let is_plain = occurrence.is_scalar
            && self.source.notation() == Notation::Yaml
            && !matches!(before, Some('"' | '\''));
        let is_text = matches!(plain_kind(to, Span::default()), NodeKind::String(_));
        if is_plain && (!is_text || to.starts_with('-')) {
            format!("\"{to}\"")
        } else {
            to.to_owned()
        }
    }

    fn keeps_its_meaning(
        &self,
        symbol: &Symbol,
        to: &str,
        edits: &[TextEdit],
    ) -> Result<(), EditError> {
        let renamed = self.source.with_text(apply(self.source.text(), edits));
        let after = Analysis::new(&renamed, &self.catalog, &self.limits);
        let is_error = |finding: &&Diagnostic| finding.severity == Severity::Error;
        let codes = |analysis: &Analysis| -> Vec<Code> {
            let mut codes: Vec<Code> =
                analysis.findings.iter().filter(is_error).map(|finding| finding.code).collect();
            codes.sort_unstable();
            codes
        };
        let (known, now) = (codes(self), codes(&after));
        if known != now {
            let is_new = |finding: &&Diagnostic| {
                let count = |codes: &[Code]| codes.iter().filter(|it| **it == finding.code).count();
                count(&now) > count(&known)
            };
            let new = after.findings.iter().filter(is_error).find(is_new);
            let message = new.map_or("the text would mean something else", |found| &found.message);
            let code = new.map_or(Code::Conflict, |found| found.code);
            let message = format!("it cannot be called `{to}`: {message}");
            let error = EditError::new(code, message);
            return Err(match new.and_then(|found| found.help.clone()) {
                Some(help) => error.help(help),
                None => error,
            });
        }
        let expected = |occurrence: &Occurrence| match (&occurrence.symbol, symbol) {
            (Symbol::Given(_), Symbol::Given(_)) if occurrence.symbol == *symbol => {
                Symbol::Given(to.into())
            }
            (Symbol::Input(_), Symbol::Input(_)) if occurrence.symbol == *symbol => {
                Symbol::Input(to.into())
            }
            (other, _) => other.clone(),
        };
        let meant = self.occurrences().iter().map(expected);
        if meant.eq(after.occurrences().iter().map(|occurrence| occurrence.symbol.clone())) {
            return Ok(());
        }
        let message = format!("`{to}` means something else in this text already");
        Err(EditError::new(Code::Conflict, message).help("choose another name"))
    }

    /// The occurrence at a position; of two that touch it, the one that begins there.
    pub(super) fn occurrence(&self, at: u32) -> Option<&Occurrence> {
        let found = self.occurrences();
        let touches =
            |other: &&Occurrence| other.is_exact && other.span.start <= at && at <= other.span.end;
        found.iter().filter(touches).max_by_key(|other| other.span.start)
    }
}

/// Keywords of a schema that only describe.
const DESCRIBING: &[&str] = &["title", "description", "$comment"];

/// A place in the schema of an object that names one of its properties, besides `properties` and `required`:
/// as a key or a string of another keyword, or in a reference.
fn other_mention(schema: &Node, name: &str) -> Option<Span> {
    let pointer = format!("/properties/{name}");
    let refers = |text: &str| {
        text.starts_with('#')
            && text
                .split_once(&*pointer)
                .is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with('/'))
    };
    schema.members().iter().find_map(|Member { key, value, .. }| match &**key {
        "properties" | "required" => mention(value, &|_| false, &refers),
        word if DESCRIBING.contains(&word) => None,
        _ => mention(value, &|key| key == name, &|text| text == name || refers(text)),
    })
}

/// The first key or string below a node that is meant.
fn mention(
    node: &Node,
    is_key: &dyn Fn(&str) -> bool,
    is_text: &dyn Fn(&str) -> bool,
) -> Option<Span> {
    if node.as_str().is_some_and(|text| is_text(text)) {
        return Some(node.span);
    }
    let member = |member: &Member| {
        let is_it = is_key(&member.key).then_some(member.key_span);
        is_it.or_else(|| mention(&member.value, is_key, is_text))
    };
    let item = |item: &Node| mention(item, is_key, is_text);
    node.members().iter().find_map(member).or_else(|| node.items().iter().find_map(item))
}
