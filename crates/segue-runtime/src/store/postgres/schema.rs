//! The tables, in the schema `segue`, and their migrations.
//!
//! Every turn changes the row of its run, so no index has a column that a turn changes: Postgres then
//! writes the new row beside the old one, and touches no index.

use super::error::broken;
use super::session::{DbSession, SessionPool};
use super::writer::TURNS_MAX;
use crate::store::StoreError;

/// The key of the advisory lock under which one process migrates: `Segu`.
const LOCK: &str = "SELECT pg_advisory_xact_lock(1399154549)";

const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE bundle (
        hash bytea PRIMARY KEY,
        text bytea NOT NULL
    );
    CREATE SEQUENCE run_number;
    CREATE TABLE run (
        number bigint PRIMARY KEY,
        run_id text COLLATE \"C\" NOT NULL UNIQUE,
        name text NOT NULL,
        status text NOT NULL,
        plan_hash text NOT NULL,
        bundle bytea NOT NULL REFERENCES bundle (hash),
        started_ms bigint NOT NULL,
        updated_ms bigint NOT NULL,
        ended_ms bigint,
        length bigint NOT NULL,
        head bytea NOT NULL,
        last bigint NOT NULL,
        owner text,
        epoch bigint NOT NULL,
        claim bigint,
        set_aside text,
        principal text,
        toolset text
    ) WITH (fillfactor = 70);
    CREATE INDEX run_unfinished ON run (number) WHERE ended_ms IS NULL;
    CREATE INDEX run_ended ON run (ended_ms, number) WHERE ended_ms IS NOT NULL;
    CREATE INDEX run_bundle ON run (bundle);
    CREATE TABLE turn (
        number bigint PRIMARY KEY,
        run bigint NOT NULL,
        before bigint NOT NULL,
        bytes bytea NOT NULL,
        hash bytea NOT NULL
    );
    CREATE TABLE part (
        hash bytea PRIMARY KEY,
        bytes bytea NOT NULL
    );
    CREATE TABLE part_use (
        run bigint NOT NULL,
        part bytea NOT NULL REFERENCES part (hash),
        PRIMARY KEY (run, part)
    );
    CREATE INDEX part_user ON part_use (part);
    CREATE TABLE command (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        run_id text COLLATE \"C\" NOT NULL,
        text text NOT NULL
    );
    CREATE TABLE tool (
        id text COLLATE \"C\" PRIMARY KEY,
        stats text NOT NULL
    );
    CREATE TABLE item (
        collection text NOT NULL,
        key bytea NOT NULL,
        number bigint GENERATED ALWAYS AS IDENTITY,
        text bytea NOT NULL,
        version bigint NOT NULL,
        at_ms bigint NOT NULL,
        PRIMARY KEY (collection, key)
    );
    CREATE UNIQUE INDEX item_number ON item (collection, number);
    CREATE TABLE worker (
        id text PRIMARY KEY,
        version text NOT NULL,
        started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        beat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        expires_at timestamptz NOT NULL
    );
",
    QUEUE,
];

/// The queue of runs. A run that is older than this migration is due, and any process may claim it.
const QUEUE: &str = "
    ALTER TABLE run
        ADD COLUMN due_at timestamptz NOT NULL DEFAULT now(),
        ADD COLUMN namespaces text[] NOT NULL DEFAULT '{}',
        ADD COLUMN ticket bigint;
    CREATE INDEX run_due ON run (due_at)
        WHERE ended_ms IS NULL AND owner IS NULL AND set_aside IS NULL;
    CREATE INDEX run_owner ON run (owner) WHERE owner IS NOT NULL;
    ALTER TABLE worker
        ADD COLUMN host text NOT NULL DEFAULT '',
        ADD COLUMN namespaces text[] NOT NULL DEFAULT '{}',
        ADD COLUMN tools_hash text NOT NULL DEFAULT '',
        ADD COLUMN room bigint NOT NULL DEFAULT 0;
    CREATE TABLE dead_worker (LIKE worker);
    ALTER TABLE dead_worker ADD PRIMARY KEY (id);
    CREATE TABLE slot (
        name text COLLATE \"C\" NOT NULL,
        number bigint NOT NULL,
        owner text,
        ticket bigint,
        PRIMARY KEY (name, number)
    ) WITH (fillfactor = 50);
";

/// The version that this Segue writes.
pub(super) const VERSION: i32 = 2;

/// Creates the tables, or migrates them. Several processes may do so at once.
pub(super) async fn migrate(sessions: &SessionPool) -> Result<(), StoreError> {
    let session = sessions.borrow().await?;
    if version(&session).await? == VERSION {
        return Ok(());
    }
    let transaction = session.begin().await?;
    transaction.batch(LOCK).await?;
    let found = version(&transaction).await?;
    let missing = usize::try_from(found).ok().and_then(|found| MIGRATIONS.get(found..));
    let Some(missing) = missing else {
        let message =
            format!("it has version {found}, this Segue knows {VERSION}: use a newer one");
        return Err(broken(message));
    };
    if found == 0 {
        transaction.batch(FIRST).await?;
    }
    for migration in missing {
        transaction.batch(migration).await?;
    }
    transaction.execute("UPDATE store SET version = $1", &[&VERSION]).await?;
    transaction.commit().await
}

const FIRST: &str = "CREATE SCHEMA segue;
    CREATE TABLE store (
        single boolean PRIMARY KEY DEFAULT true CHECK (single),
        version integer NOT NULL,
        place_base bigint NOT NULL
    );
    INSERT INTO store (version, place_base) VALUES (0, 0)";

/// The version of the tables; 0 when there are none.
async fn version(session: &DbSession) -> Result<i32, StoreError> {
    // A function such as `to_regclass` would not see what another process created while this one waited.
    const THERE: &str =
        "SELECT FROM pg_catalog.pg_tables WHERE schemaname = 'segue' AND tablename = 'store'";
    if session.query_opt(THERE, &[]).await?.is_none() {
        return Ok(0);
    }
    let rows = session.query("SELECT version FROM segue.store", &[]).await?;
    Ok(rows.first().map_or(0, |row| row.get(0)))
}

const PLACES: &str = "SELECT place_base, coalesce((SELECT max(number) FROM turn), 0),
        pg_snapshot_xmax(pg_current_snapshot())::text::bigint
    FROM store";

/// How the numbers of turns come from those of transactions.
struct Places {
    /// What is added.
    base: i64,
    /// The number of the last turn.
    last: i64,
    /// The first number of the next transaction, without the base.
    next: i64,
}

impl Places {
    async fn read(session: &DbSession) -> Result<Places, StoreError> {
        let row = session.query_opt(PLACES, &[]).await?;
        let row = row.ok_or_else(|| broken("the table `store` is empty"))?;
        Ok(Places { base: row.get(0), last: row.get(1), next: row.get::<_, i64>(2) * TURNS_MAX })
    }

    fn are_used(&self) -> bool {
        self.last >= self.base + self.next
    }
}

/// The number that is added to those of turns.
///
/// The number of a turn comes from that of its transaction, so that a reader knows up to which number
/// every turn is there. A database that was restored into another server begins with smaller numbers of
/// transactions: then the base grows, so that numbers of turns still do. After an error the connection may
/// be in a transaction.
pub(super) async fn place_base(session: &DbSession) -> Result<i64, StoreError> {
    let places = Places::read(session).await?;
    if !places.are_used() {
        return Ok(places.base);
    }
    session.batch("BEGIN").await?;
    let base = place_base_in(session).await?;
    session.batch("COMMIT").await?;
    Ok(base)
}

/// The same in a transaction of the caller.
pub(super) async fn place_base_in(transaction: &DbSession) -> Result<i64, StoreError> {
    let places = Places::read(transaction).await?;
    if !places.are_used() {
        return Ok(places.base);
    }
    transaction.batch(LOCK).await?;
    let mut places = Places::read(transaction).await?;
    if places.are_used() {
        places.base = places.last + 1 - places.next;
        transaction.execute("UPDATE store SET place_base = $1", &[&places.base]).await?;
    }
    Ok(places.base)
}
