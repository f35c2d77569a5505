//! Search for tools by words: ranked, and tolerant of typos.
//!
//! Every word has to fit the name or the description of a tool. A word fits better the more of the name it
//! is. Only if no tool fits as written, words fit that differ by a typo.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::tool::ToolSpec;

/// How well a word fits a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// A word of the description differs by a typo.
    DescriptionTypo,
    /// A part of the name differs by a typo.
    NameTypo,
    /// The description has it inside a word.
    InDescription,
    /// A word of the description begins with it.
    DescriptionStart,
    /// A word of the description is it.
    DescriptionWord,
    /// The id has it.
    InName,
    /// A part of the name begins with it.
    NameStart,
    /// A part of the name is it.
    NamePart,
    /// It is the id, or the name without its namespace.
    Name,
}

impl Fit {
    fn is_typo(self) -> bool {
        self <= Fit::NameTypo
    }
}

/// The tools that fit all of these words, the best first; every tool, by id, without words.
pub fn search<'a>(
    tools: impl IntoIterator<Item = &'a Arc<ToolSpec>>,
    words: &str,
) -> Vec<&'a Arc<ToolSpec>> {
    let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
    let fits = |tool: &'a Arc<ToolSpec>| {
        let text = ToolText::of(tool);
        let fits: Option<Vec<Fit>> = words.iter().map(|word| text.fit(word)).collect();
        Some((fits?, tool))
    };
    let mut found: Vec<(Vec<Fit>, &Arc<ToolSpec>)> = tools.into_iter().filter_map(fits).collect();
    let is_as_written = |fits: &[Fit]| !fits.iter().any(|fit| fit.is_typo());
    if found.iter().any(|(fits, _)| is_as_written(fits)) {
        found.retain(|(fits, _)| is_as_written(fits));
    }
    let total = |fits: &[Fit]| fits.iter().map(|fit| 1u32 << *fit as u32).sum::<u32>();
    found.sort_by_cached_key(|(fits, tool)| (Reverse(total(fits)), tool.id.clone()));
    found.into_iter().map(|(_, tool)| tool).collect()
}

/// The texts of a tool, in lower case.
struct ToolText {
    id: String,
    name: String,
    description: String,
}

impl ToolText {
    fn of(tool: &ToolSpec) -> ToolText {
        ToolText {
            id: tool.id.as_str().to_lowercase(),
            name: tool.id.name().to_lowercase(),
            description: tool.description.to_lowercase(),
        }
    }

    fn fit(&self, word: &str) -> Option<Fit> {
        let name = || parts(&self.id);
        let description = || parts(&self.description);
        Some(if self.id == word || self.name == word {
            Fit::Name
        } else if name().any(|part| part == word) {
            Fit::NamePart
        } else if name().any(|part| part.starts_with(word)) {
            Fit::NameStart
        } else if self.id.contains(word) {
            Fit::InName
        } else if description().any(|part| part == word) {
            Fit::DescriptionWord
        } else if description().any(|part| part.starts_with(word)) {
            Fit::DescriptionStart
        } else if self.description.contains(word) {
            Fit::InDescription
        } else if name().any(|part| is_typo(word, part)) {
            Fit::NameTypo
        } else if description().any(|part| is_typo(word, part)) {
            Fit::DescriptionTypo
        } else {
            return None;
        })
    }
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty())
}

/// Longer words are not compared: the comparison costs the product of both lengths.
const WORD_BYTES_MAX: usize = 64;

/// Whether two words differ by so little that one may be a typo of the other.
fn is_typo(word: &str, other: &str) -> bool {
    let allowed = match word.chars().count() {
        0..=3 => return false,
        4..=6 => 1,
        _ => 2,
    };
    word.len().max(other.len()) <= WORD_BYTES_MAX && strsim::osa_distance(word, other) <= allowed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ToolId;
    use crate::schema::Schema;

    fn found(words: &str) -> Vec<String> {
        let tools = [
            ("git:commit", "Records changes of files"),
            ("files:read", "Reads a file"),
            ("files:search", "Searches files for a text"),
            ("web:search_images", "Finds images"),
            ("web:fetch", "Searches nothing: fetches a page"),
        ];
        let tools: Vec<Arc<ToolSpec>> = tools
            .into_iter()
            .map(|(id, description)| {
                let (namespace, name) = id.split_once(':').expect("ids have a namespace");
                let id = ToolId::new(namespace, name);
                Arc::new(ToolSpec::new(id, description, Schema::any()))
            })
            .collect();
        search(&tools, words).iter().map(|tool| tool.id.to_string()).collect()
    }

    #[test]
    fn the_name_ranks_before_the_description() {
        assert_eq!(found("search"), ["files:search", "web:search_images", "web:fetch"]);
        assert_eq!(found("files search"), ["files:search"]);
        assert_eq!(found("FILES"), ["files:read", "files:search", "git:commit"]);
        assert_eq!(found("").len(), 5);
        assert_eq!(found("nothing of it"), Vec::<String>::new());
    }

    #[test]
    fn typos_are_forgiven_if_nothing_fits_as_written() {
        assert_eq!(found("serach"), ["files:search", "web:search_images"]);
        assert_eq!(found("comit"), ["git:commit"]);
        assert_eq!(found("raed"), ["files:read"]);
        assert_eq!(found("xyz"), Vec::<String>::new());
    }
}
