//! Names of schemas → identifiers of languages.

use std::collections::BTreeSet;

/// The words of a name: split at every character that is no letter or digit, and before a capital
/// after a small letter.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_new = true;
    let mut was_small = false;
    for letter in name.chars() {
        if !letter.is_ascii_alphanumeric() {
            is_new = true;
            continue;
        }
        if is_new || (was_small && letter.is_ascii_uppercase()) {
            words.push(String::new());
        }
        is_new = false;
        was_small = letter.is_ascii_lowercase() || letter.is_ascii_digit();
        if let Some(word) = words.last_mut() {
            word.push(letter.to_ascii_lowercase());
        }
    }
    words
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

/// `max-results` → `MaxResults`. A name without letters is `Value`.
pub(super) fn pascal(name: &str) -> String {
    let text: String = words(name).iter().map(|word| capitalised(word)).collect();
    if text.is_empty() { "Value".to_owned() } else { text }
}

/// `maxResults` → `max_results`. A name without letters is `value`.
pub(super) fn snake(name: &str) -> String {
    let text = words(name).join("_");
    match text.chars().next() {
        None => "value".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("n{text}"),
        Some(_) => text,
    }
}

/// `max-results` → `maxResults`.
pub(super) fn camel(name: &str) -> String {
    let words = words(name);
    let rest = words.iter().skip(1).map(|word| capitalised(word));
    words.first().cloned().into_iter().chain(rest).collect()
}

/// Makes names unique.
#[derive(Default)]
pub(super) struct UniqueNames {
    names: BTreeSet<String>,
}

impl UniqueNames {
    /// A unique name: this one, or this one with the first free number.
    pub(super) fn claim(&mut self, name: &str) -> String {
        let numbered = (2..).map(|number| format!("{name}{number}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        let free = names.find(|name| !self.names.contains(name));
        let free = free.expect("there are more numbers than names");
        self.names.insert(free.clone());
        free
    }
}

/// The lines of a text for people, without characters that no source file may contain.
pub(super) fn lines(text: &str) -> Vec<String> {
    let clean = |line: &str| -> String {
        line.chars().filter(|letter| !letter.is_control()).collect::<String>().trim_end().to_owned()
    };
    let text = text.trim();
    if text.is_empty() { Vec::new() } else { text.split('\n').map(clean).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_names_of_languages() {
        assert_eq!(pascal("max-results"), "MaxResults");
        assert_eq!(pascal("élan_2 x"), "Lan2X");
        assert_eq!(pascal("ß"), "Value");
        assert_eq!(snake("maxResults"), "max_results");
        assert_eq!(snake("HTTPStatus"), "httpstatus");
        assert_eq!(snake("2nd try"), "n2nd_try");
        assert_eq!(camel("search-fold-store"), "searchFoldStore");
        let mut taken = UniqueNames::default();
        assert_eq!([taken.claim("a"), taken.claim("a"), taken.claim("a2")], ["a", "a2", "a22"]);
    }
}
