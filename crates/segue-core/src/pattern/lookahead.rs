//! Computes how far a search scans, by running the engine's automaton without recording matches.
//!
//! A search continues after a match while a preferred alternative is still possible. Preference
//! decides, so states are ordered as in the engine: earlier starts first, then alternatives further
//! left in the pattern.

use regex_automata::nfa::thompson::{Compiler, Config, NFA, State, WhichCaptures};
use regex_automata::util::primitives::StateID;
use regex_syntax::hir::Hir;

use crate::budget::BudgetExceeded;

/// Bytes charged at a time.
const BYTES_AT_ONCE: usize = 1_024;

pub(super) struct Lookahead {
    /// `None` if it would be too large: then every search is assumed to scan the whole rest.
    nfa: Option<NFA>,
    now: ThreadSet,
    next: ThreadSet,
    open: Vec<StateID>,
}

/// The active states of the automaton, preferred ones first.
#[derive(Default)]
struct ThreadSet {
    list: Vec<StateID>,
    /// For each state, the last round that added it.
    seen: Vec<u64>,
    round: u64,
}

impl ThreadSet {
    fn clear(&mut self) {
        self.list.clear();
        self.round += 1;
    }

    /// Whether a state is new in this round.
    fn enter(&mut self, state: StateID) -> bool {
        let seen = &mut self.seen[state.as_usize()];
        std::mem::replace(seen, self.round) != self.round
    }
}

impl Lookahead {
    pub(super) fn new(hir: &Hir) -> Lookahead {
        let config = Config::new().which_captures(WhichCaptures::None);
        let nfa = Compiler::new().configure(config).build_from_hir(hir).ok();
        let states = nfa.as_ref().map_or(0, |nfa| nfa.states().len());
        let threads = || ThreadSet { list: Vec::new(), seen: vec![0; states], round: 0 };
        Lookahead { nfa, now: threads(), next: threads(), open: Vec::new() }
    }

    /// Follows a search from an offset, and charges for the bytes on the way, a block at a time.
    pub(super) fn search(
        &mut self,
        text: &[u8],
        from: usize,
        pay: &mut dyn FnMut(usize) -> Result<(), BudgetExceeded>,
    ) -> Result<(), BudgetExceeded> {
        let Some(nfa) = self.nfa.clone() else { return pay(text.len() - from) };
        self.now.clear();
        let (mut is_found, mut paid) = (false, from);
        for at in from..text.len() {
            if at - paid == BYTES_AT_ONCE {
                pay(BYTES_AT_ONCE)?;
                paid = at;
            }
            if !is_found {
                self.open.push(nfa.start_anchored());
                enter(&nfa, &mut self.open, &mut self.now, text, at);
            } else if self.now.list.is_empty() {
                return pay(at - paid);
            }
            self.next.clear();
            for state in &self.now.list {
                let next = match nfa.state(*state) {
                    State::ByteRange { trans } if trans.matches(text, at) => Some(trans.next),
                    State::Sparse(sparse) => sparse.matches(text, at),
                    State::Dense(dense) => dense.matches(text, at),
                    State::Match { .. } => {
                        is_found = true;
                        break;
                    }
                    _ => None,
                };
                if let Some(next) = next {
                    self.open.push(next);
                    enter(&nfa, &mut self.open, &mut self.next, text, at + 1);
                }
            }
            std::mem::swap(&mut self.now, &mut self.next);
        }
        pay(text.len() - paid)
    }
}

/// Adds states, and the states reachable from them without a byte.
fn enter(nfa: &NFA, open: &mut Vec<StateID>, threads: &mut ThreadSet, text: &[u8], at: usize) {
    while let Some(state) = open.pop() {
        if !threads.enter(state) {
            continue;
        }
        match nfa.state(state) {
            State::ByteRange { .. } | State::Sparse(_) | State::Dense(_) | State::Match { .. } => {
                threads.list.push(state);
            }
            State::Look { look, next } => {
                if nfa.look_matcher().matches(*look, text, at) {
                    open.push(*next);
                }
            }
            State::Union { alternates } => open.extend(alternates.iter().rev()),
            State::BinaryUnion { alt1, alt2 } => open.extend([*alt2, *alt1]),
            State::Capture { next, .. } => open.push(*next),
            State::Fail => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pattern::Pattern;

    fn patterns() -> impl Strategy<Value = String> {
        let leaf =
            proptest::sample::select(vec!["a", "b", "[^a]", ".", "c", r"\b", r"\B", "$", "^"]);
        let leaf = leaf.prop_map(str::to_owned);
        leaf.prop_recursive(5, 24, 3, |inner| {
            let times = vec!["*", "+", "?", "*?", "+?", "{2,3}"];
            let times = proptest::sample::select(times);
            prop_oneof![
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}{b}")),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(?:{a}|{b})")),
                (inner, times).prop_map(|(a, times)| format!("(?:{a}){times}")),
            ]
        })
    }

    proptest! {
        /// The computed distance is sufficient: any other text after it gives the same match. `$`
        /// and `\b` may look at one more byte.
        #[test]
        fn what_is_behind_changes_nothing(
            pattern in patterns(),
            text in "[abcé -]{0,20}",
            other in "[abcé -]{0,8}",
            from in 0_usize..6,
        ) {
            let pattern = Pattern::new(&pattern).unwrap();
            let from = (0..=from.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            let mut looked = 0;
            let mut pay = |bytes| {
                looked += bytes;
                Ok(())
            };
            Lookahead::new(&pattern.hir).search(text.as_bytes(), from, &mut pay).unwrap();
            let end = text.len().min(from + looked + 1);
            let Some(end) = (end..text.len()).find(|at| text.is_char_boundary(*at)) else { return Ok(()) };
            let found = |text: &str| pattern.regex().find_at(text, from).map(|it| it.range());
            prop_assert_eq!(found(&text), found(&format!("{}{other}", &text[..end])));
        }
    }
}
