//! `context_fold`: shortens a text to its most relevant sentences, in their order.
//!
//! A sentence scores by words that are frequent in the text and rare among its sentences, by its
//! position and by the words of a query. Sentences are taken best first while they add new words.
//! The same input always gives the same result.
//!
//! Not here: where sentences end ([`split`]); folds by a model ([`abstractive`]). Without a model an
//! `abstractive` fold is extractive, and its result says so.

mod abstractive;
mod select;
mod split;

use std::sync::Arc;

use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::value::Value;

use super::args::ToolArgs;
use super::{BuiltinSpec, Pure, TextModel, over_limit, rounded};
use crate::tools::{Tool, ToolError};
use abstractive::FoldWithModel;
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

/// `context_fold` with a model for `strategy: abstractive`.
pub(super) fn tool_with_model(model: Arc<dyn TextModel>, limits: &Limits) -> Tool {
    FOLD.tool(Arc::new(FoldWithModel { limits: Arc::new(limits.clone()), model }))
}

fn fold(args: &Value, _limits: &Limits) -> Result<Value, ToolError> {
    let request = Request::read(args)?;
    let folded = Folded::of(&request, request.budget(), request.chars_max);
    Ok(folded.value(&split::units(&request.parts), request.total(), request.is_abstractive))
}

/// The texts to fold, and how far.
struct Request<'a> {
    parts: Vec<&'a str>,
    ratio: f64,
    chars_max: usize,
    query: &'a str,
    is_abstractive: bool,
}

impl<'a> Request<'a> {
    fn read(args: &'a Value) -> Result<Request<'a>, ToolError> {
        let args = ToolArgs(args);
        let parts = contents(args)?;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes > CONTENT_BYTES_MAX {
            return Err(over_limit("the size of `content`", CONTENT_BYTES_MAX, "bytes"));
        }
        Ok(Request {
            parts,
            ratio: args.number_or("target_ratio", 0.5)?.clamp(0.05, 1.0),
            chars_max: args.count_or("max_chars", usize::MAX)?,
            query: args.text_or("query", "")?,
            is_abstractive: args.text_or("strategy", "extractive")? == "abstractive",
        })
    }

    fn whole(&self) -> String {
        self.parts.join("\n\n")
    }

    /// The length of the text, in characters.
    fn total(&self) -> usize {
        self.whole().chars().count()
    }

    /// The length that the result may have, in characters.
    fn budget(&self) -> usize {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length")]
        let wanted = (self.total() as f64 * self.ratio).floor() as usize;
        wanted.min(self.chars_max)
    }
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
    /// The most relevant sentences: about `budget` characters, and never more than `chars_max`.
    fn of(request: &Request<'_>, budget: usize, chars_max: usize) -> Folded {
        let units: Vec<TextUnit<'_>> = split::units(&request.parts);
        let total = request.total();
        if total <= budget && request.ratio >= 1.0 {
            return Folded { selection: Selection::everything(&units), text: request.whole() };
        }
        let selection = select::select(&units, budget, request.query);
        let text = cut(&select::join(&units, &selection.kept), chars_max);
        Folded { selection, text }
    }

    fn value(self, units: &[TextUnit<'_>], total: usize, wants_model: bool) -> Value {
        let is_sentence = |index: &&usize| units[**index].kind != UnitKind::Heading;
        let kept = self.selection.kept.iter().filter(is_sentence).count();
        let sentences = sentences(units);
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

fn sentences(units: &[TextUnit<'_>]) -> usize {
    units.iter().filter(|unit| unit.kind != UnitKind::Heading).count()
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
