//! The manual shipped with the program, as checkpoints.

use super::store::Checkpoint;

/// Name and text; each text begins with a heading.
const TEXTS: &[(&str, &str)] = &[
    ("retries", include_str!("../manual/retries.md")),
    ("rollback", include_str!("../manual/rollback.md")),
    ("dataflow", include_str!("../manual/dataflow.md")),
    ("expressions", include_str!("../manual/expressions.md")),
    ("durable-runs", include_str!("../manual/durable-runs.md")),
    ("doubt", include_str!("../manual/doubt.md")),
    ("confirmation", include_str!("../manual/confirmation.md")),
    ("checking", include_str!("../manual/checking.md")),
    ("compositions-as-tools", include_str!("../manual/compositions-as-tools.md")),
    ("loops", include_str!("../manual/loops.md")),
    ("timeouts", include_str!("../manual/timeouts.md")),
    ("secrets", include_str!("../manual/secrets.md")),
];

pub(super) fn checkpoints() -> Vec<Checkpoint> {
    TEXTS.iter().map(|(name, text)| checkpoint(name, text)).collect()
}

fn checkpoint(name: &str, text: &str) -> Checkpoint {
    let (title, content) = text.split_once('\n').unwrap_or((text, ""));
    Checkpoint {
        id: format!("manual_{name}"),
        summary: title.trim_start_matches('#').trim().to_owned(),
        content: content.trim().to_owned(),
        tags: vec!["manual".to_owned()],
        created_at: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each text is short enough to read and long enough to be useful.
    #[test]
    fn every_text_has_a_heading_and_a_fitting_length() {
        for checkpoint in checkpoints() {
            let words = checkpoint.content.split_whitespace().count();
            assert!((60..=150).contains(&words), "{} has {words} words", checkpoint.id);
            assert!(!checkpoint.summary.is_empty(), "{}", checkpoint.id);
        }
    }
}
