//! Who answers the questions of a run: before a call that destroys, for an approval, about a call in
//! doubt.

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::run::{Question, QuestionKind};
use segue_core::value::Value;

/// Answers the questions of a run.
#[async_trait]
pub trait Confirmer: Send + Sync {
    /// The answer and who gave it. `None` leaves the question open, and the run waits.
    async fn confirm(&self, question: &Question) -> Option<Decision>;
}

/// An answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Yes or no. Of a call in doubt: whether it did its work.
    pub granted: bool,
    /// Whose word it is.
    pub by: Arc<str>,
    /// Data that comes with the answer: the data of an approval, or the value that a call in doubt
    /// returned.
    pub data: Value,
}

/// For runs without a person: denies calls that ask, and leaves questions open that only a person
/// can answer.
pub struct DenyAll;

#[async_trait]
impl Confirmer for DenyAll {
    async fn confirm(&self, question: &Question) -> Option<Decision> {
        match question.kind {
            QuestionKind::Run { .. } | QuestionKind::Call { .. } => {
                Some(Decision { granted: false, by: "nobody".into(), data: Value::Null })
            }
            QuestionKind::Approval { .. } | QuestionKind::Doubt { .. } => None,
        }
    }
}

/// Leaves every question open, for a later answer.
pub struct Defer;

#[async_trait]
impl Confirmer for Defer {
    async fn confirm(&self, _question: &Question) -> Option<Decision> {
        None
    }
}
