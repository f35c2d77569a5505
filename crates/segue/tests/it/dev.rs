//! `segue dev`: the link, the compositions of the folder, and what a person reads on save.

use crate::served::{Answer, Served, TOKEN};
use crate::support::{Json, World, json};

const ONE: &str = "name: one\nsteps: [ { id: a, tool: echo, parameters: { x: 1 } } ]\n";

/// Signs in with the link that the server printed.
fn sign_in(served: &Served) -> Answer {
    let link = served.said("sign in: ");
    let code = link.split("/sign-in#").nth(1).unwrap().split(' ').next().unwrap();
    let body = json!({ "code": code }).to_string();
    served.ask("POST", "/api/v1/session", &[("Content-Type", "application/json")], &body)
}

fn get(served: &Served, cookie: &str, path: &str) -> Json {
    served.ask("GET", path, &[("Cookie", cookie)], "").is(200)
}

fn names(served: &Served, cookie: &str) -> Vec<String> {
    let list = get(served, cookie, "/api/v1/compositions");
    let list = list["compositions"].as_array().unwrap().iter();
    list.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

/// The link signs in once; the folder's compositions are there without a configuration, and those that
/// need a configuration of their own are not.
#[test]
fn a_folder_without_a_configuration_is_served() {
    let world = World::new();
    world.file("compositions/deep/one.yaml", ONE);
    world.file("two.segue.yaml", ONE.replace("one", "two"));
    world.file(
        "examples/three/composition.json",
        r#"{"name":"three","steps":[{"id":"a","tool":"echo"}]}"#,
    );
    world.file("examples/three/composition.test.yaml", "tests: []");
    world.file("examples/four/composition.yaml", ONE.replace("one", "four"));
    world.file("examples/four/segue.yaml", "");
    world.file("other.yaml", ONE.replace("one", "other"));
    let served = Served::dev(&world, &["--no-open"]);
    let answer = sign_in(&served);
    let session = answer.is(200);
    assert_eq!(session["principal"], "the token");
    sign_in(&served).is_problem(401, "unauthorized");
    let cookie = answer.headers["set-cookie"].split(';').next().unwrap().to_owned();
    assert_eq!(names(&served, &cookie), ["one", "three", "two"]);
    // There was no run, so there is one to look at, which has nothing to do with this folder.
    served.said("the example `welcome` ran");
    let run = || get(&served, &cookie, "/api/v1/runs")["runs"][0].clone();
    while run()["status"] == "running" {}
    assert_eq!((&run()["name"], &run()["status"]), (&json!("welcome"), &json!("success")));
}

/// A saved file is served at once; one with errors is shown as `check` shows it.
#[test]
fn what_is_saved_is_read_again() {
    let world = World::new();
    world.file("compositions/one.yaml", ONE);
    let served = Served::dev(&world, &["--no-open", "--no-example"]);
    let cookie = sign_in(&served).headers["set-cookie"].split(';').next().unwrap().to_owned();
    world.file("compositions/two.yaml", ONE.replace("one", "two"));
    served.said("changed files read: 2 compositions");
    assert_eq!(names(&served, &cookie), ["one", "two"]);
    world.file("compositions/two.yaml", "name: two\nsteps: [ { id: a, tool: ecko } ]\n");
    served.said("1 with errors");
    assert!(served.lines().iter().any(|line| line.contains("ecko")), "{:?}", served.lines());
    assert!(served.lines().iter().any(|line| line.contains("compositions/two.yaml:2")));
    assert_eq!(get(&served, &cookie, "/api/v1/runs")["runs"], json!([]));
}

/// An empty folder says what to do. A configured one is served as configured.
#[test]
fn an_empty_folder_says_what_to_do() {
    let world = World::new();
    let served = Served::dev(&world, &["--no-open"]);
    let said = served.said("no composition here yet");
    assert!(said.contains("segue init"), "{said}");
    drop(served);
    world.file("lib/one.yaml", ONE);
    world.file("compositions/two.yaml", ONE.replace("one", "two"));
    world.file("segue.yaml", format!("compositions: ['lib/*']\nserver: {{ token: {TOKEN} }}\n"));
    let served = Served::dev(&world, &["--no-open"]);
    served.said("1 compositions configured");
    let list = served.get("/api/v1/compositions").is(200);
    assert_eq!(list["compositions"].as_array().unwrap().len(), 1);
    assert_eq!(served.get("/api/v1/runs").is(200)["runs"], json!([]));
    // Its configuration is watched, too.
    world.file("segue.yaml", format!("server: {{ token: {TOKEN} }}\n"));
    served.said("configuration reloaded");
    let list = served.get("/api/v1/compositions").is(200);
    assert_eq!(list["compositions"][0]["name"], "two");
}

/// Without a terminal `segue serve` prints no link: its output is stored somewhere.
#[test]
fn a_server_without_a_terminal_prints_no_link() {
    let (_world, served) = crate::rest::served("");
    assert!(!served.has_said("sign-in#"));
}
