//! Checks of a store that several processes share: the database, and the processes that use it.

use std::collections::{BTreeMap, BTreeSet};

#[cfg(feature = "postgres")]
use segue_runtime::store::DatabaseFacts;
use segue_runtime::store::WorkerRow;

use crate::api::installation::Check;

/// Clocks that differ by more than this are worth a remark.
#[cfg(feature = "postgres")]
const CLOCK_MAX_MS: i64 = 1_000;

/// What a database says about itself, as findings.
#[cfg(feature = "postgres")]
pub(crate) fn database_checks(facts: &DatabaseFacts) -> Vec<Check> {
    let DatabaseFacts { version, tables, tables_known, missing_rights, .. } = facts;
    let tables = match tables {
        Some(tables) => format!("tables of version {tables}"),
        None => "no tables yet".to_owned(),
    };
    let version = format!("Postgres {version}, {tables}; this Segue writes version {tables_known}");
    let mut findings = vec![Check::good("database", version)];
    if !missing_rights.is_empty() {
        let message = format!("this user lacks {}", missing_rights.join(", "));
        let help = "`GRANT` it these rights, or make it the owner of the schema `segue`";
        findings.push(Check::bad("database", message, help));
    }
    findings.extend(durability(facts));
    if facts.pools_transactions {
        let message = "a pooler gives each transaction another connection";
        let help =
            "pool by session (PgBouncer: `pool_mode = session`), or connect to the database itself";
        findings.push(Check::bad("database", message, help));
    }
    findings.extend(clock(facts));
    findings
}

/// What an acknowledged entry of a run may not survive.
#[cfg(feature = "postgres")]
fn durability(facts: &DatabaseFacts) -> Vec<Check> {
    let mut findings = Vec::new();
    for (name, is_on) in [("fsync", facts.syncs), ("full_page_writes", facts.writes_full_pages)] {
        if !is_on {
            let message =
                format!("`{name}` is off: a crash of its machine loses what was acknowledged");
            findings.push(Check::bad("database", message, format!("set `{name} = on`")));
        }
    }
    if facts.synchronous_commit == "off" {
        let message = "`synchronous_commit` is off; Segue turns it on for its own connections";
        let help = "set `synchronous_commit = on` for other programs";
        findings.push(Check::note("database", message, help));
    }
    let waits = !matches!(facts.synchronous_commit.as_str(), "local" | "remote_write");
    for standby in &facts.standbys {
        let name = format!("the standby `{}`", standby.name);
        match standby.is_synchronous {
            Some(true) if waits => {}
            Some(true) => {
                let level = &facts.synchronous_commit;
                let message = format!(
                    "{name} is synchronous, and `synchronous_commit = {level}` does not wait until it has synced"
                );
                findings.push(Check::note("database", message, "set `synchronous_commit = on`"));
            }
            Some(false) => {
                let message =
                    format!("{name} is asynchronous: a failover to it loses acknowledged entries");
                let help = "name it in `synchronous_standby_names`, or accept that loss";
                findings.push(Check::note("database", message, help));
            }
            None => {
                let message = format!("{name} may be asynchronous: this user cannot see that");
                findings.push(Check::note("database", message, "`GRANT pg_monitor` to this user"));
            }
        }
    }
    findings
}

#[cfg(feature = "postgres")]
fn clock(facts: &DatabaseFacts) -> Option<Check> {
    let DatabaseFacts { clock_ahead_ms, clock_uncertain_ms, .. } = facts;
    let by = clock_ahead_ms.saturating_abs();
    if by - clock_uncertain_ms <= CLOCK_MAX_MS {
        return None;
    }
    let side = if *clock_ahead_ms < 0 { "ahead of" } else { "behind" };
    let seconds = by as f64 / 1_000.0;
    let message =
        format!("the clock of this machine is {seconds:.1} s {side} that of the database");
    let help = "synchronise the clocks; leases are not affected, times in histories and waits are";
    Some(Check::note("clock", message, help))
}

/// The processes that share a store, and how they differ.
pub(crate) fn worker_checks(workers: &[WorkerRow]) -> Vec<Check> {
    let living: Vec<&WorkerRow> = workers.iter().filter(|worker| worker.is_alive).collect();
    if workers.is_empty() {
        return Vec::new();
    }
    let runs: u64 = living.iter().map(|worker| worker.runs).sum();
    let dead = workers.len() - living.len();
    let died = if dead > 0 { format!(", {dead} died lately") } else { String::new() };
    let message = format!("{} alive with {runs} runs{died}", living.len());
    let mut findings = vec![Check::good("workers", message)];
    // A process that has not described itself, such as `segue run`, is no worker.
    let described = || living.iter().filter(|worker| !worker.info.version.is_empty());
    let own = env!("CARGO_PKG_VERSION");
    let others: BTreeSet<&str> =
        described().map(|worker| &*worker.info.version).filter(|version| *version != own).collect();
    if !others.is_empty() {
        let others: Vec<&str> = others.into_iter().collect();
        let message = format!("some have version {}, this is {own}", others.join(", "));
        let help = "versions may differ by one minor version while you upgrade";
        findings.push(Check::note("workers", message, help));
    }
    let mut by_tools: BTreeMap<&str, Vec<&WorkerRow>> = BTreeMap::new();
    for worker in described().filter(|worker| worker.info.room > 0) {
        by_tools.entry(&worker.info.tools_hash).or_default().push(worker);
    }
    if by_tools.len() > 1 {
        findings.push(Check::note(
            "workers",
            format!("their tools differ: {}", differing_tools(&by_tools)),
            "a run goes only to workers that have its tools; give all of them the same configuration",
        ));
    }
    findings
}

/// Which hosts have which tools, and what is only there.
fn differing_tools(by_tools: &BTreeMap<&str, Vec<&WorkerRow>>) -> String {
    let namespaces = |workers: &[&WorkerRow]| -> BTreeSet<String> {
        let all = workers.iter().flat_map(|worker| &worker.info.namespaces);
        all.map(ToString::to_string).collect()
    };
    let mut everywhere: Option<BTreeSet<String>> = None;
    for workers in by_tools.values() {
        let these = namespaces(workers);
        everywhere = Some(match everywhere {
            Some(known) => known.intersection(&these).cloned().collect(),
            None => these,
        });
    }
    let everywhere = everywhere.unwrap_or_default();
    let groups = by_tools.values().map(|workers| {
        let hosts: BTreeSet<&str> = workers.iter().map(|worker| &*worker.info.host).collect();
        let hosts = hosts.into_iter().collect::<Vec<_>>().join(", ");
        let only: Vec<String> = namespaces(workers).difference(&everywhere).cloned().collect();
        if only.is_empty() {
            format!("{hosts} (the same namespaces, other definitions)")
        } else {
            format!("{hosts} (also {})", only.join(", "))
        }
    });
    groups.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use segue_runtime::store::WorkerInfo;

    use super::*;

    fn worker(host: &str, version: &str, namespaces: &[&str], tools_hash: &str) -> WorkerRow {
        WorkerRow {
            id: host.into(),
            info: WorkerInfo {
                host: host.into(),
                version: version.into(),
                namespaces: namespaces.iter().map(|name| (*name).into()).collect(),
                tools_hash: tools_hash.into(),
                room: 8,
            },
            started_ms: 0,
            beat_ago_ms: 0,
            is_alive: true,
            runs: 2,
        }
    }

    fn messages(findings: &[Check]) -> Vec<&str> {
        findings.iter().map(|finding| &*finding.message).collect()
    }

    #[test]
    fn workers_that_differ_are_named() {
        let own = env!("CARGO_PKG_VERSION");
        let same = [worker("a", own, &["files"], "1"), worker("b", own, &["files"], "1")];
        assert_eq!(messages(&worker_checks(&same)), ["2 alive with 4 runs"]);
        let mut mixed = same.to_vec();
        mixed[1] = worker("b", "9.9.9", &["files", "github"], "2");
        mixed.push(WorkerRow { is_alive: false, ..worker("c", "0.0.1", &[], "3") });
        let mut other = worker("d", own, &[], "4");
        other.info.room = 0;
        mixed.push(other);
        let version = format!("some have version 9.9.9, this is {own}");
        let tools =
            "their tools differ: a (the same namespaces, other definitions); b (also github)";
        let all = "3 alive with 6 runs, 1 died lately";
        assert_eq!(messages(&worker_checks(&mixed)), [all, &version, tools]);
        assert!(worker_checks(&[]).is_empty());
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_database_that_may_lose_entries_is_named() {
        use segue_runtime::store::Standby;
        let good = DatabaseFacts {
            version: "15.8".to_owned(),
            tables: Some(1),
            tables_known: 1,
            syncs: true,
            writes_full_pages: true,
            synchronous_commit: "on".to_owned(),
            ..DatabaseFacts::default()
        };
        assert_eq!(database_checks(&good).len(), 1);
        let standby = |is_synchronous| Standby { name: "s".to_owned(), is_synchronous };
        let waits = DatabaseFacts { standbys: vec![standby(Some(true))], ..good.clone() };
        assert_eq!(database_checks(&waits).len(), 1);
        for (facts, said, ok) in [
            (DatabaseFacts { syncs: false, ..good.clone() }, "`fsync` is off", false),
            (
                DatabaseFacts { writes_full_pages: false, ..good.clone() },
                "`full_page_writes`",
                false,
            ),
            (DatabaseFacts { pools_transactions: true, ..good.clone() }, "a pooler gives", false),
            (
                DatabaseFacts { missing_rights: vec!["DELETE on run".to_owned()], ..good.clone() },
                "lacks DELETE on run",
                false,
            ),
            (
                DatabaseFacts { synchronous_commit: "off".to_owned(), ..good.clone() },
                "`synchronous_commit` is off",
                true,
            ),
            (
                DatabaseFacts { standbys: vec![standby(Some(false))], ..good.clone() },
                "loses acknowledged entries",
                true,
            ),
            (DatabaseFacts { standbys: vec![standby(None)], ..good.clone() }, "may be", true),
            (
                DatabaseFacts { synchronous_commit: "local".to_owned(), ..waits.clone() },
                "does not wait",
                true,
            ),
            (
                DatabaseFacts { clock_ahead_ms: -3_200, clock_uncertain_ms: 5, ..good.clone() },
                "3.2 s ahead of",
                true,
            ),
            (
                DatabaseFacts { clock_ahead_ms: 1_400, clock_uncertain_ms: 5, ..good.clone() },
                "1.4 s behind",
                true,
            ),
        ] {
            let findings = database_checks(&facts);
            assert_eq!(findings.len(), 2, "{said}: {findings:?}");
            assert!(findings[1].message.contains(said) && findings[1].ok == ok, "{findings:?}");
        }
        let close = DatabaseFacts { clock_ahead_ms: 1_400, clock_uncertain_ms: 500, ..good };
        assert_eq!(database_checks(&close).len(), 1, "a slow answer says nothing of the clock");
    }
}
