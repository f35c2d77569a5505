//! The questions that wait for a person, of all runs that the caller may see.

use std::sync::Arc;

use schemars::JsonSchema;
use segue_core::access::Principal;
use segue_core::view::{RunStatus, Timestamp, WaitView};
use segue_runtime::driver::now_ms;
use segue_runtime::store::RunQuery;
use serde::Serialize;

use super::error::Error;
use super::runs::RunService;

/// How many waiting runs are listed; the newest.
const RUNS_MAX: usize = 200;

/// The questions that wait.
#[derive(Debug, Serialize, JsonSchema)]
pub struct QuestionList {
    /// Of the newest run first.
    pub questions: Vec<WaitingQuestion>,
}

/// A question that waits for a person.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WaitingQuestion {
    /// The run that asks.
    pub run_id: Arc<str>,
    /// The name of its composition.
    pub name: Arc<str>,
    /// The principal that started the run; null for a run of the command line.
    pub principal: Option<Arc<str>>,
    /// Since when the run waits, as RFC 3339.
    pub asked_at: Timestamp,
    /// When an answer comes too late, as RFC 3339; null if never.
    pub expires_at: Option<Timestamp>,
    /// How many principals have to approve; null means one.
    pub approvers_needed: Option<u32>,
    /// Whether the caller may answer it.
    pub answerable: bool,
    /// Why the caller may not answer it, for people; null if it may.
    pub not_answerable_because: Option<&'static str>,
    /// The question.
    pub question: WaitView,
}

/// The questions of the runs that a caller may see.
pub async fn questions(service: &RunService, who: &Principal) -> Result<QuestionList, Error> {
    let statuses = vec![RunStatus::Waiting];
    let query = RunQuery { statuses, limit: RUNS_MAX, ..RunQuery::default() };
    let mut questions = Vec::new();
    for row in service.runs(who, query).await?.runs {
        // A run that ended meanwhile, or whose record is damaged, asks nothing.
        let Ok(stored) = service.stored(who, &row.run_id).await else { continue };
        let waiting = stored.run.view().waiting_for.into_iter();
        let asked_at = Timestamp(stored.row.updated_ms);
        let expires_at = stored.run.next_timer_ms(now_ms()).map(Timestamp);
        let starter = row.caller.as_ref().map(|caller| &*caller.principal);
        let refusal = service.answer_refusal(who, starter);
        questions.extend(waiting.map(|question| WaitingQuestion {
            run_id: row.run_id.clone(),
            name: row.name.clone(),
            principal: row.caller.as_ref().map(|caller| caller.principal.clone()),
            asked_at,
            expires_at,
            approvers_needed: None,
            answerable: refusal.is_none(),
            not_answerable_because: refusal,
            question,
        }));
    }
    Ok(QuestionList { questions })
}
