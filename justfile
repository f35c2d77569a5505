# `just check` is what has to pass before a commit; the rest are its parts and helpers.

# Format, lints, dependencies, tests, documentation
check:
    scripts/test

# All tests
test *ARGS:
    cargo test --workspace {{ARGS}}

# Line coverage of the tests, which must be at least 85 %. Needs cargo-llvm-cov and rustup's llvm-tools
coverage *SCOPE="--workspace":
    cargo llvm-cov --summary-only --fail-under-lines 85 {{SCOPE}}

# Random compositions in random worlds
sim SEEDS="100000":
    SEGUE_SIM_SEEDS={{SEEDS}} cargo test --release --package segue-core --test sim -- --nocapture

# Bugs planted into a copy of the machine, each of which the simulator must find
planted:
    cargo test --package segue-core --test planted -- --ignored --nocapture

# Kill the program at random moments, so many times over
kill CYCLES="1000":
    SEGUE_KILL_CYCLES={{CYCLES}} cargo test --package segue --test it kill::killed -- --nocapture

# Kill workers that share a database, their server and the database at random moments, so many times over
kill-shared CYCLES="1000":
    SEGUE_KILL_CYCLES={{CYCLES}} cargo test --package segue --test it kill::shared:: -- --nocapture

# So many runs on one and on two workers, optimised: none is lost, and the memory of a worker is bounded
many-runs COUNT="10000":
    SEGUE_MANY_RUNS={{COUNT}} cargo test --release --package segue --test it shared::many:: -- --nocapture

# Attack the program from outside, the long form: CONTRIBUTING.md says how to read its tables
attack:
    SEGUE_ATTACK_LONG=1 cargo test --release --package segue --test it attack:: -- --nocapture --test-threads 1

# Every write and sync of a store fails once: no space, an I/O error, a crash. Needs strace
faults:
    cargo test --package segue-runtime --test it faults::every -- --ignored --nocapture

# How long 10,000 interrupted runs take to go on and end
recover:
    cargo test --release --package segue-runtime --test it recover:: -- --ignored --nocapture

# Many requests at once, slow connections and followers that never read
load:
    cargo test --release --package segue --test it rest::load:: -- --ignored --nocapture --test-threads 1

# Random documents, expressions, jq programs and schemas, each kind for so many minutes
fuzz MINUTES="15":
    scripts/fuzz $(({{MINUTES}} * 60))

# Take the new snapshots after looking at them
accept:
    INSTA_UPDATE=always cargo test --workspace

# Generate what is generated and committed
gen:
    cargo run --quiet -- schema > schema/composition.schema.json
    cargo run --quiet -- schema --draft 07 > schema/composition.draft-07.schema.json
    cargo run --quiet -- schema --openapi > schema/openapi.json
    cargo run --quiet -- schema --graphql > schema/segue.graphql
    SEGUE_WRITE_COVERAGE=1 cargo test --quiet --package segue --test it coverage::
    SEGUE_WRITE_SURFACES=1 cargo test --quiet --package segue --test it parity::
    cargo run --quiet -- schema --test > schema/test.schema.json
    cargo run --quiet -- schema --test --draft 07 > schema/test.draft-07.schema.json

# Benchmarks, as ratios against a hand-written floor in the same run
bench *ARGS:
    cargo run --profile dist --package segue-bench -- {{ARGS}}

# The documentation of the crates
doc:
    cargo doc --workspace --no-deps --open
