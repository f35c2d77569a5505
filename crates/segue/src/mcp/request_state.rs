//! The request state that a client carries from one request to the next: sealed, bound to the principal,
//! the tool and its arguments, usable once, and with an expiry.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rmcp::model::{RequestStateCodec, SealOptions};
use segue_core::tool::hex_digest;
use segue_core::value::Value;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How many used states are remembered until they expire; beyond that, clients have to ask again.
const USED_MAX: usize = 100_000;

/// A request state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RequestState {
    /// The run that asks; none before it starts.
    pub(super) run_id: Option<String>,
    /// The hash of the plan that the question is about.
    pub(super) plan: String,
    /// Makes each state unique.
    once: u128,
}

impl RequestState {
    /// The key under which processes that share a store note that it was used.
    pub(super) fn used_key(&self) -> Arc<str> {
        format!("state:{:032x}", self.once).into()
    }

    pub(super) fn new(run_id: Option<&str>, plan: &str) -> RequestState {
        RequestState {
            run_id: run_id.map(str::to_owned),
            plan: plan.to_owned(),
            once: Uuid::new_v4().as_u128(),
        }
    }
}

/// The binding of a state: it opens for the same principal, tool and arguments only.
pub(super) fn bound_to(principal: &str, tool: &str, args: &Value) -> String {
    let args = hex_digest(args.to_canonical_json().as_bytes());
    format!("{principal}\n{tool}\n{args}")
}

/// Seals and opens.
pub(super) struct StateSealer {
    codec: RequestStateCodec,
    life: Duration,
    used: Mutex<HashMap<u128, Instant>>,
}

impl StateSealer {
    /// A sealer for states with this lifetime. Without a key that several servers have it makes one of its
    /// own.
    pub(super) fn new(life: Duration, shared_key: Option<&str>) -> StateSealer {
        let key = match shared_key {
            Some(key) => hex_digest(format!("request state\n{key}").as_bytes()).into_bytes(),
            None => [Uuid::new_v4().into_bytes(), Uuid::new_v4().into_bytes()].concat(),
        };
        let codec = RequestStateCodec::try_new(key).expect("the key is long enough");
        StateSealer { codec, life, used: Mutex::default() }
    }

    pub(super) fn seal(&self, state: &RequestState, bound: &str) -> String {
        let options = SealOptions::new().associated_data(bound.as_bytes()).ttl(self.life);
        let text = serde_json::to_vec(state).unwrap_or_default();
        self.codec.seal_with(&text, &options)
    }

    /// Opens a state, once in this process. The error says why it is invalid.
    pub(super) fn open(&self, sealed: &str, bound: &str) -> Result<RequestState, String> {
        let opened = self.codec.open_with(sealed, bound.as_bytes());
        let opened = opened.map_err(|error| error.to_string())?;
        let state: RequestState =
            serde_json::from_slice(&opened).map_err(|_| "it is none of ours".to_owned())?;
        let now = Instant::now();
        let mut used = self.used.lock();
        used.retain(|_, until| *until > now);
        if used.len() >= USED_MAX || used.insert(state.once, now + self.life).is_some() {
            return Err("it was used already".to_owned());
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_opens_once_and_only_for_what_it_was_sealed_for() {
        let seal = StateSealer::new(Duration::from_mins(1), None);
        let args = Value::object([("a", Value::from("1")), ("b", Value::from("2"))]);
        let turned = Value::object([("b", Value::from("2")), ("a", Value::from("1"))]);
        let state = RequestState::new(Some("run"), "hash");
        let sealed = seal.seal(&state, &bound_to("me", "t", &args));
        for bound in [
            bound_to("you", "t", &args),
            bound_to("me", "u", &args),
            bound_to("me", "t", &Value::empty_object()),
        ] {
            assert!(seal.open(&sealed, &bound).is_err());
        }
        assert!(seal.open(&sealed.replace(&sealed[..8], "rs1.AAAA"), "").is_err());
        assert!(
            StateSealer::new(Duration::from_mins(1), None)
                .open(&sealed, &bound_to("me", "t", &args))
                .is_err()
        );
        // The order of arguments does not count.
        assert_eq!(seal.open(&sealed, &bound_to("me", "t", &turned)), Ok(state));
        assert!(seal.open(&sealed, &bound_to("me", "t", &args)).is_err(), "used twice");
    }

    #[test]
    fn servers_with_one_key_open_each_others_states() {
        let sealer = |key| StateSealer::new(Duration::from_mins(1), key);
        let (one, two) = (sealer(Some("shared")), sealer(Some("shared")));
        let state = RequestState::new(None, "hash");
        let sealed = one.seal(&state, "x");
        assert_eq!(two.open(&sealed, "x"), Ok(state));
        assert!(sealer(Some("other")).open(&sealed, "x").is_err());
        assert!(sealer(None).open(&sealed, "x").is_err());
    }

    #[test]
    fn a_state_does_not_live_for_ever() {
        let seal = StateSealer::new(Duration::from_millis(1), None);
        let sealed = seal.seal(&RequestState::new(None, "hash"), "x");
        let sealed_at = Instant::now();
        while sealed_at.elapsed() < Duration::from_millis(3) {
            std::hint::spin_loop();
        }
        assert!(seal.open(&sealed, "x").unwrap_err().contains("expired"));
    }
}
