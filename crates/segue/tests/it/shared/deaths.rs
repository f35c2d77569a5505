//! Workers that die, and runs that go on elsewhere.

use segue_core::view::RunStatus;

use super::{Cluster, TAKEOVER_MAX};
use crate::support::{json, until};

/// A run is left to workers. The one that has it is killed: another one goes on soon after the lease, and no call
/// is made twice.
#[test]
fn another_worker_goes_on_soon_after_the_lease() {
    let Some(cluster) = Cluster::new("") else { return };
    let first = cluster.worker();
    let owner = cluster.owner(&first);
    let run_id = cluster.start("long");
    until(|| (cluster.begun(":3") > 0).then_some(()));
    assert_eq!(cluster.row(&run_id).owner, Some(owner.clone()));
    let second = cluster.worker();
    cluster.owner(&second);
    first.kill();
    let took = cluster.taken_by(&run_id, &second);
    assert!(took <= TAKEOVER_MAX, "taken over after {took:?}");
    cluster.ends_well(&run_id);
}

/// A run waits for an approval, and the worker that began it is dead. The approval is given through a server
/// that drives nothing, and another worker goes on.
#[test]
fn an_approval_through_a_server_reaches_a_run_whose_owner_is_dead() {
    let Some(cluster) = Cluster::new("") else { return };
    let (server, first) = (cluster.server(), cluster.worker());
    let run_id = cluster.start("approved");
    until(|| (cluster.row(&run_id).status == RunStatus::Waiting).then_some(()));
    first.kill();
    let approve = format!("/api/v1/runs/{run_id}/approve");
    let prefer = [("Prefer", "respond-async")];
    server.send("POST", &approve, &prefer, &json!({ "approved": true })).is(202);
    let second = cluster.worker();
    let view = cluster.ended(&run_id);
    assert_eq!(view.status, RunStatus::Success, "{:?}", view.errors);
    let shown = server.get(&format!("/api/v1/runs/{run_id}")).is(200);
    assert_eq!(shown["status"], "success", "{shown}");
    for step in ["before", "after"] {
        assert_eq!(cluster.begun(&format!("{run_id}:{step}")), 1, "{step}");
    }
    drop(second);
}

/// The database is killed while workers have runs, for less and for more than their lease.
#[test]
fn runs_go_on_after_the_database_died() {
    let Some(mut cluster) = Cluster::new("") else { return };
    let workers = [cluster.worker(), cluster.worker()];
    workers.iter().for_each(|worker| drop(cluster.owner(worker)));
    for down in [super::LEASE / 4, TAKEOVER_MAX] {
        let runs: Vec<_> = (0..4).map(|_| cluster.start("long")).collect();
        until(|| (cluster.begun(&format!("{}:3", runs[3])) > 0).then_some(()));
        cluster.server.kill();
        // How long the outage is, is what is tested.
        std::thread::sleep(down);
        cluster.server.start_again();
        for run_id in &runs {
            cluster.ends_well(run_id);
        }
    }
}
