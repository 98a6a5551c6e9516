//! Restores of random moments. One client writes all types of values and notes the epoch of each write. Its server is
//! killed and started again, backups of every kind are made, and an agent merges. Then random moments are restored, and
//! each must equal the model at that moment.
//!
//! The server is `perdura serve`, or a program with typed tables beside the keys (`typed_program`). The program's log has
//! commands or effects.
//!
//! `PERDURA_MOMENTS=1000 PERDURA_MOMENT_OPS=2000 PERDURA_MOMENT_MB=50` gives the long form.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use perdura_base::moment::moment;

use crate::histories::{By, History, Life};
use crate::kill_archive::{done, wait_until};
use crate::support::{PERDURA, Server, arg, ended, number_from_env};

/// The number of lives of the database.
const LIVES: u64 = 4;
/// The number of moments that a run lists.
const LISTED: u64 = 1000;
/// The number of notes in a megabyte.
const NOTES_PER_MB: u64 = 290;
/// The maximum time before a moment that the pruned archive may lack, microseconds.
const LAG_US: u64 = 2_000_000;
/// An increment must follow a checkpoint within this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// The directories of a run.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// The restores of a run.
#[derive(Debug, Default)]
struct Restores {
    /// The number of restored moments, before and after the pruning.
    restored: [u64; 2],
    /// The number of restores that began with an increment.
    by_increment: u64,
    /// The number of changes outside procedures that the first starts replayed.
    effects: u64,
    /// The number of calls that the first starts replayed.
    calls: u64,
}

impl Restores {
    /// Restores a moment and compares it with the model. Returns the restored epoch, or `None` if the archive does not
    /// have the moment.
    fn check(&mut self, place: &Place, at: &str, history: &History) -> Option<u64> {
        let (archive, to) = (place.at("archive"), place.at("restored"));
        drop(std::fs::remove_dir_all(&to));
        let words = ["restore", "--json", "--from", arg(&archive), "--to"];
        let (code, said) = ended(&[&words[..], &[arg(&to), "--at", at]].concat());
        if code == 2 {
            let reasons = ["can no longer be restored", "is not in the archive"];
            let has_reason = reasons.iter().any(|reason| said.contains(reason));
            assert!(has_reason, "--at {at}: {said}");
            return None;
        }
        assert_eq!(code, 0, "--at {at}: {said}");
        let told: serde_json::Value = serde_json::from_str(&said).unwrap();
        let number = |name: &str| told[name].as_u64().unwrap();
        let mut life = Life::start(history.by, &to, None, false);
        let epoch = number("epoch");
        history.compare(&life.state(), epoch, &format!("--at {at}: {said}"));
        life.kill();
        self.by_increment += u64::from(told["increment"].is_string());
        self.effects += number("effects_to_replay");
        self.calls += number("calls_to_replay");
        Some(epoch)
    }

    /// Checks that the restores did what the history is made for.
    fn finish(&self, by: By) {
        assert!(self.restored[1] > 0, "no moment is left after the pruning");
        assert_eq!(self.by_increment > 0, by.has_tables(), "{self:?}");
        assert_eq!(self.effects > 0, by.has_tables(), "{self:?}");
        assert_eq!(self.calls > 0, by == By::ProgramOfCommands, "{self:?}");
    }
}

fn agent(archive: &Path) -> Child {
    let mut command = Command::new(PERDURA);
    command.args(["archive", "agent", "--virtual-every", "2s"]);
    command.args(["--archive", arg(archive)]);
    command.stderr(Stdio::null()).spawn().unwrap()
}

/// Returns the names of the newest backup and the newest increment of an archive, without their kinds. A
/// missing file has an empty name.
fn newest(archive: &Path) -> [String; 2] {
    let words = ["archive", "status", "--json", "--archive", arg(archive)];
    let told: serde_json::Value = serde_json::from_str(&done(&words)).unwrap();
    let backup = told["backups"].as_array().and_then(|all| all.last());
    let increment = told.get("newest_increment");
    [backup, increment].map(|name| {
        let name = name.and_then(serde_json::Value::as_str).unwrap_or_default();
        name.split_once('-').map_or("", |(_, rest)| rest).to_owned()
    })
}

/// Takes a checkpoint, and waits for the increment that follows it.
pub fn add_increment(server: &Server, archive: &Path) {
    let [_, before] = newest(archive);
    server.ask(&["SAVE"]);
    let begun = Instant::now();
    loop {
        let [backup, increment] = newest(archive);
        if !backup.is_empty() && increment > backup.max(before.clone()) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{increment} after {before}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lets the client work in one life of the database, and makes backups.
fn live(place: &Place, history: &mut History, number: u64, count: u64) {
    let (data, archive) = (place.at("data"), place.at("archive"));
    let mut life = Life::start(history.by, &data, Some(&archive), number != 1);
    history.settle(&mut life);
    wait_until(life.server(), "restorable", |restorable| {
        restorable.starts_with("yes")
    });
    if number == 0 && history.by.has_tables() {
        history.fill(&mut life);
    }
    let agent = (number == 1).then(|| agent(&archive));
    history.work(&mut life, count / 2);
    let address = format!("127.0.0.1:{}", life.server().port());
    done(&["backup", "create", "--server", &address]);
    history.work(&mut life, count / 4);
    if history.by.has_tables() {
        add_increment(life.server(), &archive);
    }
    history.work(&mut life, count / 4);
    let is_killed = number.is_multiple_of(2);
    match is_killed {
        true => history.kill(life),
        false => life.stop(),
    }
    if let Some(mut agent) = agent {
        agent.kill().unwrap();
        agent.wait().unwrap();
    }
    // Only the program can replay the commands of a database that was killed.
    if is_killed && number > 0 && history.by != By::ProgramOfCommands || number == 1 {
        let words = ["backup", "create", "--data", arg(&data)];
        done(&[&words[..], &["--archive", arg(&archive)]].concat());
    }
}

/// Makes a history of several lives and restores random moments of it.
fn restore_moments(by: By) {
    let seed = number_from_env("PERDURA_KILL_SEED", 1);
    let moments = number_from_env("PERDURA_MOMENTS", 20);
    let count = number_from_env("PERDURA_MOMENT_OPS", 200);
    let notes = number_from_env("PERDURA_MOMENT_MB", 1) * NOTES_PER_MB;
    let place = Place {
        dir: tempfile::tempdir().unwrap(),
    };
    let mut history = History::new(by, seed, notes);
    for number in 0..LIVES {
        live(&place, &mut history, number, count);
    }
    let archive = place.at("archive");
    done(&["backup", "virtual", "--archive", arg(&archive)]);
    let mut rng = fastrand::Rng::with_seed(seed ^ 43);
    let mut restores = Restores::default();
    // A run lists a thousand of its moments, so a time may lead to an earlier one of them.
    let skipped_max = usize::try_from(4 * (history.last_epoch() / LISTED)).unwrap();
    // The end of the last life follows an increment, and has changes of both kinds to replay.
    let last = history.done.len() - 1;
    for nth in 0..moments {
        let is_pruned = nth >= moments * 3 / 4;
        if nth == moments * 3 / 4 {
            let words = ["archive", "prune", "--archive", arg(&archive)];
            done(&[&words[..], &["--moments", "all 1s, 1s 1d"]].concat());
            done(&["archive", "merge", "--archive", arg(&archive)]);
        }
        let is_last = nth == 0 || nth == moments * 3 / 4;
        let drawn = (rng.usize(..=last), rng.u8(..4));
        let (index, by_time) = if is_last { (last, 0) } else { drawn };
        let one = &history.done[index];
        let found = match (one.at_us, by_time) {
            (Some(at_us), 0) => {
                let found = restores.check(&place, &moment(at_us), &history);
                let (skipped_max, lag_us) = if is_pruned {
                    (0, LAG_US)
                } else {
                    (skipped_max, 0)
                };
                let begun_us = history.done[0].at_us.map(|begun| begun + LAG_US);
                assert!(found.is_some() || begun_us > Some(at_us), "moment {nth}");
                found.inspect(|found| history.compare_time(at_us, *found, skipped_max, lag_us))
            }
            _ => {
                let epoch = rng.u64(one.from..=one.until);
                let found = restores.check(&place, &epoch.to_string(), &history);
                assert!(found.is_none_or(|found| found == epoch), "{found:?}");
                found
            }
        };
        let may_lack = is_pruned || one.at_us.is_none();
        assert!(found.is_some() || may_lack, "moment {nth} is missing");
        restores.restored[usize::from(is_pruned)] += u64::from(found.is_some());
    }
    done(&["archive", "verify", "--archive", arg(&archive)]);
    restores.finish(by);
    println!(
        "{} changes, {} of them without a reply; of {moments} moments: {restores:?}",
        history.done.len(),
        history.found
    );
}

#[test]
fn random_moments_of_several_lives_equal_the_model() {
    restore_moments(By::Perdura);
}

#[test]
fn random_moments_of_typed_tables_under_a_log_of_commands_equal_the_model() {
    restore_moments(By::ProgramOfCommands);
}

#[test]
fn random_moments_of_typed_tables_under_a_log_of_effects_equal_the_model() {
    restore_moments(By::ProgramOfEffects);
}
