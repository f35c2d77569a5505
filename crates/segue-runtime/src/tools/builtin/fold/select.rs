//! Selects units within a budget.
//!
//! Greedy, by what each unit adds to those already taken. That gain only ever shrinks, so a queue
//! with outdated gains is enough: a gain is recomputed only at the top of the queue. This keeps the
//! cost near the size of the text.

use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};

use super::super::tokenize::{is_common, words};
use super::split::{TextUnit, UnitKind};

/// How much of a unit's score is lost when all of its words were already said.
const REPETITION: f64 = 0.7;

/// Short sentences say little: their score is divided as if they had this many more words.
const SHORT: f64 = 4.0;

/// Units with more words than this score less per word: they are often lists.
const LONG: f64 = 30.0;

/// The bonus of a unit with all words of the query.
const QUERY: f64 = 3.0;

/// The selected units.
pub(super) struct Selection {
    /// Their positions, in the order of the text.
    pub(super) kept: Vec<usize>,
    /// The same without headings, best first.
    pub(super) best_first: Vec<usize>,
}

impl Selection {
    /// All units, still ranked.
    pub(super) fn everything(units: &[TextUnit<'_>]) -> Selection {
        let best_first = select(units, usize::MAX, "").best_first;
        Selection { kept: (0..units.len()).collect(), best_first }
    }
}

/// Selects units that together, joined, have at most `budget` characters; when none fits, the
/// shortest.
pub(super) fn select(units: &[TextUnit<'_>], budget: usize, query: &str) -> Selection {
    let terms = Terms::of(units);
    let mut room = Room { units, headings: headings(units), left: budget, kept: BTreeSet::new() };
    let best_first = take_best(units, &terms, &mut room, query);
    let mut kept = room.kept;
    if best_first.is_empty() {
        let text = units.iter().enumerate().filter(|(_, unit)| unit.kind != UnitKind::Heading);
        kept.extend(text.min_by_key(|(_, unit)| unit.chars).map(|(index, _)| index));
    }
    Selection { kept: kept.into_iter().collect(), best_first }
}

/// The units taken so far, and the characters left.
struct Room<'a> {
    units: &'a [TextUnit<'a>],
    /// For each unit the heading above it.
    headings: Vec<Option<usize>>,
    left: usize,
    kept: BTreeSet<usize>,
}

impl Room<'_> {
    /// Takes a unit if it fits, and its heading too if that fits and is the shorter one.
    fn take(&mut self, index: usize) -> bool {
        let cost = |index: usize| self.units[index].chars.saturating_add(BETWEEN_CHARS);
        // The first unit has no separator before it.
        let left = self.left.saturating_add(if self.kept.is_empty() { BETWEEN_CHARS } else { 0 });
        let Some(mut left) = left.checked_sub(cost(index)) else { return false };
        self.kept.insert(index);
        if let Some(heading) = self.headings[index]
            && self.units[heading].chars <= self.units[index].chars
            && !self.kept.contains(&heading)
            && let Some(rest) = left.checked_sub(cost(heading))
        {
            left = rest;
            self.kept.insert(heading);
        }
        self.left = left;
        true
    }
}

fn headings(units: &[TextUnit<'_>]) -> Vec<Option<usize>> {
    let mut heading = None;
    let mut part = 0;
    let mut headings = Vec::with_capacity(units.len());
    for (index, unit) in units.iter().enumerate() {
        if unit.part != part {
            (heading, part) = (None, unit.part);
        }
        if unit.kind == UnitKind::Heading {
            heading = Some(index);
        }
        headings.push(heading);
    }
    headings
}

/// The text of the selected units.
pub(super) fn join(units: &[TextUnit<'_>], kept: &[usize]) -> String {
    let mut text = String::new();
    for (position, index) in kept.iter().enumerate() {
        if position > 0 {
            text.push_str(between(&units[kept[position - 1]], &units[*index]));
        }
        text.push_str(units[*index].text);
    }
    text
}

fn between(before: &TextUnit<'_>, after: &TextUnit<'_>) -> &'static str {
    match after.kind {
        _ if before.block != after.block => "\n\n",
        UnitKind::Sentence => " ",
        UnitKind::Item | UnitKind::Heading | UnitKind::Code => "\n",
    }
}

/// The longest separator between two units.
const BETWEEN_CHARS: usize = 2;

/// The words of every unit, as numbers, with their weights.
struct Terms {
    numbers: HashMap<String, usize>,
    /// For each unit its distinct words.
    of: Vec<Vec<usize>>,
    worth: Vec<f64>,
}

impl Terms {
    fn of(units: &[TextUnit<'_>]) -> Terms {
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let mut frequency: Vec<f64> = Vec::new();
        let mut spread: Vec<f64> = Vec::new();
        let mut of = Vec::with_capacity(units.len());
        for unit in units {
            let mut own: Vec<usize> = Vec::new();
            for word in words(unit.text).filter(|word| !is_common(word)) {
                let next = numbers.len();
                let number = *numbers.entry(stem(word)).or_insert(next);
                if number == next {
                    frequency.push(0.0);
                    spread.push(0.0);
                }
                frequency[number] += 1.0;
                own.push(number);
            }
            own.sort_unstable();
            own.dedup();
            for number in &own {
                spread[*number] += 1.0;
            }
            of.push(own);
        }
        let count = units.len() as f64;
        let worth = frequency
            .iter()
            .zip(&spread)
            .map(|(frequency, spread)| frequency.ln_1p() * (count / spread).ln_1p())
            .collect();
        Terms { numbers, of, worth }
    }

    fn sum(&self, unit: usize) -> f64 {
        self.of[unit].iter().map(|number| self.worth[*number]).sum()
    }

    /// The words of a query that occur in the text, and how many the query has.
    fn query(&self, query: &str) -> (HashSet<usize>, usize) {
        let words: HashSet<String> =
            words(query).filter(|word| !is_common(word)).map(stem).collect();
        let known = words.iter().filter_map(|word| self.numbers.get(word).copied()).collect();
        (known, words.len())
    }
}

/// Merges plural and singular; more would need the language.
fn stem(mut word: String) -> String {
    if word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") {
        word.pop();
    }
    word
}

/// The score of each unit by itself.
fn scores(units: &[TextUnit<'_>], terms: &Terms, query: &str) -> Vec<f64> {
    let (wanted, asked) = terms.query(query);
    let mut before: Option<&TextUnit<'_>> = None;
    let mut scores = Vec::with_capacity(units.len());
    for (index, unit) in units.iter().enumerate() {
        let place = match before {
            Some(before) if before.part == unit.part && before.block == unit.block => 1.0,
            Some(before) if before.part == unit.part => 1.15,
            _ => 1.3,
        };
        let kind = if unit.kind == UnitKind::Code { 0.6 } else { 1.0 };
        let own = &terms.of[index];
        let hits = own.iter().filter(|number| wanted.contains(number)).count();
        let overlap = if asked == 0 { 0.0 } else { hits as f64 / asked as f64 };
        let count = own.len() as f64;
        let base = terms.sum(index) / (count + SHORT) * (LONG / count.max(LONG)).sqrt();
        scores.push(base * place * kind * (1.0 + QUERY * overlap));
        before = Some(unit);
    }
    scores
}

/// A unit in the queue, with its gain when last computed.
struct Candidate {
    gain: f64,
    index: usize,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.gain.total_cmp(&other.gain).then(other.index.cmp(&self.index))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

fn take_best(
    units: &[TextUnit<'_>],
    terms: &Terms,
    room: &mut Room<'_>,
    query: &str,
) -> Vec<usize> {
    let scores = scores(units, terms, query);
    let mut seen = HashSet::new();
    let mut queue: BinaryHeap<Candidate> = (0..units.len())
        // Identical units are considered once.
        .filter(|index| units[*index].kind != UnitKind::Heading && seen.insert(units[*index].text))
        .map(|index| Candidate { gain: scores[index], index })
        .collect();
    let mut said = vec![false; terms.worth.len()];
    let mut taken = Vec::new();
    while let Some(Candidate { gain, index }) = queue.pop() {
        if units[index].chars > room.left {
            continue;
        }
        let fresh = scores[index] * (1.0 - REPETITION * repeated(terms, index, &said));
        if fresh < gain && queue.peek().is_some_and(|next| fresh < next.gain) {
            queue.push(Candidate { gain: fresh, index });
            continue;
        }
        if room.take(index) {
            taken.push(index);
            for number in &terms.of[index] {
                said[*number] = true;
            }
        }
    }
    taken
}

/// Which part of a unit's score was already said.
fn repeated(terms: &Terms, unit: usize, said: &[bool]) -> f64 {
    let own = terms.of[unit].iter();
    let known: f64 = own.filter(|number| said[**number]).map(|number| terms.worth[*number]).sum();
    let sum = terms.sum(unit);
    if sum > 0.0 { known / sum } else { 1.0 }
}
