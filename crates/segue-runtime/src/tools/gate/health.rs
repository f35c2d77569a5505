//! The health of a tool: a retry budget and a circuit breaker, without a clock.
//!
//! Time is passed in as milliseconds since any fixed moment. Both protect a failing source from a
//! storm of retries; neither has an effect while the source is healthy.

use segue_core::limits::Limits;

/// The health of one tool, derived from its calls.
#[derive(Debug)]
pub(super) struct Health {
    budget: RetryBudget,
    breaker: CircuitBreaker,
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GateRefusal {
    /// Too many of the latest calls were retries.
    NoBudget,
    /// The breaker is open, for this long or until its probe is answered.
    Open {
        /// When a call may be tried again.
        retry_after_ms: u64,
    },
}

/// What a call shows about its tool's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallOutcome {
    /// It answered, even if it refused.
    Answered,
    /// It could not be reached, or did not answer.
    Absent,
    /// Nothing: the call was abandoned.
    None,
}

impl Health {
    pub(super) fn new(limits: &Limits) -> Health {
        Health { budget: RetryBudget::new(limits), breaker: CircuitBreaker::new(limits) }
    }

    /// Whether a call would be refused now.
    pub(super) fn check(&self, now_ms: u64) -> Result<(), GateRefusal> {
        self.breaker.check(now_ms)
    }

    /// Admits a call; true when it is the probe that shows whether the source is back.
    pub(super) fn admit(&mut self, now_ms: u64, is_retry: bool) -> Result<bool, GateRefusal> {
        self.breaker.check(now_ms)?;
        if is_retry {
            self.budget.spend(now_ms)?;
        } else {
            self.budget.earn(now_ms);
        }
        Ok(self.breaker.enter())
    }

    /// Records the end of an admitted call.
    pub(super) fn settle(&mut self, now_ms: u64, is_probe: bool, sign: CallOutcome) {
        self.breaker.settle(now_ms, is_probe, sign);
    }
}

/// One retry, in the unit of the budget.
const RETRY: u64 = 1_000;

/// A token bucket: every first attempt earns a fraction of a retry, and so does every second.
#[derive(Debug)]
struct RetryBudget {
    /// In thousandths of a retry.
    saved: u64,
    saved_max: u64,
    per_call: u64,
    per_ms: u64,
    at_ms: u64,
}

impl RetryBudget {
    fn new(limits: &Limits) -> RetryBudget {
        let saved_max = u64::from(limits.retries_saved_max) * RETRY;
        RetryBudget {
            saved: saved_max,
            saved_max,
            per_call: u64::from(limits.retry_percent_max) * RETRY / 100,
            per_ms: u64::from(limits.retries_per_second_min) * RETRY / 1_000,
            at_ms: 0,
        }
    }

    fn wait(&mut self, now_ms: u64) {
        let waited = now_ms.saturating_sub(self.at_ms);
        self.at_ms = now_ms.max(self.at_ms);
        self.add(waited.saturating_mul(self.per_ms));
    }

    fn add(&mut self, part: u64) {
        self.saved = self.saved.saturating_add(part).min(self.saved_max);
    }

    fn earn(&mut self, now_ms: u64) {
        self.wait(now_ms);
        self.add(self.per_call);
    }

    fn spend(&mut self, now_ms: u64) -> Result<(), GateRefusal> {
        self.wait(now_ms);
        self.saved = self.saved.checked_sub(RETRY).ok_or(GateRefusal::NoBudget)?;
        Ok(())
    }
}

/// Closed while the source answers. Open after too many unanswered calls in a row; then one call at
/// a time probes whether the source is back.
#[derive(Debug)]
struct CircuitBreaker {
    state: State,
    /// Zero means that it never opens.
    failures_max: u32,
    open_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Open { until_ms: u64 },
    Probing,
}

impl CircuitBreaker {
    fn new(limits: &Limits) -> CircuitBreaker {
        CircuitBreaker {
            state: State::Closed { failures: 0 },
            failures_max: limits.breaker_failures_max,
            open_ms: limits.breaker_open_ms,
        }
    }

    fn check(&self, now_ms: u64) -> Result<(), GateRefusal> {
        match self.state {
            State::Open { until_ms } if now_ms < until_ms => {
                Err(GateRefusal::Open { retry_after_ms: until_ms - now_ms })
            }
            State::Probing => Err(GateRefusal::Open { retry_after_ms: self.open_ms }),
            State::Closed { .. } | State::Open { .. } => Ok(()),
        }
    }

    /// Counts a call that [`CircuitBreaker::check`] admitted.
    fn enter(&mut self) -> bool {
        let is_probe = matches!(self.state, State::Open { .. });
        if is_probe {
            self.state = State::Probing;
        }
        is_probe
    }

    fn settle(&mut self, now_ms: u64, is_probe: bool, sign: CallOutcome) {
        let open = State::Open { until_ms: now_ms.saturating_add(self.open_ms) };
        self.state = match (self.state, sign) {
            (State::Closed { .. }, CallOutcome::Answered) => State::Closed { failures: 0 },
            (State::Closed { failures }, CallOutcome::Absent) => {
                let failures = failures.saturating_add(1);
                let opens = self.failures_max > 0 && failures >= self.failures_max;
                if opens { open } else { State::Closed { failures } }
            }
            (State::Probing, CallOutcome::Answered) if is_probe => State::Closed { failures: 0 },
            (State::Probing, CallOutcome::Absent) if is_probe => open,
            // An abandoned probe has shown nothing: the next call may probe.
            (State::Probing, CallOutcome::None) if is_probe => State::Open { until_ms: now_ms },
            // Calls sent before the breaker opened decide nothing. Only the probe ends the probing,
            // so there are never two probes.
            (state, _) => state,
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits() -> Limits {
        Limits { breaker_failures_max: 3, retries_saved_max: 2, ..Limits::default() }
    }

    fn fail(health: &mut Health, now_ms: u64) {
        let probe = health.admit(now_ms, false).unwrap();
        health.settle(now_ms, probe, CallOutcome::Absent);
    }

    /// C5: the breaker opens within N failures, and one call at a time probes whether the source is
    /// back.
    #[test]
    fn the_breaker_opens_and_probes_one_at_a_time() {
        let mut health = Health::new(&limits());
        (0..3).for_each(|_| fail(&mut health, 100));
        assert_eq!(health.admit(100, false), Err(GateRefusal::Open { retry_after_ms: 5_000 }));
        assert_eq!(health.admit(5_099, false), Err(GateRefusal::Open { retry_after_ms: 1 }));
        assert_eq!(health.admit(5_100, false), Ok(true));
        assert_eq!(health.admit(5_200, false), Err(GateRefusal::Open { retry_after_ms: 5_000 }));
        health.settle(5_300, true, CallOutcome::Absent);
        assert_eq!(health.check(10_299), Err(GateRefusal::Open { retry_after_ms: 1 }));
        assert_eq!(health.admit(10_300, false), Ok(true));
        health.settle(10_400, true, CallOutcome::None);
        assert_eq!(health.admit(10_400, false), Ok(true));
        health.settle(10_500, true, CallOutcome::Answered);
        assert_eq!(health.admit(10_500, false), Ok(false));
    }

    /// A refusal by the tool is an answer, and zero turns the breaker off.
    #[test]
    fn only_silence_counts() {
        let mut health = Health::new(&limits());
        for _ in 0..10 {
            fail(&mut health, 0);
            fail(&mut health, 0);
            assert_eq!(health.admit(0, false), Ok(false));
            health.settle(0, false, CallOutcome::Answered);
        }
        let mut off = Health::new(&Limits { breaker_failures_max: 0, ..limits() });
        (0..1_000).for_each(|_| fail(&mut off, 0));
    }

    #[test]
    fn the_budget_is_a_part_of_the_calls_and_a_little_time() {
        let mut health = Health::new(&limits());
        assert_eq!([health.admit(0, true), health.admit(0, true)], [Ok(false), Ok(false)]);
        assert_eq!(health.admit(0, true), Err(GateRefusal::NoBudget));
        (0..9).for_each(|_| assert_eq!(health.admit(0, false), Ok(false)));
        assert_eq!(health.admit(0, true), Err(GateRefusal::NoBudget));
        assert_eq!(health.admit(0, false), Ok(false));
        assert_eq!(health.admit(0, true), Ok(false));
        assert_eq!(health.admit(999, true), Err(GateRefusal::NoBudget));
        assert_eq!(health.admit(1_000, true), Ok(false));
        assert_eq!(health.admit(1_000, true), Err(GateRefusal::NoBudget));
    }

    /// Events of a tool: time passes, a call starts, a call ends.
    #[derive(Clone, Debug)]
    enum Act {
        Wait(u64),
        Call { is_retry: bool },
        Settle { which: usize, sign: CallOutcome },
    }

    fn act() -> impl Strategy<Value = Act> {
        let sign = prop_oneof![
            Just(CallOutcome::Answered),
            Just(CallOutcome::Absent),
            Just(CallOutcome::None)
        ];
        prop_oneof![
            (0..3_000_u64).prop_map(Act::Wait),
            any::<bool>().prop_map(|is_retry| Act::Call { is_retry }),
            (any::<usize>(), sign).prop_map(|(which, sign)| Act::Settle { which, sign }),
        ]
    }

    proptest! {
        /// C5: in every sequence retries stay within the budget, at most one probe is in flight,
        /// and after N unanswered calls in a row only a probe is sent.
        #[test]
        fn retries_stay_within_budget_and_probes_are_alone(
            acts in prop::collection::vec(act(), 1..400)
        ) {
            let mut health = Health::new(&limits());
            let (mut now, mut calls, mut retries, mut absent) = (0_u64, 0_u64, 0_u64, 0_u32);
            let mut under_way: Vec<bool> = Vec::new();
            for act in acts {
                match act {
                    Act::Wait(ms) => now += ms,
                    Act::Call { is_retry } => {
                        let admitted = health.admit(now, is_retry);
                        if admitted.is_ok() && is_retry { retries += 1 } else if !is_retry { calls += 1 }
                        if let Ok(is_probe) = admitted {
                            prop_assert!(is_probe || absent < 3, "{absent} in a row");
                            under_way.push(is_probe);
                        }
                    }
                    Act::Settle { which, sign } if !under_way.is_empty() => {
                        let at = which % under_way.len();
                        let is_probe = under_way.swap_remove(at);
                        health.settle(now, is_probe, sign);
                        match sign {
                            CallOutcome::Answered => absent = 0,
                            CallOutcome::Absent => absent += 1,
                            CallOutcome::None => {}
                        }
                    }
                    Act::Settle { .. } => {}
                }
                prop_assert!(retries * 1_000 <= 2_000 + calls * 100 + now);
                let probes = under_way.iter().filter(|is_probe| **is_probe).count();
                prop_assert!(probes <= 1, "{probes} probes");
            }
        }
    }
}
