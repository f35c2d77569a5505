//! Many clients at once, some of them hostile: none is lost, and none of the others is slowed down.

use std::collections::VecDeque;
use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener as StdTcpListener, TcpStream as StdTcpStream};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::world;
use crate::served::{Served, TOKEN};
use crate::support::{Json, World, json};

/// Requests at once.
const CROWD: usize = 2_000;

/// Connections that send a byte now and then.
const SLOW: usize = 5_000;

/// How many of them at once; each sends once a second.
const AT_ONCE: usize = 5;

/// Followers that never read.
const DEAF: usize = 200;

/// Requests one after the other.
const HEALTHY: usize = 400;

/// Requests by which the others are judged, and how often one begins.
const PACED: usize = 2_000;
const PACE: Duration = Duration::from_millis(5);

fn three(n: usize) -> Json {
    json!({ "composition": { "name": "three", "steps": [
        { "id": "a", "tool": "echo", "parameters": { "n": "{{ input.n }}" }, "output_key": "a" },
        { "id": "b", "tool": "echo", "parameters": { "n": "{{ a.n + 1 }}" }, "output_key": "b" },
        { "id": "c", "tool": "echo", "parameters": { "n": "{{ b.n + 1 }}" }, "output_key": "c" },
    ] }, "input": { "n": n } })
}

/// The same with one step.
fn single(n: usize) -> Json {
    json!({ "composition": { "name": "single", "steps": [
        { "id": "c", "tool": "echo", "parameters": { "n": "{{ input.n + 2 }}" }, "output_key": "c" },
    ] }, "input": { "n": n } })
}

/// How long the disk takes to have something that is written, as the store writes it.
fn sync_time(world: &World) -> Duration {
    let path = world.path("sync");
    fs::write(&path, vec![0; 1 << 20]).unwrap();
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.sync_all().unwrap();
    let times = (0..100).map(|_| {
        let begun = Instant::now();
        file.write_all(&[7; 4096]).unwrap();
        file.sync_data().unwrap();
        begun.elapsed()
    });
    figures(times.collect()).p50
}

fn request(served: &Served, n: usize) -> String {
    request_of(served, &three(n))
}

fn request_of(served: &Served, body: &Json) -> String {
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("Authorization", &*bearer), ("Content-Type", "application/json")];
    served.request("POST", "/api/v1/compositions/execute", &headers, &body.to_string())
}

/// Sends a request, and returns its result and how long that took.
async fn execute(at: SocketAddr, request: String, n: usize) -> (Json, Duration) {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let took = begun.elapsed();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{n}: {answer:?}"));
    assert!(head.starts_with("HTTP/1.1 200"), "{n}: {answer}");
    let result: Json = serde_json::from_str(body).unwrap();
    assert_eq!(result["results"]["c"]["n"], n + 2, "{result}");
    (result, took)
}

struct Figures {
    p50: Duration,
    p99: Duration,
}

fn figures(mut times: Vec<Duration>) -> Figures {
    times.sort_unstable();
    Figures { p50: times[times.len() / 2], p99: times[times.len() * 99 / 100] }
}

/// One after the other: how long each took, and how long its run took by itself.
async fn each_of(body: fn(usize) -> Json, served: &Served, at: SocketAddr) -> (Figures, Figures) {
    let (mut took, mut ran) = (Vec::new(), Vec::new());
    for n in 0..HEALTHY {
        let (result, time) = execute(at, request_of(served, &body(n)), n).await;
        took.push(time);
        ran.push(Duration::from_nanos(result["duration"].as_u64().unwrap()));
    }
    (figures(took), figures(ran))
}

fn resident_mib(served: &Served) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", served.pid())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kib.unwrap_or(0) / 1024
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// None is lost, none is wrong, and the engine takes less than a millisecond of each, beside what the
/// tools take, which is nothing here, and what the disk takes to have each turn.
#[test]
#[ignore = "prints figures, for a release build: `just load`"]
fn two_thousand_at_once() {
    for store in ["memory", "sqlite:load.db"] {
        let world = world("");
        let served = Served::start(&world, store, &[]);
        let at: SocketAddr = served.address.parse().unwrap();
        runtime().block_on(async {
            // A call leaves after its entry is durable, and a run is over when its end is.
            for (what, body, syncs) in [("one step", single as fn(_) -> _, 2), ("three", three, 4)] {
                let disk = if store == "memory" { Duration::ZERO } else { sync_time(&world) * syncs };
                let (alone, run) = each_of(body, &served, at).await;
                println!(
                    "{store}: {what}, one at a time: request p50 {:?}, p99 {:?}; run p50 {:?}, p99 {:?}, of \
                     which tools 0, the disk {disk:?} ({syncs} syncs), the engine {:?}",
                    alone.p50, alone.p99, run.p50, run.p99, run.p50.saturating_sub(disk)
                );
                assert!(run.p50.saturating_sub(disk) < Duration::from_millis(1), "{:?}", run.p50);
            }
            let begun = Instant::now();
            let mut asked = JoinSet::new();
            for n in 0..CROWD {
                asked.spawn(execute(at, request(&served, n), n));
            }
            let (mut times, mut ids) = (Vec::new(), std::collections::BTreeSet::new());
            while let Some(answer) = asked.join_next().await {
                let (result, took) = answer.unwrap();
                times.push(took);
                assert!(ids.insert(result["run_id"].as_str().unwrap().to_owned()));
            }
            let all = begun.elapsed();
            assert_eq!(ids.len(), CROWD);
            let crowd = figures(times);
            println!(
                "{store}: {CROWD} at once in {all:?}, {:?} each; p50 {:?}, p99 {:?}; {} MiB",
                all / u32::try_from(CROWD).unwrap(),
                crowd.p50,
                crowd.p99,
                resident_mib(&served)
            );
        });
    }
}

/// Connections that send a byte now and then, each at a time of its own, as strangers do. Who is driven
/// out comes back at its next turn.
struct Strangers {
    stop: mpsc::Sender<()>,
    work: JoinHandle<usize>,
}

impl Strangers {
    /// Opens all connections, and continues on its own thread.
    fn come(at: SocketAddr) -> Strangers {
        let open = move || -> StdTcpStream {
            let mut stream = StdTcpStream::connect(at).unwrap();
            stream.write_all(b"POST /api/v1/compositions/execute HTTP/1.1\r\nHost: ").unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        };
        let mut all: VecDeque<StdTcpStream> = (0..SLOW).map(|_| open()).collect();
        let (stop, stopped) = mpsc::channel();
        let work = std::thread::spawn(move || {
            let mut returned = 0;
            let pause = Duration::from_secs(1) / u32::try_from(SLOW / AT_ONCE).unwrap();
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
                for _ in 0..AT_ONCE {
                    let mut stream = all.pop_front().unwrap();
                    if stream.write_all(b"x").is_err() {
                        stream = open();
                        returned += 1;
                    }
                    all.push_back(stream);
                }
            }
            returned
        });
        Strangers { stop, work }
    }

    /// Sends them away, and returns how often one of them was driven out before.
    fn leave(self) -> usize {
        drop(self.stop);
        self.work.join().unwrap()
    }
}

/// A listener that accepts every connection and never reads.
fn nowhere() -> SocketAddr {
    let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let _all: Vec<StdTcpStream> = listener.incoming().map_while(Result::ok).collect();
    });
    at
}

/// Requests at a steady pace, each on a connection of its own, and how long they took.
async fn paced(served: &Served, at: SocketAddr) -> Figures {
    let mut times = Vec::new();
    let mut next = tokio::time::interval(PACE);
    for n in 0..PACED {
        next.tick().await;
        times.push(execute(at, request(served, n), n).await.1);
    }
    figures(times)
}

/// Slow connections and followers that never read cost others almost nothing. Before, they send as
/// much to another listener, so that only the server's own work is compared.
#[test]
#[ignore = "prints figures, for a release build: `just load`"]
fn slow_and_stalled_clients_do_not_disturb_others() {
    let world = world("");
    let served = Served::start(&world, "memory", &[]);
    let at: SocketAddr = served.address.parse().unwrap();
    let steps = json!([{ "id": "l", "loop": {
        "over": "{{ range(0, 8000) }}", "max_concurrency": 1,
        "steps": [{ "id": "s", "tool": "sleep", "parameters": { "ms": 5 } }] } }]);
    let talkative = json!({ "composition": { "name": "talkative", "steps": steps } });
    let prefer = [("Prefer", "respond-async")];
    let answer = served.send("POST", "/api/v1/compositions/execute", &prefer, &talkative);
    let run = answer.is(202)["run_id"].as_str().unwrap().to_owned();
    runtime().block_on(async {
        let elsewhere = Strangers::come(nowhere());
        let before = paced(&served, at).await;
        assert_eq!(elsewhere.leave(), 0);
        let memory = resident_mib(&served);
        let bearer = format!("Bearer {TOKEN}");
        let headers = [("Authorization", &*bearer)];
        let events = served.request("GET", &format!("/api/v1/runs/{run}/events"), &headers, "");
        let mut deaf = Vec::new();
        for _ in 0..DEAF {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            let mut stream = socket.connect(at).await.unwrap();
            stream.write_all(events.as_bytes()).await.unwrap();
            deaf.push(stream);
        }
        let strangers = Strangers::come(at);
        // Every connection was accepted or evicted when this is answered.
        execute(at, request(&served, 0), 0).await;
        let during = paced(&served, at).await;
        let grown = resident_mib(&served).saturating_sub(memory);
        println!(
            "healthy requests: p50 {:?}, p99 {:?}; beside {SLOW} slow connections, which came back \
             {} times, and {DEAF} deaf followers: p50 {:?}, p99 {:?}; {grown} MiB more than {memory}",
            before.p50,
            before.p99,
            strangers.leave(),
            during.p50,
            during.p99
        );
        assert!(during.p99 <= before.p99 * 2, "{:?} {:?}", during.p99, before.p99);
        assert!(grown < 300, "{grown} MiB");
        drop(deaf);
    });
    served.post(&format!("/api/v1/runs/{run}/cancel"), &json!(null)).is(200);
}
