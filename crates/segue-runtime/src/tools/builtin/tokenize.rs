//! Text → meaningful words, for search and summaries.

/// English stop words.
const COMMON: &[&str] = &[
    "a", "about", "after", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be",
    "because", "been", "before", "being", "but", "by", "can", "could", "did", "do", "does", "each",
    "for", "from", "had", "has", "have", "he", "her", "here", "him", "his", "how", "i", "if", "in",
    "into", "is", "it", "its", "just", "may", "me", "might", "more", "most", "my", "no", "nor",
    "not", "of", "off", "on", "one", "only", "or", "other", "our", "out", "over", "own", "same",
    "she", "should", "so", "some", "such", "than", "that", "the", "their", "them", "then", "there",
    "these", "they", "this", "those", "to", "too", "under", "until", "up", "us", "very", "was",
    "we", "were", "what", "when", "where", "which", "while", "who", "why", "will", "with", "would",
    "you", "your",
];

/// Whether a lower-case word is a stop word.
pub(super) fn is_common(word: &str) -> bool {
    COMMON.binary_search(&word).is_ok()
}

/// The words of a text in lower case. In scripts without spaces each character is a word.
pub(super) fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric())
        .flat_map(|run| {
            let spaced = !run.chars().any(is_unspaced);
            let whole = spaced.then(|| run.to_lowercase());
            let single = (!spaced).then(|| run.chars().map(String::from));
            whole.into_iter().chain(single.into_iter().flatten())
        })
        .filter(|word| !word.is_empty())
}

/// Chinese and Japanese characters.
pub(super) fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_so_that_it_can_be_searched() {
        assert!(COMMON.is_sorted());
        assert!(is_common("the") && !is_common("rollback"));
    }

    #[test]
    fn words_are_lower_case_and_split_where_the_script_does() {
        let of = |text| words(text).collect::<Vec<_>>();
        assert_eq!(of("Retry-After: 3"), ["retry", "after", "3"]);
        assert_eq!(of("日本 go"), ["日", "本", "go"]);
    }
}
