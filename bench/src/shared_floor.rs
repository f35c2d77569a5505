//! The floor of the shared store: a program that writes the same rows by plain statements.
//!
//! It has the two tables of a journal with the same indexes, writes a turn by one statement that also moves
//! the row of its run, and waits for the commit. Runs at once share a statement. It computes no hash, checks
//! no lease, and keeps no plan, no command and no statistics.

use tokio::sync::{mpsc, oneshot};
use tokio_postgres::{Client, NoTls, Statement};

const TABLES: &str = "CREATE SCHEMA IF NOT EXISTS floor;
    CREATE TABLE IF NOT EXISTS floor.run (
        number bigint PRIMARY KEY,
        run_id text COLLATE \"C\" NOT NULL UNIQUE,
        status text NOT NULL,
        updated_ms bigint NOT NULL,
        ended_ms bigint,
        length bigint NOT NULL,
        head bytea NOT NULL,
        last bigint NOT NULL
    ) WITH (fillfactor = 70);
    CREATE INDEX IF NOT EXISTS run_unfinished ON floor.run (number) WHERE ended_ms IS NULL;
    CREATE INDEX IF NOT EXISTS run_ended ON floor.run (ended_ms, number) WHERE ended_ms IS NOT NULL;
    CREATE TABLE IF NOT EXISTS floor.turn (
        number bigint PRIMARY KEY,
        run bigint NOT NULL,
        before bigint NOT NULL,
        bytes bytea NOT NULL,
        hash bytea NOT NULL
    )";

const BEGIN: &str = "WITH given AS (
        SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[])
            AS given (run, bytes, hash, number)
    ), begun AS (
        INSERT INTO floor.run (number, run_id, status, updated_ms, length, head, last)
        SELECT run, gen_random_uuid()::text, 'running', 1, 1, hash, number FROM given
    )
    INSERT INTO floor.turn (number, run, before, bytes, hash)
    SELECT number, run, 0, bytes, hash FROM given";

const APPEND: &str = "WITH given AS MATERIALIZED (
        SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bool[])
            AS given (run, bytes, hash, number, expected, ends)
    ), moved AS (
        UPDATE floor.run SET length = given.expected + 1, head = given.hash, last = given.number,
            updated_ms = given.number, status = CASE WHEN ends THEN 'success' ELSE 'running' END,
            ended_ms = CASE WHEN ends THEN given.number END
        FROM given WHERE run.number = given.run AND run.length = given.expected
        RETURNING given.number, run.number AS run
    ), added AS (
        INSERT INTO floor.turn (number, run, before, bytes, hash)
        SELECT given.number, given.run, given.number - 1, bytes, hash
        FROM given JOIN moved USING (number)
    )
    SELECT number FROM moved";

/// The writer's statements touch runs by number, as those of the store do.
const SETTINGS: &str =
    "SET enable_seqscan TO off; SET enable_hashjoin TO off; SET enable_mergejoin TO off";

/// A turn to write.
pub(crate) struct Turn {
    run: i64,
    /// Turns that are there already.
    expected: i64,
    ends: bool,
}

/// Turns of one statement at most, as in the store.
const TOGETHER_MAX: usize = 1_000;

/// A connection with its statements.
pub(crate) struct Floor {
    client: Client,
    begin: Statement,
    append: Statement,
    bytes: Vec<u8>,
    next_turn: i64,
}

impl Floor {
    /// Connects; each turn has so many bytes.
    pub(crate) async fn connect(url: &str, turn_bytes: usize) -> Floor {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a database");
        tokio::spawn(connection);
        client.batch_execute(TABLES).await.expect("tables can be made");
        client.batch_execute(SETTINGS).await.expect("settings can be made");
        let begin = client.prepare(BEGIN).await.expect("a statement");
        let append = client.prepare(APPEND).await.expect("a statement");
        let last = "SELECT coalesce(max(number), 0) FROM floor.turn";
        let last = client.query_one(last, &[]).await.expect("a number").get(0);
        Floor { client, begin, append, bytes: vec![b'x'; turn_bytes], next_turn: last }
    }

    /// Waits for an answer that needs nothing but the way there and back.
    pub(crate) async fn round_trip(&self) {
        self.client.query_one("SELECT 1", &[]).await.expect("an answer");
    }

    /// Writes these turns with one statement each for runs that begin and runs that go on.
    async fn write(&mut self, turns: &[Turn]) {
        for begins in [true, false] {
            let these: Vec<&Turn> =
                turns.iter().filter(|turn| (turn.expected == 0) == begins).collect();
            if these.is_empty() {
                continue;
            }
            let runs: Vec<i64> = these.iter().map(|turn| turn.run).collect();
            let bytes: Vec<&[u8]> = these.iter().map(|_| &self.bytes[..]).collect();
            let hashes: Vec<&[u8]> = these.iter().map(|_| &[7_u8; 32][..]).collect();
            let numbers: Vec<i64> =
                these.iter().zip(self.next_turn + 1..).map(|(_, n)| n).collect();
            self.next_turn = numbers.last().copied().unwrap_or(self.next_turn);
            let written = if begins {
                self.client.execute(&self.begin, &[&runs, &bytes, &hashes, &numbers]).await
            } else {
                let expected: Vec<i64> = these.iter().map(|turn| turn.expected).collect();
                let ends: Vec<bool> = these.iter().map(|turn| turn.ends).collect();
                let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                    [&runs, &bytes, &hashes, &numbers, &expected, &ends];
                self.client.execute(&self.append, &parameters).await
            };
            assert_eq!(written.expect("the floor can write"), these.len() as u64);
        }
    }

    /// One run of so many turns, alone on this connection.
    pub(crate) async fn lone(&mut self, run: i64, turns: i64) {
        for expected in 0..turns {
            self.write(&[Turn { run, expected, ends: expected + 1 == turns }]).await;
        }
    }
}

/// Turns that wait, each with the task that waits for it.
type Waiting = (Turn, oneshot::Sender<()>);

/// One writer for all runs, which takes what waits.
pub(crate) struct Together(mpsc::UnboundedSender<Waiting>);

impl Together {
    pub(crate) fn new(mut floor: Floor) -> Together {
        let (posted, mut waiting) = mpsc::unbounded_channel::<Waiting>();
        tokio::spawn(async move {
            let mut together = Vec::new();
            while waiting.recv_many(&mut together, TOGETHER_MAX).await > 0 {
                let (turns, replies): (Vec<Turn>, Vec<_>) = together.drain(..).unzip();
                floor.write(&turns).await;
                // The task may have been dropped.
                for reply in replies {
                    let _: Result<(), ()> = oneshot::Sender::send(reply, ());
                }
            }
        });
        Together(posted)
    }

    /// A run of so many turns beside others.
    pub(crate) async fn run(&self, run: i64, turns: i64) {
        for expected in 0..turns {
            let (reply, written) = oneshot::channel();
            let turn = Turn { run, expected, ends: expected + 1 == turns };
            self.0.send((turn, reply)).expect("the writer lives as long as this");
            written.await.expect("the writer answers");
        }
    }
}
