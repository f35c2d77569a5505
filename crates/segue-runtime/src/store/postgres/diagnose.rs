//! What an operator wants to know of a database before its runs depend on it.
//!
//! Every statement here is without preparation, because a pooler in front of the database may lose what
//! was prepared; that is one of the findings.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::error::broken;
use super::schema::VERSION;
use super::session::{Address, DbSession};
use super::tls::Tls;
use super::url::PostgresUrl;
use crate::store::StoreError;

/// What a database says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseFacts {
    /// The version of the server.
    pub version: String,
    /// The version of Segue's tables; none when there are none yet.
    pub tables: Option<i32>,
    /// The version that this Segue writes.
    pub tables_known: i32,
    /// Rights that this user lacks.
    pub missing_rights: Vec<String>,
    /// Whether the server syncs what it has committed.
    pub syncs: bool,
    /// Whether the server protects itself from half written pages.
    pub writes_full_pages: bool,
    /// What a commit waits for, as the server is set.
    pub synchronous_commit: String,
    /// The standbys that are connected.
    pub standbys: Vec<Standby>,
    /// How far the database's clock is ahead of this machine's, in milliseconds.
    pub clock_ahead_ms: i64,
    /// How uncertain that is: half the time of a round trip.
    pub clock_uncertain_ms: i64,
    /// Whether a pooler gives each transaction another connection.
    pub pools_transactions: bool,
}

/// A standby of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standby {
    /// Its name.
    pub name: String,
    /// Whether a commit waits for it; unknown to a user without the right to see it.
    pub is_synchronous: Option<bool>,
}

/// Connections that look for one that this process has already.
const POOL_PROBES: usize = 4;

/// Comparisons of the clocks. The one with the fastest answer counts.
const CLOCK_PROBES: usize = 5;

const TABLES: &str =
    "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = 'segue' AND tablename = 'store'";

const MAY_CREATE: &str = "SELECT format('CREATE on database %s', current_database())
    WHERE NOT has_database_privilege(current_database(), 'CREATE')";

const MAY_ENTER: &str = "SELECT 'USAGE on schema segue'
    WHERE NOT has_schema_privilege('segue', 'USAGE')";

/// Sequences of identity columns need no right.
const MAY_USE: &str = "SELECT format('%s on %s', wanted.name, class.relname)
    FROM pg_class class, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS wanted (name)
    WHERE class.relnamespace = 'segue'::regnamespace AND class.relkind = 'r'
        AND NOT has_table_privilege(class.oid, wanted.name)
    UNION ALL
    SELECT format('USAGE on %s', class.relname) FROM pg_class class
    WHERE class.relnamespace = 'segue'::regnamespace
        AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = class.oid AND deptype = 'i')
        AND CASE class.relkind WHEN 'S' THEN NOT has_sequence_privilege(class.oid, 'USAGE') END
    ORDER BY 1";

/// As the server is set, whatever this connection is set to.
const SETTINGS: &str = "SELECT name, reset_val FROM pg_settings
    WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') ORDER BY name";

const STANDBYS: &str = "SELECT coalesce(application_name, ''), sync_state FROM pg_stat_replication
    WHERE state IS DISTINCT FROM 'backup' ORDER BY 1";

const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// Looks at a database, and changes nothing there.
pub async fn diagnose(url: &PostgresUrl) -> Result<DatabaseFacts, StoreError> {
    let tls = Tls::new(&url.encryption).map_err(broken)?;
    let address = Address { url: url.clone(), tls, signals: Arc::default() };
    let session = address.connect().await?;
    let mut facts = DatabaseFacts {
        pools_transactions: pools_transactions(&address, &session).await?,
        version: one(&session, "SHOW server_version").await?,
        tables_known: VERSION,
        ..DatabaseFacts::default()
    };
    look_at_tables(&session, &mut facts).await?;
    for row in session.rows(SETTINGS).await? {
        let value = row.get(1).unwrap_or_default();
        match row.get(0) {
            Some("fsync") => facts.syncs = value == "on",
            Some("full_page_writes") => facts.writes_full_pages = value == "on",
            _ => value.clone_into(&mut facts.synchronous_commit),
        }
    }
    for row in session.rows(STANDBYS).await? {
        let name = row.get(0).unwrap_or_default().to_owned();
        let is_synchronous = row.get(1).map(|state| matches!(state, "sync" | "quorum"));
        facts.standbys.push(Standby { name, is_synchronous });
    }
    compare_clocks(&session, &mut facts).await?;
    Ok(facts)
}

async fn one(session: &DbSession, sql: &str) -> Result<String, StoreError> {
    let rows = session.rows(sql).await?;
    let first = rows.first().and_then(|row| row.get(0)).map(str::to_owned);
    first.ok_or_else(|| broken("the database returned no row"))
}

async fn look_at_tables(session: &DbSession, facts: &mut DatabaseFacts) -> Result<(), StoreError> {
    let are_there = !session.rows(TABLES).await?.is_empty();
    let checks: &[&str] = if are_there { &[MAY_ENTER, MAY_USE] } else { &[MAY_CREATE] };
    for sql in checks {
        let missing = session.rows(sql).await?;
        facts.missing_rights.extend(missing.iter().filter_map(|row| row.get(0)).map(str::to_owned));
    }
    if are_there && facts.missing_rights.is_empty() {
        facts.tables = one(session, "SELECT version FROM segue.store").await?.parse().ok();
    }
    Ok(())
}

/// Whether another connection gets the process of the server that this one had, while both are open. A
/// pooler that pools by transaction gives it away as soon as a transaction has ended.
async fn pools_transactions(address: &Address, session: &DbSession) -> Result<bool, StoreError> {
    const PROCESS: &str = "SELECT pg_backend_pid()";
    let mine = one(session, PROCESS).await?;
    let mut others = Vec::new();
    for _ in 0..POOL_PROBES {
        let other = address.connect().await?;
        other.batch("BEGIN").await?;
        if one(&other, PROCESS).await? == mine {
            return Ok(true);
        }
        // Its transaction stays open: the next connection gets another process.
        others.push(other);
    }
    Ok(one(session, PROCESS).await? != mine)
}

async fn compare_clocks(session: &DbSession, facts: &mut DatabaseFacts) -> Result<(), StoreError> {
    let mut fastest = Duration::MAX;
    for _ in 0..CLOCK_PROBES {
        let (began, here) = (Instant::now(), now_ms());
        let there: i64 = one(session, CLOCK).await?.parse().unwrap_or(here);
        let took = began.elapsed();
        if took < fastest {
            fastest = took;
            let half = i64::try_from(took.as_millis() / 2).unwrap_or(i64::MAX);
            facts.clock_ahead_ms = there - here - half;
            // The times are whole milliseconds.
            facts.clock_uncertain_ms = half + 1;
        }
    }
    Ok(())
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
