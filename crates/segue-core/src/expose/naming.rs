//! Tool names that a host accepts. The name of a tool does not depend on the other exported tools,
//! unless two names collide.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ExportFormat;
use super::profile::MemberNames;
use crate::composition::tool::hex_digest;
use crate::id::ToolId;

/// Hexadecimal digits of the hash that tells shortened names apart.
const HASH_CHARS: usize = 8;

/// The naming rule of a format.
struct NameRule {
    chars_max: usize,
    /// MCP hosts compare names without case, and put the server's name before them.
    lower_case: bool,
    dash: bool,
}

impl NameRule {
    fn of(format: ExportFormat) -> NameRule {
        match format {
            ExportFormat::Mcp => NameRule { chars_max: 40, lower_case: true, dash: false },
            _ => NameRule { chars_max: 64, lower_case: false, dash: true },
        }
    }

    /// `namespace__name` in the characters of the format. The namespace always stays, because two
    /// servers may both have a `search`.
    fn plain(&self, id: &ToolId) -> String {
        let mut name = String::new();
        for (at, character) in id.as_str().char_indices() {
            match character {
                ':' if at == id.namespace().len() => name.push_str("__"),
                'A'..='Z' if self.lower_case => name.push(character.to_ascii_lowercase()),
                '-' if self.dash => name.push('-'),
                other if other.is_ascii_alphanumeric() => name.push(other),
                _ => name.push('_'),
            }
        }
        if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
            name.insert_str(0, "t_");
        }
        name
    }

    /// A unique name: shortened, with a hash of the id.
    fn hashed(&self, id: &ToolId, plain: &str) -> String {
        let kept = plain.len().min(self.chars_max - HASH_CHARS - 1);
        let hash = hex_digest(id.as_str().as_bytes());
        format!("{}_{}", &plain[..kept], &hash[..HASH_CHARS])
    }
}

/// The name of a tool, or why it cannot have one.
pub(super) type ExportName = Result<Arc<str>, String>;

/// The names of the tools, in their order.
pub(super) fn names<'a>(
    ids: impl Iterator<Item = &'a ToolId>,
    format: ExportFormat,
) -> Vec<ExportName> {
    let rule = NameRule::of(format);
    let plain: Vec<(&ToolId, String)> = ids.map(|id| (id, rule.plain(id))).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, name) in &plain {
        *counts.entry(name).or_default() += 1;
    }
    let mut taken = BTreeSet::new();
    let named = plain.iter().map(|(id, name)| {
        let fits = name.len() <= rule.chars_max && counts[name.as_str()] == 1;
        let name = if fits { name.clone() } else { rule.hashed(id, name) };
        if taken.insert(name.clone()) {
            Ok(name.into())
        } else {
            Err(format!("another tool already has the name `{name}`"))
        }
    });
    named.collect()
}

/// Whether a name is equivalent to the id.
pub(super) fn is_unchanged(id: &ToolId, name: &str) -> bool {
    let (namespace, own) = (id.namespace(), id.name());
    if namespace.is_empty() { name == own } else { name == format!("{namespace}__{own}") }
}

/// The longest name of a member, in hosts that limit them.
const MEMBER_CHARS_MAX: usize = 64;

/// Unique member names that a host accepts, in their order.
pub(super) fn members(names: &[Arc<str>], rule: MemberNames) -> Vec<Arc<str>> {
    let takes = |c: char| c.is_ascii_alphanumeric() || rule.others.contains(c);
    let begins = |c: char| rule.begin_anyhow || c.is_ascii_alphabetic() || c == '_';
    let fits = |name: &str| {
        name.len() <= MEMBER_CHARS_MAX && name.starts_with(begins) && name.chars().all(takes)
    };
    // A valid name stays, whatever names the other members would get.
    let mut taken: BTreeSet<Arc<str>> = names.iter().filter(|name| fits(name)).cloned().collect();
    let named = names.iter().map(|name| {
        if fits(name) {
            return name.clone();
        }
        let plain = name.chars().map(|c| if takes(c) { c } else { '_' });
        let plain: String = plain.take(MEMBER_CHARS_MAX - HASH_CHARS - 3).collect();
        let hash = hex_digest(name.as_bytes());
        let candidates = [
            format!("p_{plain}"),
            format!("p_{plain}_{}", &hash[..HASH_CHARS]),
            format!("p_{}", &hash[..MEMBER_CHARS_MAX - 2]),
        ];
        let mut free = candidates.into_iter().map(Arc::<str>::from);
        let free = free.find(|name| !taken.contains(name));
        // All three are taken only if a member has the hash of another in its name.
        let free = free.unwrap_or_else(|| name.clone());
        taken.insert(free.clone());
        free
    });
    named.collect()
}
