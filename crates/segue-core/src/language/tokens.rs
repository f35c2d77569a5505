//! The expressions of a text → their tokens, for highlighting.

use super::lexer::{self, Lexeme, Token};
use super::{SemanticToken, TokenKind};
use crate::document::{Node, NodeKind};
use crate::source::{Source, Span};

/// Fields whose whole text is an expression.
const CONDITIONS: &[&str] = &["when", "until", "success_when", "fail_when", "done_when"];

/// Fields whose text is never an expression.
const PLAIN: &[&str] = &["description", "input", "metadata", "documentation", "schema"];

/// All tokens, in the order of the text.
pub(super) fn of(source: &Source, root: &Node) -> Vec<SemanticToken> {
    let mut found = Vec::new();
    let mut left = vec![(root, false)];
    while let Some((node, is_condition)) = left.pop() {
        match &node.kind {
            NodeKind::String(_) => scalar(source, node.span, is_condition, &mut found),
            NodeKind::Array(items) => left.extend(items.iter().map(|item| (item, false))),
            NodeKind::Object(members) => {
                let members = members.iter().filter(|member| !PLAIN.contains(&&*member.key));
                left.extend(
                    members.map(|member| (&member.value, CONDITIONS.contains(&&*member.key))),
                );
            }
            _ => {}
        }
    }
    found.sort_by_key(|token| token.span);
    // A value that an alias repeats is visited once for each use.
    found.dedup();
    found
}

fn scalar(source: &Source, span: Span, is_condition: bool, found: &mut Vec<SemanticToken>) {
    let raw = source.slice(span);
    let base = span.start as usize;
    let mut push = |start: usize, end: usize, kind| {
        found.push(SemanticToken { span: Span::new(base + start, base + end), kind });
    };
    let expressions = lexer::expressions(raw);
    if expressions.is_empty() && is_condition {
        let inner = raw.trim_matches(['"', '\'']);
        let from = raw.find(inner).unwrap_or(0);
        return inside(inner, from, &mut push);
    }
    for (start, end) in expressions {
        push(start - 2, start, TokenKind::Brace);
        inside(&raw[start..end], start, &mut push);
        if raw[end..].starts_with("}}") {
            push(end, end + 2, TokenKind::Brace);
        }
    }
}

fn inside(text: &str, from: usize, push: &mut dyn FnMut(usize, usize, TokenKind)) {
    let tokens = lexer::tokens(text);
    let slice = |token: &Token| &text[token.start..token.end];
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |before| slice(&tokens[before]));
        let after = tokens.get(at + 1).map_or("", slice);
        let kind = match token.kind {
            Lexeme::Text => TokenKind::Text,
            Lexeme::Number if before == "." => TokenKind::Member,
            Lexeme::Number => TokenKind::Number,
            Lexeme::Sign => TokenKind::Operator,
            Lexeme::Word => match (before, slice(token), after) {
                (".", _, _) => TokenKind::Member,
                ("|", _, _) => TokenKind::Filter,
                (
                    _,
                    "and" | "or" | "not" | "in" | "is" | "if" | "else" | "lambda" | "true"
                    | "false" | "none" | "True" | "False" | "None" | "null",
                    _,
                ) => TokenKind::Keyword,
                ("is", _, _) => TokenKind::Test,
                ("not", _, _) if at > 1 && slice(&tokens[at - 2]) == "is" => TokenKind::Test,
                (_, _, "(") => TokenKind::Function,
                // The name of an argument.
                ("(" | ",", _, "=") => TokenKind::Member,
                _ => TokenKind::Name,
            },
        };
        push(from + token.start, from + token.end, kind);
    }
}
