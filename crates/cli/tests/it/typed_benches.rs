//! `bench tpcc` and `bench voter`, tested through the command: reports, consistency conditions after a crash, and
//! refusals.

use std::path::PathBuf;

use serde_json::Value;

use crate::support::{arg, ended, perdura};

/// A scale with small tables, which are populated quickly.
const SMALL: [&str; 8] = [
    "bench",
    "tpcc",
    "--items",
    "100",
    "--customers",
    "30",
    "--partitions",
    "4",
];

fn json(args: &[&str]) -> Value {
    let output = perdura(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn bench_tpcc_crashes_and_meets_its_conditions_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let small = [&SMALL[..], &["--data", arg(&data), "--warehouses", "2"]].concat();
    let crash = ["--txns", "600", "--crash", "--digest", "--json"];
    let report = json(&[&small[..], &crash].concat());
    for field in [
        "tps",
        "log_bytes",
        "log_device_bytes",
        "log_bytes_per_txn",
        "syncs",
        "peak_rss_bytes",
    ] {
        assert!(
            report[field].as_f64().is_some_and(|figure| figure > 0.0),
            "{field}: {report}"
        );
    }
    assert_eq!(
        (&report["workload"], &report["txns"]),
        (&"tpcc".into(), &600.into())
    );
    assert_eq!(report["scheme"], "command");
    assert_eq!(report["kinds"][0]["name"], "new_order");
    assert!(report["latency_us"]["p999"].is_u64());

    let found = json(&[&small[..], &["--check", "--json"]].concat());
    let conditions = found["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 12);
    assert!(
        conditions.iter().all(|found| found["violations"] == 0),
        "{found}"
    );
    let rows = ["--snapshot", "rows", "--snapshot-every", "1ms", "--crash"];
    let run = ["--check", "--txns", "300", "--rate", "2000"];
    let (code, text) = ended(&[&small[..], &run, &rows].concat());
    assert_eq!(code, 0, "{text}");
    let (code, text) = ended(&[&small[..], &["--check"]].concat());
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("condition 12  ok"), "{text}");

    let (code, text) = ended(&[&SMALL[..], &["--data", arg(&data), "--txns", "1"]].concat());
    assert_eq!(code, 2, "another number of warehouses: {text}");
}

#[test]
fn repair_of_a_damaged_log_leaves_a_database_that_meets_the_conditions() {
    let dir = tempfile::tempdir().unwrap();
    let (data, to) = (dir.path().join("db"), dir.path().join("repaired"));
    let on = |data| [&SMALL[..], &["--data", arg(data)]].concat();
    // On a busy machine many calls can share a block. If all calls were in the last block, damage there would look like
    // a torn tail. So there are few clients, and each block has few calls.
    let calls = ["--txns", "400", "--clients", "8", "--crash", "--json"];
    json(&[&on(&data)[..], &calls].concat());
    // The damaged byte lies behind the records of the populated tables, among the records of the calls.
    let used = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0)
    };
    let log = std::fs::read_dir(data.join("log")).unwrap();
    let files = log.map(|entry| entry.unwrap().path());
    let newest = files.filter(|path| used(path) > 20_000).max().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes[used(&newest) - 6000] ^= 4;
    std::fs::write(&newest, bytes).unwrap();

    let (code, text) = ended(&["restart", "--data", arg(&data)]);
    assert_eq!(code, 3, "{text}");
    let repair = ["repair", "--data", arg(&data), "--to", arg(&to)];
    let (code, text) = ended(&[&repair[..], &["--accept-loss"]].concat());
    assert_eq!(code, 0, "{text}");
    for part in [
        "missing   log stream 0",
        "transactions on typed tables: of partition 0 from number",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let (code, text) = ended(&[&on(&to)[..], &["--check", "--txns", "50"]].concat());
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("condition 12  ok"), "{text}");
}

#[test]
fn bench_voter_counts_and_refuses() {
    for scheme in ["none", "differential", "value", "command"] {
        let args = [
            "bench",
            "voter",
            "--partitions",
            "4",
            "--txns",
            "500",
            "--scheme",
            scheme,
            "--json",
        ];
        let report = json(&args);
        assert_eq!(
            (&report["workload"], &report["scheme"]),
            (&"voter".into(), &scheme.into())
        );
        let kinds = report["kinds"].as_array().unwrap();
        let txns: Option<u64> = kinds.iter().map(|kind| kind["txns"].as_u64()).sum();
        assert_eq!(txns, Some(500));
    }
}

#[test]
fn wrong_options_of_typed_benches_are_usage_errors() {
    let wrong: [&[&str]; 6] = [
        &["tpcc", "--multi-partition", "101"],
        &["tpcc", "--warehouses", "0"],
        &["tpcc", "--rate", "5", "--clients", "5"],
        &["tpcc", "--crash"],
        &["voter", "--contestants", "13"],
        &["voter", "--workers", "2", "--clients", "1"],
    ];
    for args in wrong {
        let (code, text) = ended(&[&["bench"], args].concat());
        assert_eq!(code, 2, "{args:?}: {text}");
    }
}
