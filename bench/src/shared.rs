//! Runs in a shared store against plain statements: a lone chain, many at once, two processes, commands
//! from another process, and 10,000 runs on two processes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use segue_core::plan::Plan;
use segue_core::run::{Entry, Fact, NodeId};
use segue_core::value::Value;
use segue_core::view::RunStatus;
use segue_runtime::engine::Engine;
use segue_runtime::store::{
    AppendRecord, CommandQueue as _, JournalStore as _, NewRun, PostgresOptions, PostgresStore,
    PostgresUrl,
};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

use crate::database::Database;
use crate::durable::Syncs;
use crate::floor::{self, record};
use crate::measure::{self, Clock, Row, compare, show};
use crate::shared_floor::{Floor, Together};
use crate::workload::{engine_with, plan, run, runtime, source};

/// Steps of a chain, and its turns: one before each call, and the end.
const STEPS: usize = 10;
const TURNS: i64 = 11;

/// The targets.
const LONE_SYNCS_MAX: u32 = 5;
const STEPS_A_SECOND_MIN: f64 = 30_000.0;
const TWO_PROCESSES_MIN: f64 = 1.3;
const HEARD_MAX: Duration = Duration::from_millis(20);
const MEMORY_MAX: u64 = 512 << 20;

/// How much is measured.
#[derive(Clone, Copy)]
struct Size {
    /// Runs at once.
    at_once: usize,
    /// Runs of each process that is compared.
    of_process: usize,
    /// Pairs of one process and two.
    rounds: usize,
    /// Runs that two processes share.
    shared: usize,
    commands: usize,
}

const FULL: Size =
    Size { at_once: 64, of_process: 3_000, rounds: 5, shared: 10_000, commands: 500 };

/// Runs at once of a process that has many to do, as `worker.runs` is by default.
const ROOM: usize = 256;

/// The parts of the table, by their names on the command line.
pub(crate) const PARTS: [&str; 5] = ["lone", "many", "processes", "commands", "runs"];

/// Measures some parts. With all of them it writes its section of the page.
pub(crate) fn report(parts: &[&str]) -> Result<(), String> {
    let table = measure::table(&rows(parts, FULL)?);
    measure::print(&table);
    if parts == PARTS {
        let state = state_of_the_machine();
        measure::write_section(
            "Shared by several machines",
            &format!("{SHARED}\n{state}\n\n{table}"),
        );
    }
    Ok(())
}

fn rows(parts: &[&str], size: Size) -> Result<Vec<Row>, String> {
    let database = Database::start()?;
    let mut rows = Vec::new();
    for part in parts {
        match *part {
            "lone" => rows.extend(lone(&database)),
            "many" => rows.extend(many(&database, size)),
            "processes" => rows.push(processes(&database, size)?),
            "commands" => rows.push(commands(&database, size)),
            _ => rows.extend(shared_runs(&database, size)?),
        }
    }
    Ok(rows)
}

/// Who else uses the machine while this measures.
fn state_of_the_machine() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<&str> = load.split(' ').take(3).collect();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!(
        "Measured on {cores} cores, which server and clients share; load averages {}.",
        load.join(", ")
    )
}

/// A store in the database, and an engine that keeps its runs there.
struct Kept {
    engine: Engine,
    runtime: Runtime,
    plan: Arc<Plan>,
    input: Value,
}

fn open(url: &str) -> Arc<PostgresStore> {
    let url = PostgresUrl::parse(url).expect("an address");
    let store = PostgresStore::open(&url, PostgresOptions::default());
    Arc::new(store.unwrap_or_else(|error| panic!("{error}")))
}

impl Kept {
    fn new(url: &str) -> Kept {
        let engine = engine_with(open(url));
        let plan = plan(&engine, &source(&floor::chain(STEPS)));
        let input = Value::from(json!({ "value": record() }));
        Kept { engine, runtime: runtime(), plan, input }
    }

    /// Runs `runs` chains, `at_once` at once.
    fn run(&self, runs: usize, at_once: usize) {
        let one = |_| async {
            run(&self.engine, &self.plan, &self.input).await;
        };
        self.runtime.block_on(stream::iter(0..runs).for_each_concurrent(at_once, one));
    }
}

/// One number from the database.
fn number(url: &str, sql: &str) -> i64 {
    let runtime = runtime();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a database");
        let connection = tokio::spawn(connection);
        let number = client.query_one(sql, &[]).await.expect("a number").get(0);
        drop(client);
        let _ = connection.await;
        number
    })
}

/// The bytes of a turn, on average, of the runs that are there.
fn turn_bytes(url: &str) -> usize {
    let bytes = number(url, "SELECT avg(octet_length(bytes))::bigint FROM segue.turn");
    usize::try_from(bytes).expect("turns have bytes")
}

/// A chain of ten steps alone, against plain statements, and against syncs and a round trip.
fn lone(database: &Database) -> [Row; 2] {
    let url = database.url();
    let kept = Kept::new(&url);
    kept.run(20, 1);
    let runtime = runtime();
    let mut floor = runtime.block_on(Floor::connect(&url, turn_bytes(&url)));
    let mut next = number(&url, "SELECT coalesce(max(number), 0) FROM floor.run");
    let mut by_hand = || {
        next += 1;
        runtime.block_on(floor.lone(next, TURNS));
    };
    let pairs = compare(Clock::Wall, &mut by_hand, &mut || kept.run(1, 1));
    let row = pairs.row("P1 chain of 10 alone, per step", 2.0, STEPS);
    let file = database.folder().join("syncs");
    let sync = sync_time(&file);
    let trips: Vec<Duration> = (0..200)
        .map(|_| {
            let began = Instant::now();
            runtime.block_on(floor.round_trip());
            began.elapsed()
        })
        .collect();
    let trip = measure::median_time(trips.into_iter());
    let step = pairs.engine().div_f64(STEPS as f64);
    let most = sync * LONE_SYNCS_MAX + trip;
    let against = Row {
        name: "P1 the same in syncs (floor: one fdatasync; one round trip)".to_owned(),
        floor: format!("{}; {}", show(sync), show(trip)),
        engine: show(step),
        ratio: format!(
            "{:.1} syncs",
            (step.saturating_sub(trip)).as_secs_f64() / sync.as_secs_f64()
        ),
        target: format!("≤ {LONE_SYNCS_MAX} syncs + 1 round trip"),
        met: Some(step <= most),
    };
    [row, against]
}

/// The median time of a sync of one page.
fn sync_time(file: &std::path::Path) -> Duration {
    let mut syncs = Syncs::new(file);
    measure::median_time((0..300).map(|_| {
        let began = Instant::now();
        syncs.one();
        began.elapsed()
    }))
}

/// Chains at once in one process.
fn many(database: &Database, size: Size) -> [Row; 2] {
    let url = database.url();
    let kept = Kept::new(&url);
    kept.run(size.at_once, size.at_once);
    let runtime = runtime();
    let bytes = turn_bytes(&url);
    let together = runtime.block_on(async { Together::new(Floor::connect(&url, bytes).await) });
    let mut next = number(&url, "SELECT coalesce(max(number), 0) FROM floor.run");
    let mut by_hand = || {
        let first = next + 1;
        next += i64::try_from(size.at_once).expect("a small number");
        let all = (first..=next).map(|run| together.run(run, TURNS));
        runtime.block_on(join_all(all));
    };
    let mut engine = || kept.run(size.at_once, size.at_once);
    let pairs = compare(Clock::Wall, &mut by_hand, &mut engine);
    let steps = size.at_once * STEPS;
    let a_second = steps as f64 / pairs.engine().as_secs_f64();
    let row = pairs.row(&format!("P2 {} chains at once, per step", size.at_once), 2.0, steps);
    let throughput = Row {
        engine: format!("{}, {:.1} k steps/s", row.engine, a_second / 1e3),
        target: format!("≥ {:.0} k steps/s", STEPS_A_SECOND_MIN / 1e3),
        met: Some(a_second >= STEPS_A_SECOND_MIN),
        ..row
    };
    [throughput, bytes_of_a_run(&url, &kept, size)]
}

/// How many bytes a run of ten steps adds to the log of the database, and to its tables.
fn bytes_of_a_run(url: &str, kept: &Kept, size: Size) -> Row {
    let log = || number(url, "SELECT (pg_current_wal_lsn() - '0/0')::bigint");
    let tables = "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
        WHERE relnamespace = 'segue'::regnamespace AND relkind = 'r'";
    let before = (log(), number(url, tables));
    let runs = 20 * size.at_once;
    kept.run(runs, size.at_once);
    let each = |before: i64, after: i64| (after - before) as f64 / runs as f64 / 1e3;
    let (log, tables) = (each(before.0, log()), each(before.1, number(url, tables)));
    Row {
        name: "P2 what a run of 10 steps writes: log; tables".to_owned(),
        floor: "—".to_owned(),
        engine: format!("{log:.1} kB; {tables:.1} kB"),
        ratio: "—".to_owned(),
        target: "—".to_owned(),
        met: None,
    }
}

/// A process that opens the store, says so, and runs its chains when it reads a line.
pub(crate) fn process(url: &str, runs: &str, at_once: &str) -> Result<(), String> {
    let whole = |text: &str| text.parse().map_err(|_| format!("`{text}` is not a number"));
    let (runs, at_once): (usize, usize) = (whole(runs)?, whole(at_once)?);
    let kept = Kept::new(url);
    kept.run(at_once, at_once);
    measure::print("ready");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|error| error.to_string())?;
    let began = Instant::now();
    kept.run(runs, at_once);
    measure::print(&format!("{} {}", began.elapsed().as_secs_f64(), peak_bytes()));
    Ok(())
}

/// The largest resident size that this process had.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// A child process with its output.
struct Running {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.said.read_line(&mut line).map_err(|error| error.to_string())?;
        Ok(line)
    }
}

/// What processes did together.
struct Work {
    seconds: f64,
    peak_bytes: u64,
}

/// Runs so many chains in each of so many processes, all at the same time.
fn in_processes(url: &str, count: usize, runs: usize, at_once: usize) -> Result<Work, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut children = Vec::new();
    for _ in 0..count {
        let mut child = Command::new(&program)
            .args(["shared-process", url, &runs.to_string(), &at_once.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let said = child.stdout.take().ok_or("a process without output")?;
        children.push(Running { child, said: BufReader::new(said) });
    }
    for one in &mut children {
        one.line()?;
    }
    for one in &mut children {
        let input = one.child.stdin.as_mut().ok_or("a process without input")?;
        writeln!(input).map_err(|error| error.to_string())?;
    }
    let mut together = Work { seconds: 0.0, peak_bytes: 0 };
    for one in &mut children {
        let said = one.line()?;
        let (seconds, peak) = said.trim().split_once(' ').ok_or("a process that failed")?;
        let seconds: f64 = seconds.parse().map_err(|_| "not a time")?;
        together.seconds = together.seconds.max(seconds);
        together.peak_bytes = together.peak_bytes.max(peak.parse().unwrap_or(0));
        one.child.wait().map_err(|error| error.to_string())?;
    }
    Ok(together)
}

/// Two processes against one, each with the same runs.
fn processes(database: &Database, size: Size) -> Result<Row, String> {
    let url = database.url();
    let (runs, at_once) = (size.of_process, size.at_once);
    let a_second = |count: usize| -> Result<f64, String> {
        let together = in_processes(&url, count, runs, at_once)?;
        Ok((count * runs * STEPS) as f64 / together.seconds)
    };
    let mut pairs = Vec::new();
    for round in 0..size.rounds {
        let (first, second) = if round.is_multiple_of(2) { (1, 2) } else { (2, 1) };
        let (a, b) = (a_second(first)?, a_second(second)?);
        pairs.push(if first == 1 { (a, b) } else { (b, a) });
    }
    let median =
        |of: fn(&(f64, f64)) -> f64| measure::median(&pairs.iter().map(of).collect::<Vec<_>>());
    let ratio = median(|(one, two)| two / one);
    Ok(Row {
        name: format!("P3 two processes with {at_once} chains each (floor: one process)"),
        floor: format!("{:.1} k steps/s", median(|pair| pair.0) / 1e3),
        engine: format!("{:.1} k steps/s", median(|pair| pair.1) / 1e3),
        ratio: format!("{ratio:.2}"),
        target: format!("≥ {TWO_PROCESSES_MIN}×"),
        met: Some(ratio >= TWO_PROCESSES_MIN),
    })
}

/// How long the owner of a run takes to hear a command from another process; the floor is a notification
/// and a read by plain statements.
fn commands(database: &Database, size: Size) -> Row {
    let url = database.url();
    let (owner, other) = (open(&url), open(&url));
    let runtime = runtime();
    let heard = runtime.block_on(async {
        let engine = engine_with(owner.clone());
        let plan = plan(&engine, &source(&floor::chain(1)));
        let run_id: Arc<str> = "heard".into();
        let fact = Fact::Succeeded {
            node: NodeId { frame: 0, position: 0 },
            output: Value::Null,
            given: None,
        };
        let entries = [Entry { seq: 0, at_ms: 1, fact }];
        let record = AppendRecord {
            expected: 0,
            entries: &entries,
            status: RunStatus::Running,
            measured: &[],
            is_part: false,
        };
        let lease = owner.create(NewRun { run_id: &run_id, plan: &plan }, record).await;
        lease.expect("a run can begin");
        let signal = owner.command_signal().expect("a shared store has one");
        let text: Arc<str> = "cancel".into();
        let mut heard = Vec::new();
        for _ in 0..size.commands {
            let began = Instant::now();
            let sent = other.send_command(&run_id, &text);
            let hear = async {
                loop {
                    let pending = owner.pending_commands().await.expect("it can be read");
                    if let Some(command) = pending.first() {
                        return command.number;
                    }
                    signal.notified().await;
                }
            };
            let (sent, number) = tokio::join!(sent, hear);
            sent.expect("it can be sent");
            heard.push(began.elapsed());
            owner.remove_command(number).await.expect("it is there");
        }
        heard
    });
    let by_hand = runtime.block_on(notified(&url, size.commands));
    let (middle, last) = percentiles(heard);
    let (floor_middle, floor_last) = percentiles(by_hand);
    Row {
        name: "P4 a command heard, p50 and p99 (floor: `NOTIFY` and a read)".to_owned(),
        floor: format!("{}, {}", show(floor_middle), show(floor_last)),
        engine: format!("{}, {}", show(middle), show(last)),
        ratio: format!("{:.1}", middle.as_secs_f64() / floor_middle.as_secs_f64()),
        target: format!("p99 ≤ {} ms", HEARD_MAX.as_millis()),
        met: Some(last <= HEARD_MAX),
    }
}

fn percentiles(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
    (at(50), at(99))
}

/// The same by plain statements: a row and a notification, heard on another connection, which reads the row.
async fn notified(url: &str, times: usize) -> Vec<Duration> {
    let (sender, sending) = tokio_postgres::connect(url, NoTls).await.expect("a database");
    tokio::spawn(sending);
    let (reader, mut reading) = tokio_postgres::connect(url, NoTls).await.expect("a database");
    let heard = Arc::new(tokio::sync::Notify::new());
    let woken = heard.clone();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| reading.poll_message(cx)).await {
            if matches!(message, tokio_postgres::AsyncMessage::Notification(_)) {
                woken.notify_one();
            }
        }
    });
    let tables = "CREATE SCHEMA IF NOT EXISTS floor;
        CREATE TABLE floor.command (number bigserial PRIMARY KEY, text text NOT NULL)";
    sender.batch_execute(tables).await.expect("a table");
    reader.batch_execute("LISTEN floor").await.expect("it can listen");
    let send = "WITH sent AS (INSERT INTO floor.command (text) VALUES ('cancel'))
        SELECT pg_notify('floor', '')";
    let mut took = Vec::new();
    for _ in 0..times {
        let began = Instant::now();
        let hear = async {
            heard.notified().await;
            reader.query("SELECT number, text FROM floor.command", &[]).await.expect("it is there");
        };
        let (sent, ()) = tokio::join!(sender.query(send, &[]), hear);
        sent.expect("it can be sent");
        took.push(began.elapsed());
        reader.execute("DELETE FROM floor.command", &[]).await.expect("it can be deleted");
    }
    took
}

/// Many runs on one process and on two: none is lost, and memory has a bound.
fn shared_runs(database: &Database, size: Size) -> Result<[Row; 2], String> {
    let url = database.url();
    let ended = || number(&url, "SELECT count(*) FROM segue.run WHERE status = 'success'");
    let at_once = ROOM.min(size.shared / 2);
    let before = ended();
    let one = in_processes(&url, 1, size.shared, at_once)?;
    let two = in_processes(&url, 2, size.shared / 2, at_once)?;
    // Each process also ran some to get warm.
    let expected = i64::try_from(2 * size.shared + 3 * at_once).expect("a small number");
    let lost = expected - (ended() - before);
    let a_second = |together: &Work| size.shared as f64 / together.seconds;
    let (alone, shared) = (a_second(&one), a_second(&two));
    let throughput = Row {
        name: format!("P5 {} runs of 10 steps on two processes (floor: on one)", size.shared),
        floor: format!("{alone:.0} runs/s"),
        engine: format!("{shared:.0} runs/s, {lost} lost"),
        ratio: format!("{:.2}", shared / alone),
        target: "none lost".to_owned(),
        met: Some(lost == 0),
    };
    let peak = one.peak_bytes.max(two.peak_bytes);
    let memory = Row {
        name: "P5 peak memory of a process".to_owned(),
        floor: "—".to_owned(),
        engine: format!("{} MB", peak >> 20),
        ratio: "—".to_owned(),
        target: format!("≤ {} MB", MEMORY_MAX >> 20),
        met: Some(peak <= MEMORY_MAX),
    };
    Ok([throughput, memory])
}

const SHARED: &str = "**The floor** is a program that writes the same rows by plain statements: the row of a run moves and a turn
of the same size is added by one statement, and the program waits for its commit. Runs at once share a
statement. It computes no hashes, checks no lease, and keeps no plans and no statistics. The server is a
Postgres of this process with the settings of a new one (`fsync` and `synchronous_commit` on), reached
through a socket; a network adds its round trip to every figure of P1 and P4.

P3 and P5 count processes that all use one server on the same cores: where the cores are the limit, a second
process shares them and adds little. P5 measures engines and store; it starts its runs where they are driven.

The table is of a machine that others kept busy: builds on both cores, and a disk whose sync took 3.3 ms instead of 0.1 ms.
So P1 is mostly the disk on both sides, and P2 misses its target. With the data of the server in memory (`TMPDIR=/dev/shm`) and load averages of 5
to 7, the same build took 415 µs a step in P1 (floor 205 µs), made 22.9 k steps/s in P2 (floor 47 k), 1.15 times as many in P3 (17.3 and
23.9 k steps/s), and 2,081 and 2,207 runs/s in P5: there the cores are the limit, and a second process has none of its own. A quiet machine is not
measured.
";

#[cfg(test)]
mod tests {
    use super::*;

    /// Every part works, at a size that measures nothing.
    #[test]
    fn every_part_runs() {
        if let Err(missing) = Database::start() {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{missing}");
            measure::print(&format!("skipped: {missing}"));
            return;
        }
        // A test cannot start itself as another process: `processes` and `runs` are left out.
        let size = Size { at_once: 2, of_process: 2, rounds: 1, shared: 4, commands: 5 };
        let rows = rows(&["lone", "many", "commands"], size).unwrap();
        assert_eq!(rows.len(), 5);
        // A run of the engine and one of the floor have as many turns.
        let database = Database::start().unwrap();
        let kept = Kept::new(&database.url());
        kept.run(1, 1);
        assert_eq!(number(&database.url(), "SELECT count(*) FROM segue.turn"), TURNS);
    }
}
