//! Which versions of the engine may work on the same runs.
//!
//! Entries of the journal stay readable, so a newer engine continues the runs of every older one. An older
//! engine cannot know the facts that a newer one writes. One minor version apart is kept compatible, so that
//! workers can be replaced one by one.

use semver::Version;

/// The version of this engine.
pub const ENGINE: &str = env!("CARGO_PKG_VERSION");

/// Whether an engine of version `mine` may continue a run that one of version `began` started. A version
/// that cannot be read is no reason to stop: only old journals have one.
pub fn may_continue(mine: &str, began: &str) -> bool {
    let (Some(mine), Some(began)) = (parse(mine), parse(began)) else { return true };
    began <= mine || is_next(mine, began)
}

/// Whether a worker of version `mine` may claim runs while one of version `other` is alive. The newer one
/// of two that are too far apart waits: its entries could not be read by the other.
pub fn may_claim_beside(mine: &str, other: &str) -> bool {
    may_continue(other, mine)
}

/// Whether `other` is at most one minor version ahead.
fn is_next(mine: (u64, u64), other: (u64, u64)) -> bool {
    mine.0 == other.0 && other.1 <= mine.1.saturating_add(1)
}

/// The major and the minor version.
fn parse(version: &str) -> Option<(u64, u64)> {
    let version = Version::parse(version).ok()?;
    Some((version.major, version.minor))
}

#[cfg(test)]
mod tests {
    use super::{may_claim_beside, may_continue};

    /// A newer engine continues every run; an older one those that a neighbour began.
    #[test]
    fn an_older_engine_continues_runs_of_its_neighbour() {
        for (mine, began, may) in [
            ("0.4.1", "0.4.9", true),
            ("0.4.1", "0.1.0", true),
            ("0.4.1", "0.5.0", true),
            ("0.4.1", "0.6.0", false),
            ("1.0.0", "0.9.0", true),
            ("0.9.0", "1.0.0", false),
            ("1.2.0-rc.1", "1.3.0", true),
            ("0.4.1", "", true),
        ] {
            assert_eq!(may_continue(mine, began), may, "{mine} continues {began}");
        }
    }

    /// Of two workers that are too far apart only the newer one waits, so that runs go on.
    #[test]
    fn only_the_newer_one_waits() {
        for (older, newer) in [("0.4.0", "0.6.0"), ("0.9.3", "1.0.0")] {
            assert!(!may_claim_beside(newer, older), "{newer} waits for {older}");
            assert!(may_claim_beside(older, newer), "{older} does not wait for {newer}");
        }
        assert!(may_claim_beside("0.5.0", "0.4.0") && may_claim_beside("0.4.0", "0.5.0"));
    }
}
