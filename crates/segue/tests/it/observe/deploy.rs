//! The files to deploy with: they can be read, and what they name exists.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use regex::Regex;
use segue::observe::metrics::METRICS;
use segue_core::document::{ReadLimits, read};
use segue_core::limits::Limits;
use segue_core::source::Source;

use crate::served::TOKEN;
use crate::support::{Json, World, files_below, repository, shown};

/// Reads YAML or JSON with the readers that compositions are read with.
fn parsed(path: &std::path::Path) -> Json {
    let source = Source::new(path.display().to_string(), fs::read_to_string(path).unwrap());
    let node = read(&source, ReadLimits::for_documents(&Limits::default()));
    let node = node.unwrap_or_else(|findings| panic!("{}: {findings:?}", shown(path)));
    serde_json::from_str(&node.to_value().to_json()).unwrap()
}

fn deploy(name: &str) -> String {
    fs::read_to_string(repository().join("deploy").join(name)).unwrap()
}

#[test]
fn every_document_can_be_read() {
    let documents = files_below(&repository().join("deploy"), &["yaml", "yml", "json"]);
    assert!(documents.len() >= 7, "{documents:?}");
    for path in &documents {
        assert!(parsed(path).is_object(), "{}", shown(path));
    }
    let compose = parsed(&repository().join("deploy/compose.yaml"));
    for service in ["segue", "prometheus", "jaeger", "grafana"] {
        assert!(compose["services"][service].is_object(), "{service}");
    }
    // Files that are mounted are there; the token is the operator's.
    let text = deploy("compose.yaml");
    for (_, [mounted]) in
        Regex::new(r"- \./([\w./-]+):").unwrap().captures_iter(&text).map(|c| c.extract())
    {
        let path = repository().join("deploy").join(mounted);
        assert!(path.exists() || mounted == "token", "{mounted}");
    }
}

/// Each metric that is asked for exists, and each that exists is in the table of the manual.
#[test]
fn every_metric_that_is_named_is_counted() {
    let known: BTreeSet<String> = METRICS
        .iter()
        .flat_map(|metric| match metric.kind {
            "histogram" => {
                ["_bucket", "_sum", "_count"].map(|end| format!("{}{end}", metric.name)).to_vec()
            }
            _ => vec![metric.name.to_owned()],
        })
        .collect();
    let name = Regex::new(r"\b(?:segue|process)_[a-z_]+[a-z]\b").unwrap();
    for file in ["grafana/segue.json", "alerts.yml"] {
        let text = deploy(file);
        let named: BTreeSet<&str> = name.find_iter(&text).map(|found| found.as_str()).collect();
        assert!(named.len() >= 5, "{file}: {named:?}");
        for name in named {
            assert!(known.contains(name), "{file} asks for `{name}`");
        }
    }
    let manual = fs::read_to_string(repository().join("docs/operating.md")).unwrap();
    for metric in METRICS {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let row = format!(
            "| `{}` | {} | {} | {} |",
            metric.name,
            metric.kind,
            labels.join(", "),
            metric.about
        );
        assert!(manual.contains(&row), "docs/operating.md lacks: {row}");
    }
}

/// What is started is a command that exists, with options that it takes, and a configuration that can be
/// used.
#[test]
fn what_is_started_can_be_started() {
    let world = World::new();
    let help = world.segue(&["serve", "--help"]).exits(0).stdout;
    let (unit, container) = (deploy("segue.service"), deploy("Containerfile"));
    let start = unit.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
    let command = container.lines().find(|line| line.starts_with("CMD ")).unwrap();
    let option = Regex::new(r"--[a-z-]+").unwrap();
    for line in [start, command] {
        assert!(line.contains("serve"), "{line}");
        let options: Vec<&str> = option.find_iter(line).map(|found| found.as_str()).collect();
        assert!(options.len() >= 2, "{line}");
        for option in options {
            assert!(help.contains(option), "{option} of {line}");
        }
    }
    assert!(container.contains("\nUSER nonroot\n"));
    world.file("segue.yaml", deploy("segue.yaml").replace("/var/lib/segue", "."));
    world.file("compositions/hi.yaml", "name: hi\nsteps: [ { id: a, tool: echo } ]\n");
    let mut doctor = world.command(crate::support::SEGUE);
    doctor.args(["--config", "segue.yaml", "doctor"]).env("SEGUE_TOKEN", TOKEN);
    doctor.env("SEGUE_METRICS_TOKEN", TOKEN.replace("open", "shut"));
    let done = crate::support::Done::of(doctor.output().unwrap());
    let done = done.exits(0);
    assert!(done.stdout.contains("compositions   1 loaded"), "{}", done.stdout);
}

/// The unit says what systemd understands, and shuts out what a server of programs does not need.
#[test]
fn the_units_are_ones_that_systemd_takes() {
    for name in ["segue.service", "shared/segue-server.service", "shared/segue-worker.service"] {
        is_one_that_systemd_takes(&deploy(name));
    }
}

fn is_one_that_systemd_takes(unit: &str) {
    for line in unit.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '['])) {
        assert!(line.contains('='), "{line}");
    }
    for word in ["NoNewPrivileges=yes", "ProtectSystem=strict", "DynamicUser=yes", "PrivateTmp=yes"]
    {
        assert!(unit.contains(word), "{word}");
    }
    // The program is not installed where the unit looks for it, so another one stands in.
    let world = World::new();
    world.file("segue.service", unit.replace("/usr/bin/segue", "/bin/true"));
    let verify =
        Command::new("systemd-analyze").arg("verify").arg(world.path("segue.service")).output();
    let Ok(verified) = verify else { return };
    let said = String::from_utf8_lossy(&verified.stderr);
    let about_us: Vec<&str> = said.lines().filter(|line| line.contains("segue.service")).collect();
    let about_us: Vec<&&str> = about_us.iter().filter(|line| !line.contains("man ")).collect();
    assert!(about_us.is_empty(), "{said}");
}

/// A database, a server that only takes requests, and workers: what they start exists, and the configuration
/// can be used.
#[test]
fn several_machines_can_be_started() {
    let compose = parsed(&repository().join("deploy/shared/compose.yaml"));
    let services = &compose["services"];
    assert!(services["database"]["healthcheck"].is_object());
    let text = deploy("shared/compose.yaml");
    assert!(
        !Regex::new(r"(?i)password: [a-z0-9]").unwrap().is_match(&text),
        "a password in a file"
    );
    for (_, [mounted]) in
        Regex::new(r"- \./([\w./-]+):").unwrap().captures_iter(&text).map(|c| c.extract())
    {
        assert!(repository().join("deploy/shared").join(mounted).exists(), "{mounted}");
    }
    let world = World::new();
    for (service, command) in [("server", "serve"), ("worker", "worker")] {
        let help = world.segue(&[command, "--help"]).exits(0).stdout;
        let words = services[service]["command"].as_array().unwrap();
        assert_eq!(words[0], command);
        let unit = deploy(&format!("shared/segue-{service}.service"));
        let start = unit.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
        assert!(start.contains(&format!("segue.yaml {command} ")), "{start}");
        let started = start.split_whitespace().skip(1);
        let options = words.iter().filter_map(Json::as_str).chain(started);
        for option in options.filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "{option} of {command}");
        }
    }
    world.file("segue.yaml", deploy("shared/segue.yaml"));
    world.file("compositions/hello.yaml", deploy("shared/compositions/hello.yaml"));
    let mut check = world.command(crate::support::SEGUE);
    check.args(["--config", "segue.yaml", "--store", "memory", "run", "hello"]);
    check.args(["-i", "name=Ada", "--dry-run"]);
    for name in ["SEGUE_TOKEN", "SEGUE_METRICS_TOKEN", "SEGUE_DATABASE_PASSWORD"] {
        check.env(name, format!("{TOKEN}-{name}"));
    }
    let done = crate::support::Done::of(check.output().unwrap()).exits(0);
    assert!(!done.stderr.contains("warning") && !done.stderr.contains(TOKEN), "{done:?}");
}
