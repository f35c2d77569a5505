//! Restate as the dispatcher, with the real server: what it is sent, when it calls, and what it survives.

#[cfg(feature = "postgres")]
mod end_to_end;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use segue::api::error::{Error, ErrorKind};
use segue::api::runs::dispatch::{Dispatcher, Driven};
use segue::dispatch::restate::{
    DrivesRuns, RestateClient, diagnose, listen, listen_address, serve,
};
use segue_core::diagnostic::Code;
use segue_runtime::driver::now_ms;
use segue_runtime::store::Due;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::restate_server::{RestateServer, free_ports};
use crate::served::Served;
use crate::support::json;

/// How long anything may take before it counts as never.
const NEVER: Duration = Duration::from_mins(1);

/// Runs that exist only as the answers of the service: each call for one takes its next answer.
#[derive(Default)]
struct Runs {
    answers: Mutex<HashMap<Arc<str>, Vec<Answer>>>,
    calls: Mutex<Vec<(Arc<str>, u64)>>,
    called: Notify,
}

/// An answer of the service.
#[derive(Clone)]
enum Answer {
    Driven(Driven),
    Fails(ErrorKind, &'static str),
    /// Once this test says so.
    When(Arc<Notify>),
    /// Due that long after the call.
    DueIn(u64),
}

#[async_trait]
impl DrivesRuns for Runs {
    async fn drive(&self, run_id: &Arc<str>) -> Result<Driven, Error> {
        let answer = {
            let mut answers = self.answers.lock().unwrap();
            let left = answers.get_mut(run_id).filter(|left| !left.is_empty());
            left.map_or(Answer::Driven(Driven::Over), |left| left.remove(0))
        };
        self.calls.lock().unwrap().push((run_id.clone(), now_ms()));
        self.called.notify_waiters();
        match answer {
            Answer::Driven(driven) => Ok(driven),
            Answer::Fails(kind, message) => Err(Error::new(kind, Code::Internal, message)),
            Answer::When(released) => {
                released.notified().await;
                Ok(Driven::Over)
            }
            Answer::DueIn(ms) => Ok(Driven::Waits(Due::At(now_ms() + ms))),
        }
    }
}

impl Runs {
    fn answers(&self, run_id: &str, answers: &[Answer]) {
        self.answers.lock().unwrap().insert(run_id.into(), answers.to_vec());
    }

    /// When calls for a run came.
    fn calls(&self, run_id: &str) -> Vec<u64> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(called, _)| &**called == run_id).map(|(_, at)| *at).collect()
    }

    /// Waits until there were that many calls for a run.
    async fn called(&self, run_id: &str, count: usize) -> Vec<u64> {
        let waiting = async {
            loop {
                let called = self.called.notified();
                let calls = self.calls(run_id);
                if calls.len() >= count {
                    return calls;
                }
                // A call between the look and the wait is found by the next look.
                let _ = tokio::time::timeout(Duration::from_millis(50), called).await;
            }
        };
        tokio::time::timeout(NEVER, waiting).await.unwrap_or_else(|_| {
            panic!("{} calls for `{run_id}`, and not {count}", self.calls(run_id).len())
        })
    }
}

/// A worker in this process, and a client of its Restate.
struct Worker {
    runs: Arc<Runs>,
    restate: Arc<RestateClient>,
    leave: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Worker {
    /// Starts one, and waits until Restate knows it.
    async fn start(server: &RestateServer) -> Worker {
        let [port] = free_ports();
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Worker::start_at(&server.ingress(), &server.admin(), at, at).await
    }

    /// Starts one at `at`, which Restate reaches at `advertise`.
    async fn start_at(ingress: &str, admin: &str, at: SocketAddr, advertise: SocketAddr) -> Worker {
        let restate = RestateClient::new(ingress, admin, &format!("http://{advertise}"));
        let restate = Arc::new(restate.unwrap());
        let runs: Arc<Runs> = Arc::default();
        let (leave, leaving) = watch::channel(false);
        let listener = listen(at).unwrap();
        let serving = tokio::spawn(serve(runs.clone(), restate.clone(), listener, leaving));
        let worker = Worker { runs, restate, leave, serving };
        worker.registered().await;
        worker
    }

    async fn registered(&self) {
        let advertise = self.restate.advertise().to_string();
        let looking = async {
            while self.restate.registered_at().await.ok().flatten().as_ref() != Some(&advertise) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(NEVER, looking).await.unwrap();
    }

    async fn dispatch(&self, run_id: &str, due: Due) {
        self.restate.dispatch(&run_id.into(), due).await.unwrap();
    }

    /// Ends it as a signal does.
    async fn stop(self) {
        self.leave.send_replace(true);
        tokio::time::timeout(NEVER, self.serving).await.unwrap().unwrap();
    }
}

/// Waits until Restate has nothing more to do.
async fn idle(server: &RestateServer) {
    let looking = async {
        loop {
            let open = "SELECT id FROM sys_invocation WHERE status <> 'completed'";
            let rows = server.query(open);
            if rows.is_empty() {
                return;
            }
        }
    };
    tokio::time::timeout(NEVER, looking).await.unwrap();
}

/// A run is driven when it is sent, once; and again when it is due, however often that was asked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_driven_when_it_is_due() {
    let Some(server) = RestateServer::start() else { return };
    let worker = Worker::start(&server).await;
    let runs = &worker.runs;
    runs.answers("timer", &[Answer::DueIn(1_500)]);
    worker.dispatch("once", Due::Now).await;
    worker.dispatch("timer", Due::Now).await;
    worker.dispatch("never", Due::OnCommand).await;
    let due_ms = now_ms() + 2_000;
    for _ in 0..5 {
        worker.dispatch("later", Due::At(due_ms)).await;
    }
    let timer = runs.called("timer", 2).await;
    assert!(timer[1] >= timer[0] + 1_500, "{timer:?}");
    assert!(timer[1] < timer[0] + 3_000, "{timer:?}");
    let later = runs.called("later", 1).await;
    assert!(later[0] >= due_ms && later[0] < due_ms + 1_500, "{later:?}, due {due_ms}");
    idle(&server).await;
    assert_eq!(runs.calls("once").len(), 1);
    assert_eq!(runs.calls("timer").len(), 2);
    assert_eq!(runs.calls("later").len(), 1, "one request for one due time");
    assert_eq!(runs.calls("never").len(), 0);
    worker.stop().await;
}

/// Restate calls early, by a clock that is ahead: the run does not wait for the request that is under way.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_woken_early_is_called_again() {
    let Some(server) = RestateServer::start() else { return };
    let worker = Worker::start(&server).await;
    let due_ms = now_ms() + 3_000;
    worker.runs.answers("early", &[Answer::Driven(Driven::Waits(Due::At(due_ms)))]);
    let key = format!("early/{due_ms}");
    let headers = [("content-type", "application/json"), ("idempotency-key", &*key)];
    let body = json!({ "due_ms": due_ms }).to_string();
    let ingress = Served::at(address_of(&server.ingress()).to_string());
    let sent = ingress.ask("POST", "/segue.Run/early/drive/send", &headers, &body);
    assert_eq!(sent.status, 202, "{sent:?}");
    let calls = worker.runs.called("early", 2).await;
    assert!(calls[0] < due_ms && calls[1] >= due_ms, "{calls:?}, due {due_ms}");
    worker.stop().await;
}

/// A run that another process owns, or that cannot be driven here, is tried again after 0.25 to 2 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_not_free_is_tried_again() {
    let Some(server) = RestateServer::start() else { return };
    let worker = Worker::start(&server).await;
    let runs = &worker.runs;
    let refusals = [
        Answer::Driven(Driven::OwnedElsewhere),
        Answer::Driven(Driven::CannotHere("the tool `wires:money` is missing".into())),
        Answer::Driven(Driven::Waits(Due::Now)),
        Answer::Fails(ErrorKind::Unavailable, "the store of `geheim` is gone"),
    ];
    runs.answers("owned", &refusals);
    runs.answers("deleted", &[Answer::Fails(ErrorKind::NotFound, "no run")]);
    worker.dispatch("owned", Due::Now).await;
    worker.dispatch("deleted", Due::Now).await;
    let calls = runs.called("owned", 5).await;
    let pauses: Vec<u64> = calls.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.iter().all(|pause| (200..4_000).contains(pause)), "{pauses:?}");
    idle(&server).await;
    assert_eq!(runs.calls("owned").len(), 5);
    assert_eq!(runs.calls("deleted").len(), 1);
    worker.stop().await;
}

/// Restate is killed while a run is driven, and starts again on its data: it calls again for that run, and
/// for the one that it was to call later.
#[tokio::test(flavor = "multi_thread")]
async fn restate_is_killed_and_goes_on() {
    let Some(mut server) = RestateServer::start() else { return };
    let worker = Worker::start(&server).await;
    let runs = &worker.runs;
    let released = Arc::new(Notify::new());
    runs.answers("long", &[Answer::When(Arc::default()), Answer::When(released.clone())]);
    worker.dispatch("long", Due::Now).await;
    worker.dispatch("later", Due::At(now_ms() + 1_000)).await;
    runs.called("long", 1).await;
    server.kill();
    let sent = worker.restate.dispatch(&"secret-run".into(), Due::Now).await.unwrap_err();
    let shown = sent.to_string();
    assert!(shown.contains(&server.ingress()) && shown.contains("no connection"), "{shown}");
    assert!(!shown.contains("secret-run"), "{shown}");
    server.start_again();
    runs.called("long", 2).await;
    runs.called("later", 1).await;
    released.notify_one();
    idle(&server).await;
    assert_eq!(runs.calls("long").len(), 2);
    worker.stop().await;
}

/// A worker that starts before Restate registers itself when Restate is there, and the workers are registered
/// again by the next worker.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_waits_for_restate() {
    let Some(mut server) = RestateServer::start() else { return };
    server.kill();
    let [port] = free_ports();
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let (ingress, admin) = (server.ingress(), server.admin());
    let start = || {
        let (ingress, admin) = (ingress.clone(), admin.clone());
        tokio::spawn(async move { Worker::start_at(&ingress, &admin, at, at).await })
    };
    let first = start();
    server.start_again();
    let first = first.await.unwrap();
    // The second one shares the port.
    let second = start().await.unwrap();
    first.dispatch("one", Due::Now).await;
    idle(&server).await;
    first.stop().await;
    second.dispatch("two", Due::Now).await;
    second.runs.called("two", 1).await;
    second.stop().await;
}

/// A run that waits at a worker does not keep it from ending: Restate calls another one for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_leaves_gives_its_runs_to_another_one() {
    let Some(server) = RestateServer::start() else { return };
    let worker = Worker::start(&server).await;
    let at = listen_address(worker.restate.advertise());
    let given_back = Arc::new(Notify::new());
    worker.runs.answers("run", &[Answer::When(given_back.clone())]);
    worker.dispatch("run", Due::Now).await;
    worker.runs.called("run", 1).await;
    let other = Worker::start_at(&server.ingress(), &server.admin(), at, at).await;
    other.runs.answers("late", &[Answer::Driven(Driven::Over)]);
    worker.leave.send_replace(true);
    // What arrives from now on is for the other one.
    let late = async {
        other.dispatch("late", Due::Now).await;
        other.runs.called("late", 1).await
    };
    assert_eq!(late.await.len(), 1);
    given_back.notify_one();
    worker.stop().await;
    idle(&server).await;
    other.stop().await;
}

/// What the doctor says: nobody registered, all well, workers elsewhere, no Restate.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_tells_what_is_wrong() {
    let Some(mut server) = RestateServer::start() else { return };
    let client = |advertise: &str| {
        RestateClient::new(&server.ingress(), &server.admin(), advertise).unwrap()
    };
    let said = async |restate: &RestateClient| {
        let checks = diagnose(restate).await;
        let lines = checks.iter().map(|check| format!("{} {}", check.ok, check.message));
        lines.collect::<Vec<_>>().join("\n")
    };
    let elsewhere = client("http://workers.example:9080");
    let before = said(&elsewhere).await;
    assert!(before.contains("true the ingress takes runs\ntrue version 1."), "{before}");
    assert!(before.ends_with("false no worker is registered"), "{before}");
    let worker = Worker::start(&server).await;
    let there = said(&worker.restate).await;
    let own = worker.restate.advertise().to_string();
    assert!(there.ends_with(&format!("true calls the workers at `{own}`")), "{there}");
    let moved = said(&elsewhere).await;
    let not =
        format!("false calls the workers at `{own}`, and not at `http://workers.example:9080/`");
    assert!(moved.ends_with(&not), "{moved}");
    worker.stop().await;
    server.kill();
    let gone = said(&elsewhere).await;
    assert_eq!(gone.matches("cannot be reached: no connection").count(), 2, "{gone}");
}

/// Where a URL leads.
fn address_of(url: &str) -> SocketAddr {
    url["http://".len()..].parse().unwrap()
}

/// A kept connection that breaks is no reason to leave a run to the next minute: it is sent once more.
#[tokio::test]
async fn a_broken_connection_is_replaced_once() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let restate = RestateClient::new(&url, &url, &url).unwrap();
    tokio::spawn(async move {
        // How many requests each connection answers before the one that it breaks at.
        for answers in [1, 1, 0] {
            let (mut stream, _) = listener.accept().await.unwrap();
            for _ in 0..answers {
                assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
                stream
                    .write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
                    .await
                    .unwrap();
            }
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        }
    });
    restate.dispatch(&"one".into(), Due::Now).await.unwrap();
    restate.dispatch(&"two".into(), Due::Now).await.unwrap();
    let gone = restate.dispatch(&"three".into(), Due::Now).await.unwrap_err();
    assert!(gone.to_string().ends_with("the connection ended"), "{gone}");
}

/// Restate knows how long a run may be driven, how often to try again, and to keep nothing.
#[tokio::test(flavor = "multi_thread")]
async fn restate_knows_the_options() {
    let Some(server) = RestateServer::start() else { return };
    let worker = Worker::start(&server).await;
    let object = server.admin_get("/services/segue.Run");
    let days = object["inactivity_timeout"].as_str().unwrap();
    assert!(days.contains('7') && days.contains('d'), "{object:#}");
    assert_eq!(object["inactivity_timeout"], object["abort_timeout"], "{object:#}");
    let retries = &object["retry_policy"];
    assert_eq!(retries["max_attempts"], 50, "{object:#}");
    assert_eq!(retries["on_max_attempts"], "Kill", "{object:#}");
    worker.stop().await;
}

/// An address has no password, which an error would show, and belongs to HTTP.
#[test]
fn addresses_are_checked() {
    let [fine, wrong] = ["http://r:8080", "http://segue:geheim@r:8080"];
    for (ingress, admin, advertise, name) in [
        (wrong, fine, fine, "ingress"),
        (fine, "ftp://r", fine, "admin"),
        (fine, fine, "workers:9080", "advertise"),
    ] {
        let Err(error) = RestateClient::new(ingress, admin, advertise) else { panic!("{name}") };
        let shown = error.to_string();
        assert!(shown.starts_with(&format!("`{name}` is not an address")), "{shown}");
        assert!(!shown.contains("geheim"));
    }
    for (advertise, at) in [
        ("http://127.0.0.1:9080", "127.0.0.1:9080"),
        ("http://localhost:81", "127.0.0.1:81"),
        ("http://[::1]:9080", "[::1]:9080"),
        ("http://[2001:db8::1]:9080", "[::]:9080"),
        ("http://10.0.0.7:9080", "0.0.0.0:9080"),
        ("http://workers", "0.0.0.0:80"),
    ] {
        let restate = RestateClient::new(fine, fine, advertise).unwrap();
        assert_eq!(listen_address(restate.advertise()).to_string(), at);
    }
}

/// Bytes that went through a proxy, both ways.
type Seen = Arc<Mutex<Vec<u8>>>;

/// A proxy in front of an address: it keeps what goes through it.
async fn proxy(to: SocketAddr, seen: Seen) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(to).await else { continue };
            let (near_in, near_out) = near.into_split();
            let (far_in, far_out) = far.into_split();
            tokio::spawn(copy(near_in, far_out, seen.clone()));
            tokio::spawn(copy(far_in, near_out, seen.clone()));
        }
    });
    at
}

async fn copy(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    seen: Seen,
) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count) = from.read(&mut bytes).await {
        if count == 0 || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
        seen.lock().unwrap().extend_from_slice(&bytes[..count]);
    }
}

/// Of what the service answers, Restate sees ids of runs and due times: no reason, no message of an error.
#[tokio::test(flavor = "multi_thread")]
async fn restate_sees_ids_and_due_times() {
    let Some(server) = RestateServer::start() else { return };
    let seen = Seen::default();
    let ingress = proxy(address_of(&server.ingress()), seen.clone()).await;
    let admin = proxy(address_of(&server.admin()), seen.clone()).await;
    let [port] = free_ports();
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let advertise = proxy(at, seen.clone()).await;
    let (ingress, admin) = (format!("http://{ingress}"), format!("http://{admin}"));
    let worker = Worker::start_at(&ingress, &admin, at, advertise).await;
    let answers = [
        Answer::Driven(Driven::CannotHere("no tool `geheim:wire`".into())),
        Answer::Fails(ErrorKind::Internal, "the input `geheim` is wrong"),
        Answer::DueIn(1_200),
    ];
    worker.runs.answers("run-4711", &answers);
    worker.dispatch("run-4711", Due::Now).await;
    worker.runs.called("run-4711", 4).await;
    idle(&server).await;
    let bytes = String::from_utf8_lossy(&seen.lock().unwrap()).into_owned();
    for word in ["run-4711", "due_ms", "this worker cannot drive the run"] {
        assert!(bytes.contains(word), "no `{word}` was seen: the proxies see nothing");
    }
    assert!(!bytes.contains("geheim"), "{bytes}");
    assert!(!server.log().contains("geheim"));
    worker.stop().await;
}

/// How fast it is: `cargo test … figures_of_restate -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures"]
async fn figures_of_restate() {
    let Some(server) = RestateServer::start() else { return };
    let worker = Worker::start(&server).await;
    let mut times = Vec::new();
    for number in 0..300 {
        let (run_id, begun) = (format!("lone-{number}"), Instant::now());
        let called = worker.runs.called.notified();
        worker.dispatch(&run_id, Due::Now).await;
        called.await;
        times.push(begun.elapsed());
        idle_after(&worker, &run_id).await;
    }
    times.sort();
    println!(
        "sent → called: p50 {:?}, p99 {:?}",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
    let (count, begun) = (5_000, Instant::now());
    let senders = (0..32).map(|sender| {
        let restate = worker.restate.clone();
        tokio::spawn(async move {
            for number in (sender..count).step_by(32) {
                restate.dispatch(&format!("many-{number}").into(), Due::Now).await.unwrap();
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.unwrap();
    }
    let sent = begun.elapsed();
    while worker.runs.calls.lock().unwrap().len() < 300 + count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let all = begun.elapsed();
    println!(
        "{count} runs: sent in {sent:?}, called in {all:?}: {:.0} runs/s",
        count as f64 / all.as_secs_f64()
    );
    worker.stop().await;
}

/// Waits until a run was called.
async fn idle_after(worker: &Worker, run_id: &str) {
    worker.runs.called(run_id, 1).await;
}
