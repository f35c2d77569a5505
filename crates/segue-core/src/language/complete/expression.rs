//! Names, members, filters and tests inside an expression.

use std::sync::Arc;

use super::insert::text_scalar;
use super::{Completion, Request, fits};
use crate::expr::ExprRoot;
use crate::expr::words::{FILTERS, FUNCTIONS, TESTS, Word, named_arguments};
use crate::language::lexer::{Lexeme, Token, tokens};
use crate::language::scope::{NameScope, members};
use crate::language::{CompletionKind, TextEdit};
use crate::source::Span;
use crate::types::Type;

/// How many lambdas around a position are followed.
const LAMBDAS_MAX: usize = 8;

/// A position in an expression: the word there, and what stands before it.
pub(in crate::language) struct Cursor<'a> {
    /// The expression.
    text: &'a str,
    /// Its tokens before the word at the position.
    before: Vec<Token>,
    /// The word at the position, or the empty place there.
    word: (usize, usize),
    /// What of the word stands before the position.
    typed: &'a str,
    /// Whether the position is inside a string.
    is_in_text: bool,
    /// Offset of the expression in the source.
    base: usize,
    /// The quote of the scalar around the expression.
    quote: Option<char>,
}

/// The proposals in the expression between two offsets.
pub(super) fn complete(
    request: &Request<'_, '_>,
    mut scope: NameScope<'_>,
    start: usize,
    end: usize,
) -> Vec<Completion> {
    let text = &request.analysis.source.text()[start..end];
    if text.len() > request.analysis.limits.expression_bytes_max {
        return Vec::new();
    }
    let cursor = Cursor::at(text, request.at - start, start, request.scalar.quote);
    cursor.bind_lambdas(&mut scope);
    let found = if cursor.is_in_text { cursor.in_text(&scope) } else { cursor.proposals(&scope) };
    found.into_iter().filter(|it| fits(cursor.typed, &it.label)).collect()
}

impl<'a> Cursor<'a> {
    /// The position `at` in an expression that begins at `base` in the source.
    pub(in crate::language) fn at(
        text: &'a str,
        at: usize,
        base: usize,
        quote: Option<char>,
    ) -> Cursor<'a> {
        let all = tokens(text);
        // The inside of a string such as `['…']`; an open one goes on to the end of the text.
        let in_text = all.iter().filter(|token| token.kind == Lexeme::Text).find_map(|token| {
            let written = &text[token.start..token.end];
            let open = 1 + usize::from(written.starts_with('\\'));
            let is_closed = written.len() >= 2 * open && written.ends_with(&written[..open]);
            let inner = (token.start + open, token.end - if is_closed { open } else { 0 });
            (inner.0 <= at && at <= inner.1).then_some(inner)
        });
        let mut touching = all.iter().filter(|token| token.start <= at && at <= token.end);
        let is_word = |token: &&Token| matches!(token.kind, Lexeme::Word | Lexeme::Number);
        let word = in_text.unwrap_or_else(|| {
            touching.rfind(is_word).map_or((at, at), |token| (token.start, token.end))
        });
        let is_in_text = in_text.is_some();
        let before: Vec<Token> = all.iter().filter(|it| it.end <= word.0).copied().collect();
        let typed = text.get(word.0..at).unwrap_or_default();
        Cursor { text, before, word, typed, is_in_text, base, quote }
    }

    /// The word at the position, if there is one outside of strings.
    pub(in crate::language) fn word(&self) -> Option<(usize, usize)> {
        (!self.is_in_text && self.word.0 < self.word.1).then_some(self.word)
    }

    /// The token before the word.
    pub(in crate::language) fn word_before(&self) -> Option<&str> {
        self.before.last().map(|token| self.slice(token))
    }

    /// The path that ends with the word.
    pub(in crate::language) fn path_to_word(&self) -> &str {
        let is_member = self.word_before() == Some(".");
        let dot = self.before.len().saturating_sub(1);
        let start = if is_member { self.path_start(dot) } else { self.word.0 };
        &self.text[start..self.word.1]
    }

    fn slice(&self, token: &Token) -> &str {
        &self.text[token.start..token.end]
    }

    fn proposals(&self, scope: &NameScope<'_>) -> Vec<Completion> {
        let Some(last) = self.before.last() else { return self.names(scope) };
        let word = self.slice(last);
        let is_negated = || {
            let [.., first, second] = self.before.as_slice() else { return false };
            self.slice(first) == "is" && self.slice(second) == "not"
        };
        match (last.kind, word) {
            (Lexeme::Sign, ".") => self.members(scope),
            (Lexeme::Sign, "|") => self.words(FILTERS, CompletionKind::Filter),
            (Lexeme::Word, "is") => self.words(TESTS, CompletionKind::Test),
            (Lexeme::Word, "not") if is_negated() => self.words(TESTS, CompletionKind::Test),
            (Lexeme::Word, "and" | "or" | "not" | "in" | "if" | "else") => self.names(scope),
            (Lexeme::Sign, ")" | "]" | "}") | (Lexeme::Word | Lexeme::Number | Lexeme::Text, _) => {
                ["and", "or", "not in", "in", "is", "if", "else"]
                    .map(|word| self.item(word, word, CompletionKind::Keyword))
                    .into()
            }
            (Lexeme::Sign, _) => {
                let mut found = self.arguments();
                found.extend(self.names(scope));
                found
            }
        }
    }

    /// Inside quotes: the members of `path['…']`, or the attributes of items.
    fn in_text(&self, scope: &NameScope<'_>) -> Vec<Completion> {
        let names = match self.before.last().map(|token| self.slice(token)) {
            Some("[") => {
                let base = self.path_before(self.before.len() - 1);
                Self::names_below(base, scope)
            }
            Some("(" | "=") => self.attributes(scope),
            _ => Vec::new(),
        };
        let member = |(name, ty): (Arc<str>, Type)| {
            let kind = CompletionKind::Member;
            Completion { detail: Some(ty.to_string()), ..self.item(&name, &name, kind) }
        };
        names.into_iter().map(member).collect()
    }

    /// The members of the items that a filter with an attribute gets.
    fn attributes(&self, scope: &NameScope<'_>) -> Vec<(Arc<str>, Type)> {
        let Some(open) = self.open_bracket(self.before.len()) else { return Vec::new() };
        let Some(input) = self.filter_input(open) else { return Vec::new() };
        let takes = [
            "map",
            "sort",
            "sum",
            "groupby",
            "unique",
            "min",
            "max",
            "selectattr",
            "rejectattr",
            "join",
        ];
        let filter = open.checked_sub(1).map(|at| self.slice(&self.before[at]));
        if !filter.is_some_and(|filter| takes.contains(&filter)) {
            return Vec::new();
        }
        let item = scope.type_of_text(input).item().unwrap_or(Type::Any);
        members(&item).into_iter().collect()
    }

    fn item(&self, label: &str, text: &str, kind: CompletionKind) -> Completion {
        self.item_from(self.word.0, label, text, kind)
    }

    fn item_from(&self, from: usize, label: &str, text: &str, kind: CompletionKind) -> Completion {
        let text = match self.quote {
            Some(quote) => text_scalar(text, Some(quote), crate::source::Notation::Yaml),
            None => text.to_owned(),
        };
        Completion {
            label: label.to_owned(),
            kind,
            detail: None,
            documentation: None,
            edit: TextEdit::replace(Span::new(self.base + from, self.base + self.word.1), text),
            required: false,
        }
    }

    fn words(&self, words: &[Word], kind: CompletionKind) -> Vec<Completion> {
        let item = |word: &Word| Completion {
            detail: Some(word.form.to_owned()),
            documentation: Some(word.about.into()),
            ..self.item(word.name, word.name, kind)
        };
        words.iter().map(item).collect()
    }

    /// Arguments of a filter that are passed by name.
    fn arguments(&self) -> Vec<Completion> {
        let Some(open) = self.open_bracket(self.before.len()) else { return Vec::new() };
        let [.., pipe, filter] = &self.before[..open] else { return Vec::new() };
        if self.slice(pipe) != "|" {
            return Vec::new();
        }
        let names = named_arguments(self.slice(filter)).iter();
        names.map(|name| self.item(name, &format!("{name}="), CompletionKind::Keyword)).collect()
    }

    fn names(&self, scope: &NameScope<'_>) -> Vec<Completion> {
        let is_alone = self.is_alone();
        let mut found = Vec::new();
        for known in scope.names() {
            let (label, text) = match &known.root {
                ExprRoot::InputField(name) if !scope.is_program() => {
                    let path = below("input", name, self.member_quote());
                    (path.clone(), path)
                }
                ExprRoot::Step(_) if !is_alone && !is_identifier(&known.name) => {
                    let quote = self.member_quote();
                    let text = format!("steps[{quote}{}{quote}].output", known.name);
                    (known.name.to_string(), text)
                }
                _ => (known.name.to_string(), known.name.to_string()),
            };
            let ty = scope.type_of_name(&known.root);
            found.push(Completion {
                detail: Some(ty.to_string()),
                documentation: known.about,
                ..self.item(&label, &text, CompletionKind::Name)
            });
        }
        if scope.is_program() {
            found.push(self.item("state", "state", CompletionKind::Name));
        }
        found.push(self.item("steps", "steps", CompletionKind::Name));
        found.extend(self.words(FUNCTIONS, CompletionKind::Function));
        let keywords = ["not", "true", "false", "none"];
        found.extend(keywords.map(|word| self.item(word, word, CompletionKind::Keyword)));
        found
    }

    /// Whether the word at the position is all that the expression has.
    fn is_alone(&self) -> bool {
        self.before.is_empty() && self.text[self.word.1..].trim().is_empty()
    }

    fn members(&self, scope: &NameScope<'_>) -> Vec<Completion> {
        let dot = self.before.len() - 1;
        let base = self.path_before(dot);
        let quote = self.member_quote();
        let member = |(name, ty): (Arc<str>, Type)| {
            let kind = CompletionKind::Member;
            let item = if is_member_name(&name, self.is_path()) {
                self.item(&name, &name, kind)
            } else {
                // Such a name replaces the dot too.
                let text = format!("[{quote}{name}{quote}]");
                self.item_from(self.before[dot].start, &name, &text, kind)
            };
            Completion { detail: Some(ty.to_string()), ..item }
        };
        Self::names_below(base, scope).into_iter().map(member).collect()
    }

    /// Whether the expression is only a path up to the position: then names may have dashes.
    fn is_path(&self) -> bool {
        let is_part = |token: &Token| match token.kind {
            Lexeme::Word | Lexeme::Number => true,
            Lexeme::Sign => matches!(self.slice(token), "." | "[" | "]"),
            Lexeme::Text => false,
        };
        self.before.iter().all(is_part) && self.text[self.word.1..].trim().is_empty()
    }

    fn names_below(base: &str, scope: &NameScope<'_>) -> Vec<(Arc<str>, Type)> {
        let known = |names: &[&str]| names.iter().map(|name| ((*name).into(), Type::Any)).collect();
        let id_of = |base: &str| base.strip_prefix("steps").is_some_and(is_one_segment);
        match base {
            "steps" => scope.steps().into_iter().map(|step| (step.id.clone(), Type::Any)).collect(),
            "context" => scope.context_keys().iter().map(|key| (key.clone(), Type::Any)).collect(),
            "state" if scope.is_program() => {
                let names = scope.names().into_iter();
                let names = names.filter(|known| {
                    matches!(known.root, ExprRoot::Given(..) | ExprRoot::InputField(_))
                });
                names.map(|known| (known.name, scope.type_of_name(&known.root))).collect()
            }
            base if id_of(base) => known(&["output", "status", "error"]),
            base => members(&scope.type_of_text(base)).into_iter().collect(),
        }
    }

    /// The quote for names inside the expression: not the one around it.
    fn member_quote(&self) -> char {
        if self.quote == Some('\'') { '"' } else { '\'' }
    }

    /// The path that ends before a token, such as `a.b[0]` or `(a | first)`.
    fn path_before(&self, end: usize) -> &str {
        let start = self.path_start(end);
        let end = end.checked_sub(1).map_or(start, |last| self.before[last].end);
        self.text.get(start..end).unwrap_or_default()
    }

    /// The offset at which that path begins.
    fn path_start(&self, end: usize) -> usize {
        let mut at = end;
        while let Some(last) = at.checked_sub(1) {
            let token = &self.before[last];
            match (token.kind, self.slice(token)) {
                (Lexeme::Word | Lexeme::Number | Lexeme::Text, _) => at = last,
                (Lexeme::Sign, ")" | "]") => match self.matching(last) {
                    Some(open) => at = open,
                    None => break,
                },
                _ => break,
            }
            // A name or a bracket directly before a bracket belongs to the path; so does a dot.
            let Some(before) = at.checked_sub(1).map(|before| &self.before[before]) else { break };
            let is_bracket = matches!(self.slice(&self.before[at]), "[" | "(");
            let is_dot = self.slice(before) == ".";
            let goes_on = match before.kind {
                Lexeme::Word => is_bracket,
                Lexeme::Sign => is_bracket && matches!(self.slice(before), ")" | "]"),
                _ => false,
            };
            if is_dot {
                at -= 1;
            } else if !goes_on {
                break;
            }
        }
        self.before.get(at).map_or(0, |token| token.start)
    }

    /// The bracket that a closing one belongs to.
    fn matching(&self, close: usize) -> Option<usize> {
        let mut depth = 0usize;
        for at in (0..=close).rev() {
            match self.slice(&self.before[at]) {
                ")" | "]" | "}" => depth += 1,
                "(" | "[" | "{" => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(at);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// The last bracket before a token that is still open there.
    fn open_bracket(&self, end: usize) -> Option<usize> {
        let mut depth = 0usize;
        for at in (0..end).rev() {
            match self.slice(&self.before[at]) {
                ")" | "]" | "}" => depth += 1,
                "(" | "[" | "{" if depth == 0 => return Some(at),
                "(" | "[" | "{" => depth -= 1,
                _ => {}
            }
        }
        None
    }

    /// The input of the filter whose `(` is at this token.
    fn filter_input(&self, open: usize) -> Option<&str> {
        let pipe = open.checked_sub(2)?;
        if self.slice(&self.before[pipe]) != "|" {
            return None;
        }
        // The input begins after the bracket or comma around it.
        let outer = self.open_bracket(pipe).map_or(0, |outer| outer + 1);
        let comma = (outer..pipe).rev().find(|at| {
            matches!(self.slice(&self.before[*at]), "," | ":" | "=")
                && self.open_bracket(*at) == outer.checked_sub(1)
        });
        let first = comma.map_or(outer, |comma| comma + 1);
        let start = self.before.get(first)?.start;
        self.text.get(start..self.before[pipe].start)
    }

    /// Gives the parameters of lambdas around the position their types.
    pub(in crate::language) fn bind_lambdas(&self, scope: &mut NameScope<'_>) {
        let heads = self.before.windows(3).enumerate().filter(|(_, window)| {
            self.slice(&window[0]) == "lambda"
                && window[1].kind == Lexeme::Word
                && self.slice(&window[2]) == ":"
        });
        for (at, window) in heads.take(LAMBDAS_MAX) {
            let Some(open) = self.open_bracket(at) else { continue };
            // A lambda whose bracket is closed again is over.
            if self.open_bracket(self.before.len()).is_none_or(|last| last < open) {
                continue;
            }
            let item = self.filter_input(open).map(|input| scope.type_of_text(input));
            let item = item.and_then(|ty| ty.item()).unwrap_or(Type::Any);
            scope.locals.push((self.slice(&window[1]).into(), item));
        }
    }
}

/// Whether `.NAME` or `['NAME']` is all that follows.
fn is_one_segment(rest: &str) -> bool {
    let is_id = |text: &str| text.chars().all(|c| c.is_alphanumeric() || "_-$".contains(c));
    let dotted = rest.strip_prefix('.').is_some_and(|id| !id.is_empty() && is_id(id));
    let inner = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    dotted || inner.is_some_and(|inner| is_id(inner.trim_matches(['\\', '\'', '"'])))
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_alphabetic() || first == '_')
        && chars.all(|c| c.is_alphanumeric() || c == '_')
}

/// Whether a name may follow a dot.
fn is_member_name(name: &str, in_path: bool) -> bool {
    let dashed = || name.chars().all(|c| c.is_alphanumeric() || "_-$".contains(c));
    is_identifier(name) || (in_path && !name.is_empty() && dashed())
}

/// A member of a named value, as a path.
fn below(base: &str, name: &str, quote: char) -> String {
    if is_identifier(name) {
        format!("{base}.{name}")
    } else {
        format!("{base}[{quote}{name}{quote}]")
    }
}
