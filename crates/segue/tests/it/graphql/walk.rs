//! Real clients: the walk through the seed, and what the reference implementation makes of the schema.

use std::path::PathBuf;
use std::process::Command;

use crate::mcp::real_servers;
use crate::planning::{Model, good};
use crate::served::{Served, TOKEN};
use crate::support::{SEGUE, World, copy_folder, repository};

/// A command in a world where the clients and FastMCP are found.
fn command(world: &World, program: &str) -> Command {
    let folder = real_servers();
    let mut path = folder.join("node/bin").into_os_string();
    path.push(":");
    path.push(folder.join("hosts/bin"));
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut command = world.command(program);
    command.env("PATH", path).env("SEGUE_TOKEN", TOKEN);
    command
}

/// A world with the files of the example, this one more, and the clients.
fn example(script: &str) -> World {
    let world = World::new();
    copy_folder(&repository().join("examples/mcp/blog"), &world.folder());
    // Independent of the machine's load: the plan is requested as soon as the subscriber listens.
    let config = std::fs::read_to_string(world.path("segue.yaml")).unwrap();
    world.file("segue.yaml", format!("{config}limits: {{ served_start_ms: 60000 }}\n"));
    let own = repository().join("crates/segue/tests/it/graphql").join(script);
    if own.exists() {
        std::fs::copy(own, world.path(script)).unwrap();
    }
    let modules: PathBuf = real_servers().join("npm-graphql/node_modules");
    std::os::unix::fs::symlink(modules, world.path("node_modules")).unwrap();
    world
}

/// Runs a script of the world against a server in it, and gives what it says.
fn said(world: &World, served: &Served, script: &str) -> String {
    let mut node = command(world, "node");
    node.arg(script).env("SEGUE_URL", format!("http://{}", served.address));
    node.env("SCHEMA", repository().join("schema/segue.graphql"));
    let output = node.output().unwrap();
    let (said, wrong) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{wrong}");
    said.into_owned()
}

/// S4-01…05, S4-07…11, S4-19, S4-23, S4-24, S4-34…37, S4-39: `examples/mcp/blog/over-graphql.mjs`, with
/// `graphql-request` and `graphql-sse`, a server of FastMCP, and a model that speaks OpenAI's protocol.
#[test]
fn an_author_and_then_a_blog_with_real_clients() {
    let model = Model::saying(&[&good().to_string()]);
    let world = example("over-graphql.mjs");
    let mut serve = command(&world, SEGUE);
    serve.env("MODEL_URL", model.url()).env("MODEL", "small-1");
    let served = Served::start_by(serve, "sqlite:blog.db", &[]);
    let said = said(&world, &served, "over-graphql.mjs");
    for part in [
        "\"requestId\": \"req_",
        "\"planId\": \"plan_",
        "\"state\": \"pending\"",
        "\"authorId\": \"{{createAuthor._id}}\"",
        "\"state\": \"in_progress\"",
        "step_started createAuthor",
        "step_succeeded createBlog",
        "run success",
        "\"state\": \"completed\"",
        "\"authorId\": \"507f1f77bcf86cd799439011\"",
        "\"_id\": \"507f1f77bcf86cd799439012\"",
        "\"code\": \"conflict\"",
        "== version 2, as a composition of its own\nname: author-and-blog\n",
        "== done",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert_eq!(model.asked(), 2);
}

/// The reference implementation reads the committed schema, and gets the same by asking for it.
#[test]
fn the_reference_implementation_reads_the_schema() {
    let world = example("schema.mjs");
    world.file("segue.yaml", format!("server: {{ token: {TOKEN} }}\n"));
    let served = Served::start(&world, "memory", &[]);
    assert_eq!(said(&world, &served, "schema.mjs").trim(), "the same");
}
