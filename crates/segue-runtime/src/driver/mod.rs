//! Drivers move a run: effects become calls, calls become events. They decide nothing.

mod chance;
mod local;

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::run::{Entry, Question, Run};

pub use chance::{Chance, now_ms};
pub use local::{Drive, drive};

/// Says yes or no to a call that asks first.
#[async_trait]
pub trait Confirmer: Send + Sync {
    /// The answer, and whose it is.
    async fn confirm(&self, question: &Question) -> Decision;
}

/// An answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Yes or no.
    pub granted: bool,
    /// Whose word it is.
    pub by: Arc<str>,
}

/// Nobody is there to ask, so the answer is no.
pub struct Nobody;

#[async_trait]
impl Confirmer for Nobody {
    async fn confirm(&self, _question: &Question) -> Decision {
        Decision { granted: false, by: "nobody".into() }
    }
}

/// Watches a run. Called after the entries are durable, before what they announce is done.
pub trait Observer: Send + Sync {
    /// Something became true.
    fn observe(&self, run: &Run, entries: &[Entry]);
}

/// Looks away.
pub struct Unobserved;

impl Observer for Unobserved {
    fn observe(&self, _run: &Run, _entries: &[Entry]) {}
}
