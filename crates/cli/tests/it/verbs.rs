//! Help, usage errors, and the output of verbs for a healthy database.

use crate::support::{Reply, Server, arg, ended, perdura};

#[test]
fn every_verb_explains_itself_with_an_example() {
    let verbs: [&[&str]; 19] = [
        &[],
        &["serve"],
        &["logd"],
        &["config"],
        &["completions"],
        &["man"],
        &["restart"],
        &["dump"],
        &["dump", "log"],
        &["dump", "page"],
        &["dump", "checkpoint"],
        &["dump", "anchor"],
        &["verify"],
        &["digest"],
        &["crash"],
        &["bench", "kv"],
        &["bench", "mirror"],
        &["bench", "tpcc"],
        &["bench", "voter"],
    ];
    for verb in verbs {
        let (code, text) = ended(&[verb, &["--help"]].concat());
        assert_eq!(code, 0, "{verb:?}");
        assert!(text.contains("Usage: perdura"), "{verb:?}: {text}");
        assert!(
            verb == ["dump"] || text.contains("Example"),
            "{verb:?}: {text}"
        );
        assert!(!text.contains('\u{1b}'), "{verb:?} uses colour");
    }
}

#[test]
fn a_command_line_that_makes_no_sense_is_a_usage_error() {
    let dir = tempfile::tempdir().unwrap();
    let data = arg(dir.path());
    let wrong: [&[&str]; 16] = [
        &["frobnicate"],
        &["serve", "--frobnicate"],
        &["serve", "--listen", "nowhere"],
        &["serve", "--data", data, "--listen", "0.0.0.0:0"],
        &["serve", "--data", data, "--partitions", "3"],
        &["serve", "--data", data, "--streams", "17"],
        &["serve", "--data", data, "--segment-size", "5 parsecs"],
        &["serve", "--data", data, "--segment-size", "1000"],
        &["serve", "--data", data, "--max-value-size", "1GiB"],
        &[
            "serve",
            "--data",
            data,
            "--log-dir",
            "a",
            "--log-dir",
            "b",
            "--log-dir",
            "c",
        ],
        &["restart", "--data", data, "--dry-run", "--method", "aries2"],
        &["bench", "kv", "--clients", "0"],
        &["bench", "kv", "--mix", "mostly"],
        &["crash", "--runs", "0"],
        &["receipt", "check", "--data", data],
        &["receipt", "check", "--data", data, "0f3ac81e-4-99213-disc"],
    ];
    for args in wrong {
        let (code, text) = ended(args);
        assert_eq!(code, 2, "{args:?}: {text}");
        assert!(!text.trim().is_empty(), "{args:?}");
    }
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "a wrong command made files"
    );
    let (_, text) = ended(&["serve", "--data", data, "--listen", "0.0.0.0:0"]);
    assert!(text.contains("password"), "{text}");
}

#[test]
fn a_place_without_a_database_is_an_error_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    for place in [dir.path(), &missing] {
        let verbs: [&[&str]; 6] = [
            &["digest"],
            &["verify"],
            &["restart", "--dry-run"],
            &["restart"],
            &["dump", "log"],
            &["dump", "anchor"],
        ];
        for verb in verbs {
            let (code, text) = ended(&[verb, &["--data", arg(place)]].concat());
            assert_eq!(code, 1, "{verb:?}: {text}");
            assert!(text.contains("no database"), "{verb:?}: {text}");
        }
    }
    assert!(!missing.exists());
}

/// Adds every file below a directory, with its contents, to `out`.
fn contents(dir: &std::path::Path, out: &mut Vec<(std::path::PathBuf, Vec<u8>)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            contents(&path, out);
        } else {
            out.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    out.sort();
}

#[test]
fn the_verbs_for_stopped_databases_agree_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let server = Server::start(&data, &[]);
    for i in 0..500 {
        let set = server.ask(&["SET", &format!("key{i}"), &format!("value{i}")]);
        assert_eq!(set, Reply::Status("OK".into()));
    }
    assert_eq!(server.ask(&["SAVE"]), Reply::Status("OK".into()));
    server.ask(&["SET", "later", "than the checkpoint", "PX", "100000000"]);

    // While a server runs, these verbs report that and end.
    for verb in ["digest", "verify"] {
        let (code, text) = ended(&[verb, "--data", arg(&data)]);
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("stop the server"), "{text}");
    }
    let (code, text) = ended(&["serve", "--data", arg(&data), "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("in use: another process has locked it"),
        "{text}"
    );
    server.kill();

    let mut before = Vec::new();
    contents(&data, &mut before);
    let json = |args: &[&str]| -> serde_json::Value {
        let args = [args, &["--data", arg(&data), "--json"]].concat();
        let output = perdura(&args);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
    };
    let restart = json(&["restart", "--dry-run"]);
    for field in [
        "method",
        "level",
        "seconds",
        "records",
        "bytes",
        "pages_fetched",
        "index_pages_fetched",
    ] {
        assert!(!restart[field].is_null(), "{field}: {restart}");
    }
    let one_thread = json(&[
        "restart",
        "--dry-run",
        "--threads",
        "1",
        "--method",
        "differential",
    ]);
    assert_eq!(restart["digest"], one_thread["digest"]);
    assert_eq!(json(&["digest"])["digest"], restart["digest"]);
    let verify = json(&["verify"]);
    assert_eq!(verify["digest"], restart["digest"]);
    assert_eq!(verify["problems"], serde_json::json!([]));
    let anchor = json(&["dump", "anchor"]);
    assert_eq!(anchor["clean"], false);
    let images = json(&["dump", "checkpoint", "--entries"]);
    let newest = images
        .as_array()
        .unwrap()
        .iter()
        .find(|image| image["state"] == "complete");
    let newest = newest.expect("a complete image");
    let shown: Vec<String> = newest["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| json(&["dump", "page", &entry["page"].to_string()])["rows"].to_string())
        .collect();
    assert!(
        shown.iter().any(|rows| rows.contains("value499")),
        "{shown:?}"
    );
    let (code, log) = ended(&["dump", "log", "--data", arg(&data)]);
    assert_eq!(code, 0, "{log}");
    for word in [
        "begin-checkpoint",
        "end-checkpoint",
        "group",
        "durable epoch",
    ] {
        assert!(log.contains(word), "{word}: {log}");
    }
    let mut after = Vec::new();
    contents(&data, &mut after);
    assert!(before == after, "a reading verb changed a file");

    // A restart that is not a dry run closes the database cleanly. The data stays the same.
    let (code, text) = ended(&["restart", "--data", arg(&data)]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(json(&["dump", "anchor"])["clean"], true);
    assert_eq!(json(&["digest"])["digest"], restart["digest"]);
}

#[test]
fn what_was_fixed_at_creation_cannot_be_changed_by_an_option() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    Server::start(&data, &["--partitions", "8", "--streams", "2"]).stop();
    let (code, text) = ended(&["serve", "--data", arg(&data), "--partitions", "16"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("made with 8"), "{text}");
    // Without flags the database is opened with the values that it was created with.
    let server = Server::start(&data, &[]);
    assert_eq!(server.ask(&["PING"]), Reply::Status("PONG".into()));
    server.stop();
    assert_eq!(ended(&["verify", "--data", arg(&data)]).0, 0);
}

#[test]
fn bench_commits_compares_threads_with_bare_writes_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let data = arg(dir.path());
    let common = ["bench", "commits", "--data", data, "--seconds", "0"];
    for wrong in [
        ["--clients", "0"],
        ["--clients", "1025"],
        ["--bare", "17"],
        ["--value-bytes", "7"],
    ] {
        let (code, said) = ended(&[&common[..], &wrong].concat());
        assert_eq!((code, said.contains(wrong[0])), (2, true), "{said}");
    }
    let args = ["--clients", "1,3", "--bare", "2", "--json"];
    let output = perdura(&[&common[..], &args].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let threads = |of: &str| -> Vec<u64> {
        let rows = report[of].as_array().unwrap().iter();
        rows.map(|row| row["threads"].as_u64().unwrap()).collect()
    };
    assert_eq!(
        (threads("bare"), threads("commits")),
        (vec![1, 2], vec![1, 3])
    );
    let mut left = Vec::new();
    contents(dir.path(), &mut left);
    let is_of_bare = |path: &std::path::Path| path.extension().is_some_and(|end| end == "tmp");
    assert!(
        !left.iter().any(|(path, _)| is_of_bare(path)),
        "a bare write's file is left"
    );
}

#[test]
fn bench_kv_fills_measures_and_checks_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("db"), &[]);
    let address = format!("127.0.0.1:{}", server.port());
    let common = [
        "bench",
        "kv",
        "--server",
        &address,
        "--keys",
        "2000",
        "--clients",
        "4",
    ];
    let args = [
        &common[..],
        &[
            "--fill",
            "2000",
            "--check",
            "500",
            "--seconds",
            "0",
            "--json",
        ],
    ];
    let output = perdura(&args.concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["filled"], &report["checked"]),
        (&2000.into(), &500.into())
    );
    assert_eq!(server.ask(&["DBSIZE"]), Reply::Number(2000));

    let args = [
        &common[..],
        &["--pipeline", "8", "--mix", "mixed:50", "--seconds", "300ms"],
    ];
    let output = perdura(&[&args.concat()[..], &["--json"]].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for field in [
        "txns",
        "tps",
        "syncs",
        "log_bytes",
        "log_device_bytes",
        "peak_rss_bytes",
    ] {
        assert!(
            report[field].as_f64().is_some_and(|figure| figure > 0.0),
            "{field}: {report}"
        );
    }
    assert_eq!(report["aborts"], 0);
    let (code, text) = ended(&[&common[..], &["--check", "50", "--seconds", "0"]].concat());
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("does not hold"), "{text}");
}

#[test]
fn crash_runs_the_simulator_and_keeps_its_progress() {
    let dir = tempfile::tempdir().unwrap();
    let progress = dir.path().join("progress.json");
    let args = [
        "crash",
        "--seed",
        "3",
        "--runs",
        "20",
        "--json",
        "--progress-file",
    ];
    let output = perdura(&[&args[..], &[arg(&progress)]].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["runs"], 20);
    assert_eq!(report["violations"], serde_json::json!([]));
    assert!(report["faults"].is_object());
    assert!(
        std::fs::read_to_string(progress)
            .unwrap()
            .contains("\"runs\": 20")
    );
}
