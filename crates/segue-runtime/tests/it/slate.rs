//! What stands on a slate is as durable as what is in the file, whatever happens to either.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_core::run::Entry;
use segue_core::value::Value;
use segue_core::view::RunStatus;
use segue_runtime::store::{
    Lease, Retention, RunQuery, SqliteOptions, SqliteStore, Store, StoreError, TakeOver,
};
use tempfile::TempDir;

use crate::stores::{begin, entry, finish, noise, plan_named, record, slated, slating, sqlite};

fn facts(journal: &[Entry]) -> Vec<String> {
    journal.iter().map(|entry| format!("{:?}", entry.fact)).collect()
}

fn value(seq: u64) -> Value {
    let numbers = noise(seq).take(50).map(|number| Value::from(number % 1_000));
    if seq == 0 { Value::from("a") } else { numbers.collect::<Vec<Value>>().into() }
}

fn expected(count: u64) -> Vec<String> {
    (0..count).map(|seq| format!("{:?}", entry(seq, value(seq)).fact)).collect()
}

async fn add(store: &SqliteStore, lease: &Lease, seq: u64) -> Result<(), StoreError> {
    let entries = [entry(seq, value(seq))];
    store.append(lease, record(seq, &entries, RunStatus::Running)).await
}

/// The slate of the only owner.
fn slate_of(folder: &Path) -> PathBuf {
    let slates = fs::read_dir(folder.join("runs.db-slates")).unwrap();
    let slates: Vec<PathBuf> = slates.map(|slate| slate.unwrap().path()).collect();
    assert_eq!(slates.len(), 1);
    slates.into_iter().next().unwrap()
}

/// A store as a crash leaves it: its owner is gone.
struct Image(TempDir);

impl Image {
    fn of_file(folder: &Path) -> Image {
        let image = TempDir::new().unwrap();
        for name in ["runs.db", "runs.db-wal"] {
            fs::copy(folder.join(name), image.path().join(name)).unwrap();
        }
        Image(image)
    }

    fn with_slate(self, slate: &[u8]) -> Image {
        let slates = self.0.path().join("runs.db-slates");
        fs::create_dir_all(&slates).unwrap();
        fs::write(slates.join("somebody"), slate).unwrap();
        self
    }

    fn open(&self) -> Result<SqliteStore, StoreError> {
        SqliteStore::open(&self.0.path().join("runs.db"), SqliteOptions::default())
    }

    async fn facts(&self) -> Vec<String> {
        facts(&self.open().unwrap().load(&"a".into()).await.unwrap())
    }
}

/// A run whose turns stand on a slate; and the files as they were before that.
async fn on_a_slate(folder: &Path, count: u64) -> (SqliteStore, Lease, Image) {
    let store = slated(&folder.join("runs.db"));
    let plan = plan_named("slated");
    // The first one of a store makes the slate.
    finish(&store, &begin(&store, "before", &plan).await, 1).await;
    let before = Image::of_file(folder);
    let lease = begin(&store, "a", &plan).await;
    for seq in 1..count {
        add(&store, &lease, seq).await.unwrap();
    }
    (store, lease, before)
}

/// J1, J2: all that was acknowledged is there after a crash, also when the machine lost all that the
/// file was given since it was last synced.
#[tokio::test]
async fn what_was_acknowledged_is_on_the_slate() {
    let folder = TempDir::new().unwrap();
    let (store, lease, before) = on_a_slate(folder.path(), 1).await;
    let before = fs::read(before.0.path().join("runs.db-wal")).unwrap();
    let mut is_ahead = 0;
    for seq in 1..25 {
        add(&store, &lease, seq).await.unwrap();
        let slate = fs::read(slate_of(folder.path())).unwrap();
        is_ahead += usize::from(Image::of_file(folder.path()).facts().await.len() as u64 <= seq);
        let crashed = Image::of_file(folder.path()).with_slate(&slate);
        assert_eq!(crashed.facts().await, expected(seq + 1));
        let lost = Image::of_file(folder.path()).with_slate(&slate);
        fs::write(lost.0.path().join("runs.db-wal"), &before).unwrap();
        assert_eq!(lost.facts().await, expected(seq + 1));
        // What was copied is thrown away, and is in the file then.
        assert_eq!(fs::read_dir(lost.0.path().join("runs.db-slates")).unwrap().count(), 0);
        assert_eq!(lost.facts().await, expected(seq + 1));
    }
    assert!(is_ahead > 0, "nothing was ever on the slate alone");
    drop(store);
    assert_eq!(fs::read_dir(folder.path().join("runs.db-slates")).unwrap().count(), 0);
    let journal = sqlite(&folder.path().join("runs.db")).load(&"a".into()).await.unwrap();
    assert_eq!(facts(&journal), expected(25));
}

/// A slate that is full soon is replaced by a larger one, and that is begun anew when it is full. Nothing is
/// lost or comes twice.
#[tokio::test]
async fn a_slate_is_filled_again_and_again() {
    const TURNS: u64 = 5_000;
    let folder = TempDir::new().unwrap();
    let (store, lease, _) = on_a_slate(folder.path(), 1).await;
    let length = fs::metadata(slate_of(folder.path())).unwrap().len();
    for seq in 1..TURNS {
        add(&store, &lease, seq).await.unwrap();
        if seq % 700 == 0 {
            let slate = fs::read(slate_of(folder.path())).unwrap();
            let image = Image::of_file(folder.path()).with_slate(&slate);
            assert_eq!(image.facts().await.len() as u64, seq + 1);
        }
    }
    assert_eq!(fs::metadata(slate_of(folder.path())).unwrap().len(), 4 * length);
    assert!(store.commits() > TURNS, "each turn was durable by itself");
    assert_eq!(facts(&store.load(&"a".into()).await.unwrap()), expected(TURNS));
}

/// J2: a slate that is cut at any place holds a part of what was acknowledged and nothing else. One
/// whose bits have changed holds all of it, or is named; only its end can look like a write that
/// never came to its own.
#[tokio::test]
async fn a_damaged_slate_is_harmless_or_named() {
    const TURNS: u64 = 4;
    let folder = TempDir::new().unwrap();
    let (_store, _, before) = on_a_slate(folder.path(), TURNS).await;
    let slate = fs::read(slate_of(folder.path())).unwrap();
    let folder = before.0.path();
    for length in (0..20_000).step_by(2_311) {
        let image = Image::of_file(folder).with_slate(&slate[..length]);
        match image.open() {
            Err(error) => panic!("cut at {length}: {error}"),
            Ok(store) => {
                let found = facts(&store.load(&"a".into()).await.unwrap());
                assert_eq!(found, expected(found.len() as u64), "cut at {length}");
            }
        }
    }
    // Nor does one that was cut look as if somebody had emptied it.
    for more in 0..3 {
        let image = Image::of_file(folder).with_slate(&slate[..4 * 4_096 + more]);
        assert!(image.facts().await.len() > 1, "{more} more than whole pages");
    }
    let end = slate.iter().rposition(|byte| *byte != 0).unwrap();
    let pages = end.next_multiple_of(4_096);
    let mut named = 0;
    for bit in (0..pages * 8).step_by(809) {
        let mut flipped = slate.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let image = Image::of_file(folder).with_slate(&flipped);
        let store = match image.open() {
            Err(error) => {
                assert!(error.to_string().contains("another version"), "bit {bit}: {error}");
                continue;
            }
            Ok(store) => store,
        };
        let listed = store.runs(&RunQuery { limit: 9, ..RunQuery::default() }).await.unwrap();
        // What is in the file is there in any case.
        assert!(listed.runs.iter().any(|run| &*run.run_id == "before"), "bit {bit}");
        if listed.damaged.is_empty() {
            let found = facts(&store.load(&"a".into()).await.unwrap());
            let is_end = bit / 8 >= pages - 4_096;
            let all = if is_end { found.len() as u64 } else { TURNS };
            assert!(found.len() as u64 >= TURNS - 1, "bit {bit}: {found:?}");
            assert_eq!(found, expected(all), "bit {bit}");
            continue;
        }
        named += 1;
        assert!(listed.damaged.iter().any(|error| error.to_string().contains("somebody")));
        // A run that lost its beginning is not there at all; what is lost may also be another's.
        let stands = |store: SqliteStore| async move {
            match store.take(&"a".into(), TakeOver::Anyway).await {
                Ok(_) => {
                    assert_eq!(facts(&store.load(&"a".into()).await.unwrap()), expected(TURNS));
                }
                Err(StoreError::Damaged { .. } | StoreError::Unknown { .. }) => {
                    assert_eq!(store.unfinished().await.unwrap().runs, []);
                }
                Err(error) => panic!("{error}"),
            }
        };
        stands(store).await;
        // It is looked at once.
        assert_eq!(fs::read_dir(image.0.path().join("runs.db-slates")).unwrap().count(), 0);
        stands(image.open().unwrap()).await;
    }
    assert!(named > 3, "{named}");
}

/// J2: of runs that stand on a damaged slate those go on that lost nothing for certain.
#[tokio::test]
async fn a_damaged_slate_concerns_only_runs_that_lost_something() {
    let folder = TempDir::new().unwrap();
    let store = slated(&folder.path().join("runs.db"));
    let plan = plan_named("slated");
    finish(&store, &begin(&store, "before", &plan).await, 1).await;
    let Image(image) = Image::of_file(folder.path());
    let idle = begin(&store, "idle", &plan).await;
    let hurt = begin(&store, "hurt", &plan).await;
    add(&store, &hurt, 1).await.unwrap();
    let whole = begin(&store, "whole", &plan).await;
    add(&store, &hurt, 2).await.unwrap();
    add(&store, &whole, 1).await.unwrap();
    let over = begin(&store, "over", &plan).await;
    finish(&store, &over, 1).await;
    // As a crash leaves it before anything is copied; `hurt` loses its second turn.
    let path = slate_of(folder.path());
    let mut slate = fs::read(&path).unwrap();
    let second = units(&slate).into_iter().filter(|page| has(&slate, *page, "\"hurt\"")).nth(1);
    slate[second.unwrap() * 4_096 + 100] ^= 1;
    let slates = image.path().join("runs.db-slates");
    fs::create_dir(&slates).unwrap();
    fs::write(slates.join(path.file_name().unwrap()), &slate).unwrap();
    let found = sqlite(&image.path().join("runs.db"));
    assert_eq!(found.load(&whole.run_id).await.unwrap().len(), 2);
    assert_eq!(found.run(&over.run_id).await.unwrap().unwrap().status, RunStatus::Success);
    found.take(&whole.run_id, TakeOver::IfLeft).await.unwrap();
    for lost in [&hurt, &idle] {
        let refused = found.take(&lost.run_id, TakeOver::Anyway).await;
        assert!(matches!(refused, Err(StoreError::Damaged { .. })), "{refused:?}");
    }
    let unfinished = found.unfinished().await.unwrap();
    assert_eq!((unfinished.runs.len(), unfinished.damaged.len()), (1, 3));
    assert_eq!(fs::read_dir(image.path().join("runs.db-damaged")).unwrap().count(), 1);
}

/// Pages on which something begins.
fn units(slate: &[u8]) -> Vec<usize> {
    (1..slate.len() / 4_096).filter(|page| slate[page * 4_096..].starts_with(b"SgS2")).collect()
}

fn has(slate: &[u8], page: usize, text: &str) -> bool {
    let page = &slate[page * 4_096..][..4_096];
    page.windows(text.len()).any(|window| window == text.as_bytes())
}

/// A slate that another version has written is not thrown away.
#[tokio::test]
async fn a_slate_of_another_version_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let (_store, _, before) = on_a_slate(folder.path(), 3).await;
    let mut slate = fs::read(slate_of(folder.path())).unwrap();
    slate[3] = b'9';
    let image = Image::of_file(before.0.path()).with_slate(&slate);
    let error = image.open().err().unwrap().to_string();
    assert!(error.contains("another version"), "{error}");
    assert_eq!(fs::read(slate_of(image.0.path())).unwrap(), slate);
}

/// A file that cannot grow stops the slate too; all that was acknowledged is there when it can.
#[tokio::test]
async fn a_full_disk_loses_nothing_of_a_slate() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let options = SqliteOptions { pages_max: Some(60), ..slating() };
    let store = SqliteStore::open(&path, options).unwrap();
    let plan = plan_named("full");
    finish(&store, &begin(&store, "before", &plan).await, 1).await;
    let lease = begin(&store, "a", &plan).await;
    let mut written = 1;
    let failed = loop {
        match add(&store, &lease, written).await {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 5_000);
    };
    assert!(matches!(failed, StoreError::Unavailable { .. }), "{failed}");
    drop(store);
    let store = sqlite(&path);
    let found = facts(&store.load(&"a".into()).await.unwrap());
    assert!(found.len() as u64 >= written, "{} of {written}", found.len());
    assert_eq!(found, expected(found.len() as u64));
}

/// What is only on a slate is seen by whoever else has the store open, and can be forgotten.
#[tokio::test]
async fn others_see_what_is_on_a_slate() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let other = sqlite(&path);
    let (store, lease, _) = on_a_slate(folder.path(), 1).await;
    for seq in 1..30 {
        add(&store, &lease, seq).await.unwrap();
        let row = other.run(&lease.run_id).await.unwrap().unwrap();
        assert_eq!(row.length, seq + 1);
    }
    finish(&store, &lease, 30).await;
    let page = other.runs(&RunQuery { limit: 10, ..RunQuery::default() }).await.unwrap();
    assert!(page.runs.iter().all(|run| run.status == RunStatus::Success), "{:?}", page.runs);
    let all = Retention { keep_last: Some(0), ..Retention::default() };
    assert_eq!(other.prune(all).await, Ok(2));
    // The plan is gone with them, and comes again with the next run.
    let again = begin(&store, "again", &plan_named("slated")).await;
    assert_eq!(other.load(&again.run_id).await.unwrap().len(), 1);
    let limits = segue_core::limits::Limits::default();
    other.plan(&again.run_id, &limits).await.unwrap();
}

/// J8: whoever loses a run that is on its slate writes nothing more, and keeps its others.
#[tokio::test]
async fn a_run_is_taken_from_a_slate() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let (store, lease, _) = on_a_slate(folder.path(), 10).await;
    let kept = begin(&store, "kept", &plan_named("slated")).await;
    let other = Arc::new(sqlite(&path));
    let taken = other.take(&lease.run_id, TakeOver::Anyway).await.unwrap();
    let lost = add(&store, &lease, 10).await;
    assert!(matches!(lost, Err(StoreError::Lost { .. })), "{lost:?}");
    add(&other, &taken, 10).await.unwrap();
    for seq in 1..5 {
        add(&store, &kept, seq).await.unwrap();
    }
    assert_eq!(facts(&store.load(&lease.run_id).await.unwrap()), expected(11));
    assert_eq!(other.load(&kept.run_id).await.unwrap().len(), 5);
}

/// J8: a run that is taken while its owner writes is taken whole. Nothing that was acknowledged is missing,
/// and whoever has it goes on behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_run_is_taken_whole() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let other = sqlite(&path);
    let plan = plan_named("busy");
    for round in 0..40 {
        let store = Arc::new(SqliteStore::open(&path, slating()).unwrap());
        let lease = begin(&*store, &format!("run-{round}"), &plan).await;
        let (writes, theirs) = (store.clone(), lease.clone());
        let owner = tokio::spawn(async move {
            let mut acknowledged = 1;
            while add(&writes, &theirs, acknowledged).await.is_ok() {
                acknowledged += 1;
            }
            acknowledged
        });
        while store.commits() < 5 + round {
            tokio::task::yield_now().await;
        }
        let taken = other.take(&lease.run_id, TakeOver::Anyway).await.unwrap();
        let acknowledged = owner.await.unwrap();
        let length = other.load(&lease.run_id).await.unwrap().len() as u64;
        assert!(length >= acknowledged, "{length} of {acknowledged} in round {round}");
        add(&other, &taken, length).await.unwrap();
        finish(&other, &taken, length + 1).await;
    }
    assert_eq!(other.damaged().await.unwrap(), []);
}

/// Runs begin, go on and end as if nobody else were there, while somebody forgets runs all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_forgets_disturbs_nobody() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let other = sqlite(&path);
    let plan = plan_named("busy");
    let few = Retention { keep_last: Some(3), ..Retention::default() };
    for round in 0..30 {
        let (store, plan) = (SqliteStore::open(&path, slating()).unwrap(), plan.clone());
        let owner = tokio::spawn(async move {
            for run in 0..20 {
                let lease = begin(&store, &format!("run-{round}-{run}"), &plan).await;
                add(&store, &lease, 1).await.unwrap();
                finish(&store, &lease, 2).await;
            }
        });
        while !owner.is_finished() {
            other.prune(few).await.unwrap();
        }
        owner.await.unwrap();
    }
    assert_eq!(other.damaged().await.unwrap(), []);
    other.prune(few).await.unwrap();
    let left = other.runs(&RunQuery { limit: 9, ..RunQuery::default() }).await.unwrap().runs;
    assert_eq!(left.len(), 3, "and nothing comes back");
}

/// What is forgotten does not come back from a slate: not to whoever had it there, and not to whoever
/// opens the store after a crash.
#[tokio::test]
async fn what_is_forgotten_stays_forgotten() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let plan = plan_named("forgotten");
    let all = Retention { keep_last: Some(0), ..Retention::default() };
    let query = RunQuery { limit: 100, ..RunQuery::default() };
    for is_other in [false, true] {
        let store = slated(&path);
        let other = sqlite(&path);
        for n in 0..10 {
            finish(&store, &begin(&store, &format!("{is_other}-{n}"), &plan).await, 1).await;
        }
        let forgets = if is_other { &other } else { &store };
        assert_eq!(forgets.prune(all).await, Ok(10));
        let image = Image::of_file(folder.path());
        let image = match fs::read_dir(folder.path().join("runs.db-slates")).unwrap().next() {
            Some(slate) => image.with_slate(&fs::read(slate.unwrap().path()).unwrap()),
            None => image,
        };
        for store in [&store, &other, &image.open().unwrap()] {
            assert_eq!(store.runs(&query).await.unwrap().runs, []);
        }
        drop(store);
        assert_eq!(other.runs(&query).await.unwrap().runs, []);
    }
}

/// J8: whoever takes a run marks the slate before anything is committed, so that its owner does not
/// go on when nobody comes to empty it.
#[tokio::test]
async fn a_slate_that_is_marked_is_not_written() {
    let folder = TempDir::new().unwrap();
    let (store, lease, _) = on_a_slate(folder.path(), 5).await;
    let slate = slate_of(folder.path());
    let file = fs::OpenOptions::new().write(true).open(&slate).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length + 1).unwrap();
    add(&store, &lease, 5).await.unwrap();
    // It went into the file, together with what was on the slate.
    let found = Image::of_file(folder.path()).facts().await;
    assert_eq!(found, expected(6));
}

/// An owner that had its slate taken makes another one, and whoever had read the first reads it.
#[tokio::test]
async fn a_new_slate_is_read_from_its_beginning() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let other = sqlite(&path);
    let (store, mut lease, _) = on_a_slate(folder.path(), 20).await;
    assert_eq!(other.load(&lease.run_id).await.unwrap().len(), 20);
    other.take(&lease.run_id, TakeOver::Anyway).await.unwrap();
    lease = store.take(&lease.run_id, TakeOver::Anyway).await.unwrap();
    let mut seq = 20;
    let has_slate = || {
        let mut slates = fs::read_dir(folder.path().join("runs.db-slates")).unwrap();
        slates.any(|slate| slate.unwrap().metadata().is_ok_and(|known| known.len() > 0))
    };
    while seq < 2_000 {
        add(&store, &lease, seq).await.unwrap();
        seq += 1;
        if seq > 100 && has_slate() {
            break;
        }
    }
    assert!(has_slate(), "there was no other slate");
    for _ in 0..10 {
        add(&store, &lease, seq).await.unwrap();
        seq += 1;
        assert_eq!(other.run(&lease.run_id).await.unwrap().unwrap().length, seq);
    }
    assert_eq!(facts(&other.load(&lease.run_id).await.unwrap()), expected(seq));
}

/// D2: nobody else may read what is kept, unless the file was there and says so.
#[cfg(unix)]
#[tokio::test]
async fn a_store_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let rights = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let inner = folder.path().join("a/b");
    let store = slated(&inner.join("runs.db"));
    let lease = begin(&store, "a", &plan_named("slated")).await;
    finish(&store, &lease, 1).await;
    finish(&store, &begin(&store, "b", &plan_named("slated")).await, 1).await;
    for name in ["runs.db", "runs.db-wal", "runs.db-shm"] {
        assert_eq!(rights(&inner.join(name)), 0o600, "{name}");
    }
    for name in ["..", ".", "runs.db-owners", "runs.db-slates"] {
        assert_eq!(rights(&inner.join(name)), 0o700, "{name}");
    }
    assert_eq!(rights(&slate_of(&inner)), 0o600);
    assert_eq!(rights(folder.path()), 0o755);
    let shared = folder.path().join("shared.db");
    fs::write(&shared, "").unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o640)).unwrap();
    begin(&sqlite(&shared), "a", &plan_named("shared")).await;
    assert_eq!(rights(&shared), 0o640);
    assert_eq!(rights(&folder.path().join("shared.db-owners")) & 0o707, 0o700);
}

/// D2: what was forgotten is in none of the files any more.
#[tokio::test]
async fn what_was_forgotten_is_nowhere() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let plan = plan_named("forgotten");
    let store = slated(&path);
    let lease = begin(&store, "a", &plan).await;
    for seq in 1..30 {
        let entries = [entry(seq, Value::from(format!("canary-{seq}-{}", "x".repeat(500))))];
        store.append(&lease, record(seq, &entries, RunStatus::Running)).await.unwrap();
    }
    finish(&store, &lease, 30).await;
    begin(&store, "kept", &plan).await;
    let all = Retention { keep_last: Some(0), ..Retention::default() };
    assert_eq!(store.prune(all).await, Ok(1));
    for name in ["runs.db", "runs.db-wal"] {
        let bytes = fs::read(folder.path().join(name)).unwrap();
        assert!(!bytes.windows(7).any(|window| window == b"canary-"), "{name}");
    }
    assert_eq!(store.load(&"kept".into()).await.unwrap().len(), 1);
}

/// J5: what is damaged is found, named and forgotten, and nothing else is.
#[tokio::test]
async fn what_is_damaged_can_be_forgotten() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let store = sqlite(&path);
    let plan = plan_named("damaged");
    for name in ["whole", "cut", "changed", "over"] {
        let lease = begin(&store, name, &plan).await;
        add(&store, &lease, 1).await.unwrap();
        if name == "over" {
            finish(&store, &lease, 2).await;
        }
    }
    assert_eq!(store.damaged().await.unwrap(), []);
    drop(store);
    let raw = rusqlite::Connection::open(&path).unwrap();
    let number = "(SELECT number FROM run WHERE run_id = ?1)";
    let cut = format!(
        "DELETE FROM turn WHERE number = (SELECT min(number) FROM turn WHERE run = {number})"
    );
    raw.execute(&cut, ["cut"]).unwrap();
    raw.execute("UPDATE run SET epoch = 9 WHERE run_id = ?1", ["changed"]).unwrap();
    drop(raw);
    let store = sqlite(&path);
    let named = |error: &StoreError| match error {
        StoreError::Damaged { run_id, .. } => run_id.to_string(),
        other => panic!("{other}"),
    };
    let damaged = store.damaged().await.unwrap();
    assert_eq!(damaged.iter().map(named).collect::<Vec<_>>(), ["changed", "cut"]);
    assert_eq!(store.forget_damaged().await, Ok(2));
    assert_eq!(store.damaged().await.unwrap(), []);
    let listed = store.runs(&RunQuery { limit: 9, ..RunQuery::default() }).await.unwrap();
    assert_eq!((listed.runs.len(), listed.damaged.len()), (2, 0));
    assert_eq!(store.load(&"whole".into()).await.unwrap().len(), 2);
}

/// J5: a run that only an index has lost is named, and is whole again when what is damaged is forgotten.
#[tokio::test]
async fn what_an_index_has_lost_is_found_again() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let store = sqlite(&path);
    let plan = plan_named("lost");
    for name in ["one-of-several", "another-one-of-them"] {
        let lease = begin(&store, name, &plan).await;
        add(&store, &lease, 1).await.unwrap();
        finish(&store, &lease, 2).await;
    }
    drop(store);
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(raw);
    let mut file = fs::read(&path).unwrap();
    let is_index = |page: &&mut [u8]| page[0] == 0x0a && has(page, 0, "one-of-several");
    let page = file.chunks_exact_mut(4_096).find(is_index).unwrap();
    let place = page.windows(14).position(|window| window == b"one-of-several").unwrap();
    page[place] ^= 2;
    fs::write(&path, file).unwrap();
    let store = sqlite(&path);
    assert_eq!(store.damaged().await.unwrap().len(), 1);
    assert!(store.load(&"one-of-several".into()).await.is_err());
    assert_eq!(store.forget_damaged().await, Ok(0));
    assert_eq!(store.damaged().await.unwrap(), []);
    assert_eq!(store.load(&"one-of-several".into()).await.unwrap().len(), 3);
    let all = Retention { keep_last: Some(0), ..Retention::default() };
    assert_eq!(store.prune(all).await, Ok(2), "and can be forgotten like every other one");
}

/// A store has one place, whatever name leads to it.
#[cfg(unix)]
#[tokio::test]
async fn a_link_leads_to_the_same_slates() {
    let (folder, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let link = elsewhere.path().join("link.db");
    let (store, lease, _) = on_a_slate(folder.path(), 5).await;
    std::os::unix::fs::symlink(folder.path().join("runs.db"), &link).unwrap();
    let other = sqlite(&link);
    assert_eq!(facts(&other.load(&lease.run_id).await.unwrap()), expected(5));
    let owned = other.take(&lease.run_id, TakeOver::IfLeft).await;
    assert!(matches!(owned, Err(StoreError::Owned { .. })), "{owned:?}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
    drop(store);
}
