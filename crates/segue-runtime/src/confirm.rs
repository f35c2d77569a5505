//! Who answers the questions of a run: before a call that destroys, for an approval, about a call in
//! doubt.

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::run::{Question, QuestionKind};
use segue_core::value::Value;

/// Answers the questions of a run.
#[async_trait]
pub trait Confirmer: Send + Sync {
    /// The answer, and whose it is; nothing leaves the question open, and the run waits.
    async fn confirm(&self, question: &Question) -> Option<Decision>;
}

/// An answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Yes or no. Of a call in doubt: whether it did its work.
    pub granted: bool,
    /// Whose word it is.
    pub by: Arc<str>,
    /// What comes with it: the data of an approval, or what a call in doubt returned.
    pub data: Value,
}

/// Nobody is there to ask: no call is allowed, and what only a person can know is left open.
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

/// Leaves every question to somebody who comes later.
pub struct Defer;

#[async_trait]
impl Confirmer for Defer {
    async fn confirm(&self, _question: &Question) -> Option<Decision> {
        None
    }
}
