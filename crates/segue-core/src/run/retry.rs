//! Retries: whether and when a failed attempt is repeated.

use super::journal::Failure;
use crate::composition::{Backoff, Composition, Step, Strategy};
use crate::diagnostic::Code;
use crate::limits::Limits;

/// Default number of retries of the strategy `retry`.
const STRATEGY_RETRIES: u32 = 3;

/// The number of retries of a step: its own, else the composition's, else the strategy's.
pub(super) fn retry_budget(step: &Step, composition: &Composition, strategy: Strategy) -> u32 {
    let by_strategy = if strategy == Strategy::Retry { STRATEGY_RETRIES } else { 0 };
    step.retry.max.or(composition.error_handling.max_retries).unwrap_or(by_strategy)
}

/// Whether another attempt may help.
///
/// A call in doubt may have done its work; it is repeated only if that is harmless. A step that
/// `begins_anew` repeats everything inside it, so it also repeats a step inside whose own retries
/// are exhausted.
pub(super) fn may_retry(
    step: &Step,
    failure: &Failure,
    is_repeatable: bool,
    begins_anew: bool,
) -> bool {
    let wanted = step.retry.on.is_empty() || step.retry.on.contains(&failure.code);
    let may_help = failure.retryable || begins_anew && failure.code == Code::RetriesExhausted;
    may_help && wanted && (!failure.in_doubt || is_repeatable)
}

/// The delay before attempt `next` (2 is the first retry), with full jitter from `entropy`.
pub(crate) fn delay_ms(
    backoff: &Backoff,
    failure: &Failure,
    next: u32,
    entropy: u64,
    limits: &Limits,
) -> u64 {
    let capped = backoff.wait_ms(next.saturating_sub(1));
    let drawn = if backoff.jitter { entropy % (capped + 1) } else { capped };
    let asked = failure.retry_after_ms.unwrap_or(0).min(limits.retry_after_ms_max);
    drawn.max(asked)
}

/// The failure of a call that timed out.
pub(super) fn timeout_failure(timeout_ms: u64, is_read_only: bool) -> Failure {
    let message = format!("no answer within {timeout_ms} ms");
    let mut failure = Failure::transient(Code::Timeout, message);
    failure.in_doubt = !is_read_only;
    failure.hint = Some("raise `timeout`, or find out why the tool is slow".into());
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C6, S0-51: delays grow, stay within the cap, and are spread over all of it.
    #[test]
    fn backoff_grows_to_its_cap_and_is_spread() {
        let failure = Failure::transient(Code::ToolError, "x");
        let limits = Limits::default();
        let plain = Backoff { jitter: false, ..Backoff::default() };
        let delays: Vec<u64> =
            (2..10).map(|next| delay_ms(&plain, &failure, next, 0, &limits)).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        let drawn: std::collections::BTreeSet<u64> = (0..1000)
            .map(|seed: u64| {
                let entropy = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                delay_ms(&Backoff::default(), &failure, 2, entropy, &limits)
            })
            .collect();
        assert!(drawn.len() > 80 && drawn.iter().all(|delay| *delay <= 100));
    }

    /// C7: `Retry-After` is honoured up to its cap.
    #[test]
    fn retry_after_is_honoured_and_capped() {
        let limits = Limits::default();
        let wait = |asked| {
            let failure =
                Failure { retry_after_ms: Some(asked), ..Failure::transient(Code::ToolError, "x") };
            delay_ms(&Backoff::default(), &failure, 2, 0, &limits)
        };
        assert_eq!(wait(2_000), 2_000);
        assert_eq!(wait(u64::MAX), limits.retry_after_ms_max);
    }
}
