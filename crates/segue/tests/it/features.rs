//! What the features bring: without them Segue needs no crate of a database or of a dispatcher.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::repository;

/// The crates of the program with these features, from `Cargo.lock`.
fn crates(features: &str) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--package", "segue", "--no-default-features"])
        .args(["--features", features, "--edges", "normal", "--prefix", "none"])
        .current_dir(repository())
        .output()
        .unwrap();
    let text = String::from_utf8(tree.stdout).unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Each feature brings its own crates, and nothing else does.
#[test]
fn a_feature_that_is_off_brings_no_crate() {
    let without = crates("");
    for (feature, of_feature) in [
        ("postgres", &["tokio-postgres", "postgres-protocol", "postgres-types"][..]),
        ("restate", &["restate-sdk", "restate-sdk-shared-core", "h2"]),
    ] {
        let with = crates(feature);
        for name in of_feature {
            assert!(with.contains(*name), "`{feature}` needs {name}");
            assert!(!without.contains(*name), "{name} is there without `{feature}`");
        }
        assert!(without.is_subset(&with));
    }
}
