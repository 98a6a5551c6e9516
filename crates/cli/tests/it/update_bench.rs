//! `bench update`, tested through the command: the report, and a restore from the bench's archive.

use serde_json::Value;

use crate::support::{arg, ended, perdura};

fn json(args: &[&str]) -> Value {
    let output = perdura(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn bench_update_archives_what_a_restore_makes_anew() {
    let dir = tempfile::tempdir().unwrap();
    let [data, archive, to] = ["db", "archive", "restored"].map(|name| dir.path().join(name));
    let rows = [
        "bench",
        "update",
        "--rows",
        "2000",
        "--slot-bytes",
        "200",
        "--partitions",
        "4",
    ];
    let on = [&rows[..], &["--data", arg(&data)]].concat();
    let run = ["--zipf", "0.99", "--txns", "3000", "--digest", "--json"];
    let archived = ["--archive", arg(&archive), "--backup"];
    let report = json(&[&on[..], &run, &archived].concat());
    assert_eq!(
        (&report["workload"], &report["txns"]),
        (&"update".into(), &3000.into())
    );
    assert_eq!(report["scheme"], "differential");
    for field in [
        "tps",
        "log_bytes",
        "log_device_bytes",
        "log_bytes_per_txn",
        "syncs",
    ] {
        assert!(
            report[field].as_f64().is_some_and(|figure| figure > 0.0),
            "{field}: {report}"
        );
    }
    assert!(report["archive"]["lag_seconds_max"].is_f64(), "{report}");
    assert!(report["latency_us"]["p999"].is_u64());

    let restored = json(&[
        "restore",
        "--from",
        arg(&archive),
        "--to",
        arg(&to),
        "--json",
    ]);
    assert!(
        restored["records_applied"]
            .as_u64()
            .is_some_and(|count| count >= 3000)
    );
    let digest = |data| {
        let (code, text) = ended(&["digest", "--data", data]);
        assert_eq!(code, 0, "{text}");
        text
    };
    let live = digest(arg(&data));
    assert_eq!(live, digest(arg(&to)));
    assert!(live.contains(report["digest"].as_str().unwrap()), "{live}");

    let shm = arg(dir.path());
    let bench = [
        "bench",
        "restore",
        "--from",
        arg(&archive),
        "--work",
        shm,
        "--rounds",
        "2",
        "--json",
    ];
    let measured = json(&[&bench[..], &["--source-mbps", "0", "--target-mbps", "0"]].concat());
    assert_eq!(measured["records_applied"], restored["records_applied"]);
    assert_eq!(measured["pages"], restored["pages_restored"]);
    for field in [
        "backup_bytes",
        "log_bytes",
        "restore_of_copy",
        "restore_of_larger",
    ] {
        assert!(
            measured[field].as_f64().is_some_and(|found| found > 0.0),
            "{field}: {measured}"
        );
    }
    assert_eq!(
        measured["restore_seconds"].as_array().map(Vec::len),
        Some(2)
    );
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 3, "what was made is removed");

    let (code, text) = ended(&[&rows[..7], &["3", "--data", arg(&data), "--txns", "1"]].concat());
    assert_eq!(code, 2, "{text}");
}

#[test]
fn bench_update_in_memory_has_modelled_disks_and_refuses_what_cannot_be() {
    let small = [
        "bench",
        "update",
        "--rows",
        "500",
        "--partitions",
        "4",
        "--txns",
        "400",
    ];
    let fast = json(&[&small[..], &["--json"]].concat());
    assert!(fast["archive"].is_null(), "{fast}");
    let slow = ["--disk-latency-us", "20000", "--clients", "1", "--json"];
    let slow = json(&[&small[..7], &["20"], &slow].concat());
    assert!(
        slow["latency_us"]["p50"]
            .as_u64()
            .is_some_and(|us| us >= 19_000),
        "a commit waits for a sync: {slow}"
    );
    for wrong in [
        &["--zipf", "1.5"][..],
        &["--slot-bytes", "8"],
        &["--changed-bytes", "400"],
        &["--backup"],
        &["--data", "d", "--disk-mbps", "3"],
    ] {
        let (code, text) = ended(&[&small[..], wrong].concat());
        assert_eq!(code, 2, "{wrong:?}: {text}");
    }
}

#[test]
fn runs_by_replacement_selection_restore_the_same_and_no_setting_makes_copies_that_restore_nothing()
{
    let dir = tempfile::tempdir().unwrap();
    let [data, archive, to] = ["db", "archive", "restored"].map(|name| dir.path().join(name));
    let shape = ["bench", "update", "--rows", "1000", "--partitions", "4"];
    let on = [&shape[..], &["--data", arg(&data)]].concat();
    let archived = ["--archive", arg(&archive), "--archive-generation"];
    let refused = [&on[..], &archived, &["unsorted", "--txns", "1"]].concat();
    let (code, text) = ended(&refused);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("quick, selection"), "{text}");
    assert!(!data.exists() && !archive.exists(), "nothing was made");
    let selection = [&on[..], &archived, &["selection", "--json"]].concat();
    json(&[&selection[..], &["--txns", "2000"]].concat());
    json(&[&selection[..], &["--txns", "500", "--backup"]].concat());
    let (code, text) = ended(&["restore", "--from", arg(&archive), "--to", arg(&to)]);
    assert_eq!(code, 0, "{text}");
    let digest = |data| ended(&["digest", "--data", data]).1;
    assert_eq!(digest(arg(&data)), digest(arg(&to)));
}

#[test]
fn bench_update_of_a_tree_leaves_what_each_method_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let shape = ["bench", "update", "--rows", "3000", "--slot-bytes", "200"];
    let pool = ["--pool-pages", "64", "--page-bytes", "1024"];
    let run = ["--txns", "600", "--workers", "2", "--clients", "16"];
    let on = [&shape[..], &pool, &run, &["--data", arg(&data)]].concat();
    let logical = [
        "--scheme",
        "logical",
        "--streams",
        "2",
        "--checkpoint-every",
        "200",
    ];
    let report = json(&[&on[..], &logical, &["--digest", "--crash", "--json"]].concat());
    assert_eq!(report["scheme"], "logical");
    assert_eq!(
        (&report["txns"], &report["streams"]),
        (&600.into(), &2.into())
    );
    let tree = &report["tree"];
    for field in [
        "delta_bytes",
        "writes_bytes",
        "pages_read",
        "pages_written",
        "checkpoints",
    ] {
        assert!(tree[field].as_u64() > Some(0), "{field}: {report}");
    }
    // The run has ended, so there was no deadlock between workers. Each transaction has logged more than ten slots of
    // 200 bytes.
    assert!(report["log_bytes_per_txn"].as_f64() > Some(10.0 * 200.0));
    for method in ["log0", "log1", "log2", "sql1", "sql2", "aries"] {
        let way = [
            "restart",
            "--dry-run",
            "--method",
            method,
            "--pool-pages",
            "64",
        ];
        let restarted = json(&[&way[..], &["--json", "--data", arg(&data)]].concat());
        assert_eq!(
            restarted["digest"], report["digest"],
            "{method}: {restarted}"
        );
        assert_eq!(restarted["rows"], 3000, "{method}");
    }
    // A second run continues with the database of the first, and then closes it.
    let report = json(&[&on[..], &["--scheme", "logical", "--digest", "--json"]].concat());
    assert_eq!(report["load_seconds"], 0.0);
    let (code, text) = ended(&["digest", "--data", arg(&data)]);
    assert_eq!((code, text.trim()), (0, report["digest"].as_str().unwrap()));
    // A run in memory, whose log has no Δ records.
    let by_page = ["--scheme", "physiological", "--json"];
    let report = json(&[&shape[..], &pool, &run, &by_page].concat());
    assert_eq!(report["tree"]["delta_bytes"], 0, "{report}");

    let refused = |more: &[&str]| {
        let (code, text) = ended(&[&on[..], more].concat());
        assert_eq!(code, 2, "{more:?}: {text}");
        text
    };
    assert!(refused(&["--scheme", "physiological"]).contains("scheme logical, not physiological"));
    assert!(refused(&["--scheme", "logical", "--partitions", "4"]).contains("--partitions"));
    assert!(refused(&["--scheme", "logical", "--archive", "a"]).contains("--archive"));
    // These options apply only to a tree, but this database has none.
    assert!(refused(&[]).contains("--scheme"));
    let few = ["--scheme", "logical", "--pool-pages", "7", "--txns", "5"];
    let (code, text) = ended(&[&shape[..], &few].concat());
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("7 pages of memory are too few"), "{text}");
    let other = [
        "bench", "update", "--scheme", "logical", "--rows", "50", "--txns", "5",
    ];
    let (code, text) = ended(&[&other[..], &["--data", arg(&data)]].concat());
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("does not have 50 rows"), "{text}");
}
