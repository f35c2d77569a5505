//! Filters, policies and patterns of tool ids.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::composition::tool::{Impact, ToolSpec};
use crate::expr::{ExprRoot, Scope, Template};
use crate::id::ToolId;
use crate::limits::Limits;
use crate::value::{Map, Value};

use super::ToolsetBuilder;

/// A custom condition. It must be callable from any thread, because toolsets are shared.
#[derive(Clone)]
pub struct Predicate {
    ask: Arc<dyn Fn(&ToolSpec) -> bool + Send + Sync>,
    /// Its expression, if it has one.
    text: Option<Arc<str>>,
}

/// Equal if known to be: the same expression, or the same function.
impl PartialEq for Predicate {
    fn eq(&self, other: &Predicate) -> bool {
        match (&self.text, &other.text) {
            (Some(text), Some(other)) => text == other,
            _ => Arc::ptr_eq(&self.ask, &other.ask),
        }
    }
}

impl Predicate {
    /// A condition from a function.
    pub fn new(ask: impl Fn(&ToolSpec) -> bool + Send + Sync + 'static) -> Predicate {
        Predicate { ask: Arc::new(ask), text: None }
    }

    /// A condition from an expression over `tool`: its definition, with `namespace`, `name` and
    /// `category`. Only `true` passes; an evaluation error fails.
    pub fn expression(text: &str, limits: &Limits) -> Result<Predicate, String> {
        let text = if text.contains("{{") { text.to_owned() } else { format!("{{{{ {text} }}}}") };
        let known = Some(Arc::from(text.as_str()));
        // Expressions have no root `tool`, so it is bound to `args`.
        let template = Template::over(&Value::from(text), &[("tool", ExprRoot::Args)], limits)?;
        let limits = limits.clone();
        let predicate = Predicate::new(move |tool| {
            let scope = SingleValueScope(described(tool));
            template.eval(&scope, &limits).is_ok_and(|value| value == Value::Bool(true))
        });
        Ok(Predicate { text: known, ..predicate })
    }
}

/// A scope with one value.
struct SingleValueScope(Value);

impl Scope for SingleValueScope {
    fn lookup(&self, _: &ExprRoot) -> Option<Cow<'_, Value>> {
        Some(Cow::Borrowed(&self.0))
    }
}

fn described(tool: &ToolSpec) -> Value {
    let text = |text: &str| Value::from(text);
    let more = [
        ("namespace", text(tool.id.namespace())),
        ("name", text(tool.id.name())),
        ("category", tool.category.as_deref().map_or(Value::Null, text)),
    ];
    let mut described = match tool.definition() {
        Value::Object(definition) => (*definition).clone(),
        _ => Map::new(),
    };
    described.extend(more.map(|(name, value)| (Arc::from(name), value)));
    described.into()
}

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}

/// A pattern for a tool's id, or for its name without the namespace: `*` matches any characters,
/// `?` one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolPattern(Arc<str>);

impl From<&str> for ToolPattern {
    fn from(text: &str) -> ToolPattern {
        ToolPattern(text.into())
    }
}

impl ToolPattern {
    /// Whether a tool matches. A pattern without a colon is compared with the name.
    pub fn matches(&self, id: &ToolId) -> bool {
        let text = if self.0.contains(':') { id.as_str() } else { id.name() };
        fits(self.0.as_bytes(), text.as_bytes())
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Backtracks to the last `*` only, which is sufficient and never exponential.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            // One character, which may be several bytes.
            Some(b'?') => {
                at += 1;
                read += 1;
                while text.get(read).is_some_and(|byte| byte & 0xC0 == 0x80) {
                    read += 1;
                }
            }
            Some(byte) if *byte == text[read] => {
                at += 1;
                read += 1;
            }
            _ => match &mut star {
                Some((star_at, taken)) => {
                    *taken += 1;
                    (at, read) = (*star_at + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Selects the tools of a toolset.
///
/// An empty "one of" list matches nothing; an empty "all of" or "none of" list matches everything.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// Tools of one of these namespaces.
    Namespaces(Vec<Arc<str>>),
    /// Tools that have all of these tags.
    TagsAll(Vec<Arc<str>>),
    /// Tools that have one of these tags.
    TagsAny(Vec<Arc<str>>),
    /// Tools that have none of these tags.
    TagsNone(Vec<Arc<str>>),
    /// Tools of one of these categories.
    Categories(Vec<Arc<str>>),
    /// Tools that match one of these patterns.
    Allow(Vec<ToolPattern>),
    /// Tools that match none of these patterns.
    Deny(Vec<ToolPattern>),
    /// Tools that satisfy a custom condition.
    Custom(Predicate),
    /// Tools that only read.
    Reads,
    /// Tools that this toolset selects.
    Chosen(Box<ToolsetBuilder>),
    /// Tools that pass one of these.
    Any(Vec<Filter>),
}

impl Filter {
    /// Whether a tool passes.
    pub fn keeps(&self, tool: &ToolSpec) -> bool {
        let has = |tag: &Arc<str>| tool.tags.contains(tag);
        let fits = |pattern: &ToolPattern| pattern.matches(&tool.id);
        match self {
            Filter::Namespaces(names) => names.iter().any(|name| **name == *tool.id.namespace()),
            Filter::TagsAll(tags) => tags.iter().all(has),
            Filter::TagsAny(tags) => tags.iter().any(has),
            Filter::TagsNone(tags) => !tags.iter().any(has),
            Filter::Categories(names) => {
                tool.category.as_ref().is_some_and(|category| names.contains(category))
            }
            Filter::Allow(patterns) => patterns.iter().any(fits),
            Filter::Deny(patterns) => !patterns.iter().any(fits),
            Filter::Custom(predicate) => (predicate.ask)(tool),
            Filter::Reads => tool.annotations.impact() <= Impact::Reads,
            Filter::Chosen(toolset) => toolset.selects(tool),
            Filter::Any(filters) => filters.iter().any(|filter| filter.keeps(tool)),
        }
    }
}

/// Allows or denies the use of a toolset's tools. Complex policies combine these.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Policy {
    /// Everything.
    #[default]
    AllowAll,
    /// Nothing.
    DenyAll,
    /// Tools of these namespaces.
    AllowNamespaces(Vec<Arc<str>>),
    /// Tools without any of these tags.
    DenyTags(Vec<Arc<str>>),
    /// Tools whose scopes are all among these. A tool without scopes is allowed.
    AllowScopes(Vec<Arc<str>>),
    /// Tools that satisfy a custom condition.
    Custom(Predicate),
    /// Tools that all of these allow.
    Every(Vec<Policy>),
}

impl Policy {
    /// Whether a tool may be used.
    pub fn allows(&self, tool: &ToolSpec) -> bool {
        match self {
            Policy::AllowAll => true,
            Policy::DenyAll => false,
            Policy::AllowNamespaces(names) => {
                names.iter().any(|name| **name == *tool.id.namespace())
            }
            Policy::DenyTags(tags) => !tags.iter().any(|tag| tool.tags.contains(tag)),
            Policy::AllowScopes(scopes) => tool.scopes.iter().all(|scope| scopes.contains(scope)),
            Policy::Custom(predicate) => (predicate.ask)(tool),
            Policy::Every(policies) => policies.iter().all(|policy| policy.allows(tool)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_answer_yes_or_no() {
        let id = ToolId::new("crm", "find");
        let mut tool = ToolSpec::new(id, "", crate::schema::Schema::any_object());
        tool.annotations.read_only = Some(true);
        tool.tags.push("safe".into());
        let ask = |text: &str| {
            let predicate = Predicate::expression(text, &Limits::default()).unwrap();
            (predicate.ask)(&tool)
        };
        assert!(ask("tool.annotations.read_only"));
        assert!(ask("{{ tool.namespace == 'crm' and 'safe' in tool.tags }}"));
        assert!(!ask("tool.category == 'x'") && !ask("tool.nothing.at.all") && !ask("tool.name"));
        assert!(Predicate::expression("tool.", &Limits::default()).is_err());
        assert!(Predicate::expression("input.x", &Limits::default()).is_err());
    }

    /// A change of rules is detected, also if only an expression changes.
    #[test]
    fn rules_are_the_same_when_they_say_the_same() {
        let custom =
            |text: &str| Filter::Custom(Predicate::expression(text, &Limits::default()).unwrap());
        assert_eq!(custom("tool.name == 'a'"), custom("{{ tool.name == 'a' }}"));
        assert_ne!(custom("tool.name == 'a'"), custom("tool.name == 'b'"));
        let function = Predicate::new(|_| true);
        assert_eq!(function, function.clone());
        assert_ne!(function, Predicate::new(|_| true));
        let of = |filter: Filter| crate::toolset::Toolset::builder("t").filter(filter);
        assert!(of(custom("tool.a")) == of(custom("tool.a")));
        assert!(of(custom("tool.a")) != of(custom("tool.b")));
        assert!(of(custom("tool.a")) != of(custom("tool.a")).from_tools([]));
    }

    #[test]
    fn patterns_mean_what_they_say() {
        let fits = |pattern: &str, id: &str| ToolPattern::from(pattern).matches(&ToolId::from(id));
        assert!(fits("crm:delete_*", "crm:delete_user"));
        assert!(!fits("crm:delete_*", "crm:undelete_user"));
        assert!(fits("*:delete_*", "files:delete_all"));
        assert!(fits("delete_*", "crm:delete_user"), "without a colon the name is meant");
        assert!(!fits("crm", "crm:delete_user"));
        assert!(fits("crm:?et", "crm:get") && fits("crm:?et", "crm:ßet"));
        assert!(fits("*", "crm:get") && fits("", "") && !fits("", "a"));
        assert!(fits("a*b*c", "aXbYbZc") && !fits("a*b*c", "aXbYbZ"));
        // Would take forever if every star were tried everywhere.
        assert!(!fits(&"*a".repeat(40), &"a".repeat(39)));
    }
}
