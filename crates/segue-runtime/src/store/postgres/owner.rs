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
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use uuid::Uuid;

use super::Shared;
use super::session::{DbSession, answered};
use crate::store::pack::Hash;
use crate::store::{Lease, StoreError};

/// Parts of a lease: a heartbeat follows each.
pub(super) const BEATS: u32 = 3;

/// Pauses after a failed heartbeat, as parts of the one between two that succeed.
const RETRIES: u32 = 8;

const BEAT: &str = "WITH dead AS (
        DELETE FROM worker WHERE expires_at <= clock_timestamp() AND id <> $1
    )
    UPDATE worker SET beat_at = clock_timestamp(),
        expires_at = clock_timestamp() + $2::double precision * interval '1 ms'
    WHERE id = $1 AND expires_at > clock_timestamp()
    RETURNING id";

const REGISTER: &str = "WITH before AS (DELETE FROM worker WHERE id = $1)
    INSERT INTO worker (id, version, expires_at)
    VALUES ($2, $3, clock_timestamp() + $4::double precision * interval '1 ms')";

/// Gives the runs of the owner before to this one.
const KEEP_RUNS: &str = "UPDATE run SET owner = $1
    FROM unnest($2::bigint[], $3::bigint[]) AS held (run, epoch)
    WHERE run.number = held.run AND run.epoch = held.epoch AND run.owner IS NOT NULL
    RETURNING run.run_id";

const RELEASE: &str = "UPDATE run SET owner = NULL, epoch = run.epoch + 1
    FROM unnest($1::text[], $2::bigint[]) AS held (run_id, epoch)
    WHERE run.run_id = held.run_id AND run.epoch = held.epoch AND run.owner = ANY ($3)";

const RELEASE_ALL: &str = "UPDATE run SET owner = NULL, epoch = epoch + 1
    WHERE ended_ms IS NULL AND owner = ANY ($1)";

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
    /// Runs without a driver that could not be released yet, with the heartbeats that may still try.
    unreleased: Vec<(Lease, u32)>,
}

/// Milliseconds of a clock that also counts while the machine is suspended.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn boot_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(now.tv_sec) * 1_000 + part(now.tv_nsec) / 1_000_000
}

/// Milliseconds of the monotonic clock, which counts suspended time on these systems.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn boot_ms() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let start = START.get_or_init(std::time::Instant::now);
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn new_name() -> Arc<str> {
    format!("{}-{}", std::process::id(), Uuid::now_v7()).into()
}

impl Ownership {
    /// The present name, once registered.
    pub(super) fn name(&self) -> Option<Arc<str>> {
        self.state.lock().owner.clone()
    }

    /// Remembers a run that this process acquired.
    pub(super) fn insert(&self, run_id: Arc<str>, run: HeldRun) {
        self.state.lock().held.insert(run_id, run);
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

    pub(super) fn remove(&self, run_id: &str) -> Option<HeldRun> {
        self.state.lock().held.remove(run_id)
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
    pub(super) fn release_later(&self, lease: Lease) {
        let mut state = self.state.lock();
        state.held.remove(&lease.run_id);
        state.unreleased.push((lease, RELEASE_TRIES));
    }
}

/// Heartbeats that try to release a run: a statement whose answer was lost may still be under way.
const RELEASE_TRIES: u32 = 2 * BEATS;

/// Registers this process as an owner, and keeps it alive from then on.
pub(super) async fn register(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let session = listening(shared).await?;
    renew(shared, &session).await?;
    shared.measure(&session).await;
    tokio::spawn(keep_alive(shared.clone(), session));
    Ok(())
}

/// A connection that hears of commands.
async fn listening(shared: &Shared) -> Result<DbSession, StoreError> {
    let session = shared.address.connect().await?;
    session.batch("LISTEN segue_command").await?;
    // Commands may have come while no connection listened.
    shared.address.commands.notify_one();
    Ok(session)
}

async fn keep_alive(shared: Arc<Shared>, session: DbSession) {
    let pause = shared.options.lease / BEATS;
    let mut session = Some(session);
    let mut wait = pause;
    loop {
        tokio::time::sleep(wait).await;
        let beaten = answered(pause, async {
            if session.as_ref().is_none_or(|session| !session.is_open()) {
                session = Some(listening(&shared).await?);
            }
            let session = session.as_ref().expect("it was just opened");
            beat(&shared, session).await?;
            release_unreleased(&shared, session).await
        });
        if beaten.await.is_ok() {
            wait = pause;
            if let Some(session) = &session {
                // Statistics and figures are hints.
                let _ = shared.flush_counts(session).await;
                shared.measure(session).await;
            }
        } else {
            session = None;
            wait = pause / RETRIES;
        }
    }
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
    let version = env!("CARGO_PKG_VERSION");
    session.execute(REGISTER, &[&&*before, &&*name, &version, &lease_ms(shared)]).await?;
    let kept = session.query(KEEP_RUNS, &[&&*name, &numbers, &epochs]).await?;
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

/// Releases runs that no driver moves any more, and whose release failed before.
async fn release_unreleased(shared: &Shared, session: &DbSession) -> Result<(), StoreError> {
    let (leases, names) = {
        let mut state = shared.ownership.state.lock();
        state.unreleased.retain(|(_, tries)| *tries > 0);
        let leases: Vec<Lease> = state.unreleased.iter().map(|(lease, _)| lease.clone()).collect();
        (leases, state.names.clone())
    };
    if leases.is_empty() {
        return Ok(());
    }
    release(session, &leases, &names).await?;
    let mut state = shared.ownership.state.lock();
    state.unreleased.iter_mut().for_each(|(_, tries)| *tries -= 1);
    Ok(())
}

async fn release(
    session: &DbSession,
    leases: &[Lease],
    names: &[Arc<str>],
) -> Result<u64, StoreError> {
    let ids: Vec<&str> = leases.iter().map(|lease| &*lease.run_id).collect();
    let epochs: Vec<i64> = leases.iter().map(|lease| lease.epoch.cast_signed()).collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    session.execute(RELEASE, &[&ids, &epochs, &names]).await
}

/// Releases a run; returns whether this process owned it.
pub(super) async fn release_now(shared: &Shared, lease: &Lease) -> Result<bool, StoreError> {
    let names = shared.ownership.state.lock().names.clone();
    let session = shared.sessions.borrow().await?;
    let released = release(&session, std::slice::from_ref(lease), &names).await? > 0;
    shared.ownership.remove(&lease.run_id);
    Ok(released)
}

/// Releases every run of this process.
pub(super) async fn release_all(shared: &Shared) -> Result<(), StoreError> {
    let names: Vec<Arc<str>> = shared.ownership.state.lock().names.clone();
    if names.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let session = shared.sessions.borrow().await?;
    session.execute(RELEASE_ALL, &[&names]).await?;
    shared.ownership.state.lock().held.clear();
    Ok(())
}

/// Ends this owner, whose runs are released.
pub(super) async fn unregister(shared: &Shared) -> Result<(), StoreError> {
    let names: Vec<Arc<str>> = shared.ownership.state.lock().names.clone();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let session = shared.sessions.borrow().await?;
    session.execute("DELETE FROM worker WHERE id = ANY ($1)", &[&names]).await?;
    Ok(())
}
