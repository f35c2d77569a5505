//! What can be read of a slate that is damaged, and whose owner is dead.
//!
//! Turns that stand before the damage and behind it are copied. A run that lost one must not go on:
//! whoever went on with it might repeat a call that was made. Which runs those are is known of a run
//! whose later turns are there. Of one that has none behind the damage it is not known, so it is taken
//! to be one of them. They are marked, and everybody who reads them is told; all others go on.
//!
//! The file itself is moved away by whoever commits this ([`super::slates`]).

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::sync::Arc;

use rusqlite::Connection;

use super::desk::Desk;
use super::fault::Fault;
use super::mark::pages_in;
use super::pack::{Hash, hash};
use super::row::StoredRun;
use super::slate::{Reading, pages_of, written_at};
use super::turn::Turn;

/// What can be read.
struct Readable {
    /// Turns, each with the index of its unit, which grows.
    turns: Vec<(u64, Turn)>,
    /// The last unit that is missing before one that is there.
    lost: u64,
    /// Whether it is known of which generation the slate is. If not, it may be one that was wiped, and
    /// its runs may be forgotten since.
    is_current: bool,
}

/// Copies what can be read, and sets runs aside that lost something.
pub(super) fn copy(file: &mut File, owner: &str, desk: &mut Desk) -> Result<(), Fault> {
    let known = |name: &Hash| bundle(&desk.connection, name);
    let readable = read(file, &known).map_err(Fault::Broken)?;
    let mut reached: HashMap<Arc<str>, u64> = HashMap::new();
    let mut aside: BTreeSet<Arc<str>> = BTreeSet::new();
    for (index, turn) in &readable.turns {
        let run_id = &turn.lease.run_id;
        let there = match desk.indexed(run_id) {
            // Set aside before.
            Err(Fault::Refused(_)) => continue,
            there => there?,
        };
        match there {
            Some(length) if length < turn.record.expected => {
                aside.insert(run_id.clone());
                continue;
            }
            None if !readable.is_current => {
                aside.insert(run_id.clone());
            }
            _ => {}
        }
        turn.copy(desk)?;
        reached.insert(run_id.clone(), *index);
    }
    desk.settle()?;
    let sql = "WHERE owner = ?1 AND ended_ms IS NULL";
    StoredRun::scan(&desk.connection, sql, [owner], |stored| {
        let run_id = stored.ok().map(|stored| stored.row.run_id);
        let is_whole =
            |run_id: &Arc<str>| reached.get(run_id).is_some_and(|at| *at > readable.lost);
        aside.extend(run_id.filter(|run_id| !is_whole(run_id)));
        true
    })?;
    for run_id in &aside {
        if desk.indexed(run_id)?.is_some() {
            desk.run(run_id)?.lose(&desk.connection)?;
        }
    }
    Ok(())
}

fn read(file: &mut File, known: &dyn Fn(&Hash) -> Option<Arc<str>>) -> Result<Readable, String> {
    let first = written_at(file, 0)?.map(|(generation, ..)| generation);
    let mut units = Vec::new();
    let mut page = 1;
    let pages = pages_in(file).map_err(|error| error.to_string())?;
    while page < pages {
        let unit = written_at(file, page)?;
        page += unit.as_ref().map_or(1, |(_, _, content)| pages_of(content));
        units.extend(unit);
    }
    // Generations grow. What is left of older ones is in the file.
    let last = units.iter().map(|(generation, ..)| *generation).max();
    let current = first.or(last);
    units.retain(|(generation, ..)| Some(*generation) == current);
    let mut readable = Readable { turns: Vec::new(), lost: 0, is_current: first.is_some() };
    let mut reading = Reading::default();
    let mut next = 1;
    for (_, index, content) in units {
        if index > next {
            readable.lost = index - 1;
        }
        next = index + 1;
        let mut rest = &*content;
        while !rest.is_empty() {
            let before = rest.len();
            match reading.turn(&mut rest, known) {
                Ok(turn) => readable.turns.push((index, turn)),
                // The beginning of a run whose plan is lost.
                Err(_) if rest.len() < before => {}
                Err(what) => return Err(what),
            }
        }
    }
    Ok(readable)
}

/// The text that a plan comes from, as the file has it.
fn bundle(connection: &Connection, name: &Hash) -> Option<Arc<str>> {
    let mut select = connection.prepare_cached("SELECT text FROM bundle WHERE hash = ?1").ok()?;
    let text: String = select.query_row([name], |row| row.get(0)).ok()?;
    (hash(text.as_bytes()) == *name).then(|| text.into())
}
