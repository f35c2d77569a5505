//! The files of compositions: what an editor may read and change, and what it may not.

use std::fs;

use segue_core::tool::hex_digest;

use super::world;
use crate::served::{Answer, Served, TOKEN};
use crate::support::{Json, World, json, until};

const EDIT: &str = "server: { token: open-sesame-open-sesame-open-sesame, edit: true }\n";

const GREET: &str =
    "name: greet   # a comment\r\nsteps: [ { id: a, tool: echo, parameters: { x: 1 } } ]\r\n";

/// A server that lets its administrator change files.
fn served() -> (World, Served) {
    let world = world(EDIT);
    let served = Served::start(&world, "memory", &[]);
    (world, served)
}

/// The address of a file.
fn at(path: &str) -> String {
    let part: String = form_urlencoded::byte_serialize(path.as_bytes()).collect();
    format!("/api/v1/files/{}", part.replace('+', "%20"))
}

fn hash(text: &str) -> String {
    hex_digest(text.as_bytes())
}

impl Served {
    fn put_file(&self, path: &str, text: &str, precondition: (&str, &str)) -> Answer {
        self.send("PUT", &at(path), &[precondition], &json!({ "text": text }))
    }

    fn create(&self, path: &str, text: &str) -> Answer {
        self.put_file(path, text, ("If-None-Match", "*"))
    }

    fn replace(&self, path: &str, text: &str, expected: &str) -> Answer {
        self.put_file(path, text, ("If-Match", &format!("\"{expected}\"")))
    }

    fn delete(&self, path: &str, expected: &str) -> Answer {
        let tag = format!("\"{expected}\"");
        self.send("DELETE", &at(path), &[("If-Match", &tag)], &json!(null))
    }

    fn rename(&self, path: &str, to: &str, expected: &str) -> Answer {
        let tag = format!("\"{expected}\"");
        let path = format!("{}/rename", at(path));
        self.send("POST", &path, &[("If-Match", &tag)], &json!({ "to": to }))
    }

    fn paths(&self) -> Vec<String> {
        let listed = self.get("/api/v1/files").is(200);
        let files = listed["files"].as_array().unwrap().iter();
        files.map(|file| file["path"].as_str().unwrap().to_owned()).collect()
    }
}

/// A file is created, served, read, replaced, renamed and deleted; its bytes are kept.
#[test]
fn a_file_is_created_changed_renamed_and_deleted() {
    let (world, served) = served();
    let created = served.create("lib/greet.yaml", GREET);
    assert_eq!(created.headers["etag"], format!("\"{}\"", hash(GREET)));
    assert_eq!(created.headers["location"], at("lib/greet.yaml"));
    assert_eq!(created.is(201), json!({ "path": "lib/greet.yaml", "hash": hash(GREET) }));
    assert_eq!(fs::read_to_string(world.path("lib/greet.yaml")).unwrap(), GREET);
    until(|| (served.get("/api/v1/compositions/greet").status == 200).then_some(()));
    let found = served.get(&at("lib/greet.yaml")).is(200);
    assert_eq!((&found["text"], &found["kind"]), (&json!(GREET), &json!("composition")));
    let listed = served.get("/api/v1/files").is(200);
    assert_eq!(listed["writable"], true);
    assert_eq!(
        listed["roots"],
        json!([{ "folder": "lib", "pattern": "lib/*.yaml", "templates": false }])
    );
    let file = listed["files"].as_array().unwrap().iter().find(|it| it["path"] == "lib/greet.yaml");
    assert_eq!(file.unwrap()["composition"], "greet");

    let other = GREET.replace("x: 1", "x: 2");
    served.replace("lib/greet.yaml", &other, &hash(GREET)).is(200);
    let renamed = served.rename("lib/greet.yaml", "lib/hello.yaml", &hash(&other)).is(200);
    assert_eq!(renamed, json!({ "path": "lib/hello.yaml", "hash": hash(&other) }));
    assert_eq!(served.paths(), ["lib/double.yaml", "lib/hello.yaml"]);
    assert_eq!(fs::read_to_string(world.path("lib/hello.yaml")).unwrap(), other);
    assert_eq!(served.delete("lib/hello.yaml", &hash(&other)).status, 204);
    assert_eq!(served.paths(), ["lib/double.yaml"]);
    served.get(&at("lib/hello.yaml")).is_problem(404, "not-found");
    until(|| (served.get("/api/v1/compositions/greet").status == 404).then_some(()));
}

/// A list reads at most so many files and bytes, and says that there are more. A file that another program
/// changed in place is listed as it is.
#[test]
fn a_list_of_files_is_bounded_and_current() {
    let filler = format!("name: filler\n# {}\n", "x".repeat(2_000));
    let listed = |limits: &str| {
        let world = world(&format!("{EDIT}limits: {{ {limits} }}\n"));
        world.file("lib/filler.yaml", &filler);
        world.file("lib/last.yaml", "name: last\n");
        let served = Served::start(&world, "memory", &[]);
        let listed = served.get("/api/v1/files").is(200);
        (served.paths(), listed["truncated"].clone())
    };
    let all = ["lib/double.yaml", "lib/filler.yaml", "lib/last.yaml"].map(str::to_owned);
    assert_eq!(listed("served_files_max: 3"), (all.to_vec(), json!(false)));
    assert_eq!(listed("served_files_max: 2"), (all[..2].to_vec(), json!(true)));
    assert_eq!(listed("served_files_bytes_max: 2000"), (all[..1].to_vec(), json!(true)));

    let (world, served) = served();
    served.create("lib/greet.yaml", GREET).is(201);
    let composition = || {
        let files = served.get("/api/v1/files").is(200)["files"].clone();
        let file =
            files.as_array().unwrap().iter().find(|it| it["path"] == "lib/greet.yaml").cloned();
        let file = file.unwrap();
        (file["composition"].clone(), file["hash"].clone())
    };
    assert_eq!(composition(), (json!("greet"), json!(hash(GREET))));
    assert_eq!(composition(), (json!("greet"), json!(hash(GREET))));
    let other = GREET.replace("greet", "other");
    fs::write(world.path("lib/greet.yaml"), &other).unwrap();
    assert_eq!(composition(), (json!("other"), json!(hash(&other))));
}

/// A change on disk meanwhile is not overwritten: the answer has what is on disk.
#[test]
fn a_changed_file_is_not_overwritten() {
    let (world, served) = served();
    served.create("lib/greet.yaml", GREET).is(201);
    let theirs = "name: theirs\n";
    world.file("lib/greet.yaml", theirs);
    for answer in [
        served.replace("lib/greet.yaml", "mine", &hash(GREET)),
        served.delete("lib/greet.yaml", &hash(GREET)),
        served.rename("lib/greet.yaml", "lib/other.yaml", &hash(GREET)),
        served.create("lib/greet.yaml", "mine"),
    ] {
        let problem = answer.is_problem(412, "conflict");
        assert_eq!((&problem["text"], &problem["hash"]), (&json!(theirs), &json!(hash(theirs))));
    }
    assert_eq!(fs::read_to_string(world.path("lib/greet.yaml")).unwrap(), theirs);
    fs::remove_file(world.path("lib/greet.yaml")).unwrap();
    let problem =
        served.replace("lib/greet.yaml", "mine", &hash(theirs)).is_problem(412, "conflict");
    assert_eq!((&problem["text"], &problem["hash"]), (&json!(null), &json!(null)));
    assert!(!world.path("lib/greet.yaml").exists());
    // Another file's place is taken.
    served.create("lib/greet.yaml", GREET).is(201);
    let double = hash(crate::serve::DOUBLE);
    served.rename("lib/greet.yaml", "lib/double.yaml", &hash(GREET)).is_problem(409, "conflict");
    assert_eq!(hash(&fs::read_to_string(world.path("lib/double.yaml")).unwrap()), double);
    assert!(world.path("lib/greet.yaml").exists());
}

/// A change without a precondition, or with one that makes no sense, is refused.
#[test]
fn a_change_names_what_it_replaces() {
    let (world, served) = served();
    let path = at("lib/double.yaml");
    let tag = format!("\"{}\"", hash(crate::serve::DOUBLE));
    let weak = format!("W/{tag}");
    let wrong: &[&[(&str, &str)]] = &[
        &[],
        &[("If-Match", "*")],
        &[("If-Match", "abc")],
        &[("If-Match", &weak)],
        &[("If-Match", &tag), ("If-None-Match", "*")],
        &[("If-None-Match", &tag)],
    ];
    for headers in wrong {
        let answer = served.send("PUT", &path, headers, &json!({ "text": "x" }));
        answer.is_problem(400, "invalid-field");
        served.send("DELETE", &path, headers, &json!(null)).is_problem(400, "invalid-field");
    }
    let none = [("If-None-Match", "*")];
    served.send("DELETE", &path, &none, &json!(null)).is_problem(400, "invalid-field");
    assert_eq!(fs::read_to_string(world.path("lib/double.yaml")).unwrap(), crate::serve::DOUBLE);
}

/// No path leads to a file that is none of a composition.
#[test]
fn paths_lead_nowhere_else() {
    let (world, served) = served();
    world.file("secret.yaml", "name: secret\nsteps: []\n");
    world.file("private/deep.yaml", "name: deep\nsteps: []\n");
    world.file("lib/.hidden.yaml", "name: hidden\nsteps: []\n");
    world.file("lib/notes.txt", "notes");
    fs::create_dir_all(world.path("lib/folder.yaml")).unwrap();
    let outside = world.path("secret.yaml").display().to_string();
    let before = tree(&world);
    let wrong = [
        "../secret.yaml",
        "lib/../secret.yaml",
        "lib/../lib/double.yaml/../../secret.yaml",
        "..",
        ".",
        "/",
        &outside,
        "/etc/passwd",
        "lib/a\0.yaml",
        "lib/double.yaml\0.yaml",
        "lib/\u{1b}[31m.yaml",
        "lib\\double.yaml",
        "secret.yaml",
        "segue.yaml",
        "lib/segue.yaml",
        "lib/.mcp.json",
        "lib/.hidden.yaml",
        "private/deep.yaml",
        "lib/notes.txt",
        "lib/a.YAML",
        "lib/deep/er.yaml",
        "lib/.git/a.yaml",
        "lib/a.yaml.tmp",
        "lib/.yaml",
        "lib/.test.yaml",
        "lib/folder.yaml",
        "LIB/double.yaml",
    ];
    for path in wrong {
        let answer = served.get(&at(path));
        assert!(matches!(answer.status, 404 | 409), "{path:?}: {answer:?}");
        for answer in [
            served.create(path, "x"),
            served.replace(path, "x", &hash("name: secret\nsteps: []\n")),
            served.delete(path, &hash("name: secret\nsteps: []\n")),
            served.rename("lib/double.yaml", path, &hash(crate::serve::DOUBLE)),
        ] {
            assert!(matches!(answer.status, 404 | 409 | 412 | 422), "{path:?}: {answer:?}");
            assert!(!answer.body.contains("name: secret"), "{path:?}: {answer:?}");
        }
        assert_eq!(tree(&world), before, "{path:?}");
    }
    assert_eq!(served.paths(), ["lib/double.yaml"]);
}

/// Every file of a world with its content.
fn tree(world: &World) -> Vec<(String, Vec<u8>)> {
    let (mut found, mut open) = (Vec::new(), vec![world.path("")]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else {
                let content = fs::read(entry.path()).unwrap_or_default();
                found.push((entry.path().display().to_string(), content));
            }
        }
    }
    found.sort();
    found
}

/// No link is followed: in the middle, at the end, or in place of a missing file.
#[cfg(unix)]
#[test]
fn no_link_is_followed() {
    use std::os::unix::fs::symlink;
    let world = world(&EDIT.replace("server:", "# any depth\nserver:"));
    let config = fs::read_to_string(world.path("segue.yaml")).unwrap();
    world.file("segue.yaml", config.replace("lib/*.yaml", "lib/**"));
    let text = "name: deep\nsteps: [ { id: a, tool: echo, parameters: { x: 1 } } ]\n";
    world.file("private/deep.yaml", text);
    symlink(world.path("private"), world.path("lib/inside")).unwrap();
    let outside = World::new();
    symlink(outside.path(""), world.path("lib/outside")).unwrap();
    symlink(world.path("private/deep.yaml"), world.path("lib/linked.yaml")).unwrap();
    symlink(world.path("private/missing.yaml"), world.path("lib/dangling.yaml")).unwrap();
    symlink(world.path("segue.yaml"), world.path("lib/config.yaml")).unwrap();
    fs::hard_link(world.path("segue.yaml"), world.path("lib/hard.yaml")).unwrap();
    let served = Served::start(&world, "memory", &[]);
    let before = (tree(&world), tree(&outside));
    for path in [
        "lib/inside/deep.yaml",
        "lib/inside/new.yaml",
        "lib/outside/new.yaml",
        "lib/linked.yaml",
        "lib/dangling.yaml",
        "lib/config.yaml",
        "lib/hard.yaml",
    ] {
        let answer = served.get(&at(path));
        assert!(matches!(answer.status, 404 | 409 | 422), "{path}: {answer:?}");
        for answer in [
            served.create(path, "x"),
            served.replace(path, "x", &hash(text)),
            served.delete(path, &hash(text)),
            served.rename(path, "lib/mine.yaml", &hash(text)),
            served.rename("lib/double.yaml", path, &hash(crate::serve::DOUBLE)),
        ] {
            assert!(matches!(answer.status, 404 | 409 | 412 | 422), "{path}: {answer:?}");
            assert!(!answer.body.contains("open-sesame"), "{path}: {answer:?}");
        }
        assert_eq!((tree(&world), tree(&outside)), before, "{path}");
    }
    assert_eq!(served.paths(), ["lib/double.yaml"]);
    served.create("lib/deep/er/new.yaml", GREET).is(201);
    assert_eq!(served.paths(), ["lib/deep/er/new.yaml", "lib/double.yaml"]);
}

/// Of many changes of one text, exactly one wins; of many new files at one path, too.
#[test]
fn one_of_many_saves_wins() {
    let (world, served) = served();
    let race = |save: &(dyn Fn(usize) -> Answer + Sync)| {
        let answers: Vec<Answer> = std::thread::scope(|scope| {
            let saves: Vec<_> = (0..16).map(|n| scope.spawn(move || save(n))).collect();
            saves.into_iter().map(|save| save.join().unwrap()).collect()
        });
        let won = answers.iter().enumerate().filter(|(_, it)| matches!(it.status, 200 | 201));
        let won: Vec<usize> = won.map(|(n, _)| n).collect();
        let lost = answers.iter().filter(|it| matches!(it.status, 409 | 412)).count();
        assert_eq!((won.len(), lost), (1, 15), "{answers:?}");
        won[0]
    };
    let text = |n: usize| format!("name: greet\ndescription: '{n}'\nsteps: []\n");
    let won = race(&|n| served.create("lib/new.yaml", &text(n)));
    assert_eq!(fs::read_to_string(world.path("lib/new.yaml")).unwrap(), text(won));
    let double = hash(crate::serve::DOUBLE);
    let won = race(&|n| served.replace("lib/double.yaml", &text(n), &double));
    assert_eq!(fs::read_to_string(world.path("lib/double.yaml")).unwrap(), text(won));
    // A text and a rename.
    let before = hash(&text(won));
    let won = race(&|n| served.rename("lib/double.yaml", &format!("lib/r{n}.yaml"), &before));
    assert_eq!(served.paths(), ["lib/new.yaml".to_owned(), format!("lib/r{won}.yaml")]);
}

/// Names that some file systems take for one are refused; a file keeps its permissions; nothing but the
/// file is left in the folder.
#[test]
fn names_and_permissions() {
    let (world, served) = served();
    for namesake in ["lib/Double.yaml", "lib/DOUBLE.yaml", "lib/double\u{200b}.yaml"] {
        let problem = served.create(namesake, GREET).is_problem(409, "conflict");
        assert!(problem["detail"].as_str().unwrap().contains("`double.yaml`"), "{problem}");
    }
    let double = hash(crate::serve::DOUBLE);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let file = world.path("lib/double.yaml");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        served.replace("lib/double.yaml", GREET, &double).is(200);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    served.create("lib/größe 数 & co.yaml", GREET).is(201);
    assert_eq!(served.get(&at("lib/größe 数 & co.yaml")).is(200)["text"], GREET);
    served.create("lib/double.test.yaml", "tests: []\n").is(201);
    let listed = served.get("/api/v1/files").is(200);
    let test = listed["files"].as_array().unwrap().iter().find(|it| it["kind"] == "test").unwrap();
    assert_eq!(
        (&test["path"], &test["composition"]),
        (&json!("lib/double.test.yaml"), &json!("greet"))
    );
    let names = fs::read_dir(world.path("lib")).unwrap().count();
    assert_eq!(names, 3, "no temporary file is left");
}

/// A text over the limit is refused whole.
#[test]
fn large_texts_are_refused() {
    let world = world(&format!("limits: {{ document_bytes_max: 2000 }}\n{EDIT}"));
    let served = Served::start(&world, "memory", &[]);
    served.create("lib/large.yaml", &"#".repeat(2001)).is_problem(413, "limit");
    let double = hash(crate::serve::DOUBLE);
    served.replace("lib/double.yaml", &"#".repeat(2001), &double).is_problem(413, "limit");
    served.create("lib/huge.yaml", &"#".repeat(9 << 20)).is_problem(413, "limit");
    assert_eq!(served.paths(), ["lib/double.yaml"]);
    served.create("lib/fits.yaml", &"#".repeat(2000)).is(201);
    // A file of another program that is too large, or no text, is not read.
    world.file("lib/grown.yaml", "#".repeat(2001));
    fs::write(world.path("lib/bytes.yaml"), b"\xff\xfe").unwrap();
    served.get(&at("lib/grown.yaml")).is_problem(409, "conflict");
    served.get(&at("lib/bytes.yaml")).is_problem(409, "conflict");
    assert_eq!(served.paths(), ["lib/double.yaml", "lib/fits.yaml"]);
}

/// Without `server.edit` a server changes no file; `segue dev` does.
#[test]
fn files_are_changed_only_where_it_is_configured() {
    let world = world("server: { token: open-sesame-open-sesame-open-sesame }\n");
    let served = Served::start(&world, "memory", &[]);
    assert_eq!(served.get("/api/v1/files").is(200)["writable"], false);
    assert_eq!(served.get(&at("lib/double.yaml")).is(200)["text"], crate::serve::DOUBLE);
    let double = hash(crate::serve::DOUBLE);
    for answer in [
        served.create("lib/new.yaml", GREET),
        served.replace("lib/double.yaml", GREET, &double),
        served.delete("lib/double.yaml", &double),
        served.rename("lib/double.yaml", "lib/new.yaml", &double),
    ] {
        let problem = answer.is_problem(409, "conflict");
        assert!(problem["help"].as_str().unwrap().contains("server.edit"), "{problem}");
    }
    assert_eq!(served.paths(), ["lib/double.yaml"]);
    drop(served);
    let served = Served::dev(&world, &["--no-open"]);
    assert_eq!(served.get("/api/v1/files").is(200)["writable"], true);
    served.create("lib/new.yaml", GREET).is(201);
}

/// Where nothing is configured, the files are those that `segue dev` looks for.
#[test]
fn dev_finds_its_own_files() {
    let world = World::new();
    world.file("segue.yaml", format!("server: {{ token: {TOKEN} }}\n"));
    world.file("compositions/deep/a.yaml", GREET);
    world.file("compositions/deep/a.test.yaml", "tests: []\n");
    world.file("two.segue.yaml", GREET.replace("greet", "two"));
    world.file("two.segue.test.yaml", "tests: []\n");
    world.file("examples/a/composition.yaml", GREET.replace("greet", "a"));
    world.file("examples/b/composition.yaml", GREET.replace("greet", "b"));
    world.file("examples/b/segue.yaml", "");
    let served = Served::dev(&world, &["--no-open", "--no-example"]);
    assert_eq!(
        served.paths(),
        [
            "compositions/deep/a.test.yaml",
            "compositions/deep/a.yaml",
            "examples/a/composition.yaml",
            "two.segue.test.yaml",
            "two.segue.yaml"
        ]
    );
    served.create("three.segue.yaml", &GREET.replace("greet", "three")).is(201);
    served.said("changed files read: 4 compositions");
    served.create("examples/b/composition.json", "{}").is_problem(422, "invalid-field");
    served.create("three.yaml", "x").is_problem(422, "invalid-field");
}

/// A test that a caller saved reaches no file but that of its composition.
#[test]
fn a_saved_test_reaches_only_its_composition() {
    let (world, served) = served();
    world.file("secret.yaml", "name: s3cret-value\nsteps: [ { id: a, tool: s3cret-tool } ]\n");
    let absolute = world.path("secret.yaml").display().to_string();
    for named in ["../secret.yaml", &absolute, "double.yaml"] {
        let text = format!("composition: {named}\ntests: [ {{ name: t, input: {{ n: 1 }} }} ]\n");
        served.create("lib/double.test.yaml", &text).is(201);
        let report =
            served.post("/api/v1/compositions/double-it/test", &json!({})).is(200).to_string();
        assert!(!report.contains("s3cret"), "{report}");
        let is_refused = report.contains("is not the file of the composition");
        assert_eq!(is_refused, named != "double.yaml", "{report}");
        assert_eq!(served.delete("lib/double.test.yaml", &hash(&text)).status, 204);
    }
}

/// A principal needs both rights. One with a toolset reads only the files of its compositions, and changes none.
#[test]
fn files_are_their_principals() {
    let entry = |name: &str, rights: &str, more: &str| {
        let token = hex_digest(format!("{name}-token").as_bytes());
        format!("    {name}: {{ token: 'sha256:{token}', rights: [{rights}]{more} }}\n")
    };
    let config = [
        "toolsets: { calm: { allow: [echo, 'composition:*'] } }\n",
        "server:\n  edit: true\n  token: open-sesame-open-sesame-open-sesame\n  principals:\n",
        &entry("writer", "read, write", ""),
        &entry("composer", "read, compose", ""),
        &entry("both", "read, write, compose", ""),
        &entry("held", "read, run, write, compose", ", toolset: calm"),
    ];
    let world = world(&config.concat());
    let nap = "name: nap\nsteps: [ { id: a, tool: sleep, parameters: { ms: 1 } } ]\n";
    world.file("lib/nap.yaml", nap);
    world.file("lib/nap.test.yaml", "tests: []\n");
    world.file("lib/broken.yaml", "name: broken\nsteps: [ { id: a, tool: none } ]\n");
    let served = Served::start(&world, "memory", &[]);
    let send = |who: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &Json| {
        served.send_by(&format!("{who}-token"), method, path, headers, body)
    };
    let new = [("If-None-Match", "*")];
    let body = json!({ "text": GREET });
    for who in ["writer", "composer"] {
        send(who, "PUT", &at("lib/new.yaml"), &new, &body).is_problem(403, "unauthorized");
        assert_eq!(send(who, "GET", "/api/v1/files", &[], &json!(null)).is(200)["writable"], false);
    }
    send("both", "PUT", &at("lib/new.yaml"), &new, &body).is(201);
    assert_eq!(served.paths().len(), 5);

    until(|| (served.get("/api/v1/compositions/greet").status == 200).then_some(()));
    let listed = send("held", "GET", "/api/v1/files", &[], &json!(null)).is(200);
    let paths: Vec<&Json> =
        listed["files"].as_array().unwrap().iter().map(|it| &it["path"]).collect();
    assert_eq!(paths, ["lib/double.yaml", "lib/new.yaml"]);
    for (path, text) in [
        ("lib/nap.yaml", nap),
        ("lib/nap.test.yaml", "tests: []\n"),
        ("lib/broken.yaml", "name: broken\nsteps: [ { id: a, tool: none } ]\n"),
    ] {
        let tag = format!("\"{}\"", hash(text));
        send("held", "GET", &at(path), &[], &json!(null)).is_problem(404, "not-found");
        let refused = [
            send("held", "PUT", &at(path), &[("If-Match", &tag)], &body),
            send("held", "DELETE", &at(path), &[("If-Match", &tag)], &json!(null)),
            send(
                "held",
                "POST",
                &format!("{}/rename", at(path)),
                &[("If-Match", &tag)],
                &json!({ "to": "lib/mine.yaml" }),
            ),
        ];
        refused.into_iter().for_each(|answer| {
            answer.is_problem(403, "unauthorized");
        });
    }
    // Others would test, expand and call its text with their tools.
    let tag = format!("\"{}\"", hash(GREET));
    let calm = json!({ "text": GREET.replace("x: 1", "x: 3") });
    send("held", "PUT", &at("lib/new.yaml"), &[("If-Match", &tag)], &calm)
        .is_problem(403, "unauthorized");
    send("held", "PUT", &at("lib/more.test.yaml"), &new, &json!({ "text": "tests: []" }))
        .is_problem(403, "unauthorized");
    send("both", "PUT", &at("lib/new.yaml"), &[("If-Match", &tag)], &calm).is(200);
    assert!(served.said("what=\"putFile\"").contains("who="));

    // Consent beforehand needs the right to approve.
    let unasked = |patterns: &str| {
        let text =
            format!("name: more\noverwrites: [{patterns}]\nsteps: [ {{ id: a, tool: echo }} ]\n");
        (hash(&text), json!({ "text": text }))
    };
    let path = at("lib/unasked.yaml");
    let (tag, body) = unasked("'*.txt'");
    send("both", "PUT", &path, &new, &body).is_problem(403, "unauthorized");
    served.send("PUT", &path, &new, &body).is(201);
    let tag = format!("\"{tag}\"");
    let (fewer, body) = unasked("");
    send("both", "PUT", &path, &[("If-Match", &tag)], &body).is(200);
    let tag = format!("\"{fewer}\"");
    let (_, body) = unasked("'*.md'");
    send("both", "PUT", &path, &[("If-Match", &tag)], &body).is_problem(403, "unauthorized");
}
