//! The trace context of a run, after W3C Trace Context.
//!
//! Nothing is random and nothing is stored: the id of every span follows from the run and the entry
//! that it describes. So the tool call and the exporter name the same span independently, and a run
//! that is resumed after a crash continues the same trace.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::CallId;
use super::journal::NodeId;

/// The trace of a run. Stored as a `traceparent`; a run without a parent span has a parent of
/// zeros.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceContext {
    /// The trace id.
    pub trace_id: [u8; 16],
    /// The span of the caller that started the run.
    pub parent: Option<SpanId>,
    /// Whether the trace is sampled.
    pub is_sampled: bool,
}

/// The id of a span within its trace.
pub type SpanId = [u8; 8];

/// The subject of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanSubject {
    /// The run; above 0 for a finished run that was opened again by a rollback.
    Run(u32),
    /// A step.
    Step(NodeId),
    /// One attempt of a step.
    Attempt(CallId),
}

impl TraceContext {
    /// The trace of a run without a parent: its id is the run's own.
    pub fn of_run(run_id: &str) -> TraceContext {
        let digits = run_id.replace('-', "");
        let hashed = || {
            let digest = Sha256::digest(run_id.as_bytes());
            std::array::from_fn(|at| digest[at])
        };
        let trace_id = bytes::<16>(&digits).unwrap_or_else(hashed);
        TraceContext { trace_id, parent: None, is_sampled: true }
    }

    /// Parses a caller's `traceparent`; `None` if it is invalid.
    pub fn parse(traceparent: &str) -> Option<TraceContext> {
        TraceContext::read(traceparent).filter(|trace| trace.parent.is_some())
    }

    fn read(text: &str) -> Option<TraceContext> {
        let mut parts = text.trim().split('-');
        let (version, trace_id) = (bytes::<1>(parts.next()?)?, bytes::<16>(parts.next()?)?);
        let (parent, flags) = (bytes::<8>(parts.next()?)?, bytes::<1>(parts.next()?)?);
        // Later versions may have more fields; this one has not.
        let is_readable = match version {
            [0] => parts.next().is_none(),
            [version] => version != 0xff,
        };
        let is_named = trace_id != [0; 16];
        let parent = Some(parent).filter(|parent| *parent != [0; 8]);
        let is_kept = flags[0] & 1 == 1;
        (is_readable && is_named).then_some(TraceContext { trace_id, parent, is_sampled: is_kept })
    }

    /// The id of a span of this run.
    pub fn span(&self, run_id: &str, of: SpanSubject) -> SpanId {
        let name = match of {
            SpanSubject::Run(0) => format!("{run_id}/run"),
            SpanSubject::Run(nth) => format!("{run_id}/run/{nth}"),
            SpanSubject::Step(NodeId { frame, position }) => {
                format!("{run_id}/step/{frame}/{position}")
            }
            SpanSubject::Attempt(CallId { node: NodeId { frame, position }, attempt }) => {
                format!("{run_id}/attempt/{frame}/{position}/{attempt}")
            }
        };
        let digest = Sha256::digest(name.as_bytes());
        let mut span: SpanId = std::array::from_fn(|at| digest[at]);
        // All zeros means no span.
        span[7] |= 1;
        span
    }

    /// The `traceparent` of a call, so that the tool continues the trace.
    pub fn traceparent(&self, span: SpanId) -> Arc<str> {
        TraceContext { parent: Some(span), ..self.clone() }.to_string().into()
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace_id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.parent.unwrap_or_default().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "-{:02x}", u8::from(self.is_sampled))
    }
}

impl TryFrom<String> for TraceContext {
    type Error = &'static str;

    fn try_from(text: String) -> Result<TraceContext, &'static str> {
        TraceContext::read(&text).ok_or("no trace context")
    }
}

impl From<TraceContext> for String {
    fn from(trace: TraceContext) -> String {
        trace.to_string()
    }
}

/// Exactly N bytes in lower-case hex.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 2 * N || !text.bytes().all(is_hex) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_a_caller_gives_is_read_and_carried_on() {
        let trace = TraceContext::parse(GIVEN).unwrap();
        assert_eq!(trace.to_string(), GIVEN);
        assert!(trace.is_sampled);
        let sent = trace.traceparent([1; 8]);
        assert_eq!(&*sent, "00-0af7651916cd43dd8448eb211c80319c-0101010101010101-01");
        assert!(!TraceContext::parse(&GIVEN.replace("-01", "-00")).unwrap().is_sampled);
        // A later version may have more fields.
        assert!(TraceContext::parse(&format!("cc{}-more", &GIVEN[2..])).is_some());
    }

    #[test]
    fn what_is_no_trace_context_is_left_alone() {
        let zeros = "0".repeat(32);
        for wrong in [
            "",
            "00",
            &GIVEN.to_uppercase(),
            &GIVEN.replace("00-", "ff-"),
            &format!("{GIVEN}-more"),
            &GIVEN.replace("0af7651916cd43dd8448eb211c80319c", &zeros),
            &GIVEN.replace("b7ad6b7169203331", &zeros[..16]),
            "00-é",
        ] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_run_of_its_own_has_the_trace_of_its_id() {
        let run_id = "0199e2c4-0000-7000-8000-0123456789ab";
        let trace = TraceContext::of_run(run_id);
        assert_eq!(
            trace.to_string(),
            "00-0199e2c4000070008000".to_owned() + "0123456789ab-0000000000000000-01"
        );
        let json = serde_json::to_string(&trace).unwrap();
        assert_eq!(serde_json::from_str::<TraceContext>(&json).unwrap(), trace);
        let node = NodeId { frame: 0, position: 1 };
        let spans = [
            SpanSubject::Run(0),
            SpanSubject::Run(1),
            SpanSubject::Step(node),
            SpanSubject::Attempt(CallId { node, attempt: 1 }),
            SpanSubject::Attempt(CallId { node, attempt: 2 }),
        ];
        let named: std::collections::BTreeSet<SpanId> =
            spans.iter().map(|of| trace.span(run_id, *of)).collect();
        assert_eq!(named.len(), spans.len());
        assert_eq!(TraceContext::of_run("named by somebody").trace_id.len(), 16);
    }
}
