//! Owners that their database does not hear, longer than their lease: stopped, behind a line that holds answers,
//! and on a host that is cut off.

use std::process::Command;
use std::sync::Arc;

use rustix::process::Signal;
use segue_core::run::Fact;
use segue_core::view::RunStatus;

use super::{Cluster, Process, TAKEOVER_MAX};
use crate::postgres_proxy::{Line, Proxy};
use crate::postgres_server::{is_root, say_skipped};
use crate::support::{SEGUE, until};

/// Waits until a worker that lost its runs owns others, under another name.
#[track_caller]
fn is_back(cluster: &Cluster, worker: &Process, before: &Arc<str>) {
    until(|| cluster.find_owner(worker).filter(|owner| owner != before));
}

/// An owner stands still for longer than its lease, then goes on: it writes nothing and calls nothing of a run
/// that another one has by then.
#[test]
fn an_owner_that_was_stopped_repeats_nothing() {
    let Some(cluster) = Cluster::new("") else { return };
    let first = cluster.worker();
    let owner = cluster.owner(&first);
    let run_id = cluster.start("long");
    until(|| (cluster.begun(":3") > 0).then_some(()));
    let second = cluster.worker();
    cluster.owner(&second);
    first.signal(Signal::STOP);
    let took = cluster.taken_by(&run_id, &second);
    assert!(took <= TAKEOVER_MAX, "taken over after {took:?}");
    first.signal(Signal::CONT);
    is_back(&cluster, &first, &owner);
    cluster.ends_well(&run_id);
}

/// The answer to a turn comes after the lease, when another worker has the run. The call that the turn announces
/// is not sent: it is in doubt, and a person hears that it was not made.
#[test]
fn an_owner_that_hears_late_sends_nothing() {
    let Some(cluster) = Cluster::new("") else { return };
    let proxy = Proxy::new(&cluster.url);
    let world = &cluster.world;
    let config = std::fs::read_to_string(world.path("segue.yaml")).unwrap();
    let hold = "[sh, -c, 'while [ ! -e go ]; do sleep 0.02; done']";
    let commands = format!("commands:\n  hold: {{ argv: {hold}, read_only: true }}\n");
    world.file("segue.yaml", config.replace("commands:\n", &commands));
    world.file(
        "compositions/held.yaml",
        "name: held\nsteps:\n  - { id: held, tool: hold }\n  - { id: last, tool: once, \
         parameters: { name: \"{{ run.id }}:last\" }, depends_on: held }\n",
    );
    let first = cluster.worker_by(world.command(SEGUE), &proxy.url(&cluster.url));
    let owner = cluster.owner(&first);
    let run_id = cluster.start("held");
    let called = || {
        let journal = cluster.journal(&run_id);
        journal.iter().filter(|entry| matches!(entry.fact, Fact::Called { .. })).count()
    };
    until(|| (called() == 1).then_some(()));
    let second = cluster.worker();
    cluster.owner(&second);
    proxy.set(Line::HoldsAnswers);
    world.file("go", "");
    until(|| (called() == 2).then_some(()));
    cluster.taken_by(&run_id, &second);
    proxy.set(Line::Open);
    is_back(&cluster, &first, &owner);
    until(|| (cluster.row(&run_id).status == RunStatus::Waiting).then_some(()));
    assert_eq!(cluster.begun(":last"), 0, "it was sent after the lease");
    let view = cluster.ended_with_answers(&run_id);
    assert_eq!(view.status, RunStatus::Failed, "a person said that the call was not made");
    assert_eq!(cluster.begun(":last"), 0);
}

/// A worker gets no notification. It hears of runs that are due, of approvals and of cancellations all the same.
#[test]
fn a_worker_without_notifications_misses_nothing() {
    let Some(cluster) = Cluster::new("") else { return };
    let proxy = Proxy::new(&cluster.url);
    proxy.set(Line::LosesNotifications);
    let worker = cluster.worker_by(cluster.world.command(SEGUE), &proxy.url(&cluster.url));
    cluster.owner(&worker);
    let run_id = cluster.start("approved");
    assert_eq!(cluster.ended_with_answers(&run_id).status, RunStatus::Success);
    cluster
        .world
        .file("compositions/sleeps.yaml", "name: sleeps\nsteps: [{ id: rest, wait: 1h }]\n");
    let run_id = cluster.start("compositions/sleeps.yaml");
    until(|| cluster.row(&run_id).owner.is_none().then_some(()));
    cluster.segue(&["cancel", &run_id]).exits(0);
    assert_eq!(cluster.ended(&run_id).status, RunStatus::Cancelled);
}

/// A host in a network namespace, with a line to the namespace of the database.
struct Host {
    name: String,
    line: String,
}

/// Runs `ip` with these words.
fn ip(words: &str) -> bool {
    let done = Command::new("ip").args(words.split(' ')).output();
    done.is_ok_and(|done| done.status.success())
}

impl Host {
    /// The address of the database's end of the line.
    fn address(number: u8) -> String {
        format!("10.213.{number}.1")
    }

    /// A host of this number; none where this process may not make one.
    fn new(number: u8) -> Option<Host> {
        let name = format!("segue-{}-{number}", std::process::id());
        if !is_root() || !ip(&format!("netns add {name}")) {
            say_skipped("network namespaces need root and iproute2");
            return None;
        }
        let line = format!("segue{}-{number}", std::process::id() % 10_000);
        let host = Host { name, line };
        let Host { name, line } = &host;
        for words in [
            format!("link add {line} type veth peer name {line}p"),
            format!("link set {line}p netns {name}"),
            format!("addr add {}/24 dev {line}", Host::address(number)),
            format!("link set {line} up"),
            format!("-n {name} addr add 10.213.{number}.2/24 dev {line}p"),
            format!("-n {name} link set {line}p up"),
            format!("-n {name} link set lo up"),
        ] {
            assert!(ip(&words), "ip {words}");
        }
        Some(host)
    }

    /// Cuts the line, or joins it again. No connection hears of it.
    fn set_line(&self, state: &str) {
        assert!(ip(&format!("link set {} {state}", self.line)));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        ip(&format!("link del {}", self.line));
        ip(&format!("netns del {}", self.name));
    }
}

/// Two hosts: the one that owns a run is cut off from the database for longer than the lease, again and again.
/// The other one goes on, and nothing is sent twice.
#[test]
fn a_host_that_is_cut_off_repeats_nothing() {
    let (Some(left), Some(right)) = (Host::new(1), Host::new(2)) else { return };
    let addresses = [Host::address(1), Host::address(2)];
    let Some(cluster) = Cluster::new(&addresses.join(",")) else { return };
    let worker = |host: &Host, address: &str| {
        let mut command = cluster.world.command("ip");
        command.args(["netns", "exec", &host.name, SEGUE]);
        let database = cluster.url.split(['/', '?']).nth(3).unwrap();
        let url = format!("postgres://segue@{address}:5432/{database}?sslmode=disable");
        cluster.worker_by(command, &url)
    };
    let workers = [worker(&left, &addresses[0]), worker(&right, &addresses[1])];
    for _ in 0..2 {
        workers.iter().for_each(|worker| drop(cluster.owner(worker)));
        let run_id = cluster.start("long");
        until(|| (cluster.begun(&format!("{run_id}:3")) > 0).then_some(()));
        let row = cluster.row(&run_id);
        let names = [cluster.owner(&workers[0]), cluster.owner(&workers[1])];
        let at = names.iter().position(|name| Some(name) == row.owner.as_ref()).unwrap();
        let host = [&left, &right][at];
        host.set_line("down");
        let took = cluster.taken_by(&run_id, &workers[1 - at]);
        assert!(took <= TAKEOVER_MAX, "taken over after {took:?}");
        host.set_line("up");
        is_back(&cluster, &workers[at], &names[at]);
        cluster.ends_well(&run_id);
    }
}
