//! Tests of an archive agent. The database of the archive is in use, and other processes also work on the archive. The
//! agent is killed repeatedly.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use perdura::{Db, Options};

use crate::support::{PERDURA, arg, ended, number_from_env};

fn open(data: &Path, archive: &Path, merges: bool) -> Db {
    let mut options = Options::new(data);
    options.archive = Some(archive.to_owned());
    options.archive_merge = merges;
    options.first_backup = false;
    Db::open(options).unwrap()
}

/// Writes some keys, and takes a checkpoint. The archive's current run ends at the checkpoint.
fn write(db: &Db, rng: &mut fastrand::Rng, round: u32) {
    let put = |key: &[u8], value: &[u8]| {
        let parts = [db.partition_of(key)].into_iter().collect();
        let put = db.transact(&parts, |tx| tx.put(db.database(0), key, value, None));
        put.map(drop).unwrap();
    };
    for _ in 0..40 {
        let key = format!("key {}", rng.u32(0..3000));
        let value = vec![rng.u8(..); rng.usize(0..2000)];
        put(key.as_bytes(), &value);
    }
    put(b"round", &round.to_le_bytes());
    db.checkpoint().unwrap();
}

fn spawn(archive: &Path, stderr: Stdio, extra: &[&str]) -> Child {
    Command::new(PERDURA)
        .args(["archive", "agent", "--archive", arg(archive)])
        .args(extra)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .unwrap()
}

fn kill(mut agent: Child) {
    agent.kill().unwrap();
    agent.wait().unwrap();
}

fn done(args: &[&str]) -> String {
    let (code, text) = ended(args);
    assert_eq!(code, 0, "{args:?}: {text}");
    text
}

/// Waits until a condition is true. Fails after half a minute.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn runs_of(archive: &Path) -> usize {
    let status = done(&["archive", "status", "--archive", arg(archive), "--json"]);
    let runs = status.split("\"runs\": ").nth(1).unwrap();
    runs.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn an_agent_that_is_killed_again_and_again_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (data, archive) = (at("data"), at("archive"));
    let db = open(&data, &archive, false);
    let mut rng = fastrand::Rng::with_seed(1);
    db.back_up().unwrap();
    let mut round = 0;
    for _ in 0..30 {
        let agent = spawn(&archive, Stdio::null(), &["--virtual-every", "10ms"]);
        let until = Instant::now() + Duration::from_millis(rng.u64(1..250));
        while Instant::now() < until {
            round += 1;
            write(&db, &mut rng, round);
        }
        kill(agent);
    }
    assert_eq!(db.delayed(), vec![]);
    let digest = db.digest().unwrap();
    db.close().unwrap();
    let before = runs_of(&archive);
    assert!(
        before < usize::try_from(round).unwrap(),
        "{before} of {round}"
    );
    done(&["archive", "verify", "--archive", arg(&archive)]);
    done(&["archive", "merge", "--archive", arg(&archive), "--all"]);
    assert_eq!(runs_of(&archive), 1);
    done(&["archive", "verify", "--archive", arg(&archive)]);
    let restored = at("restored");
    done(&["restore", "--from", arg(&archive), "--to", arg(&restored)]);
    let db = Db::open(Options::new(restored)).unwrap();
    assert_eq!(db.digest().unwrap(), digest);
}

#[test]
fn there_is_one_agent_and_one_merger_and_others_are_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let (data, archive) = (dir.path().join("data"), dir.path().join("archive"));
    let merge = ["archive", "merge", "--archive", arg(&archive)];
    let db = open(&data, &archive, true);
    let stats = |db: &Db| db.stats().archive.unwrap();
    wait_for("an archive", || stats(&db).runs_now.is_some());
    // The database takes the lock for merging some time after it has opened the archive.
    let mut told = (0, String::new());
    wait_for("the server of this database merges", || {
        told = ended(&merge);
        told.0 != 0
    });
    assert!(told.1.contains("archive-merge no"), "{told:?}");
    db.abandon();

    // The agent reports that it works after it has taken the lock for merging. A `merge` before this report could keep
    // the lock from the agent.
    let mut agent = spawn(&archive, Stdio::piped(), &[]);
    let mut said = String::new();
    let stderr = agent.stderr.take().unwrap();
    BufReader::new(stderr).read_line(&mut said).unwrap();
    assert!(said.contains("INFO cli: the agent works on"), "{said}");
    let (code, told) = ended(&merge);
    assert!(code == 1 && told.contains("another agent"), "{told}");
    // The database leaves merging to the agent, and merges itself after the agent has ended.
    let db = open(&data, &archive, true);
    wait_for("the agent is seen", || stats(&db).merged_elsewhere);
    assert_eq!(db.delayed(), vec![]);
    kill(agent);
    wait_for("the agent is missed", || !stats(&db).merged_elsewhere);
    db.close().unwrap();
}

#[test]
fn what_no_moment_needs_is_pruned() {
    let dir = tempfile::tempdir().unwrap();
    let (data, archive) = (dir.path().join("data"), dir.path().join("archive"));
    let db = open(&data, &archive, false);
    let mut rng = fastrand::Rng::with_seed(2);
    for round in 0..4 {
        write(&db, &mut rng, round);
        db.back_up().unwrap();
    }
    let digest = db.digest().unwrap();
    db.close().unwrap();
    let prune = ["archive", "prune", "--archive", arg(&archive)];
    let (code, told) = ended(&prune);
    assert!(code == 2 && told.contains("--keep"), "{told}");
    let kept = done(&[&prune[..], &["--keep", "1d"]].concat());
    assert!(kept.contains("0 backups, 0 runs"), "{kept}");
    std::thread::sleep(Duration::from_millis(20));
    let removed = done(&[&prune[..], &["--keep", "1ms"]].concat());
    assert!(removed.contains("3 backups"), "{removed}");
    let listed = done(&["backup", "list", "--archive", arg(&archive)]);
    assert_eq!(listed.lines().count(), 1, "{listed}");
    let restored = dir.path().join("restored");
    done(&["restore", "--from", arg(&archive), "--to", arg(&restored)]);
    let db = Db::open(Options::new(restored)).unwrap();
    assert_eq!(db.digest().unwrap(), digest);
}

/// Ends a thread's loop, even after a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A restore beside an agent once hung for 120 s. `PERDURA_RESTORES=1000` gives the long form.
#[test]
fn restores_beside_an_agent_that_merges_and_prunes_end_soon() {
    const LONGEST: Duration = Duration::from_secs(30);
    let restores = number_from_env("PERDURA_RESTORES", 20);
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (data, archive, to) = (at("data"), at("archive"), at("restored"));
    let db = open(&data, &archive, false);
    let mut rng = fastrand::Rng::with_seed(3);
    write(&db, &mut rng, 0);
    db.back_up().unwrap();
    let prunes = ["--moments", "all 1s, 1s 1d", "--keep", "1d"];
    let more = [&prunes[..], &["--virtual-every", "300ms"]].concat();
    let agent = spawn(&archive, Stdio::null(), &more);
    let is_over = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let _ended = Over(&is_over);
        scope.spawn(|| {
            let mut round = 0;
            while !is_over.load(Ordering::Relaxed) {
                round += 1;
                write(&db, &mut rng, round);
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        let took = (0..restores).map(|nth| {
            let restore = ["restore", "--from", arg(&archive), "--to", arg(&to)];
            let drill = ["archive", "drill", "--archive", arg(&archive)];
            if nth % 4 == 0 {
                // A drill has the lowest priority, so its time says nothing.
                done(&[&drill[..], &["--to", arg(&to)]].concat());
            }
            let begin = Instant::now();
            match nth % 2 {
                0 => done(&[&restore[..], &["--at", "end-10ms"]].concat()),
                _ => done(&restore),
            };
            let took = begin.elapsed();
            std::fs::remove_dir_all(&to).unwrap();
            took
        });
        took.max().unwrap_or_default()
    });
    kill(agent);
    println!("{restores} restores, the longest took {longest:?}");
    assert!(longest < LONGEST, "{longest:?}");
    done(&["archive", "verify", "--archive", arg(&archive)]);
}

/// `archive status` and `backup list` opened all runs of an archive together. They failed for an archive with more runs
/// than a process may open files.
#[test]
fn an_archive_with_more_runs_than_open_files_is_shown() {
    const LIMIT: &str = "ulimit -n 40; exec \"$0\" \"$@\"";
    let dir = tempfile::tempdir().unwrap();
    let (data, archive) = (dir.path().join("data"), dir.path().join("archive"));
    let db = open(&data, &archive, false);
    let mut rng = fastrand::Rng::with_seed(9);
    db.back_up().unwrap();
    let runs = |db: &Db| db.stats().archive.unwrap().runs_now.unwrap_or(0);
    for round in 0..60 {
        let before = runs(&db);
        write(&db, &mut rng, round);
        wait_for("a run", || runs(&db) > before);
    }
    db.close().unwrap();
    assert!(runs_of(&archive) > 50);
    for verb in [["archive", "status"], ["backup", "list"]] {
        let mut limited = Command::new("sh");
        limited.args(["-c", LIMIT, PERDURA]).args(verb);
        let done = limited.args(["--archive", arg(&archive)]).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{verb:?}: {said}");
    }
}
