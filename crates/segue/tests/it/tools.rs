//! `segue tools` and `segue call`.

use crate::support::{World, by_id, has_keys};

/// S2-65: the index of tools.
#[test]
fn the_built_in_tools_are_listed_with_all_that_is_known() {
    let listed = World::new().json(0, &["tools", "--json"]);
    let echo = by_id(&listed["tools"], "builtin:echo");
    has_keys(echo, "id description effect rollback confirms hash");
    assert_eq!(by_id(&listed["tools"], "builtin:files_delete")["confirms"], true);
    assert_eq!(by_id(&listed["tools"], "builtin:files_delete")["effect"], "destroys");
    for id in "fail sleep files_read files_write files_edit files_list atomic_edit http_request \
               json_query checkpoint_save checkpoint_search checkpoint_list checkpoint_delete \
               context_fold"
        .split_whitespace()
    {
        by_id(&listed["tools"], &format!("builtin:{id}"));
    }
}

/// S2-65: the search in it.
#[test]
fn a_search_wants_all_of_its_words() {
    let world = World::new();
    let found = world.segue(&["tools", "--search", "files delete"]).exits(0).stdout;
    assert!(found.contains("builtin:files_delete"), "{found}");
    assert!(!found.contains("builtin:echo"), "{found}");
    let nothing = world.json(0, &["tools", "--search", "zeppelin", "--json"]);
    assert_eq!(nothing["tools"], crate::support::json!([]));
}

/// S2-65: what is told of each.
#[test]
fn one_tool_is_shown_and_a_slip_is_corrected() {
    let world = World::new();
    let shown = world.segue(&["tools", "show", "sleep"]).exits(0).stdout;
    assert!(shown.starts_with("builtin:sleep\n") && shown.contains("*ms: integer"), "{shown}");
    assert_eq!(world.json(0, &["tools", "show", "sleep", "--json"])["id"], "builtin:sleep");
    let slip = world.segue(&["tools", "show", "slep"]).exits(2).stderr;
    assert!(slip.contains("sleep"), "{slip}");
}

#[test]
fn a_call_reads_its_arguments_by_their_types() {
    let world = World::new();
    let slept = world.json(0, &["call", "sleep", "-i", "ms=1", "-i", "value:=[1]", "--json"]);
    assert_eq!(slept["slept_ms"], 1);
    assert_eq!(slept["value"][0], 1);
    world.segue(&["call", "sleep", "-i", "ms=soon"]).exits(2);
    world.segue(&["call", "sleep"]).exits(2);
    world.segue(&["call", "slep"]).exits(2);
    let failed = world.segue(&["call", "fail", "-i", "message=as asked"]).exits(1);
    assert!(failed.stderr.contains("as asked"), "{}", failed.stderr);
}

#[test]
fn a_call_that_destroys_wants_a_yes() {
    let world = World::new();
    world.file("kept.txt", "kept");
    let denied = world.segue(&["call", "files_delete", "-i", "path=kept.txt"]).exits(3);
    assert!(denied.stderr.contains("--yes"), "{}", denied.stderr);
    assert!(world.path("kept.txt").exists());
    world.segue(&["call", "files_delete", "-i", "path=kept.txt", "--yes"]).exits(0);
    assert!(!world.path("kept.txt").exists());
}
