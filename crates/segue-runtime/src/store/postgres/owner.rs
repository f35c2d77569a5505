//! The process as an owner of runs: its row in the table `worker`, its heartbeats, and the runs it holds.
//!
//! A process that has no row in `worker` is dead. A heartbeat moves the end of the row's lease, by the
//! database's clock; a process that wants the runs of an owner whose lease ended deletes the owner's row
//! first. Both change the same row, so one of them comes first, and an owner cannot prolong a lease that
//! another process saw end.
//!
//! The process counts the same lease by its own clock, from before it sent the heartbeat, so its lease ends
//! no later than the database's. [`Ownership::standing`] is asked before a call leaves. After its row was
//! deleted the process gets a new one, under a new name, with those of its runs that no other process has
//! taken.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::session::{DbSession, Signals, SqlParameter, answered};
use super::{Shared, queue};
use crate::store::pack::Hash;
use crate::store::{Due, Lease, StoreError, WorkerInfo};

/// Parts of a lease: a heartbeat follows each.
pub(super) const BEATS: u32 = 3;

/// Pauses after a failed heartbeat, as parts of the one between two that succeed.
const RETRIES: u32 = 8;

/// A statement that begins by deleting workers whose lease ended, except these, and notes them as dead.
macro_rules! bury {
    ($except:literal, $rest:expr) => {
        concat!(
            "WITH ended AS (
                DELETE FROM worker WHERE expires_at <= clock_timestamp() AND ",
            $except,
            " RETURNING *
            ), noted AS (INSERT INTO dead_worker SELECT * FROM ended ON CONFLICT DO NOTHING)",
            $rest
        )
    };
}
pub(super) use bury;

/// Dead workers are listed for an hour.
const BEAT: &str = bury!(
    "id <> $1",
    ", forgotten AS (
        DELETE FROM dead_worker WHERE beat_at < clock_timestamp() - interval '1 hour'
    )
    UPDATE worker SET beat_at = clock_timestamp(),
        expires_at = clock_timestamp() + $2::double precision * interval '1 ms'
    WHERE id = $1 AND expires_at > clock_timestamp()
    RETURNING id"
);

const REGISTER: &str = "WITH before AS (DELETE FROM worker WHERE id = $1 RETURNING started_at),
        dead AS (DELETE FROM dead_worker WHERE id = $1 RETURNING started_at)
    INSERT INTO worker (id, version, expires_at, host, namespaces, tools_hash, room, started_at)
    SELECT $2, $3, clock_timestamp() + $4::double precision * interval '1 ms', $5, $6, $7, $8,
        coalesce((SELECT started_at FROM before), (SELECT started_at FROM dead), clock_timestamp())";

const ANNOUNCE: &str = "UPDATE worker
    SET version = $2, host = $3, namespaces = $4, tools_hash = $5, room = $6 WHERE id = $1";

/// Gives the runs of the owner before to this one.
const KEEP_RUNS: &str = "UPDATE run SET owner = $1
    FROM unnest($2::bigint[], $3::bigint[]) AS held (run, epoch)
    WHERE run.number = held.run AND run.epoch = held.epoch AND run.owner IS NOT NULL
    RETURNING run.run_id";

/// A statement that counts the runs which the one before released, and wakes others if one of them is due.
macro_rules! released {
    ($release:literal) => {
        concat!(
            "WITH released AS (UPDATE run SET owner = NULL, epoch = run.epoch + 1, ticket = NULL, ",
            $release,
            " RETURNING run.due_at <= statement_timestamp() AS is_due)
            SELECT CASE WHEN is_due THEN pg_notify('segue_due', '') END FROM released"
        )
    };
}

/// A run without a delay waits for a command.
const RELEASE: &str = released!(
    "due_at = coalesce(statement_timestamp() + held.delay_ms * interval '1 ms', 'infinity')
    FROM unnest($1::text[], $2::bigint[], $3::double precision[])
        AS held (run_id, epoch, delay_ms)
    WHERE run.run_id = held.run_id AND run.epoch = held.epoch AND run.owner = ANY ($4)"
);

const RELEASE_TICKETS: &str =
    released!("due_at = statement_timestamp() WHERE owner = ANY ($1) AND ticket = ANY ($2)");

const RELEASE_ALL: &str =
    released!("due_at = statement_timestamp() WHERE ended_ms IS NULL AND owner = ANY ($1)");

const KEEP_SLOTS: &str = "UPDATE slot SET owner = $1 WHERE owner = ANY ($2)";

const FREE_SLOTS: &str = "WITH freed AS (
        UPDATE slot SET owner = NULL, ticket = NULL WHERE ticket = ANY ($1) RETURNING name
    )
    SELECT pg_notify('segue_slot', '') FROM freed
    WHERE NOT EXISTS (SELECT FROM slot WHERE slot.name = freed.name AND owner IS NULL)";

/// A run that this process writes.
#[derive(Clone, Debug)]
pub(super) struct HeldRun {
    pub(super) number: i64,
    pub(super) epoch: u64,
    pub(super) length: u64,
    /// The hash of its last turn.
    pub(super) head: Hash,
    /// The number of its last turn.
    pub(super) last: i64,
    pub(super) name: Arc<str>,
    pub(super) started_ms: u64,
    pub(super) updated_ms: u64,
    /// The name of this process in its row.
    pub(super) owner: Arc<str>,
    /// Whether a turn was sent, and no answer came: the row decides.
    pub(super) is_unsettled: bool,
}

/// Whether this process may act for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The lease holds.
    Held,
    /// The lease may have ended: the next heartbeat tells.
    Uncertain,
    /// The run has another owner.
    Lost,
}

/// What this process owns.
#[derive(Default)]
pub(super) struct Ownership {
    state: Mutex<State>,
    /// Woken after every heartbeat.
    beaten: Notify,
}

#[derive(Default)]
struct State {
    /// Its present name; none before it registered.
    owner: Option<Arc<str>>,
    /// All names it had.
    names: Vec<Arc<str>>,
    /// Until when its lease holds, by [`boot_ms`].
    deadline_ms: u64,
    held: HashMap<Arc<str>, HeldRun>,
    /// As it describes itself to the others.
    info: WorkerInfo,
    /// What could not be released yet, with the heartbeats that may still try.
    unreleased: Vec<(Unreleased, u32)>,
}

/// Runs without a driver.
#[derive(Clone, Debug)]
enum Unreleased {
    /// A run, and when it is due.
    Run(Lease, Due),
    /// The runs that were taken with this ticket: no answer said which.
    Taken(i64),
    /// The slot that was taken with this ticket.
    Slot(i64),
}

/// Milliseconds of a clock that also counts while the machine is suspended.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn boot_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(now.tv_sec) * 1_000 + part(now.tv_nsec) / 1_000_000
}

/// The same. The clock of `Instant` stops while a Mac sleeps, and this one does not.
#[cfg(target_vendor = "apple")]
pub(super) fn boot_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(now.tv_sec) * 1_000 + part(now.tv_nsec) / 1_000_000
}

/// Milliseconds of the monotonic clock. Windows counts suspended time; on other systems a process that was
/// suspended may call once after its lease, and cannot write what came of it.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
pub(super) fn boot_ms() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let start = START.get_or_init(std::time::Instant::now);
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn new_name() -> Arc<str> {
    format!("{}-{}", std::process::id(), Uuid::now_v7()).into()
}

impl State {
    fn forget(&mut self, lease: &Lease) {
        if self.held.get(&lease.run_id).is_some_and(|held| held.epoch == lease.epoch) {
            self.held.remove(&lease.run_id);
        }
    }
}

impl Ownership {
    /// The present name, once registered.
    pub(super) fn name(&self) -> Option<Arc<str>> {
        self.state.lock().owner.clone()
    }

    /// All names that this process had.
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.state.lock().names.clone()
    }

    /// Remembers a run that this process took. A release that is still to come was meant for the driver
    /// before.
    pub(super) fn insert(&self, run_id: Arc<str>, run: HeldRun) {
        let mut state = self.state.lock();
        state.unreleased.retain(
            |(what, _)| !matches!(what, Unreleased::Run(lease, _) if lease.run_id == run_id),
        );
        state.held.insert(run_id, run);
    }

    /// A copy of a held run.
    pub(super) fn held(&self, run_id: &str) -> Option<HeldRun> {
        self.state.lock().held.get(run_id).cloned()
    }

    pub(super) fn change(&self, run_id: &str, change: impl FnOnce(&mut HeldRun)) {
        if let Some(run) = self.state.lock().held.get_mut(run_id) {
            change(run);
        }
    }

    /// Forgets a run, unless this process has taken it anew since.
    pub(super) fn forget(&self, lease: &Lease) {
        self.state.lock().forget(lease);
    }

    /// Whether this process may act for a run now.
    pub(super) fn standing(&self, lease: &Lease) -> Standing {
        let state = self.state.lock();
        match state.held.get(&lease.run_id) {
            Some(held) if held.epoch == lease.epoch => {
                let is_present = state.owner.as_ref() == Some(&held.owner);
                let is_held = is_present && boot_ms() < state.deadline_ms;
                if is_held { Standing::Held } else { Standing::Uncertain }
            }
            _ => Standing::Lost,
        }
    }

    /// How long ago the last heartbeat was sent that the database has answered; zero before the first one.
    pub(super) fn heartbeat_age(&self, lease: Duration) -> Duration {
        let state = self.state.lock();
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX / 2);
        let age_ms = (boot_ms() + lease_ms).saturating_sub(state.deadline_ms);
        Duration::from_millis(if state.owner.is_some() { age_ms } else { 0 })
    }

    /// Waits until the lease of this process holds again, for so long at most: without one it can take no run.
    pub(super) async fn alive(&self, max: Duration) {
        let until = tokio::time::Instant::now() + max;
        loop {
            let beaten = self.beaten.notified();
            let is_alive = boot_ms() < self.state.lock().deadline_ms;
            if is_alive || tokio::time::timeout_at(until, beaten).await.is_err() {
                return;
            }
        }
    }

    /// Waits until the next heartbeat has told whether this process owns its runs, or for so long.
    pub(super) async fn settled(&self, lease: &Lease, max: Duration) -> Standing {
        let until = tokio::time::Instant::now() + max;
        loop {
            let beaten = self.beaten.notified();
            let standing = self.standing(lease);
            if standing != Standing::Uncertain
                || tokio::time::timeout_at(until, beaten).await.is_err()
            {
                return standing;
            }
        }
    }

    /// Releases a run at one of the next heartbeats.
    pub(super) fn release_later(&self, lease: Lease, due: Due) {
        let mut state = self.state.lock();
        state.forget(&lease);
        state.unreleased.push((Unreleased::Run(lease, due), RELEASE_TRIES));
    }

    /// Frees the slot that was taken with a ticket, if one was.
    pub(super) fn free_later(&self, ticket: i64) {
        self.state.lock().unreleased.push((Unreleased::Slot(ticket), RELEASE_TRIES));
    }

    /// Releases the runs that were taken with a ticket, if any were.
    pub(super) fn give_back_later(&self, ticket: i64) {
        self.state.lock().unreleased.push((Unreleased::Taken(ticket), RELEASE_TRIES));
    }
}

/// Heartbeats that try to release a run: a statement whose answer was lost may still be under way.
const RELEASE_TRIES: u32 = 2 * BEATS;

/// Registers this process as an owner, and keeps it alive from then on.
pub(super) async fn register(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let session = listening(shared).await?;
    renew(shared, &session).await?;
    shared.address.signals.wake_all();
    shared.measure(&session).await;
    tokio::spawn(keep_alive(shared.clone(), session));
    Ok(())
}

/// A connection that hears of what other processes do.
async fn listening(shared: &Shared) -> Result<DbSession, StoreError> {
    let session = shared.address.connect().await?;
    session.batch(Signals::LISTEN).await?;
    session.batch(&shared.address.signals.lag.listen()).await?;
    shared.address.signals.lag.reset();
    Ok(session)
}

async fn keep_alive(shared: Arc<Shared>, session: DbSession) {
    let pause = shared.options.lease / BEATS;
    let mut session = Some(session);
    let mut upkeep: Option<JoinHandle<Result<(), StoreError>>> = None;
    let mut wait = pause;
    loop {
        tokio::time::sleep(wait).await;
        let beaten = answered(pause, async {
            let is_new = session.as_ref().is_none_or(|session| !session.is_open());
            if is_new {
                session = Some(listening(&shared).await?);
            }
            let session = session.as_ref().expect("it was just opened");
            beat(&shared, session).await?;
            if is_new {
                // Notifications were missed. After the heartbeat, because a process without a lease claims nothing.
                shared.address.signals.wake_all();
            }
            Ok::<_, StoreError>(())
        });
        if beaten.await.is_ok() {
            wait = pause;
            if upkeep.as_ref().is_none_or(JoinHandle::is_finished) {
                upkeep = Some(tokio::spawn(keep_up(shared.clone())));
            }
        } else {
            session = None;
            wait = pause / RETRIES;
        }
    }
}

/// What follows a heartbeat, on another connection: however long it takes, the next heartbeat is in time.
/// What fails is done after the next one.
async fn keep_up(shared: Arc<Shared>) -> Result<(), StoreError> {
    let session = shared.sessions.borrow().await?;
    release_unreleased(&shared, &session).await?;
    queue::wake_commanded(&session).await?;
    shared.measure(&session).await;
    shared.measure_queue(&session).await;
    shared.address.signals.lag.send(&session).await?;
    drop(session);
    shared.flush_counts().await
}

fn lease_ms(shared: &Shared) -> f64 {
    shared.options.lease.as_millis() as f64
}

fn deadline_ms(shared: &Shared, sent_ms: u64) -> u64 {
    sent_ms + u64::try_from(shared.options.lease.as_millis()).unwrap_or(u64::MAX / 2)
}

/// Prolongs the lease, or begins a new one under a new name.
async fn beat(shared: &Shared, session: &DbSession) -> Result<(), StoreError> {
    let owner = shared.ownership.name().unwrap_or_default();
    let sent_ms = boot_ms();
    let there = session.query(BEAT, &[&&*owner, &lease_ms(shared)]).await?;
    if there.is_empty() {
        return renew(shared, session).await;
    }
    shared.ownership.state.lock().deadline_ms = deadline_ms(shared, sent_ms);
    shared.ownership.beaten.notify_waiters();
    Ok(())
}

/// Gets a new name with a new lease, and keeps the runs that no other process has taken.
async fn renew(shared: &Shared, session: &DbSession) -> Result<(), StoreError> {
    let name = new_name();
    let (before, held): (Arc<str>, Vec<(Arc<str>, HeldRun)>) = {
        let mut state = shared.ownership.state.lock();
        // Before the row is there: a lost answer must not leave a name that is not known.
        state.names.push(name.clone());
        let held = state.held.iter().map(|(run_id, run)| (run_id.clone(), run.clone()));
        (state.owner.clone().unwrap_or_default(), held.collect())
    };
    let numbers: Vec<i64> = held.iter().map(|(_, run)| run.number).collect();
    let epochs: Vec<i64> = held.iter().map(|(_, run)| run.epoch.cast_signed()).collect();
    let sent_ms = boot_ms();
    session.batch("BEGIN").await?;
    let info = shared.ownership.state.lock().info.clone();
    let Described { version, namespaces, room } = Described::of(&info);
    let (host, tools_hash, lease_ms) = (&*info.host, &*info.tools_hash, lease_ms(shared));
    let described: [SqlParameter<'_>; 8] =
        [&&*before, &&*name, &version, &lease_ms, &host, &namespaces, &tools_hash, &room];
    session.execute(REGISTER, &described).await?;
    let kept = session.query(KEEP_RUNS, &[&&*name, &numbers, &epochs]).await?;
    let names = shared.ownership.names();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    session.execute(KEEP_SLOTS, &[&&*name, &names]).await?;
    session.batch("COMMIT").await?;
    let kept: Vec<&str> = kept.iter().map(|row| row.get(0)).collect();
    let mut state = shared.ownership.state.lock();
    for (run_id, run) in &held {
        let is_same = state.held.get(run_id).is_some_and(|held| held.epoch == run.epoch);
        if kept.contains(&&**run_id) {
            state.held.entry(run_id.clone()).and_modify(|held| held.owner = name.clone());
        } else if is_same {
            state.held.remove(run_id);
        }
    }
    state.owner = Some(name);
    state.deadline_ms = deadline_ms(shared, sent_ms);
    drop(state);
    shared.ownership.beaten.notify_waiters();
    Ok(())
}

/// A description in the types of its columns.
struct Described<'a> {
    version: &'a str,
    namespaces: Vec<&'a str>,
    room: i64,
}

impl<'a> Described<'a> {
    fn of(info: &'a WorkerInfo) -> Described<'a> {
        let version =
            if info.version.is_empty() { env!("CARGO_PKG_VERSION") } else { &info.version };
        Described {
            version,
            namespaces: info.namespaces.iter().map(|name| &**name).collect(),
            room: i64::try_from(info.room).unwrap_or(i64::MAX),
        }
    }
}

/// Describes this process, now and whenever it gets a new name.
pub(super) async fn announce(shared: &Shared, info: WorkerInfo) -> Result<(), StoreError> {
    let owner = {
        let mut state = shared.ownership.state.lock();
        state.info = info.clone();
        state.owner.clone().unwrap_or_default()
    };
    let Described { version, namespaces, room } = Described::of(&info);
    let session = shared.sessions.borrow().await?;
    let described: [SqlParameter<'_>; 6] =
        [&&*owner, &version, &&*info.host, &namespaces, &&*info.tools_hash, &room];
    session.execute(ANNOUNCE, &described).await?;
    Ok(())
}

/// Releases runs that no driver moves any more, and whose release failed before.
async fn release_unreleased(shared: &Shared, session: &DbSession) -> Result<(), StoreError> {
    let (mut runs, mut tickets, mut slots) = (Vec::new(), Vec::new(), Vec::new());
    let names = {
        let mut state = shared.ownership.state.lock();
        state.unreleased.retain(|(_, tries)| *tries > 0);
        for (what, _) in &state.unreleased {
            match what {
                Unreleased::Run(lease, due) => runs.push((lease.clone(), *due)),
                Unreleased::Taken(ticket) => tickets.push(*ticket),
                Unreleased::Slot(ticket) => slots.push(*ticket),
            }
        }
        state.names.clone()
    };
    if !runs.is_empty() {
        release(session, &runs, &names).await?;
    }
    if !tickets.is_empty() {
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        session.query(RELEASE_TICKETS, &[&names, &tickets]).await?;
    }
    if !slots.is_empty() {
        free_slots(session, &slots).await?;
    }
    let mut state = shared.ownership.state.lock();
    state.unreleased.iter_mut().for_each(|(_, tries)| *tries -= 1);
    Ok(())
}

async fn release(
    session: &DbSession,
    runs: &[(Lease, Due)],
    names: &[Arc<str>],
) -> Result<usize, StoreError> {
    let ids: Vec<&str> = runs.iter().map(|(lease, _)| &*lease.run_id).collect();
    let epochs: Vec<i64> = runs.iter().map(|(lease, _)| lease.epoch.cast_signed()).collect();
    let delays: Vec<Option<f64>> = runs.iter().map(|(_, due)| delay_ms(*due)).collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let released = session.query(RELEASE, &[&ids, &epochs, &delays, &names]).await?.len();
    if delays.iter().any(|delay| *delay != Some(0.0)) {
        // A command that came while they had an owner woke no process.
        queue::wake_commanded(session).await?;
    }
    Ok(released)
}

/// Frees slots; wakes the processes that may wait for one of a limit that was full.
pub(super) async fn free_slots(session: &DbSession, tickets: &[i64]) -> Result<(), StoreError> {
    session.query(FREE_SLOTS, &[&tickets]).await.map(drop)
}

/// How long until a run is due; none when it waits for a command. A delay, because the clocks of this
/// machine and of the database may differ.
fn delay_ms(due: Due) -> Option<f64> {
    /// A hundred years.
    const FAR_MS: u64 = 100 * 365 * 24 * 3_600_000;
    match due {
        Due::Now => Some(0.0),
        Due::At(at_ms) => {
            let delay = at_ms.saturating_sub(now_ms());
            (delay < FAR_MS).then_some(delay as f64)
        }
        Due::OnCommand => None,
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Releases a run; returns whether this process owned it.
pub(super) async fn release_now(
    shared: &Shared,
    lease: &Lease,
    due: Due,
) -> Result<bool, StoreError> {
    let names = shared.ownership.names();
    let session = shared.sessions.borrow().await?;
    let released = release(&session, &[(lease.clone(), due)], &names).await? > 0;
    shared.ownership.forget(lease);
    Ok(released)
}

/// Releases every run of this process.
pub(super) async fn release_all(shared: &Shared) -> Result<(), StoreError> {
    let names = shared.ownership.names();
    if names.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let session = shared.sessions.borrow().await?;
    session.query(RELEASE_ALL, &[&names]).await?;
    shared.ownership.state.lock().held.clear();
    Ok(())
}

/// Ends this owner, whose runs are released.
pub(super) async fn unregister(shared: &Shared) -> Result<(), StoreError> {
    let names = shared.ownership.names();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let session = shared.sessions.borrow().await?;
    session.execute("DELETE FROM worker WHERE id = ANY ($1)", &[&names]).await?;
    Ok(())
}
