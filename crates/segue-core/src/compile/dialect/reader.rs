//! Reads typed fields of a document and collects all findings.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::grammar::RecordGrammar;
use super::lower::truth_of;
use crate::composition::{Dialect, Flow};
use crate::diagnostic::{Code, Diagnostic, nearest_name};
use crate::document::{Node, NodeKind};
use crate::duration::{Millis, parse_duration};
use crate::expr::{self, Expr, ExprSpan, ParseError, StepIndex, Template};
use crate::limits::Limits;
use crate::source::{Source, Span};
use crate::value::{Number, Value};

/// Reads nodes of one source: returns valid values and collects findings about the others.
pub(crate) struct DialectReader<'a> {
    pub(crate) source: &'a Source,
    pub(crate) limits: &'a Limits,
    pub(crate) findings: Vec<Diagnostic>,
    pub(crate) dialect: Dialect,
    /// How the steps of this document follow each other.
    pub(crate) flow: Flow,
    /// Names that the author uses; generated step names must differ from them.
    pub(crate) taken: BTreeSet<Arc<str>>,
    next_index: StepIndex,
    /// How many bodies enclose the current node.
    depth: usize,
}

impl<'a> DialectReader<'a> {
    pub(crate) fn new(
        source: &'a Source,
        limits: &'a Limits,
        dialect: Dialect,
    ) -> DialectReader<'a> {
        let (findings, taken) = (Vec::new(), BTreeSet::new());
        let flow = if dialect == Dialect::Chain { Flow::Program } else { Flow::Graph };
        DialectReader { source, limits, findings, dialect, flow, taken, next_index: 0, depth: 0 }
    }

    /// The position of the next step in the text.
    pub(crate) fn take_index(&mut self) -> StepIndex {
        let index = self.next_index;
        self.next_index += 1;
        index
    }

    pub(crate) fn steps_read(&self) -> usize {
        self.next_index as usize
    }

    pub(crate) fn error(&mut self, code: Code, span: Span, message: impl Into<String>) {
        self.findings.push(Diagnostic::error(code, message, span));
    }

    pub(crate) fn error_with_help(
        &mut self,
        code: Code,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.findings.push(Diagnostic::error(code, message, span).help(help));
    }

    pub(crate) fn warn(&mut self, code: Code, span: Span, message: String, help: &str) {
        self.findings.push(Diagnostic::warning(code, message, span).help(help));
    }

    fn wrong_kind(&mut self, node: &Node, what: &str, wanted: &str) {
        let message = format!("{what} must be {wanted}, found {}", node.kind_name());
        self.error(Code::InvalidField, node.span, message);
    }

    /// Checks that `node` is an object of this record: no unknown fields, and all required ones.
    pub(crate) fn check_record(&mut self, node: &Node, record: &RecordGrammar, what: &str) -> bool {
        let place = first_line(self.source, node.span);
        self.check_record_at(place, node, record, what)
    }

    /// The same for the value of a field; a missing field is reported at the field's key.
    pub(crate) fn check_record_at(
        &mut self,
        place: Span,
        node: &Node,
        record: &RecordGrammar,
        what: &str,
    ) -> bool {
        if !matches!(node.kind, NodeKind::Object(_)) {
            self.wrong_kind(node, what, "an object");
            if let (Some(shape), Some(finding)) = (shape_of(what), self.findings.last_mut()) {
                finding.help = Some(format!("write it as `{shape}`"));
            }
            return false;
        }
        for member in node.members() {
            if record.fields_in(self.dialect).any(|field| *field.name == *member.key) {
                continue;
            }
            let names: Vec<&str> = record.fields_in(self.dialect).map(|field| field.name).collect();
            let message = format!("{what} has no field `{}`", member.key);
            let mut finding = Diagnostic::error(Code::InvalidField, message, member.key_span);
            let absent = names.iter().copied().filter(|name| node.get(name).is_none());
            let meant = synonym(absent, &member.key);
            match meant.or_else(|| nearest_name(&member.key, names.iter().copied())) {
                Some(near) => finding = finding.fix(self.name_in_key(member.key_span), near),
                None => finding.help = Some(format!("its fields are `{}`", names.join("`, `"))),
            }
            self.findings.push(finding);
        }
        for required in record.required {
            if node.get(required).is_none() {
                let message = format!("{what} needs `{required}`");
                let code = if *required == "steps" { Code::NoSteps } else { Code::InvalidField };
                self.error(code, place, message);
            }
        }
        true
    }

    /// A key may be quoted; a replacement goes inside the quotes.
    pub(crate) fn name_in_key(&self, span: Span) -> Span {
        let text = self.source.slice(span);
        if text.len() >= 2 && text.starts_with(['"', '\'']) {
            Span { start: span.start + 1, end: span.end - 1 }
        } else {
            span
        }
    }

    pub(crate) fn text(&mut self, node: &Node, what: &str) -> Option<Arc<str>> {
        match node.as_str() {
            Some(text) => Some(text.clone()),
            None => {
                self.wrong_kind(node, what, "text");
                None
            }
        }
    }

    pub(crate) fn bool(&mut self, node: &Node, what: &str) -> Option<bool> {
        match node.kind {
            NodeKind::Bool(bool) => Some(bool),
            _ => {
                self.wrong_kind(node, what, "true or false");
                None
            }
        }
    }

    pub(crate) fn count(&mut self, node: &Node, what: &str, max: u64) -> Option<u32> {
        let count = match &node.kind {
            NodeKind::Number(Number::Int(int)) => u64::try_from(*int).ok(),
            _ => {
                self.wrong_kind(node, what, "a whole number");
                return None;
            }
        };
        match count.filter(|count| *count <= max).and_then(|count| u32::try_from(count).ok()) {
            Some(count) => Some(count),
            None => {
                let message = format!("{what} must be between 0 and {max}");
                self.error(Code::InvalidField, node.span, message);
                None
            }
        }
    }

    /// A count of at least one.
    pub(crate) fn positive(&mut self, node: &Node, what: &str, max: u64) -> Option<u32> {
        let count = self.count(node, what, max)?;
        if count == 0 {
            self.error(Code::InvalidField, node.span, format!("{what} must be at least 1"));
        }
        Some(count).filter(|count| *count > 0)
    }

    /// Reads a nested body, up to the limit of nesting.
    pub(crate) fn nested<T: Default>(
        &mut self,
        node: &Node,
        read: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let max = self.limits.nesting_depth_max;
        if self.depth >= max {
            let message = format!("bodies nest deeper than the limit of {max}");
            let help = "make a composition of the inner steps, and call it";
            self.error_with_help(Code::Limit, first_line(self.source, node.span), message, help);
            return T::default();
        }
        self.depth += 1;
        let inside = read(self);
        self.depth -= 1;
        inside
    }

    pub(crate) fn factor(&mut self, node: &Node, what: &str) -> Option<f64> {
        let number = match &node.kind {
            NodeKind::Number(number) => number.as_f64(),
            _ => None,
        };
        match number.filter(|factor| (1.0..=100.0).contains(factor)) {
            Some(factor) => Some(factor),
            None => {
                let message = format!("{what} must be a number between 1 and 100");
                self.error(Code::InvalidField, node.span, message);
                None
            }
        }
    }

    pub(crate) fn duration(&mut self, node: &Node, what: &str) -> Option<Millis> {
        let Some(text) = node.as_str() else {
            let message = format!("{what} must be a duration, found {}", node.kind_name());
            let help = "write it as text with a unit, such as `500ms`, `30s` or `2m`";
            self.error_with_help(Code::InvalidField, node.span, message, help);
            return None;
        };
        match parse_duration(text) {
            Some(millis) => self.bounded(millis, text, node.span, what),
            None => {
                let message = format!("{what} is not a duration: `{text}`");
                let help = "write a number with a unit, such as `500ms`, `30s`, `2m` or `1h`";
                self.error_with_help(Code::InvalidField, node.span, message, help);
                None
            }
        }
    }

    pub(crate) fn millis(&mut self, node: &Node, what: &str) -> Option<Millis> {
        let millis = match &node.kind {
            NodeKind::Number(number) => number.as_u64(),
            _ => None,
        };
        match millis {
            Some(millis) => self.bounded(millis, &format!("{millis}ms"), node.span, what),
            None => {
                let message = format!("{what} must be a whole number of milliseconds");
                self.error(Code::InvalidField, node.span, message);
                None
            }
        }
    }

    fn bounded(&mut self, millis: Millis, text: &str, span: Span, what: &str) -> Option<Millis> {
        if millis <= self.limits.duration_ms_max {
            return Some(millis);
        }
        let days = self.limits.duration_ms_max / (24 * 3600 * 1000);
        self.error(
            Code::Limit,
            span,
            format!("{what} of `{text}` is over the limit of {days} days"),
        );
        None
    }

    /// `timeout` or `timeout_ms`, not both.
    pub(crate) fn duration_field(&mut self, node: &Node, name: &str) -> Option<Millis> {
        let in_ms = format!("{name}_ms");
        match (node.get(name), node.get(&in_ms)) {
            (Some(text), None) => self.duration(text, &format!("`{name}`")),
            (None, Some(millis)) => self.millis(millis, &format!("`{in_ms}`")),
            (Some(_), Some(second)) => {
                let message = format!("`{name}` and `{in_ms}` say the same thing");
                self.error_with_help(Code::InvalidField, second.span, message, "keep one of them");
                None
            }
            (None, None) => None,
        }
    }

    /// The position of the word among `words`.
    pub(crate) fn one_of(&mut self, node: &Node, what: &str, words: &[&str]) -> Option<usize> {
        let text = self.text(node, what)?;
        if let Some(position) = words.iter().position(|word| **word == *text) {
            return Some(position);
        }
        let message = format!("{what} cannot be `{text}`");
        let choices = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let near = nearest_name(&text, words.iter().copied());
        let help = match near {
            Some(near) => format!("did you mean `{near}`? The choices are {choices}"),
            None => format!("the choices are {choices}"),
        };
        let finding = Diagnostic::error(Code::InvalidField, message, node.span).help(help);
        let inner = self.name_in_key(node.span);
        self.findings.push(finding.fix_with(inner, near));
        None
    }

    pub(crate) fn list<'n>(&mut self, node: &'n Node, what: &str) -> &'n [Node] {
        match &node.kind {
            NodeKind::Array(items) => items,
            _ => {
                self.wrong_kind(node, what, "a list");
                &[]
            }
        }
    }

    /// Reads every text inside as a template.
    pub(crate) fn template(&mut self, node: &Node) -> Template {
        match &node.kind {
            NodeKind::String(text) => {
                self.warn_of_statements(node, text);
                match Template::parse(text, node.span, self.limits) {
                    Ok(template) => template,
                    Err(error) => {
                        self.expression_error(node, text, error);
                        Template::Literal(Value::Null)
                    }
                }
            }
            NodeKind::Array(items) => {
                let items: Vec<Template> = items.iter().map(|item| self.template(item)).collect();
                match literals(&items) {
                    Some(values) => Template::Literal(values.into()),
                    None => Template::Array(items),
                }
            }
            NodeKind::Object(members) => {
                let members: Vec<(Arc<str>, Template)> =
                    members.iter().map(|m| (m.key.clone(), self.template(&m.value))).collect();
                let is_literal =
                    |(_, member): &(_, Template)| matches!(member, Template::Literal(_));
                if members.iter().all(is_literal) {
                    Template::Literal(node.to_value())
                } else {
                    Template::Object(members)
                }
            }
            _ => Template::Literal(node.to_value()),
        }
    }

    /// Warns of Jinja's statements and comments, which stay in the text as written.
    fn warn_of_statements(&mut self, node: &Node, text: &str) {
        for (open, close, what, help) in [
            (
                "{%",
                "%}",
                "statement",
                "write `{{ a if condition else b }}`, `{{ list | map(…) }}`, `choose` or `loop`; \
                 for the literal text write `{{ '{%' }}`",
            ),
            (
                "{#",
                "#}",
                "comment",
                "write the comment outside of the text; for the literal text write `{{ '{#' }}`",
            ),
        ] {
            let Some(start) = text.find(open) else { continue };
            let Some(length) = text[start..].find(close) else { continue };
            // Inside an expression it is a string of the author.
            let before = &text[..start];
            if before.rfind("{{").is_some_and(|at| !before[at..].contains("}}")) {
                continue;
            }
            let end = start + length + close.len();
            let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
            let at = ExprSpan { start: place(start), end: place(end) };
            let span = expr::locate(self.source, node.span, text, at);
            let message =
                format!("a {what} `{open} … {close}` has no effect: it stays in the text");
            self.warn(Code::Expression, span, message, help);
        }
    }

    pub(crate) fn condition(&mut self, node: &Node, what: &str) -> Option<Expr> {
        let is_chain = self.dialect == Dialect::Chain && what == "`when`";
        let truth = is_chain.then(|| truth_of(node)).flatten();
        let node = truth.as_ref().unwrap_or(node);
        let literal;
        let text = match &node.kind {
            NodeKind::String(text) => text,
            NodeKind::Bool(bool) => {
                literal = Arc::from(bool.to_string());
                &literal
            }
            _ => {
                self.wrong_kind(node, what, "a condition");
                return None;
            }
        };
        match Template::parse_condition(text, node.span, self.limits) {
            Ok(expr) => Some(expr),
            Err(error) => {
                self.expression_error(node, text, error);
                None
            }
        }
    }

    fn expression_error(&mut self, node: &Node, text: &str, error: ParseError) {
        let span = expr::locate(self.source, node.span, text, error.at);
        let code = if error.is_limit { Code::Limit } else { Code::Expression };
        let mut finding = Diagnostic::error(code, error.message, span);
        finding.help = error.help;
        self.findings.push(finding);
    }
}

/// Names that other languages use for our fields.
const SYNONYMS: &[(&str, &str)] = &[
    ("if", "when"),
    ("condition", "when"),
    ("foreach", "loop"),
    ("for_each", "loop"),
    ("each", "over"),
    ("items", "over"),
    ("in", "over"),
    ("do", "steps"),
    ("then", "steps"),
    ("else", "otherwise"),
    ("default", "otherwise"),
    ("inputs", "input"),
    ("params", "parameters"),
    ("with", "parameters"),
    ("args", "parameters"),
    ("arguments", "parameters"),
    ("input", "inputs"),
    ("input", "parameters"),
    ("inputs", "parameters"),
    ("name", "id"),
    ("uses", "tool"),
    ("needs", "depends_on"),
    ("after", "depends_on"),
    ("retries", "retry_count"),
    ("retries", "max"),
    ("max_retries", "max"),
    ("count", "max"),
    ("catch", "on_failure"),
    ("compensate", "rollback"),
    ("outputs", "output"),
];

/// The one of these fields that a name of another language corresponds to.
fn synonym<'n>(names: impl Iterator<Item = &'n str>, word: &str) -> Option<&'static str> {
    let names: Vec<&str> = names.collect();
    let meant = |(other, field): &&(&str, &str)| *other == word && names.contains(field);
    SYNONYMS.iter().find(meant).map(|(_, field)| *field)
}

/// How an author writes a field whose value must be an object, where another value is a common mistake.
fn shape_of(what: &str) -> Option<&'static str> {
    Some(match what {
        "`loop`" => "loop: { over: \"{{ … }}\", steps: [ … ] }",
        "`repeat`" => "repeat: { until: \"{{ … }}\", max_iterations: 10, steps: [ … ] }",
        "`retry`" => "retry: { max: 3 }` or as `retry_count: 3",
        "`approve`" => "approve: { message: … }",
        "`on_failure`" => "on_failure: { action: continue }",
        "`error_handling`" => "error_handling: { failure_strategy: … }",
        _ => return None,
    })
}

fn literals(items: &[Template]) -> Option<Vec<Value>> {
    items
        .iter()
        .map(|item| match item {
            Template::Literal(value) => Some(value.clone()),
            _ => None,
        })
        .collect()
}

/// The first line of a span: a finding about a whole object should not mark a page of text.
pub(crate) fn first_line(source: &Source, span: Span) -> Span {
    let text = source.slice(span);
    let end = text.find('\n').unwrap_or(text.len());
    Span::new(span.start as usize, span.start as usize + text[..end].trim_end().len())
}
