//! `context_fold`: shortens a text to its most relevant sentences, in their order.
//!
//! A sentence scores by words that are frequent in the text and rare among its sentences, by its
//! position and by the words of a query. Sentences are taken best first while they add new words.
//! The same input always gives the same result.
//!
//! Not here: where sentences end ([`split`]); models. Without a model an `abstractive` fold is
//! extractive, and its result says so.

mod select;
mod split;

use std::sync::Arc;

use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::value::Value;

use super::args::ToolArgs;
use super::{BuiltinSpec, Pure, over_limit, rounded};
use crate::tools::{Tool, ToolError};
use select::Selection;
use split::{TextUnit, UnitKind};

/// The size limit of a text.
const CONTENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The longest summary, in characters.
const SUMMARY_CHARS_MAX: usize = 400;

const NO_MODEL: &str = "no model is configured, so the text was folded extractively";

const FOLD: BuiltinSpec = BuiltinSpec::reads(
    "context_fold",
    "Shortens a text to its most relevant sentences, in their order",
    r#"{"type":"object","required":["content"],"additionalProperties":false,"properties":{
        "content":{"oneOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]},
        "strategy":{"enum":["extractive","abstractive"],"default":"extractive","description":"abstractive needs a model; without one it folds extractively and says so"},
        "target_ratio":{"type":"number","minimum":0.05,"maximum":1,"default":0.5,"description":"how much of the text stays"},
        "max_chars":{"type":"integer","minimum":1,"description":"how long the result may be at most"},
        "query":{"type":"string","description":"what the result should be about"}}}"#,
    r#"{"type":"object","required":["folded","summary","ratio","strategy","sentences_kept","sentences_total"],
        "additionalProperties":false,"properties":{
        "folded":{"type":"string"},
        "summary":{"type":"string","description":"the best one or two sentences"},
        "ratio":{"type":"number","description":"length of the result by length of the text"},
        "strategy":{"enum":["extractive","abstractive"],"description":"the one that was really used"},
        "sentences_kept":{"type":"integer"},
        "sentences_total":{"type":"integer"},
        "note":{"type":"string"}}}"#,
);

pub(super) fn tools(limits: &Arc<Limits>) -> Vec<Tool> {
    vec![FOLD.tool(Arc::new(Pure { limits: limits.clone(), run: fold, slow: false }))]
}

fn fold(args: &Value, _limits: &Limits) -> Result<Value, ToolError> {
    let args = ToolArgs(args);
    let parts = contents(args)?;
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    if bytes > CONTENT_BYTES_MAX {
        return Err(over_limit("the size of `content`", CONTENT_BYTES_MAX, "bytes"));
    }
    let ratio = args.number_or("target_ratio", 0.5)?.clamp(0.05, 1.0);
    let max_chars = args.count_or("max_chars", usize::MAX)?;
    let units: Vec<TextUnit<'_>> = split::units(&parts);
    let whole = parts.join("\n\n");
    let total = whole.chars().count();
    let folded = if total <= max_chars && ratio >= 1.0 {
        Folded { selection: Selection::everything(&units), text: whole }
    } else {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length")]
        let budget = ((total as f64 * ratio).floor() as usize).min(max_chars);
        let selection = select::select(&units, budget, args.text_or("query", "")?);
        let text = cut(&select::join(&units, &selection.kept), max_chars);
        Folded { selection, text }
    };
    Ok(folded.value(&units, total, args.text_or("strategy", "extractive")? == "abstractive"))
}

/// The texts to fold, without empty ones.
fn contents(args: ToolArgs<'_>) -> Result<Vec<&str>, ToolError> {
    let texts = match args.value("content") {
        Some(Value::String(text)) => vec![&**text],
        Some(Value::Array(_)) => args.texts("content")?,
        _ => return Err(ToolError::refused(Code::InputSchema, "`content` is not text")),
    };
    Ok(texts.into_iter().map(str::trim).filter(|text| !text.is_empty()).collect())
}

struct Folded {
    selection: Selection,
    text: String,
}

impl Folded {
    fn value(self, units: &[TextUnit<'_>], total: usize, wants_model: bool) -> Value {
        let is_sentence = |index: &&usize| units[**index].kind != UnitKind::Heading;
        let kept = self.selection.kept.iter().filter(is_sentence).count();
        let sentences = units.iter().filter(|unit| unit.kind != UnitKind::Heading).count();
        let ratio = self.text.chars().count() as f64 / total.max(1) as f64;
        let mut members = vec![
            ("summary", Value::from(self.summary(units))),
            ("folded", Value::from(self.text)),
            ("ratio", rounded(ratio)),
            ("strategy", Value::from("extractive")),
            ("sentences_kept", Value::from(kept)),
            ("sentences_total", Value::from(sentences)),
        ];
        if wants_model {
            members.push(("note", Value::from(NO_MODEL)));
        }
        Value::object(members)
    }

    /// The best sentence, and the second best when both are short.
    fn summary(&self, units: &[TextUnit<'_>]) -> String {
        let fits = |index: &&usize| {
            let unit = units[**index];
            matches!(unit.kind, UnitKind::Sentence | UnitKind::Item)
                && unit.chars <= SUMMARY_CHARS_MAX
        };
        let mut best: Vec<usize> =
            self.selection.best_first.iter().filter(fits).take(2).copied().collect();
        let chars: usize = best.iter().map(|index| units[*index].chars + 1).sum();
        if chars > SUMMARY_CHARS_MAX {
            best.truncate(1);
        }
        best.sort_unstable();
        let texts: Vec<&str> = best.iter().map(|index| units[*index].text).collect();
        let text = if texts.is_empty() {
            self.text.lines().next().unwrap_or("")
        } else {
            &texts.join(" ")
        };
        cut(&text.split_whitespace().collect::<Vec<_>>().join(" "), SUMMARY_CHARS_MAX)
    }
}

/// Cuts a text to at most so many characters, at a word boundary where there is one.
fn cut(text: &str, chars_max: usize) -> String {
    if text.char_indices().nth(chars_max).is_none() {
        return text.to_owned();
    }
    let end = text.char_indices().nth(chars_max.saturating_sub(1)).map_or(0, |(end, _)| end);
    let head = &text[..end];
    let word_end = head.rfind(char::is_whitespace).filter(|end| *end > head.len() / 2);
    format!("{}…", head[..word_end.unwrap_or(head.len())].trim_end())
}
