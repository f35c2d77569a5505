//! Statistics of tools, from their calls: how often, how long, how large, and how they fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::inferred_schema::InferredSchema;
use segue_core::tool::ObservedStats;
use segue_core::value::Value;
use serde::{Deserialize, Serialize};

use super::StoreError;

/// Beyond this an output is only known to be large: measuring it would cost more than it tells.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Statistics of tools. [`super::JournalStore::append`] adds to them.
#[async_trait]
pub trait ToolStatistics: Send + Sync {
    /// The statistics of every tool that was called, by id; a composition counts as a tool.
    async fn tool_stats(&self) -> Result<Vec<ToolStats>, StoreError>;
}

/// One call that ended.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which tool.
    pub tool: ToolId,
    /// How long it took.
    pub took: Duration,
    /// Its value, or how it failed.
    pub result: Result<Value, Code>,
    /// Whether its tool declares an output schema.
    pub has_schema: bool,
}

/// Counts by size, in classes that are an eighth apart or less; exact below eight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram(BTreeMap<u16, u64>);

impl Histogram {
    /// Counts one number.
    pub fn add(&mut self, number: u64) {
        *self.0.entry(class(number)).or_default() += 1;
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// A number that `share` of those counted do not exceed, to within an eighth; none when nothing was
    /// counted.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let wanted = share.clamp(0.0, 1.0) * self.count() as f64;
        let mut seen = 0;
        let found = self.0.iter().find(|(_, count)| {
            seen += **count;
            seen as f64 >= wanted
        });
        found.map(|(class, _)| upper_end(*class))
    }

    fn merge(&mut self, other: &Histogram) {
        for (class, count) in &other.0 {
            *self.0.entry(*class).or_default() += count;
        }
    }
}

/// Bits of a number that tell its class, after the first one.
const BITS: u32 = 3;

fn class(number: u64) -> u16 {
    let octave = (64 - number.leading_zeros()).saturating_sub(BITS + 1);
    let class = (u64::from(octave) << BITS) + (number >> octave);
    u16::try_from(class).expect("64 octaves of eight classes")
}

/// The largest number of a class.
fn upper_end(class: u16) -> u64 {
    let class = u64::from(class);
    let octave = (class >> BITS).saturating_sub(1);
    let first = (class - (octave << BITS)) << octave;
    first + ((1 << octave) - 1)
}

/// The statistics of one tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolStats {
    /// Which tool.
    pub tool: ToolId,
    /// Calls that ended.
    pub calls: u64,
    /// Those that failed, by how.
    pub errors: BTreeMap<Code, u64>,
    /// How long they took, in microseconds.
    pub took_us: Histogram,
    /// How large their values were, in bytes, roughly.
    pub output_bytes: Histogram,
    /// A schema inferred from their values, where the tool declares none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<InferredSchema>,
}

impl ToolStats {
    /// Those of a tool without calls.
    pub fn new(tool: ToolId) -> ToolStats {
        ToolStats {
            tool,
            calls: 0,
            errors: BTreeMap::new(),
            took_us: Histogram::default(),
            output_bytes: Histogram::default(),
            output: None,
        }
    }

    /// Counts a call.
    pub fn add(&mut self, measured: &Measured) {
        self.calls += 1;
        self.took_us.add(u64::try_from(measured.took.as_micros()).unwrap_or(u64::MAX));
        match &measured.result {
            Ok(value) => {
                self.output_bytes.add(value.size().min(OUTPUT_BYTES_MAX) as u64);
                if !measured.has_schema {
                    self.output.get_or_insert_default().add(value);
                }
            }
            Err(code) => *self.errors.entry(*code).or_default() += 1,
        }
    }

    /// The summary that planning uses; none without calls.
    pub fn observed(&self) -> Option<ObservedStats> {
        let millis = |share: f64| Some(self.took_us.quantile(share)?.div_ceil(1_000));
        Some(ObservedStats {
            calls: self.calls,
            failures: self.errors.values().sum(),
            p50_ms: millis(0.5)?,
            p95_ms: millis(0.95)?,
            output: self.output.clone().map(Arc::new),
        })
    }

    /// Adds the statistics that another process counted.
    pub fn merge(&mut self, other: &ToolStats) {
        self.calls += other.calls;
        for (code, count) in &other.errors {
            *self.errors.entry(*code).or_default() += count;
        }
        self.took_us.merge(&other.took_us);
        self.output_bytes.merge(&other.output_bytes);
        if let Some(shape) = &other.output {
            self.output.get_or_insert_default().merge(shape);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_each_other_and_are_narrow() {
        let mut last = 0;
        for number in (0..5_000).chain((3..63).flat_map(|bit| [(1 << bit) - 1, 1 << bit])) {
            let end = upper_end(class(number));
            assert!(end >= number && end - number <= number / 8, "{number} is in a class to {end}");
            assert_eq!(class(end), class(number));
        }
        for number in 0..5_000 {
            assert!(class(number) - last <= 1, "{number} leaves a class out");
            last = class(number);
        }
        assert_eq!(upper_end(class(u64::MAX)), u64::MAX);
    }

    #[test]
    fn quantiles_are_within_an_eighth() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=1_000).for_each(|n| histogram.add(n));
        for (share, exact) in [(0.0, 1), (0.5, 500), (0.95, 950), (1.0, 1_000)] {
            let found = histogram.quantile(share).unwrap();
            assert!(found >= exact && found <= exact + exact / 8, "{share}: {found}");
        }
    }
}
