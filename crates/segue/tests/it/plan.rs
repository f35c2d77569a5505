//! `segue plan`: the same plan as text, JSON, Mermaid, DOT and a picture.

use std::fs;

use crate::support::{Json, World, json, repository, step};

const DIAMOND: &str = "\
name: diamond
description: Splits, works on both halves, joins
steps:
  - { id: split, tool: text_split, parameters: { text: a b, separator: \" \" } }
  - { id: left, tool: json_query, parameters: { value: \"{{ split.parts }}\", query: \"first\" } }
  - { id: right, tool: sleep, parameters: { ms: 5, value: \"{{ split.parts }}\" } }
  - id: save
    tool: checkpoint_save
    parameters: { content: \"{{ left.result }} {{ right.value }}\" }
    when: \"{{ left.result != \\\"\\\" }}\"
";

const LOOP: &str = "\
name: each
input: { type: object, required: [paths], properties: { paths: { type: array, items: { type: string } } } }
steps:
  - id: files
    loop:
      over: \"{{ input.paths }}\"
      as: path
      max_concurrency: 2
      steps:
        - { id: read, tool: files_read, parameters: { path: \"{{ path }}\" } }
        - { id: gone, tool: files_delete, parameters: { path: \"{{ read.path }}\" } }
  - { id: count, tool: echo, parameters: { files: \"{{ files | length }}\" } }
output: \"{{ count.files }}\"
";

const INNER: &str = "\
name: greet
input: { type: object, required: [who], properties: { who: { type: string } } }
steps: [ { id: hello, tool: echo, parameters: { text: \"Hello, {{ input.who }}\" } } ]
output: \"{{ hello.text }}\"
";

const NESTED: &str = "\
name: nested
steps:
  - { id: one, tool: greet, parameters: { who: Ada } }
  - { id: write, tool: files_write, parameters: { path: out.txt, content: \"{{ one }}\" } }
error_handling: { failure_strategy: rollback }
";

const CHAIN: &str = "\
name: keep_page
documentation:
  summary: |
    Looks, then keeps.
    Needs nothing.
parameters: [ { name: text, type: string, required: true } ]
implementation:
  type: composite
  composite:
    steps:
      - name: look
        tool: echo
        inputs: { text: \"{{ state.text }}\" }
        on_success: { map_outputs: { text: looked }, next: keep }
        on_failure: { next: mend }
      - { name: mend, tool: echo, inputs: { text: bad }, on_success: { next: look }, on_failure: { next: end } }
      - name: keep
        when: \"{{ state.looked != '' }}\"
        tool: checkpoint_save
        inputs: { content: \"{{ state.looked }}\" }
        on_success: { next: end }
        on_failure: { action: continue }
      - name: each
        loop:
          over: [1, 2]
          steps:
            - { name: first, tool: echo, inputs: { n: \"{{ item }}\" }, on_success: { next: end }, on_failure: { next: second } }
            - { name: second, tool: echo, inputs: {}, on_failure: { action: stop } }
";

/// The plan of `c.yaml` in every form that is text, with what is only a digest taken out.
fn forms(world: &World) -> String {
    let digest = regex::Regex::new("[0-9a-f]{64}|hash [0-9a-f]{12}").unwrap();
    ["text", "json", "mermaid", "dot"]
        .map(|format| {
            let done = world.segue(&["plan", "c.yaml", "--format", format]).exits(0);
            assert_eq!(done.stderr, "", "{format}");
            format!("──── {format}\n{}", digest.replace_all(&done.stdout, "[hash]"))
        })
        .join("\n")
}

fn nested() -> World {
    let world = World::with(NESTED);
    world.file("segue.yaml", "compositions: ['lib/*']\n");
    world.file("lib/greet.yaml", INNER);
    world
}

fn seed() -> World {
    let seed = repository().join("examples/search-fold-store/composition.json");
    World::with(&fs::read_to_string(seed).unwrap())
}

#[test]
fn a_diamond() {
    insta::assert_snapshot!(forms(&World::with(DIAMOND)));
}

#[test]
fn a_loop() {
    insta::assert_snapshot!(forms(&World::with(LOOP)));
}

/// S1-08: the summary is shown. Jumps, recovery steps and ends are drawn in every form.
#[test]
fn a_chain() {
    insta::assert_snapshot!(forms(&World::with(CHAIN)));
}

#[test]
fn a_composition_in_a_composition() {
    insta::assert_snapshot!(forms(&nested()));
}

/// S0-06, S0-08, S0-09, S0-14: parsed unchanged, planned in its order, with what is said of it.
#[test]
fn the_example_of_the_seed() {
    insta::assert_snapshot!(forms(&seed()));
}

#[test]
fn the_json_has_what_programs_rely_on() {
    let plan = World::with(DIAMOND).json(0, &["plan", "c.yaml", "--format", "json"]);
    crate::support::has_keys(&plan, "hash name steps inputs output effect together longest_path");
    let save = step(&plan, "save");
    crate::support::has_keys(save, "id tool needs effect rollback");
    assert_eq!(save["needs"], json!(["left", "right"]));
    assert_eq!(save["effect"], "writes");
    assert_eq!(save["rollback"]["tool"], "builtin:checkpoint_delete");
    assert_eq!(plan, World::with(DIAMOND).json(0, &["plan", "c.yaml", "--json"]));
}

/// A step that only waits for another one is told apart from a step that refers to it, whatever it reads.
#[test]
fn the_json_tells_order_from_references() {
    let world = World::new();
    world.file(
        "c.yaml",
        "name: c\nsteps:\n  \
         - { id: a, tool: echo }\n  - { id: b, tool: echo }\n  - { id: c, tool: echo }\n  \
         - { id: d, tool: echo, depends_on: [a, b], parameters: { b: '{{ b }}', c: '{{ c | default(1) }}' } }\n  \
         - { id: e, tool: echo, depends_on: [d], when: '{{ d.status == \"success\" }}' }\n",
    );
    let plan = world.segue(&["plan", "c.yaml", "--json"]).exits(0).json();
    let of =
        |at: usize| (plan["steps"][at]["needs"].clone(), plan["steps"][at]["depends_on"].clone());
    assert_eq!(of(0), (json!([]), json!(null)));
    let (mut needs, waits) = of(3);
    needs.as_array_mut().unwrap().sort_by_key(ToString::to_string);
    assert_eq!((needs, waits), (json!(["a", "b", "c"]), json!(["a"])));
    assert_eq!(of(4), (json!(["d"]), json!(null)), "{plan}");
}

#[test]
fn pictures_are_well_formed() {
    let hostile = World::with(
        "name: x\ndescription: '</svg> <script> & \"quotes\" ''single'''\nsteps:\n\
         \x20 - { id: a, tool: echo, when: '{{ \"<b>&\" != \"\" }}', parameters: { x: '<' } }\n\
         \x20 - { id: 漢字, tool: echo, parameters: { x: '{{ a.x }}' } }\n\
         \x20 - { id: b, choose: [ { when: '{{ \"<b>&\" != a.x }}', steps: [ { id: c, tool: echo } ] } ] }\n",
    );
    let chain = World::with(CHAIN);
    for world in [World::with(DIAMOND), World::with(LOOP), chain, nested(), seed(), hostile] {
        let svg = world.segue(&["plan", "c.yaml", "--format", "svg"]).exits(0).stdout;
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        well_formed(&svg).unwrap_or_else(|wrong| panic!("{wrong} in\n{svg}"));
    }
}

/// Whether every tag is closed in its place, and nothing stands there that XML would object to.
fn well_formed(xml: &str) -> Result<(), String> {
    let mut open = Vec::new();
    let mut rest = xml;
    while let Some(start) = rest.find('<') {
        text_is_escaped(&rest[..start])?;
        let length = rest[start..].find('>').ok_or("a tag is never closed")?;
        let tag = &rest[start + 1..start + length];
        if tag.contains('<') || tag.matches('"').count() % 2 == 1 {
            return Err(format!("<{tag}> is no tag"));
        }
        text_is_escaped(tag)?;
        let name = |tag: &str| tag.split_whitespace().next().unwrap_or_default().to_owned();
        if let Some(closed) = tag.strip_prefix('/') {
            let expected = open.pop();
            if expected.as_deref() != Some(closed) {
                return Err(format!("</{closed}> closes {expected:?}"));
            }
        } else if !tag.ends_with('/') {
            open.push(name(tag));
        }
        rest = &rest[start + length + 1..];
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} are never closed")) }
}

fn text_is_escaped(text: &str) -> Result<(), String> {
    let known = ["amp;", "lt;", "gt;", "quot;", "apos;", "#"];
    let stray = text.split('&').skip(1).find(|rest| !known.iter().any(|k| rest.starts_with(k)));
    stray.map_or(Ok(()), |stray| Err(format!("a bare & before {stray:?}")))
}

#[test]
fn the_scan_for_tags_sees_what_it_should() {
    assert!(well_formed("<a x=\"1\"><b/>t &amp; u</a>").is_ok());
    for wrong in ["<a>", "<a></b>", "<a>x & y</a>", "<a x=\"1></a>", "<a", "</a>"] {
        assert!(well_formed(wrong).is_err(), "{wrong}");
    }
}

fn hash(name: &str, text: &str) -> String {
    let world = World::new();
    world.file(name, text);
    let plan: Json = world.json(0, &["plan", name, "--format", "json"]);
    plan["hash"].as_str().unwrap().to_owned()
}

#[test]
fn the_hash_is_of_the_meaning() {
    let yaml = "name: x\nversion: 1.0.0\nsteps:\n  - id: a\n    tool: sleep\n    parameters: { ms: 5, value: v }\n\
                \x20   timeout: 2s\n  - { id: b, tool: echo, parameters: { x: '{{ a.value }}' } }\n";
    let json = r#"{
        "steps": [
            { "timeout": "2s", "parameters": { "value": "v", "ms": 5 }, "tool": "sleep", "id": "a" },
            { "parameters": { "x": "{{ a.value }}" }, "tool": "echo", "id": "b" }
        ],
        "version": "1.0.0", "name": "x"
    }"#;
    let one = hash("c.yaml", yaml);
    assert_eq!(one.len(), 64);
    assert_eq!(hash("c.json", json), one, "the notation");
    let commented = yaml.replace("steps:", "# a remark\nsteps:   # another\n");
    assert_eq!(hash("c.yaml", &commented), one, "comments");
    for (what, changed) in [
        ("a parameter", yaml.replace("ms: 5", "ms: 6")),
        ("a tool", yaml.replace("tool: echo", "tool: builtin:fail").replace("x: '", "value: '")),
        ("a timeout", yaml.replace("2s", "3s")),
        ("an expression", yaml.replace("a.value", "a.slept_ms")),
    ] {
        assert_ne!(changed, yaml);
        assert_ne!(hash("c.yaml", &changed), one, "{what}");
    }
}

#[test]
fn the_hash_covers_what_is_called() {
    let hash = |world: &World| world.json(0, &["plan", "c.yaml", "--json"])["hash"].clone();
    let world = nested();
    let one = hash(&world);
    world.file("lib/greet.yaml", INNER.replace("Hello", "Good morning"));
    assert_ne!(hash(&world), one);
    world.file("lib/greet.yaml", INNER.replace("name: greet", "# a remark\nname: greet"));
    assert_eq!(hash(&world), one);
}

#[test]
fn planning_calls_nothing() {
    let world = World::with(
        "name: x\nsteps: [ { id: a, tool: files_write, parameters: { path: a.txt, content: x } } ]\n",
    );
    for format in ["text", "json", "mermaid", "dot", "svg"] {
        world.segue(&["plan", "c.yaml", "--format", format]).exits(0);
    }
    assert!(!world.path("a.txt").exists());
    assert_eq!(fs::read_dir(world.folder()).unwrap().count(), 1);
}

#[test]
fn what_does_not_compile_has_no_plan() {
    let done = World::with("name: x\nsteps: []\n").segue(&["plan", "c.yaml"]).exits(2);
    assert!(done.stdout.is_empty() && done.stderr.contains("error[no-steps]"), "{done:?}");
    World::new().segue(&["plan", "nowhere"]).exits(2);
}
