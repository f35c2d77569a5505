//! `toolsets` → builders of toolsets. Their source is all configured tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::access::INLINE;
use segue_core::document::{Node, NodeKind};
use segue_core::limits::Limits;
use segue_core::toolset::{
    Filter, Policy, Predicate, ToolPattern, Toolset, ToolsetBuilder, ToolsetGuards,
};

use super::read::ConfigReader;

const TOOLSET: &[&str] = &[
    "namespaces",
    "tags_all",
    "tags_any",
    "tags_none",
    "categories",
    "allow",
    "deny",
    "where",
    "policy",
    "guards",
];

const GUARDS: &[&str] = &["max_steps", "max_tool_calls", "timeout"];

const POLICY: &[&str] = &["allow_namespaces", "deny_tags", "allow_scopes", "where"];

impl ConfigReader<'_> {
    pub(super) fn toolsets(&mut self, node: &Node) -> BTreeMap<Arc<str>, ToolsetBuilder> {
        if !matches!(node.kind, NodeKind::Object(_)) {
            self.error(node.span, format!("expected an object, found {}", node.kind_name()));
        }
        for member in node.members().iter().filter(|member| *member.key == *INLINE) {
            let message = format!("`{INLINE}` is reserved for the toolset of inline compositions");
            self.error(member.key_span, message);
        }
        let toolsets = node.members().iter();
        toolsets.map(|m| (m.key.clone(), self.toolset(&m.key, &m.value))).collect()
    }

    fn toolset(&mut self, name: &Arc<str>, node: &Node) -> ToolsetBuilder {
        let mut toolset = Toolset::builder(name.clone());
        if self.is_untrusted(node) {
            // Its variables are not expanded, so it allows nothing.
            return toolset.policy(Policy::DenyAll);
        }
        if !self.keys(node, TOOLSET, "a toolset") {
            return toolset;
        }
        for member in node.members() {
            let (key, value) = (&*member.key, &member.value);
            let filter = match key {
                "namespaces" => Filter::Namespaces(self.name_list(value, "`namespaces`")),
                "tags_all" => Filter::TagsAll(self.name_list(value, "`tags_all`")),
                "tags_any" => Filter::TagsAny(self.name_list(value, "`tags_any`")),
                "tags_none" => Filter::TagsNone(self.name_list(value, "`tags_none`")),
                "categories" => Filter::Categories(self.name_list(value, "`categories`")),
                "allow" => Filter::Allow(self.patterns(value, "`allow`")),
                "deny" => Filter::Deny(self.patterns(value, "`deny`")),
                "where" => match self.predicate(value) {
                    Some(predicate) => Filter::Custom(predicate),
                    None => continue,
                },
                "policy" => {
                    toolset = toolset.policy(self.policy(value));
                    continue;
                }
                "guards" => {
                    toolset = toolset.guards(self.guards(value));
                    continue;
                }
                _ => continue,
            };
            toolset = toolset.filter(filter);
        }
        toolset
    }

    fn guards(&mut self, node: &Node) -> ToolsetGuards {
        if !self.keys(node, GUARDS, "`guards`") {
            return ToolsetGuards::default();
        }
        let timeout = self.timeout(node).map(|timeout| timeout.as_millis());
        ToolsetGuards {
            max_steps: self.bound(node, "max_steps").and_then(|max| usize::try_from(max).ok()),
            max_tool_calls: self.bound(node, "max_tool_calls"),
            timeout_ms: timeout.and_then(|ms| u64::try_from(ms).ok()),
        }
    }

    /// A limit; 0 means none.
    fn bound(&mut self, node: &Node, key: &str) -> Option<u64> {
        let value = node.get(key)?;
        let Some(bound) = value.to_value().as_u64() else {
            self.error(value.span, format!("`{key}` must be a whole number; 0 means no limit"));
            return None;
        };
        Some(bound).filter(|bound| *bound > 0)
    }

    fn policy(&mut self, node: &Node) -> Policy {
        match node.as_str().map(|word| &**word) {
            Some("allow_all") => return Policy::AllowAll,
            Some("deny_all") => return Policy::DenyAll,
            Some(other) => {
                let message = format!(
                    "`policy` is `allow_all`, `deny_all` or an object of rules, not `{other}`"
                );
                self.error(node.span, message);
                return Policy::DenyAll;
            }
            None => {}
        }
        if !self.keys(node, POLICY, "`policy`") {
            return Policy::DenyAll;
        }
        let rules = node.members().iter().filter_map(|member| {
            let value = &member.value;
            Some(match &*member.key {
                "allow_namespaces" => {
                    Policy::AllowNamespaces(self.name_list(value, "`allow_namespaces`"))
                }
                "deny_tags" => Policy::DenyTags(self.name_list(value, "`deny_tags`")),
                "allow_scopes" => Policy::AllowScopes(self.name_list(value, "`allow_scopes`")),
                "where" => Policy::Custom(self.predicate(value)?),
                _ => return None,
            })
        });
        Policy::Every(rules.collect())
    }

    fn predicate(&mut self, node: &Node) -> Option<Predicate> {
        // An expression, in which `${…}` is not expanded.
        let Some(text) = node.as_str() else {
            self.error(node.span, "`where` must be an expression over `tool`");
            return None;
        };
        match Predicate::expression(text, &Limits::default()) {
            Ok(predicate) => Some(predicate),
            Err(message) => {
                self.error(node.span, message);
                None
            }
        }
    }

    pub(super) fn name_list(&mut self, node: &Node, what: &str) -> Vec<Arc<str>> {
        self.texts(node, what).into_iter().map(Arc::from).collect()
    }

    fn patterns(&mut self, node: &Node, what: &str) -> Vec<ToolPattern> {
        self.texts(node, what).iter().map(|text| ToolPattern::from(text.as_str())).collect()
    }
}
