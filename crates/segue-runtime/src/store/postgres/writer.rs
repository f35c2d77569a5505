//! The one writer: it takes the turns of all runs that wait, and writes them with one statement.
//!
//! The statement compares the epoch and the length of each run while it holds the row's lock, and writes
//! only the turns that fit: the rows it returns are durable. For the others the row of the run says who
//! wrote it. When no answer comes, nobody knows whether the turns are there: the run gets
//! [`StoreError::Unavailable`], and its next attempt reads the row and finds its own turn there, or not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use super::Shared;
use super::error::{broken, unavailable};
use super::owner::HeldRun;
use super::row::{DbRun, find_many};
use super::schema::place_base;
use super::session::{DbSession, answered};
use crate::store::chain::{link, root};
use crate::store::pack::{Hash, compressed};
use crate::store::packed_record::{NewRunRow, PackedRecord};
use crate::store::rules::{composition_ended, is_final};
use crate::store::{Due, Lease, RunRow, StoreError};

/// Numbers of turns that each transaction has for itself.
pub(super) const TURNS_MAX: i64 = 1_024;

/// Turns in one statement at most, and their bytes.
const TOGETHER_MAX: usize = 1_000;
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// The writer's statements touch runs by number.
const SETTINGS: &str = "SET enable_hashjoin TO off; SET enable_mergejoin TO off";

const NUMBERS: &str = "SELECT nextval('run_number') FROM generate_series(1, $1::bigint)";

/// Locked, so that nobody deletes them meanwhile.
const KNOWN_BUNDLES: &str = "SELECT hash FROM bundle WHERE hash = ANY ($1) FOR KEY SHARE";

const BUNDLES: &str = "INSERT INTO bundle (hash, text)
    SELECT * FROM unnest($1::bytea[], $2::bytea[]) ON CONFLICT DO NOTHING";

const BEGIN_RUNS: &str =
    "INSERT INTO run (number, run_id, name, plan_hash, bundle, started_ms, head,
        owner, principal, toolset, namespaces, epoch, status, updated_ms, length, last)
    SELECT number, run_id, name, plan_hash, bundle, started_ms, head, owner, principal, toolset,
        string_to_array(namespaces, E'\\n'), 1, 'pending', 0, 0, 0
    FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bigint[],
        $7::bytea[], $8::text[], $9::text[], $10::text[], $11::text[])
        AS begun (number, run_id, name, plan_hash, bundle, started_ms, head, owner, principal,
            toolset, namespaces)
    ON CONFLICT (run_id) DO NOTHING";

macro_rules! append {
    ($more:literal) => {
        concat!(
            "WITH given AS MATERIALIZED (
                SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[],
                    $5::text[], $6::bigint[], $7::bool[], $8::bool[], $9::bytea[], $10::bytea[],
                    $11::bigint[])
                WITH ORDINALITY AS given (run, epoch, expected, count, status, at_ms, ends,
                    progresses, bytes, hash, before, nth)
            ), moved AS (
                UPDATE run SET
                    length = given.expected + given.count,
                    status = given.status,
                    updated_ms = given.at_ms,
                    head = given.hash,
                    last = CASE WHEN given.count = 0 THEN given.before ELSE
                        $12 + pg_current_xact_id()::text::bigint * 1024 + given.nth END,
                    ended_ms = CASE WHEN given.ends THEN given.at_ms END,
                    owner = CASE WHEN given.ends THEN NULL ELSE run.owner END,
                    epoch = run.epoch + given.ends::int,
                    claim = CASE WHEN given.progresses THEN NULL ELSE run.claim END
                FROM given
                WHERE run.number = given.run AND run.epoch = given.epoch
                    AND run.length = given.expected
                RETURNING given.nth, run.number, run.last
            ), added AS (
                INSERT INTO turn (number, run, before, bytes, hash)
                SELECT moved.last, given.run, given.before, given.bytes, given.hash
                FROM given JOIN moved USING (nth) WHERE given.count > 0
            )",
            $more,
            " SELECT nth, last FROM moved"
        )
    };
}

const APPEND: &str = append!("");

const APPEND_WITH_PARTS: &str = append!(
    ", part_of AS MATERIALIZED (
        SELECT moved.number AS run, hash, bytes
        FROM unnest($13::bigint[], $14::bytea[], $15::bytea[]) AS part_of (nth, hash, bytes)
        JOIN moved USING (nth)
    ), stored AS (
        INSERT INTO part (hash, bytes)
        SELECT DISTINCT ON (hash) hash, bytes FROM part_of ORDER BY hash
        ON CONFLICT DO NOTHING
    ), used AS (
        INSERT INTO part_use (run, part) SELECT DISTINCT run, hash FROM part_of
        ON CONFLICT DO NOTHING
    )"
);

/// The first turn of a run.
pub(super) struct Begins {
    pub(super) run: NewRunRow,
    /// The namespaces of the tools that only some processes have, one a line.
    pub(super) namespaces: String,
}

/// A turn for the writer, and the task that waits for it.
pub(super) struct Write {
    pub(super) lease: Lease,
    pub(super) begins: Option<Begins>,
    pub(super) record: PackedRecord,
    /// The bytes of its entries, as they are stored.
    bytes: Vec<u8>,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

impl Write {
    pub(super) fn new(
        lease: Lease,
        begins: Option<Begins>,
        record: PackedRecord,
    ) -> (Write, oneshot::Receiver<Result<(), StoreError>>) {
        let (reply, answer) = oneshot::channel();
        let bytes = compressed(&record.entries.bytes).into_owned();
        (Write { lease, begins, record, bytes, reply }, answer)
    }

    fn size(&self) -> usize {
        let parts: usize = self.record.entries.parts.values().map(Vec::len).sum();
        self.bytes.len() + parts + self.begins.as_ref().map_or(0, |it| it.run.bundle.text.len())
    }
}

/// A turn whose run is known.
struct Ready {
    write: Write,
    /// The run before this turn.
    before: HeldRun,
    /// The hash of this turn; that of the turn before when it has no entries.
    head: Hash,
}

impl Ready {
    fn new(write: Write, before: HeldRun) -> Ready {
        let head = match write.record.count {
            0 => before.head,
            _ => link(&before.head, write.record.expected, &write.bytes),
        };
        Ready { write, before, head }
    }

    fn length(&self) -> u64 {
        self.write.record.expected + self.write.record.count
    }

    fn at_ms(&self) -> u64 {
        self.write.record.at_ms.unwrap_or(self.before.updated_ms)
    }

    fn ends(&self) -> bool {
        is_final(self.write.record.status)
    }

    /// Whether this turn is the last one of the row, with which the run is ours or has ended.
    fn is_last_of(&self, stored: &DbRun) -> bool {
        let epoch = self.write.lease.epoch + u64::from(self.ends());
        stored.head == self.head && stored.row.length == self.length() && stored.row.epoch == epoch
    }
}

/// The writer's connection.
struct Connection {
    session: DbSession,
    place_base: i64,
}

/// The writer: ends when the store is closed and nothing waits.
pub(super) async fn write_all(shared: Arc<Shared>, mut posted: mpsc::UnboundedReceiver<Write>) {
    let mut connection = None;
    let mut next = posted.recv().await;
    while let Some(first) = next.take() {
        let mut size = first.size();
        let mut together = vec![first];
        while together.len() < TOGETHER_MAX && size < BYTES_MAX {
            let Ok(one) = posted.try_recv() else { break };
            // A run's next turn needs the answer to this one.
            if together.iter().any(|known| known.lease.run_id == one.lease.run_id) {
                next = Some(one);
                break;
            }
            size += one.size();
            together.push(one);
        }
        shared.queue.store(posted.len() as u64, Ordering::Relaxed);
        write(&shared, &mut connection, together).await;
        if next.is_none() {
            next = posted.recv().await;
        }
    }
}

async fn write(shared: &Shared, connection: &mut Option<Connection>, together: Vec<Write>) {
    if connection.as_ref().is_none_or(|open| !open.session.is_open()) {
        match connect(shared).await {
            Ok(open) => *connection = Some(open),
            Err(error) => return refuse(together, &error),
        }
    }
    let open = connection.as_ref().expect("it was just opened");
    let Some(ready) = look_up(shared, open, together).await else {
        *connection = None;
        return;
    };
    if ready.is_empty() {
        return;
    }
    let began = Instant::now();
    for one in &ready {
        let run_id = &one.write.lease.run_id;
        shared.ownership.change(run_id, |held| held.is_unsettled = true);
    }
    match answered(shared.options.answer_max(), send(open, &ready)).await {
        Ok(durable) => {
            shared.note_commit(began);
            settle(shared, open, ready, &durable).await;
        }
        // The database refuses one of them for good: the others go on.
        Err(StoreError::Broken { .. }) if ready.len() > 1 => {
            *connection = None;
            for one in ready {
                Box::pin(write(shared, connection, vec![one.write])).await;
            }
        }
        Err(error) => {
            *connection = None;
            fail(shared, ready, &error);
        }
    }
}

async fn connect(shared: &Shared) -> Result<Connection, StoreError> {
    let session = shared.address.connect().await?;
    session.batch(SETTINGS).await?;
    let place_base = place_base(&session).await?;
    Ok(Connection { session, place_base })
}

fn refuse(together: Vec<Write>, error: &StoreError) {
    for write in together {
        // The task may have been dropped.
        let _ = write.reply.send(Err(error.clone()));
    }
}

/// No answer came, or a refusal of them all: the rows decide later. A run that may have begun has no
/// driver, and is released.
fn fail(shared: &Shared, ready: Vec<Ready>, error: &StoreError) {
    for Ready { write, .. } in ready {
        if write.begins.is_some() {
            shared.ownership.release_later(write.lease.clone(), Due::Now);
        }
        let _ = write.reply.send(Err(error.clone()));
    }
}

/// Finds the runs of these turns, and answers the turns that cannot follow; none when the rows cannot be
/// read.
async fn look_up(
    shared: &Shared,
    connection: &Connection,
    together: Vec<Write>,
) -> Option<Vec<Ready>> {
    let (mut ready, mut unknown, mut new) = (Vec::new(), Vec::new(), Vec::new());
    for write in together {
        let known = shared.ownership.held(&write.lease.run_id).filter(|held| {
            let is_next = (held.epoch, held.length) == (write.lease.epoch, write.record.expected);
            is_next && !held.is_unsettled
        });
        match known {
            _ if write.begins.is_some() => new.push(write),
            Some(held) => ready.push(Ready::new(write, held)),
            None => unknown.push(write),
        }
    }
    if let Err((error, write)) = number(connection, new, &mut ready).await {
        refuse(write, &error);
        return fail_all(shared, ready, unknown, &error);
    }
    if unknown.is_empty() {
        return Some(ready);
    }
    match find_many(&connection.session, unknown.iter().map(|write| &*write.lease.run_id)).await {
        Ok(mut rows) => {
            for write in unknown {
                let row = rows.remove(&write.lease.run_id);
                ready.extend(continued(shared, write, row));
            }
            Some(ready)
        }
        Err(error) => fail_all(shared, ready, unknown, &error),
    }
}

fn fail_all(
    shared: &Shared,
    ready: Vec<Ready>,
    unknown: Vec<Write>,
    error: &StoreError,
) -> Option<Vec<Ready>> {
    let ready = ready.into_iter().map(|one| one.write).chain(unknown);
    refuse(ready.collect(), error);
    shared.queue.store(0, Ordering::Relaxed);
    None
}

/// Gives numbers to runs that begin.
async fn number(
    connection: &Connection,
    new: Vec<Write>,
    ready: &mut Vec<Ready>,
) -> Result<(), (StoreError, Vec<Write>)> {
    if new.is_empty() {
        return Ok(());
    }
    let count = i64::try_from(new.len()).unwrap_or(i64::MAX);
    let numbers = match connection.session.query(NUMBERS, &[&count]).await {
        Ok(numbers) => numbers,
        Err(error) => return Err((error, new)),
    };
    for (write, number) in new.into_iter().zip(numbers) {
        let begins = &write.begins.as_ref().expect("it begins a run").run;
        let before = HeldRun {
            number: number.get(0),
            epoch: begins.row.epoch,
            length: 0,
            head: root(&begins.row.run_id, &begins.bundle.hash),
            last: 0,
            name: begins.row.name.clone(),
            started_ms: begins.row.started_ms,
            updated_ms: begins.row.started_ms,
            owner: begins.row.owner.clone().unwrap_or_default(),
            is_unsettled: false,
        };
        ready.push(Ready::new(write, before));
    }
    Ok(())
}

/// A turn whose run is read from its row: it can follow, is there already, or never can be.
fn continued(
    shared: &Shared,
    write: Write,
    row: Option<Result<DbRun, StoreError>>,
) -> Option<Ready> {
    let run_id = write.lease.run_id.clone();
    let stored = match row {
        Some(Ok(stored)) => stored,
        Some(Err(error)) => {
            let _ = write.reply.send(Err(error));
            return None;
        }
        None => {
            let _ = write.reply.send(Err(StoreError::Unknown { run_id }));
            return None;
        }
    };
    let sent = shared.ownership.held(&run_id).filter(|held| held.is_unsettled);
    if let Some(before) = sent {
        let ready = Ready::new(write, before);
        if ready.is_last_of(&stored) {
            succeed(shared, ready, stored.last);
            return None;
        }
        return follow(shared, ready.write, &stored);
    }
    follow(shared, write, &stored)
}

/// The turn, if the fence of its row lets it pass.
fn follow(shared: &Shared, write: Write, stored: &DbRun) -> Option<Ready> {
    if let Err(refused) = stored.check_fence(&write.lease, write.record.expected) {
        if matches!(refused, StoreError::Lost { .. }) {
            shared.counters.refused.add(1);
            shared.ownership.forget(&write.lease);
        }
        let _ = write.reply.send(Err(refused));
        return None;
    }
    let held = stored.held();
    shared.ownership.insert(write.lease.run_id.clone(), held.clone());
    Some(Ready::new(write, held))
}

/// Sends the statements; returns the place of each turn that is durable, and its number.
async fn send(connection: &Connection, ready: &[Ready]) -> Result<Vec<(usize, i64)>, StoreError> {
    let begins = ready.iter().any(|one| one.write.begins.is_some());
    if begins {
        connection.session.batch("BEGIN").await?;
        begin_runs(&connection.session, ready).await?;
    }
    let rows = append(connection, ready).await?;
    if begins {
        connection.session.batch("COMMIT").await?;
    }
    let place = |row: &tokio_postgres::Row| -> Result<(usize, i64), StoreError> {
        let nth = usize::try_from(row.get::<_, i64>(0) - 1);
        let wrong = |_| broken("the database answered about a turn that was not sent");
        Ok((nth.map_err(wrong)?, row.get(1)))
    };
    rows.iter().map(place).collect()
}

/// Adds the rows of runs that begin with this transaction.
async fn begin_runs(session: &DbSession, ready: &[Ready]) -> Result<(), StoreError> {
    let new = || ready.iter().filter_map(|one| Some((one.write.begins.as_ref()?, &one.before)));
    let mut bundles: Vec<_> = new().map(|(begins, _)| &begins.run.bundle).collect();
    bundles.sort_by_key(|bundle| bundle.hash);
    bundles.dedup_by_key(|bundle| bundle.hash);
    let hashes: Vec<&[u8]> = bundles.iter().map(|bundle| &bundle.hash[..]).collect();
    let known = session.query(KNOWN_BUNDLES, &[&hashes]).await?;
    let known: Vec<&[u8]> = known.iter().map(|row| row.get(0)).collect();
    bundles.retain(|bundle| !known.contains(&&bundle.hash[..]));
    let hashes: Vec<&[u8]> = bundles.iter().map(|bundle| &bundle.hash[..]).collect();
    let texts: Vec<&[u8]> = bundles.iter().map(|bundle| bundle.text.as_bytes()).collect();
    if !bundles.is_empty() {
        session.execute(BUNDLES, &[&hashes, &texts]).await?;
    }
    let row = |of: fn(&RunRow) -> Option<&str>| -> Vec<Option<&str>> {
        new().map(|(begins, _)| of(&begins.run.row)).collect()
    };
    let numbers: Vec<i64> = new().map(|(_, before)| before.number).collect();
    let bundles: Vec<&[u8]> = new().map(|(begins, _)| &begins.run.bundle.hash[..]).collect();
    let started: Vec<i64> = new().map(|(_, before)| before.started_ms.cast_signed()).collect();
    let namespaces: Vec<&str> = new().map(|(begins, _)| &*begins.namespaces).collect();
    let heads: Vec<&[u8]> = new().map(|(_, before)| &before.head[..]).collect();
    session
        .execute(
            BEGIN_RUNS,
            &[
                &numbers,
                &row(|row| Some(&row.run_id)),
                &row(|row| Some(&row.name)),
                &row(|row| Some(&row.plan_hash)),
                &bundles,
                &started,
                &heads,
                &row(|row| row.owner.as_deref()),
                &row(|row| row.caller.as_ref().map(|caller| &*caller.principal)),
                &row(|row| row.caller.as_ref()?.toolset.as_deref()),
                &namespaces,
            ],
        )
        .await?;
    Ok(())
}

/// Writes the turns that follow the rows of their runs.
async fn append(
    connection: &Connection,
    ready: &[Ready],
) -> Result<Vec<tokio_postgres::Row>, StoreError> {
    let numbers = |of: fn(&Ready) -> u64| -> Vec<i64> {
        ready.iter().map(|one| of(one).cast_signed()).collect()
    };
    let runs: Vec<i64> = ready.iter().map(|one| one.before.number).collect();
    let epochs = numbers(|one| one.write.lease.epoch);
    let expected = numbers(|one| one.write.record.expected);
    let counts = numbers(|one| one.write.record.count);
    let statuses: Vec<&str> = ready.iter().map(|one| one.write.record.status.as_str()).collect();
    let at_ms = numbers(Ready::at_ms);
    let ends: Vec<bool> = ready.iter().map(Ready::ends).collect();
    let progresses: Vec<bool> = ready.iter().map(|one| one.write.record.makes_progress).collect();
    let bytes: Vec<&[u8]> = ready.iter().map(|one| &one.write.bytes[..]).collect();
    let hashes: Vec<&[u8]> = ready.iter().map(|one| &one.head[..]).collect();
    let before: Vec<i64> = ready.iter().map(|one| one.before.last).collect();
    let base = &connection.place_base;
    let turns: [super::session::SqlParameter<'_>; 12] = [
        &runs,
        &epochs,
        &expected,
        &counts,
        &statuses,
        &at_ms,
        &ends,
        &progresses,
        &bytes,
        &hashes,
        &before,
        base,
    ];
    let parts = || {
        ready.iter().zip(1_i64..).flat_map(|(one, nth)| {
            one.write.record.entries.parts.iter().map(move |(hash, bytes)| (nth, hash, bytes))
        })
    };
    if parts().next().is_none() {
        return connection.session.query(APPEND, &turns).await;
    }
    let nth: Vec<i64> = parts().map(|(nth, ..)| nth).collect();
    let names: Vec<&[u8]> = parts().map(|(_, hash, _)| &hash[..]).collect();
    let values: Vec<&[u8]> = parts().map(|(.., bytes)| &bytes[..]).collect();
    let mut all = turns.to_vec();
    all.extend([&nth as super::session::SqlParameter<'_>, &names, &values]);
    connection.session.query(APPEND_WITH_PARTS, &all).await
}

/// Answers every turn: durable ones, and those that their rows refused.
async fn settle(
    shared: &Shared,
    connection: &Connection,
    ready: Vec<Ready>,
    durable: &[(usize, i64)],
) {
    let mut places: Vec<Option<i64>> = vec![None; ready.len()];
    for (nth, last) in durable {
        if let Some(place) = places.get_mut(*nth) {
            *place = Some(*last);
        }
    }
    let mut refused = Vec::new();
    for (one, place) in ready.into_iter().zip(places) {
        match place {
            Some(last) => succeed(shared, one, last),
            None => refused.push(one),
        }
    }
    if refused.is_empty() {
        return;
    }
    let ids = refused.iter().map(|one| &*one.write.lease.run_id);
    let mut rows = match find_many(&connection.session, ids).await {
        Ok(rows) => rows,
        Err(error) => return fail(shared, refused, &error),
    };
    for one in refused {
        let row = rows.remove(&one.write.lease.run_id);
        refuse_one(shared, one, row);
    }
}

/// Answers a turn that did not fit its row.
fn refuse_one(shared: &Shared, one: Ready, row: Option<Result<DbRun, StoreError>>) {
    let run_id = one.write.lease.run_id.clone();
    let expected = one.write.record.expected;
    let answer = match row {
        None => StoreError::Unknown { run_id },
        Some(Err(error)) => error,
        // An attempt before this one wrote it after all.
        Some(Ok(stored)) if one.is_last_of(&stored) => return succeed(shared, one, stored.last),
        Some(Ok(stored)) if one.write.begins.is_some() => {
            StoreError::Fenced { run_id, expected, actual: stored.row.length }
        }
        Some(Ok(stored)) => match stored.check_fence(&one.write.lease, expected) {
            Ok(()) => unavailable("the run was written by another process meanwhile"),
            Err(refused) => {
                if matches!(refused, StoreError::Lost { .. }) {
                    shared.counters.refused.add(1);
                    shared.ownership.forget(&one.write.lease);
                }
                refused
            }
        },
    };
    let _ = one.write.reply.send(Err(answer));
}

/// A turn is durable.
fn succeed(shared: &Shared, one: Ready, last: i64) {
    let (ends, length, at_ms, head) = (one.ends(), one.length(), one.at_ms(), one.head);
    let Ready { write, before, .. } = one;
    let run_id = &write.lease.run_id;
    if ends {
        shared.ownership.forget(&write.lease);
        let HeldRun { name, started_ms, .. } = &before;
        let took_ms = at_ms.saturating_sub(*started_ms);
        let PackedRecord { status, stopped_by, is_part, .. } = &write.record;
        if !is_part {
            shared.counts.add(&[composition_ended(name, took_ms, *status, *stopped_by)]);
        }
    } else if write.begins.is_some() {
        let held = HeldRun { length, head, last, updated_ms: at_ms, ..before };
        shared.ownership.insert(run_id.clone(), held);
    } else {
        shared.ownership.change(run_id, |held| {
            (held.length, held.head, held.last, held.updated_ms) = (length, head, last, at_ms);
            held.is_unsettled = false;
        });
    }
    let _ = write.reply.send(Ok(()));
}
