//! Full-text search with ranking (BM25).
//!
//! The weight of rare words is smoothed, so that scores are meaningful among three texts as well as
//! among three thousand.

use std::collections::BTreeMap;

/// How quickly repetitions of a word stop counting.
const SATURATION: f64 = 1.2;

/// How much the length of a text lowers its score.
const LENGTH_WEIGHT: f64 = 0.75;

/// The minimum similarity of two questions: the score divided by the score of the question with
/// itself.
const SIMILAR_MIN: f64 = 0.6;

/// An inverted index.
pub(super) struct SearchIndex {
    /// The number of words in each text.
    lengths: Vec<f64>,
    /// For each word, the texts that have it and how often.
    places: BTreeMap<String, Vec<(usize, f64)>>,
}

impl SearchIndex {
    /// Indexes these texts; a text is known by its position.
    pub(super) fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> SearchIndex {
        let mut index = SearchIndex { lengths: Vec::new(), places: BTreeMap::new() };
        for text in texts {
            let position = index.lengths.len();
            let mut counts: BTreeMap<String, f64> = BTreeMap::new();
            let words = words(text);
            index.lengths.push(words.len() as f64);
            for word in words {
                *counts.entry(word).or_default() += 1.0;
            }
            for (word, count) in counts {
                index.places.entry(word).or_default().push((position, count));
            }
        }
        index
    }

    /// The score of every text, by position.
    pub(super) fn scores(&self, question: &str) -> Vec<f64> {
        let count = self.lengths.len() as f64;
        let mean = (self.lengths.iter().sum::<f64>() / count.max(1.0)).max(1.0);
        let mut scores = vec![0.0; self.lengths.len()];
        let mut asked = words(question);
        asked.sort_unstable();
        asked.dedup();
        for places in asked.iter().filter_map(|word| self.places.get(word)) {
            let rarity = (1.0 + (count + 1.0) / places.len() as f64).ln();
            for (position, times) in places {
                let length = 1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * self.lengths[*position] / mean;
                let weight = times * (SATURATION + 1.0) / (times + SATURATION * length);
                scores[*position] += rarity * weight;
            }
        }
        scores
    }

    /// All positions, best first; texts without a common word come last, in their order.
    pub(super) fn ranked(&self, question: &str) -> Vec<usize> {
        let scores = self.scores(question);
        let mut positions: Vec<usize> = (0..scores.len()).collect();
        positions.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
        positions
    }
}

/// The positions of similar earlier questions, nearest first.
pub fn rank_similar(question: &str, earlier: &[&str]) -> Vec<usize> {
    let index = SearchIndex::new(earlier.iter().copied().chain([question]));
    let mut scores = index.scores(question);
    let own = scores.pop().unwrap_or(0.0);
    let near = |position: &usize| own > 0.0 && scores[*position] >= own * SIMILAR_MIN;
    let ranked = index.ranked(question).into_iter();
    ranked.filter(|position| *position < earlier.len()).filter(near).collect()
}

/// Whether two questions have the same words in the same order.
pub fn is_same_query(one: &str, other: &str) -> bool {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    plain(one) == plain(other)
}

/// The words of a text: `createAuthor`, `create_author` and `create authors` have the same words.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut was_lower = false;
    for c in text.chars() {
        let begins = c.is_uppercase() && was_lower;
        if (begins || !c.is_alphanumeric()) && !word.is_empty() {
            words.push(stem(std::mem::take(&mut word)));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
    }
    if !word.is_empty() {
        words.push(stem(word));
    }
    words
}

/// Singular and plural get the same stem.
fn stem(mut word: String) -> String {
    if word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") {
        word.pop();
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_any_style_have_the_same_words() {
        for text in ["createAuthor", "create_author", "Create authors", "create-author!"] {
            assert_eq!(words(text), ["create", "author"], "{text}");
        }
        assert_eq!(words("HTTP2 é"), ["http2", "é"]);
        assert!(words(" … ").is_empty());
    }

    #[test]
    fn what_fits_best_comes_first() {
        let texts = ["reads a file", "creates an author of blogs", "creates a blog", "sleeps"];
        let index = SearchIndex::new(texts);
        assert_eq!(index.ranked("create a blog"), [2, 1, 0, 3]);
        assert_eq!(index.ranked("nothing like it"), [0, 1, 2, 3]);
        assert!(index.scores("zzz").iter().all(|score| *score == 0.0));
    }

    /// Questions that differ in a name are similar; questions that share only small words are not.
    #[test]
    fn similar_questions_are_found_whatever_else_there_is() {
        let earlier = [
            "Delete the old invoices of the customer",
            "Create author Alice, then a blog by Alice",
            "Summarise the file and store it",
        ];
        let asked = "create author Bob, then a blog by Bob";
        assert_eq!(rank_similar(asked, &earlier), [1]);
        assert_eq!(rank_similar(asked, &earlier[1..2]), [0]);
        assert!(rank_similar("Delete the author", &earlier).is_empty());
        assert!(rank_similar("", &earlier).is_empty());
        assert!(is_same_query(" Create  author ", "create author") && !is_same_query("a b", "b a"));
    }
}
