//! Reads how often a step is retried, and reports retries that cannot help.

use super::grammar::RETRY;
use super::native::read_backoff;
use super::reader::DialectReader;
use crate::composition::{Retry, StepKind};
use crate::diagnostic::Code;
use crate::document::Node;

/// Retries of `action: retry` without a count.
const RETRY_ACTION_DEFAULT: u32 = 3;

/// Why a retry of a step without a call and without a body cannot help.
pub(super) fn useless_retry(kind: &StepKind) -> Option<&'static str> {
    match kind {
        StepKind::Set(_) => Some("`set` calls nothing: an expression that failed fails again"),
        StepKind::Approve { .. } => Some("an answer is final: Segue does not ask again"),
        StepKind::Wait { .. } => Some("`wait` calls nothing that could succeed the next time"),
        _ => None,
    }
}

/// Reports `action: retry` where a retry cannot help.
pub(super) fn refuse_useless_retry(
    reader: &mut DialectReader<'_>,
    on_failure: &Node,
    kind: &StepKind,
) {
    let Some(why) = useless_retry(kind) else { return };
    let action = on_failure.get("action");
    if let Some(action) = action.filter(|node| node.as_str().is_some_and(|word| &**word == "retry"))
    {
        let message = format!("`{}` cannot be retried", kind.keyword());
        reader.error_with_help(Code::InvalidField, action.span, message, why);
    }
}

pub(super) fn read_retry(reader: &mut DialectReader<'_>, node: &Node) -> Retry {
    let mut retry = Retry::default();
    let max = u64::from(reader.limits.retries_max);
    if let (Some(_), Some(second)) = (node.get("retry_count"), node.get("retry")) {
        let message = "`retry_count` and `retry` say the same thing";
        reader.error_with_help(Code::InvalidField, second.span, message, "keep one of them");
    }
    if let Some(count) = node.get("retry_count") {
        retry.max = reader.count(count, "`retry_count`", max);
    }
    let Some(node) = node.get("retry") else { return retry };
    if !reader.check_record(node, &RETRY, "`retry`") {
        return retry;
    }
    if let Some(count) = node.get("max") {
        retry.max = reader.count(count, "`max`", max);
    }
    retry.backoff = node.get("backoff").map(|n| read_backoff(reader, n));
    if let Some(codes) = node.get("on") {
        for code in reader.list(codes, "`on`") {
            retry.on.extend(read_code(reader, code));
        }
    }
    retry
}

fn read_code(reader: &mut DialectReader<'_>, node: &Node) -> Option<Code> {
    let names: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    reader.one_of(node, "an error code", &names).map(|position| Code::ALL[position])
}

pub(super) fn read_retry_action(reader: &mut DialectReader<'_>, node: &Node) -> Option<u32> {
    let is_retry = node.get("action").and_then(Node::as_str).is_some_and(|word| &**word == "retry");
    if !is_retry {
        return None;
    }
    let max = u64::from(reader.limits.retries_max);
    match node.get("max_retries") {
        Some(count) => reader.count(count, "`max_retries`", max),
        None => Some(RETRY_ACTION_DEFAULT),
    }
}
