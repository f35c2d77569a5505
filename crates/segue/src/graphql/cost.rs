//! The cost of a document, before anything of it is executed.
//!
//! First the tokens of its text are counted, so that parsing it cannot take long; then the parsed document
//! is walked once. A fragment is walked once, too, and its cost is added where it is used. So the walk is
//! linear in the text.

use std::collections::HashMap;

use async_graphql::parser::types::{
    ExecutableDocument, FragmentDefinition, Selection, SelectionSet,
};
use async_graphql::parser::{Error as ParseError, parse_query};
use async_graphql::{Name, Pos, Positioned};
use segue_core::diagnostic::Code;
use segue_core::limits::Limits;

/// How deep lists of types may be nested in an introspection query: as deep as tools ask for. Each level
/// multiplies the response.
const SCHEMA_LISTS_MAX: usize = 1;

/// Introspection fields that list types.
const SCHEMA_LISTS: [&str; 4] = ["fields", "interfaces", "possibleTypes", "inputFields"];

/// Why a document is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DocumentError {
    pub(super) code: Code,
    pub(super) message: String,
    pub(super) locations: Vec<Pos>,
}

impl DocumentError {
    fn limit(what: &str, count: usize, most: usize, name: &str) -> DocumentError {
        let message = format!("{what}: {count}, limit {most} (`{name}`)");
        DocumentError { code: Code::Limit, message, locations: Vec::new() }
    }
}

impl From<ParseError> for DocumentError {
    fn from(error: ParseError) -> DocumentError {
        let locations = error.positions().collect();
        DocumentError { code: Code::Parse, message: error.to_string(), locations }
    }
}

/// Parses a document whose cost is within the limits.
pub(super) fn read(text: &str, limits: &Limits) -> Result<ExecutableDocument, DocumentError> {
    count(text, limits)?;
    let document = parse_query(text)?;
    let mut walk = Walk { fragments: &document.fragments, known: HashMap::new() };
    for name in document.fragments.keys() {
        walk.fragment(name)?;
    }
    for (_, operation) in document.operations.iter() {
        let operation = &operation.node;
        let mut cost = walk.set(&operation.selection_set.node)?;
        cost.directives += operation.directives.len();
        let variables = operation.variable_definitions.iter();
        cost.directives += variables.map(|variable| variable.node.directives.len()).sum::<usize>();
        cost.check(limits)?;
    }
    Ok(document)
}

/// Counts the tokens and the nesting of a text.
fn count(text: &str, limits: &Limits) -> Result<(), DocumentError> {
    let bytes_max = limits.graphql_document_bytes_max;
    if text.len() > bytes_max {
        let what = "the document is too long";
        return Err(DocumentError::limit(
            what,
            text.len(),
            bytes_max,
            "graphql_document_bytes_max",
        ));
    }
    let (mut tokens, mut depth, mut rest) = (0, 0_usize, text.as_bytes());
    while let Some((first, more)) = rest.split_first() {
        rest = match first {
            b' ' | b'\t' | b'\r' | b'\n' | b',' => {
                rest = more;
                continue;
            }
            b'#' => {
                rest = &more[more.iter().position(|b| *b == b'\n').unwrap_or(more.len())..];
                continue;
            }
            b'"' => behind_string(rest),
            _ if is_word(*first) => {
                &more[more.iter().position(|b| !is_word(*b)).unwrap_or(more.len())..]
            }
            b'{' | b'(' | b'[' => {
                depth += 1;
                more
            }
            b'}' | b')' | b']' => {
                depth = depth.saturating_sub(1);
                more
            }
            _ => more,
        };
        tokens += 1;
        if depth > limits.value_depth_max {
            let most = limits.value_depth_max;
            return Err(DocumentError::limit(
                "brackets are nested too deep",
                depth,
                most,
                "value_depth_max",
            ));
        }
        if tokens > limits.graphql_tokens_max {
            let most = limits.graphql_tokens_max;
            let what = "the document has too many tokens";
            return Err(DocumentError::limit(what, tokens, most, "graphql_tokens_max"));
        }
    }
    Ok(())
}

fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

/// The text after the string that it begins with.
fn behind_string(text: &[u8]) -> &[u8] {
    let block = b"\"\"\"";
    if let Some(inside) = text.strip_prefix(block) {
        let mut at = 0;
        while at < inside.len() {
            match &inside[at..] {
                [b'\\', b'"', b'"', b'"', ..] => at += 4,
                rest if rest.starts_with(block) => return &rest[3..],
                _ => at += 1,
            }
        }
        return &[];
    }
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'"' | b'\n' => return &text[at + 1..],
            _ => at += 1,
        }
    }
    &[]
}

/// The cost of a part of a document.
#[derive(Clone, Copy, Default)]
struct Cost {
    depth: usize,
    fields: usize,
    aliases: usize,
    directives: usize,
    /// Nested lists of types.
    lists: usize,
    /// Sibling selections here. Each is executed, also when one repeats another and needs no alias.
    branches: usize,
    /// The most sibling selections anywhere.
    branches_most: usize,
}

impl Cost {
    fn add(&mut self, other: Cost) {
        self.depth = self.depth.max(other.depth);
        self.lists = self.lists.max(other.lists);
        self.branches = self.branches.saturating_add(other.branches);
        self.branches_most = self.branches_most.max(other.branches_most).max(self.branches);
        self.fields = self.fields.saturating_add(other.fields);
        self.aliases = self.aliases.saturating_add(other.aliases);
        self.directives = self.directives.saturating_add(other.directives);
    }

    fn check(self, limits: &Limits) -> Result<(), DocumentError> {
        let table = [
            (
                "fields are nested too deep",
                self.depth,
                limits.graphql_depth_max,
                "graphql_depth_max",
            ),
            (
                "too many fields",
                self.fields,
                limits.graphql_complexity_max,
                "graphql_complexity_max",
            ),
            ("too many aliases", self.aliases, limits.graphql_aliases_max, "graphql_aliases_max"),
            (
                "too many sibling selections",
                self.branches_most,
                limits.graphql_aliases_max,
                "graphql_aliases_max",
            ),
            (
                "too many directives",
                self.directives,
                limits.graphql_directives_max,
                "graphql_directives_max",
            ),
            ("lists of types are nested too deep", self.lists, SCHEMA_LISTS_MAX, "__schema"),
        ];
        match table.iter().find(|(_, count, most, _)| count > most) {
            Some((what, count, most, name)) => Err(DocumentError::limit(what, *count, *most, name)),
            None => Ok(()),
        }
    }
}

struct Walk<'d> {
    fragments: &'d HashMap<Name, Positioned<FragmentDefinition>>,
    /// The cost of fragments; nothing while one is walked.
    known: HashMap<&'d Name, Option<Cost>>,
}

impl<'d> Walk<'d> {
    fn set(&mut self, set: &'d SelectionSet) -> Result<Cost, DocumentError> {
        let mut cost = Cost::default();
        for selection in &set.items {
            cost.add(self.selection(&selection.node)?);
        }
        Ok(cost)
    }

    fn selection(&mut self, selection: &'d Selection) -> Result<Cost, DocumentError> {
        let mut cost = match selection {
            Selection::Field(field) => {
                let field = &field.node;
                let name = field.name.node.as_str();
                let mut cost = self.set(&field.selection_set.node)?;
                cost.branches = usize::from(!field.selection_set.node.items.is_empty());
                // `ofType` unwraps a list or a non-null, and adds no depth for the client.
                cost.depth += usize::from(name != "ofType");
                cost.lists += usize::from(SCHEMA_LISTS.contains(&name));
                cost.fields = cost.fields.saturating_add(1);
                cost.aliases = cost.aliases.saturating_add(usize::from(field.alias.is_some()));
                cost
            }
            Selection::InlineFragment(fragment) => self.set(&fragment.node.selection_set.node)?,
            Selection::FragmentSpread(spread) => {
                let name = &spread.node.fragment_name;
                match self.fragments.get_key_value(&name.node) {
                    Some((name, _)) => self.fragment(name)?,
                    // The validation reports the unknown fragment.
                    None => Cost::default(),
                }
            }
        };
        cost.directives = cost.directives.saturating_add(selection.directives().len());
        Ok(cost)
    }

    fn fragment(&mut self, name: &'d Name) -> Result<Cost, DocumentError> {
        let Some(fragment) = self.fragments.get(name) else { return Ok(Cost::default()) };
        match self.known.get(name) {
            Some(Some(cost)) => return Ok(*cost),
            Some(None) => {
                let message = format!("the fragment `{name}` contains itself");
                return Err(DocumentError {
                    code: Code::Cycle,
                    message,
                    locations: vec![fragment.pos],
                });
            }
            None => {}
        }
        self.known.insert(name, None);
        let mut cost = self.set(&fragment.node.selection_set.node)?;
        cost.directives = cost.directives.saturating_add(fragment.node.directives.len());
        self.known.insert(name, Some(cost));
        Ok(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        match read(text, &Limits::default()) {
            Ok(_) => String::new(),
            Err(error) => format!("{} [{}]", error.message, error.code),
        }
    }

    fn nested(depth: usize) -> String {
        format!("{}{}", "{a".repeat(depth), "}".repeat(depth))
    }

    /// Every cost is accepted at its limit and refused one beyond it.
    #[test]
    fn each_limit_is_exact_and_named() {
        let many = |part: &str, count: usize| format!("{{{}}}", part.repeat(count));
        for (name, within, beyond) in [
            ("graphql_depth_max", nested(12), nested(13)),
            ("graphql_complexity_max", many("a ", 500), many("a ", 501)),
            ("graphql_aliases_max", many("b:a ", 30), many("b:a ", 31)),
            ("graphql_aliases_max", many("a{b} ", 30), many("a{b} ", 31)),
            ("graphql_directives_max", many("a @x ", 8), many("a @x ", 9)),
            (
                "graphql_directives_max",
                format!("{{a{}}}", "@x".repeat(8)),
                "{a @x@x@x@x@x@x@x@x@x}".into(),
            ),
            (
                "__schema",
                "{__schema{types{fields{type{a}}}}}".into(),
                "{__schema{types{fields{type{fields{a}}}}}}".into(),
            ),
        ] {
            assert_eq!(refused(&within), "", "{name}");
            let said = refused(&beyond);
            assert!(said.contains(name) && said.ends_with("[limit]"), "{name}: {said}");
        }
        assert!(refused(&nested(100)).contains("value_depth_max"));
        assert!(refused(&many("a ", 2_000)).contains("graphql_tokens_max"));
        assert!(refused(&many(" ", 32 * 1024)).contains("graphql_document_bytes_max"));
    }

    /// Fragments do not hide what they cost, however often they use each other.
    #[test]
    fn fragments_are_counted_where_they_are_used() {
        let each = |n: usize| format!("fragment F{n} on Q{{...F{} ...F{}}}", n + 1, n + 1);
        let all: String = (0..40).map(each).collect();
        let text = format!("{{...F0}}{all}fragment F40 on Q{{a}}");
        assert!(refused(&text).contains("graphql_complexity_max"));
        assert!(
            refused("{...A} fragment A on Q{a{...B}} fragment B on Q{b{...A}}")
                .ends_with("[cycle]")
        );
        assert!(refused("{a} fragment A on Q{...A}").ends_with("[cycle]"));
        let side = format!("{{{}}}fragment A on Q{{a{{b}}a{{b}}}}", "...A ".repeat(16));
        assert!(refused(&side).contains("graphql_aliases_max"));
        let deep = "{a{a{a{a{a{a{...A}}}}}}} fragment A on Q{a{a{a{a{a{a{a}}}}}}}";
        assert!(refused(deep).contains("graphql_depth_max"));
        assert!(
            refused("{a @x ...A @x} fragment A on Q @x {b @x @x @x @x @x @x}")
                .contains("graphql_directives_max")
        );
    }

    /// Strings and comments are no part of the structure.
    #[test]
    fn strings_and_comments_are_skipped() {
        let deep = "{".repeat(100);
        for text in [
            format!("{{a(b:\"{deep}\")}}"),
            format!("{{a(b:\"\\\"{deep}\")}}"),
            format!("{{a(b:\"\"\"{deep}\\\"\"\"\n\"{deep}\"\"\")}}"),
            format!("{{a #{deep}\n}}"),
        ] {
            assert_eq!(refused(&text), "", "{text}");
        }
        for text in ["", "{", "}", "\"", "\"\"\"", "{a(b:\"\\", "#", "{a", "query", "{a}}", "\u{0}"]
        {
            assert!(refused(text).ends_with("[parse]"), "{text}");
        }
    }
}
