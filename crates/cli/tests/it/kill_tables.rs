//! `kill -9` during TPC-C under every logging scheme. Afterwards the twelve consistency conditions are checked, also in
//! databases that are restored to random moments.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{PERDURA, arg, ended, number_from_env};

/// Returns the arguments of a bench run with small tables and frequent checkpoints.
fn bench<'a>(data: &'a Path, scheme: &'a str, seed: &'a str) -> Vec<&'a str> {
    vec![
        "bench",
        "tpcc",
        "--data",
        arg(data),
        "--scheme",
        scheme,
        "--seed",
        seed,
        "--warehouses",
        "2",
        "--items",
        "500",
        "--customers",
        "30",
        "--workers",
        "2",
        "--clients",
        "64",
    ]
}

/// Runs TPC-C for about a second and kills it.
fn run_and_kill(args: &[&str], rng: &mut fastrand::Rng, what: &str) {
    let mut child = Command::new(PERDURA)
        .args(args)
        .args(["--seconds", "60", "--snapshot-every", "150ms"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(rng.u64(400..1400)));
    let ended_early = child.try_wait().unwrap();
    assert_eq!(ended_early, None, "{what}: the run ended by itself");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Checks the twelve conditions.
fn check(data: &Path, scheme: &str, what: &str) {
    let mut args = bench(data, scheme, "1");
    args.push("--check");
    let (code, text) = ended(&args);
    assert_eq!(code, 0, "{what}: {text}");
    assert_eq!(text.matches("ok").count(), 12, "{what}: {text}");
}

fn kill(scheme: &str) {
    let rounds = number_from_env("PERDURA_KILL_TABLES_ROUNDS", 3);
    let seed = number_from_env("PERDURA_KILL_SEED", 1);
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x7470_6363);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    // The initial population is not one transaction, so it must be complete before the first kill.
    let mut args = bench(&data, scheme, "1");
    args.extend(["--txns", "10"]);
    let (code, text) = ended(&args);
    assert_eq!(code, 0, "the population: {text}");
    for round in 0..rounds {
        let text = (seed * 1000 + round).to_string();
        let what = format!("round {round} of seed {seed} (PERDURA_KILL_SEED)");
        run_and_kill(&bench(&data, scheme, &text), &mut rng, &what);
        check(&data, scheme, &what);
    }
    println!("{rounds} kills of TPC-C under {scheme}: the twelve conditions hold");
}

#[test]
fn the_twelve_conditions_hold_behind_kill_9_of_a_log_of_commands() {
    kill("command");
}

#[test]
fn the_twelve_conditions_hold_behind_kill_9_of_a_log_of_rows() {
    kill("value");
}

#[test]
fn the_twelve_conditions_hold_behind_kill_9_of_a_log_of_page_records() {
    kill("differential");
}

/// Archives the whole log, and makes a backup. Returns the archive's last epoch.
fn back_up(data: &Path, archive: &Path) -> u64 {
    let words = ["backup", "create", "--json", "--data", arg(data)];
    let (code, text) = ended(&[&words[..], &["--archive", arg(archive)]].concat());
    assert_eq!(code, 0, "{text}");
    let (code, text) = ended(&["archive", "status", "--json", "--archive", arg(archive)]);
    assert_eq!(code, 0, "{text}");
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    told["to_epoch"].as_u64().unwrap()
}

/// Page-addressed tables restore to any moment, although the process is killed several times between them.
#[test]
fn the_twelve_conditions_hold_at_random_moments_of_page_addressed_tables() {
    let moments = number_from_env("PERDURA_TABLE_MOMENTS", 6);
    let seed = number_from_env("PERDURA_KILL_SEED", 1);
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6d6f_6d65);
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (data, archive, to) = (at("db"), at("archive"), at("restored"));
    let scheme = "differential";
    let mut args = bench(&data, scheme, "1");
    args.extend(["--txns", "10"]);
    let (code, text) = ended(&args);
    assert_eq!(code, 0, "the population: {text}");
    let first = back_up(&data, &archive);
    let mut last = first;
    for round in 0..3 {
        let (text, what) = ((seed * 1000 + round).to_string(), format!("round {round}"));
        run_and_kill(&bench(&data, scheme, &text), &mut rng, &what);
        let before = std::mem::replace(&mut last, back_up(&data, &archive));
        assert!(last > before, "{what}: transactions were made durable");
    }
    for _ in 0..moments {
        let epoch = rng.u64(first..=last).to_string();
        let words = ["restore", "--from", arg(&archive), "--to", arg(&to), "--at"];
        let (code, text) = ended(&[&words[..], &[&epoch]].concat());
        assert_eq!(code, 0, "epoch {epoch} of {first} to {last}: {text}");
        check(&to, scheme, &format!("epoch {epoch}"));
        std::fs::remove_dir_all(&to).unwrap();
    }
    println!("{moments} of {moments} moments restored, of epochs {first} to {last}");
}
