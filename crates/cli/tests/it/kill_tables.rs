//! `kill -9` during TPC-C under every logging scheme. Afterwards the twelve consistency conditions are checked.

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
        let mut args = bench(&data, scheme, &text);
        args.extend(["--seconds", "60", "--snapshot-every", "150ms"]);
        let mut child = Command::new(PERDURA)
            .args(&args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(rng.u64(400..1400)));
        let ended_early = child.try_wait().unwrap();
        assert_eq!(
            ended_early, None,
            "round {round} of seed {seed}: the run ended by itself"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        let mut args = bench(&data, scheme, &text);
        args.push("--check");
        let (code, text) = ended(&args);
        assert_eq!(
            code, 0,
            "round {round} of seed {seed} (PERDURA_KILL_SEED): {text}"
        );
        assert_eq!(text.matches("ok").count(), 12, "round {round}: {text}");
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
