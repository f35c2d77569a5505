//! Names that a host takes: the same for the same tool whatever else is exported, unless two would be
//! the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ExportFormat;
use super::profile::MemberNames;
use crate::composition::tool::hex_digest;
use crate::id::ToolId;

/// Hexadecimal digits of the hash that tells shortened names apart.
const HASH_CHARS: usize = 8;

/// What the names of a format look like.
struct NameRule {
    chars_max: usize,
    /// Hosts of MCP tell names apart without regard to case, and put the server's before them.
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

    /// `namespace__name`, in the characters of the format. The namespace is never left out: two servers
    /// may well have a `search` each.
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

    /// A name that no other tool has: shorter, and with a hash of the id.
    fn hashed(&self, id: &ToolId, plain: &str) -> String {
        let kept = plain.len().min(self.chars_max - HASH_CHARS - 1);
        let hash = hex_digest(id.as_str().as_bytes());
        format!("{}_{}", &plain[..kept], &hash[..HASH_CHARS])
    }
}

/// What a tool is called, or why it cannot be called anything.
pub(super) type ExportName = Result<Arc<str>, String>;

/// The name of each tool, in their order.
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
            Err(format!("another tool is called `{name}` already"))
        }
    });
    named.collect()
}

/// Whether a name says no more and no less than the id.
pub(super) fn is_unchanged(id: &ToolId, name: &str) -> bool {
    let (namespace, own) = (id.namespace(), id.name());
    if namespace.is_empty() { name == own } else { name == format!("{namespace}__{own}") }
}

/// The longest name of a member, where their names are limited.
const MEMBER_CHARS_MAX: usize = 64;

/// Names of members that a host takes, in their order; each once.
pub(super) fn members(names: &[Arc<str>], rule: MemberNames) -> Vec<Arc<str>> {
    let takes = |c: char| c.is_ascii_alphanumeric() || rule.others.contains(c);
    let begins = |c: char| rule.begin_anyhow || c.is_ascii_alphabetic() || c == '_';
    let fits = |name: &str| {
        name.len() <= MEMBER_CHARS_MAX && name.starts_with(begins) && name.chars().all(takes)
    };
    // What fits keeps its name, whatever the others would like to be called.
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
        // Somebody would have to know the hash of a name to take all three.
        let free = free.unwrap_or_else(|| name.clone());
        taken.insert(free.clone());
        free
    });
    named.collect()
}
