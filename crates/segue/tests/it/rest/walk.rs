//! The walk through the API with curl does what it says.

use super::served;
use crate::served::TOKEN;
use crate::support::repository;

/// `examples/search-fold-store/over-rest`, with real curl. S0-87…90.
#[test]
fn the_walk_with_curl_gets_to_its_end() {
    let (world, served) = served("");
    let script = repository().join("examples/search-fold-store/over-rest");
    let mut command = world.command("bash");
    command.arg(script).env("SEGUE_TOKEN", TOKEN);
    command.env("SEGUE_URL", format!("http://{}", served.address));
    let output = command.output().unwrap();
    let (said, wrong) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{wrong}");
    for part in [
        "\"ready\":true",
        "\"ok\":true",
        "\"saved_checkpoint\":{",
        "\"status\":\"dry_run\"",
        "\"category\":\"context-management\"",
        "event: step_succeeded",
        "event: run",
        "\"status\":\"waiting\"",
        "== done",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert!(!world.path("walk.txt").exists());
}
