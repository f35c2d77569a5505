//! Text → [`Template`]: finds the placeholders, parses plain paths itself, and lowers the tree of
//! MiniJinja's parser for all other expressions.

use std::sync::Arc;

use minijinja::machinery::{self, ast as jinja};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;

use super::ast::{Arg, Arithmetic, Ast, AstKind, Comparison, ExprSpan, Logic};
use super::{Expr, ExprRoot, Template, TemplatePiece};
use crate::limits::Limits;
use crate::source::Span;
use crate::value::{Number, Value};

/// Why a text is not a valid template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The span in the template's text.
    pub at: ExprSpan,
    /// The message.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
    /// Whether a limit was exceeded, as opposed to a syntax error.
    pub is_limit: bool,
}

impl ParseError {
    fn new(start: usize, end: usize, message: impl Into<String>) -> ParseError {
        ParseError { at: at(start, end), message: message.into(), help: None, is_limit: false }
    }

    fn help(mut self, help: impl Into<String>) -> ParseError {
        self.help = Some(help.into());
        self
    }
}

fn at(start: usize, end: usize) -> ExprSpan {
    let clamp = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX);
    ExprSpan { start: clamp(start), end: clamp(end) }
}

pub(super) fn template(
    text: &Arc<str>,
    site: Span,
    limits: &Limits,
) -> Result<Template, ParseError> {
    if !text.contains("{{") {
        return Ok(Template::Literal(Value::String(text.clone())));
    }
    let mut pieces = Vec::new();
    let mut rest = 0;
    while let Some(open) = text[rest..].find("{{").map(|found| rest + found) {
        if open > rest {
            pieces.push(TemplatePiece::Text(text[rest..open].into()));
        }
        let close = find_close(text, open + 2)?;
        let ast = expression(text, open + 2, close, limits)?;
        pieces.push(TemplatePiece::Expr(Expr { text: text.clone(), site, ast }));
        rest = close + 2;
    }
    if rest < text.len() {
        pieces.push(TemplatePiece::Text(text[rest..].into()));
    }
    match <[TemplatePiece; 1]>::try_from(pieces) {
        Ok([TemplatePiece::Expr(expr)]) => Ok(Template::Expr(expr)),
        Ok(single) => Ok(Template::Text(single.into())),
        Err(pieces) => Ok(Template::Text(pieces)),
    }
}

pub(super) fn condition(text: &Arc<str>, site: Span, limits: &Limits) -> Result<Expr, ParseError> {
    match template(text, site, limits)? {
        Template::Expr(expr) => Ok(expr),
        Template::Literal(_) => {
            let ast = expression(text, 0, text.len(), limits)?;
            Ok(Expr { text: text.clone(), site, ast })
        }
        _ => Err(ParseError::new(0, text.len(), "a condition is one expression, not text")
            .help("put the whole condition into one pair of braces: `{{ a and b }}`")),
    }
}

/// The offset of the `}}` that closes the placeholder opened before `start`; quotes and brackets
/// nest.
fn find_close(text: &str, start: usize) -> Result<usize, ParseError> {
    let bytes = text.as_bytes();
    let (mut depth, mut quote, mut index) = (0usize, None, start);
    while index < bytes.len() {
        let byte = bytes[index];
        match (quote, byte) {
            (Some(_), b'\\') => index += 1,
            (Some(open), close) if open == close => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'}') if depth == 0 && bytes.get(index + 1) == Some(&b'}') => return Ok(index),
            (None, b'(' | b'[' | b'{') => depth += 1,
            (None, b')' | b']' | b'}') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
        index += 1;
    }
    Err(ParseError::new(start - 2, text.len(), "`{{` is never closed")
        .help("close it with `}}`; to write the braces themselves use `{{ '{{' }}`"))
}

/// Parses the expression between two offsets of `text`.
fn expression(text: &str, start: usize, end: usize, limits: &Limits) -> Result<Ast, ParseError> {
    let raw = &text[start..end];
    if raw.len() > limits.expression_bytes_max {
        let message = format!(
            "expression of {} bytes is longer than the limit of {} bytes",
            raw.len(),
            limits.expression_bytes_max
        );
        return Err(ParseError { is_limit: true, ..ParseError::new(start, end, message) });
    }
    let lead = raw.len() - raw.trim_start().len();
    let trimmed = raw.trim();
    let start = start + lead;
    if trimmed.is_empty() {
        return Err(ParseError::new(start, end, "the expression is empty"));
    }
    if let Some(path) = plain_path(trimmed, start) {
        return Ok(path);
    }
    let (blanked, lambdas) = blank_lambdas(trimmed, start)?;
    // The parser recurses, and its own limit is generous; counting brackets first is enough.
    check_depth(&blanked, start, limits)?;
    // The parser stops silently at an unreadable token after a string; the lexer reports it.
    for token in machinery::tokenize(&blanked, true, SyntaxConfig::default()) {
        token.map_err(|error| syntax_error(&error, trimmed, start))?;
    }
    let parsed =
        machinery::parse_expr(&blanked).map_err(|error| syntax_error(&error, trimmed, start))?;
    Lowering { text: &blanked, lambdas: &lambdas, base: start, limits }.lower(&parsed, 0)
}

/// Counts the constructs that the parser recurses on: brackets, prefixes and words that nest to the
/// right. The count is generous: expressions near the limit are unreadable anyway.
fn check_depth(text: &str, start: usize, limits: &Limits) -> Result<(), ParseError> {
    let (mut depth, mut deepest, mut prefixes, mut run) = (0usize, 0, 0, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        run = match byte {
            b'-' | b'*' => run + 1,
            b' ' => run,
            _ => 0,
        };
        deepest = deepest.max(depth);
        prefixes = prefixes.max(run);
    }
    let words: usize = ["not", "if"].iter().map(|word| word_offsets(text, word).len()).sum();
    let powers = text.matches("**").count();
    if deepest + prefixes + words + powers <= limits.expression_depth_max {
        return Ok(());
    }
    Err(too_deep(at(start, start + text.len()), limits))
}

fn too_deep(at: ExprSpan, limits: &Limits) -> ParseError {
    let message =
        format!("the expression nests deeper than the limit of {}", limits.expression_depth_max);
    ParseError { at, message, help: None, is_limit: true }
}

fn syntax_error(error: &minijinja::Error, text: &str, base: usize) -> ParseError {
    let range = error.range().unwrap_or(0..text.len());
    // The parser may point into the middle of a character.
    let (start, end) = (text.floor_char_boundary(range.start), text.ceil_char_boundary(range.end));
    let message = error.detail().unwrap_or("the expression cannot be read").to_owned();
    let found = ParseError::new(base + start, base + end.max(start), message);
    if let Some(help) = odd_character(text) {
        return found.help(help);
    }
    if text.contains("&&") || text.contains("||") {
        return found.help("write `and` and `or` for `&&` and `||`");
    }
    if text.contains("===") {
        return found.help("write `==` for `===`");
    }
    if text.contains('?') {
        return found.help("write `a if condition else b` for `condition ? a : b`");
    }
    found
}

/// Names the first character outside quotes that is invisible or looks like another one, because
/// the error message alone would not show it.
fn odd_character(text: &str) -> Option<String> {
    let (mut quote, mut is_escaped) = (None, false);
    for character in text.chars() {
        match quote {
            Some(_) if is_escaped => is_escaped = false,
            Some(_) if character == '\\' => is_escaped = true,
            Some(open) if open == character => quote = None,
            Some(_) => {}
            None if matches!(character, '"' | '\'') => quote = Some(character),
            None => {
                if let Some((name, advice)) = oddity(character) {
                    let number = u32::from(character);
                    return Some(format!("it has U+{number:04X}, {name}; {advice}"));
                }
            }
        }
    }
    None
}

/// The name of an odd character, and the advice.
fn oddity(character: char) -> Option<(&'static str, &'static str)> {
    const SPACE: &str = "write an ordinary space";
    const DELETE: &str = "delete it";
    Some(match character {
        '\u{a0}' | '\u{2007}' | '\u{202f}' => ("a non-breaking space", SPACE),
        '\u{200b}' => ("a zero-width space", DELETE),
        '\u{200c}' | '\u{200d}' | '\u{2060}' => ("a zero-width joiner", DELETE),
        '\u{feff}' => ("a byte order mark", DELETE),
        '\u{ad}' => ("a soft hyphen", DELETE),
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            ("a text direction mark", DELETE)
        }
        '\u{2018}'..='\u{201f}' | '\u{2039}' | '\u{203a}' | '\u{ab}' | '\u{bb}' => {
            ("a typographic quote", "write `\"` or `'`")
        }
        '\u{2010}'..='\u{2015}' => ("a typographic dash", "write `-`"),
        '\u{2212}' => ("a minus sign", "write `-`"),
        other if other.is_ascii_whitespace() => return None,
        other if other.is_whitespace() => ("an unusual space", SPACE),
        other if other.is_control() => ("a control character", DELETE),
        _ => return None,
    })
}

/// Names joined by `.` and `[n]`; names may contain `-` and `$`, and an index may be written `.0`.
fn plain_path(text: &str, base: usize) -> Option<Ast> {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$');
    let first_len = text.find(|c| !is_name(c)).unwrap_or(text.len());
    let first = &text[..first_len];
    let keyword =
        matches!(first, "true" | "false" | "none" | "null" | "True" | "False" | "None" | "not");
    let number = first.bytes().all(|byte| byte.is_ascii_digit()) || first.starts_with('-');
    if first.is_empty() || keyword || number {
        return None;
    }
    let name = AstKind::Name { name: first.into(), root: ExprRoot::Unresolved };
    let mut path = Ast { at: at(base, base + first_len), kind: name };
    let mut rest = first_len;
    while rest < text.len() {
        // Both delimiters are one byte; any other character ends the attempt.
        let (opening, inner) = text[rest..].split_at_checked(1)?;
        let len = match opening {
            "." => inner.find(|c| !is_name(c)).unwrap_or(inner.len()),
            "[" => inner.find(']')?,
            _ => return None,
        };
        let part = &inner[..len];
        let base_path = Box::new(path);
        let kind = match (opening, part.parse::<u32>()) {
            (_, Ok(index)) => index_kind(base_path, index),
            (".", Err(_)) if !part.is_empty() => AstKind::Field(base_path, part.into()),
            _ => return None,
        };
        rest += 1 + len + usize::from(opening == "[");
        path = Ast { at: at(base, base + rest), kind };
    }
    Some(path)
}

fn index_kind(base: Box<Ast>, index: u32) -> AstKind {
    let end = base.at.end;
    let index = Ast {
        at: ExprSpan { start: end, end },
        kind: AstKind::Const(Value::from(i64::from(index))),
    };
    AstKind::Index(base, Box::new(index))
}

/// A `lambda NAME: body` that was blanked out of a text.
struct Lambda {
    param: Arc<str>,
    /// The offset of the body.
    body: usize,
}

/// Replaces every `lambda NAME:` by spaces, so that the parser reads the body as a plain argument
/// and offsets stay the same.
fn blank_lambdas(text: &str, base: usize) -> Result<(String, Vec<Lambda>), ParseError> {
    let mut blanked = text.to_owned();
    let mut lambdas = Vec::new();
    for start in word_offsets(text, "lambda") {
        let head = &text[start + "lambda".len()..];
        let usage = || {
            let place = base + start;
            ParseError::new(place, place + "lambda".len(), "this `lambda` cannot be read")
                .help("write it as `filter(lambda x: x.value > 50)`")
        };
        let colon = head.find(':').ok_or_else(usage)?;
        let param = head[..colon].trim();
        let is_name = !param.is_empty() && param.chars().all(|c| c.is_alphanumeric() || c == '_');
        if !is_name {
            return Err(usage());
        }
        let body = start + "lambda".len() + colon + 1;
        blanked.replace_range(start..body, &" ".repeat(body - start));
        lambdas.push(Lambda { param: param.into(), body });
    }
    Ok((blanked, lambdas))
}

/// The offsets of `word` as a whole word outside of quotes.
fn word_offsets(text: &str, word: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let is_part = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let (mut found, mut quote, mut index) = (Vec::new(), None, 0);
    while index < bytes.len() {
        match (quote, bytes[index]) {
            (Some(_), b'\\') => index += 1,
            (Some(open), close) if open == close => quote = None,
            (Some(_), _) => {}
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, _) => {
                let alone = text.as_bytes()[index..].starts_with(word.as_bytes())
                    && !is_part(index.checked_sub(1).and_then(|before| bytes.get(before)))
                    && !is_part(bytes.get(index + word.len()));
                if alone {
                    found.push(index);
                }
            }
        }
        index += 1;
    }
    found
}

/// Lowers the parser's tree to ours.
struct Lowering<'a> {
    text: &'a str,
    lambdas: &'a [Lambda],
    base: usize,
    limits: &'a Limits,
}

impl Lowering<'_> {
    fn lower(&self, expr: &jinja::Expr<'_>, depth: usize) -> Result<Ast, ParseError> {
        let span = expr.span();
        let mut place =
            at(self.base + span.start_offset as usize, self.base + span.end_offset as usize);
        if depth > self.limits.expression_depth_max {
            return Err(too_deep(place, self.limits));
        }
        let kind = self.kind(expr, depth + 1)?;
        let mut ast = Ast { at: place, kind };
        // The parser's spans of infix and postfix nodes begin near the operand; ours begin at the
        // first operand.
        let begins_with_operand = !matches!(
            ast.kind,
            AstKind::Not(_)
                | AstKind::Negate(_)
                | AstKind::List(_)
                | AstKind::Object(_)
                | AstKind::Call(..)
        );
        let mut first = u32::MAX;
        ast.children(&mut |child| first = first.min(child.at.start));
        if begins_with_operand && first != u32::MAX {
            place.start = first;
        }
        ast.at = place;
        Ok(ast)
    }

    fn boxed(&self, expr: &jinja::Expr<'_>, depth: usize) -> Result<Box<Ast>, ParseError> {
        self.lower(expr, depth).map(Box::new)
    }

    fn optional(
        &self,
        expr: Option<&jinja::Expr<'_>>,
        depth: usize,
    ) -> Result<Option<Box<Ast>>, ParseError> {
        expr.map(|expr| self.boxed(expr, depth)).transpose()
    }

    fn kind(&self, expr: &jinja::Expr<'_>, depth: usize) -> Result<AstKind, ParseError> {
        use jinja::Expr as E;
        Ok(match expr {
            E::Var(var) => AstKind::Name { name: var.id.into(), root: ExprRoot::Unresolved },
            E::Const(constant) => AstKind::Const(constant_value(&constant.value)),
            E::Slice(slice) => AstKind::Slice(
                self.boxed(&slice.expr, depth)?,
                [
                    self.optional(slice.start.as_ref(), depth)?,
                    self.optional(slice.stop.as_ref(), depth)?,
                    self.optional(slice.step.as_ref(), depth)?,
                ],
            ),
            E::UnaryOp(unary) => {
                let operand = self.boxed(&unary.expr, depth)?;
                match unary.op {
                    jinja::UnaryOpKind::Not => AstKind::Not(operand),
                    jinja::UnaryOpKind::Neg => AstKind::Negate(operand),
                }
            }
            E::BinOp(binary) => self.binary(binary, depth)?,
            E::Compare(compare) => {
                let rest: Result<Vec<_>, ParseError> = compare
                    .ops
                    .iter()
                    .map(|op| Ok((comparison(op.op), self.lower(&op.expr, depth)?)))
                    .collect();
                AstKind::Compare(self.boxed(&compare.expr, depth)?, rest?)
            }
            E::IfExpr(branch) => AstKind::If {
                test: self.boxed(&branch.test_expr, depth)?,
                then: self.boxed(&branch.true_expr, depth)?,
                otherwise: self.optional(branch.false_expr.as_ref(), depth)?,
            },
            E::Filter(filter) => {
                let Some(input) = &filter.expr else { return Err(self.unsupported(expr)) };
                let args = self.args(&filter.args, depth)?;
                AstKind::Filter(filter.name.into(), self.boxed(input, depth)?, args)
            }
            E::Test(test) => {
                let args = self.args(&test.args, depth)?;
                AstKind::Test(test.name.into(), self.boxed(&test.expr, depth)?, args)
            }
            E::GetAttr(attr) => AstKind::Field(self.boxed(&attr.expr, depth)?, attr.name.into()),
            E::GetItem(item) => {
                let base = self.boxed(&item.expr, depth)?;
                let index = self.boxed(&item.subscript_expr, depth)?;
                match &index.kind {
                    AstKind::Const(Value::String(name)) => AstKind::Field(base, name.clone()),
                    _ => AstKind::Index(base, index),
                }
            }
            E::Call(call) => self.call(call, expr, depth)?,
            E::List(list) => AstKind::List(self.all(&list.items, depth)?),
            E::Tuple(tuple) => AstKind::List(self.all(&tuple.items, depth)?),
            E::Map(map) => {
                let keys = self.all(&map.keys, depth)?;
                let values = self.all(&map.values, depth)?;
                AstKind::Object(keys.into_iter().zip(values).collect())
            }
        })
    }

    fn all(&self, exprs: &[jinja::Expr<'_>], depth: usize) -> Result<Vec<Ast>, ParseError> {
        exprs.iter().map(|expr| self.lower(expr, depth)).collect()
    }

    fn binary(&self, binary: &jinja::BinOp<'_>, depth: usize) -> Result<AstKind, ParseError> {
        use jinja::BinOpKind as Op;
        let left = self.boxed(&binary.left, depth)?;
        let right = self.boxed(&binary.right, depth)?;
        let compare = |op| {
            let right = (*right).clone();
            AstKind::Compare(left.clone(), vec![(op, right)])
        };
        Ok(match binary.op {
            Op::Eq => compare(Comparison::Equal),
            Op::Ne => compare(Comparison::NotEqual),
            Op::Lt => compare(Comparison::Less),
            Op::Lte => compare(Comparison::LessOrEqual),
            Op::Gt => compare(Comparison::Greater),
            Op::Gte => compare(Comparison::GreaterOrEqual),
            Op::In => compare(Comparison::In),
            Op::ScAnd => AstKind::Logic(Logic::And, left, right),
            Op::ScOr => AstKind::Logic(Logic::Or, left, right),
            Op::Add => AstKind::Arithmetic(Arithmetic::Add, left, right),
            Op::Sub => AstKind::Arithmetic(Arithmetic::Subtract, left, right),
            Op::Mul => AstKind::Arithmetic(Arithmetic::Multiply, left, right),
            Op::Div => AstKind::Arithmetic(Arithmetic::Divide, left, right),
            Op::FloorDiv => AstKind::Arithmetic(Arithmetic::FloorDivide, left, right),
            Op::Rem => AstKind::Arithmetic(Arithmetic::Remainder, left, right),
            Op::Pow => AstKind::Arithmetic(Arithmetic::Power, left, right),
            Op::Concat => AstKind::Arithmetic(Arithmetic::Concat, left, right),
        })
    }

    fn call(
        &self,
        call: &jinja::Call<'_>,
        expr: &jinja::Expr<'_>,
        depth: usize,
    ) -> Result<AstKind, ParseError> {
        match call.identify_call() {
            jinja::CallType::Function(name) => {
                Ok(AstKind::Call(name.into(), self.args(&call.args, depth)?))
            }
            _ => Err(self
                .unsupported(expr)
                .help("values have no methods: use a filter, such as `{{ name | upper }}`")),
        }
    }

    fn args(&self, args: &[jinja::CallArg<'_>], depth: usize) -> Result<Vec<Arg>, ParseError> {
        args.iter()
            .map(|arg| match arg {
                jinja::CallArg::Pos(expr) => {
                    Ok(Arg { name: None, value: self.argument(expr, depth)? })
                }
                jinja::CallArg::Kwarg(name, expr) => {
                    Ok(Arg { name: Some((*name).into()), value: self.lower(expr, depth)? })
                }
                jinja::CallArg::PosSplat(expr) | jinja::CallArg::KwargSplat(expr) => {
                    Err(self.unsupported(expr))
                }
            })
            .collect()
    }

    /// An argument, wrapped in its lambda if one was blanked out.
    fn argument(&self, expr: &jinja::Expr<'_>, depth: usize) -> Result<Ast, ParseError> {
        let body = self.lower(expr, depth)?;
        let start = (body.at.start as usize).saturating_sub(self.base);
        let begins = |lambda: &&Lambda| {
            let lead = self.text.get(lambda.body..start);
            lead.is_some_and(|lead| lead.chars().all(|c| c == '(' || c.is_whitespace()))
        };
        match self.lambdas.iter().find(begins) {
            Some(lambda) => {
                Ok(Ast { at: body.at, kind: AstKind::Lambda(lambda.param.clone(), Box::new(body)) })
            }
            None => Ok(body),
        }
    }

    fn unsupported(&self, expr: &jinja::Expr<'_>) -> ParseError {
        let span = expr.span();
        let (start, end) = (span.start_offset as usize, span.end_offset as usize);
        let message = format!("this {} is not part of the expression language", expr.description());
        ParseError::new(self.base + start, self.base + end, message)
    }
}

fn comparison(op: jinja::CompareOpKind) -> Comparison {
    use jinja::CompareOpKind as Op;
    match op {
        Op::Eq => Comparison::Equal,
        Op::Ne => Comparison::NotEqual,
        Op::Lt => Comparison::Less,
        Op::Lte => Comparison::LessOrEqual,
        Op::Gt => Comparison::Greater,
        Op::Gte => Comparison::GreaterOrEqual,
        Op::In => Comparison::In,
        Op::NotIn => Comparison::NotIn,
    }
}

/// Literals are scalars: lists and maps have nodes of their own.
fn constant_value(value: &minijinja::Value) -> Value {
    match value.kind() {
        ValueKind::Bool => Value::Bool(value.is_true()),
        ValueKind::String => Value::from(value.as_str().unwrap_or("")),
        ValueKind::Number => Value::Number(Number::from_literal(&value.to_string())),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help_of(text: &str) -> Option<String> {
        let limits = Limits::default();
        template(&Arc::from(text), Span::default(), &limits).unwrap_err().help
    }

    #[test]
    fn invisible_characters_are_named() {
        for (text, help) in [
            ("{{ a\u{a0}+ b }}", "it has U+00A0, a non-breaking space; write an ordinary space"),
            ("{{ a\u{200b} }}", "it has U+200B, a zero-width space; delete it"),
            ("{{ \u{201c}x\u{201d} }}", "it has U+201C, a typographic quote; write `\"` or `'`"),
            ("{{ a \u{2013} b }}", "it has U+2013, a typographic dash; write `-`"),
            ("{{ a \u{2212} b }}", "it has U+2212, a minus sign; write `-`"),
            ("{{ a \u{7} b }}", "it has U+0007, a control character; delete it"),
        ] {
            assert_eq!(help_of(text).as_deref(), Some(help), "{text:?}");
        }
        // Inside a string such a character is valid, so it is not the cause.
        assert_eq!(help_of("{{ '\u{a0}\u{2013}' + }}"), None);
    }
}
