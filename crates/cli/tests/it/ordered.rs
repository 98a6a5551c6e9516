//! Databases with ordered frames, tested through the command. A frame may contain a call of a program's procedure. Only
//! that program can repeat the call. The verbs must explain this.

use std::path::Path;
use std::sync::Arc;

use perdura::{Core, CoreOptions, Disks, Env, Progress};
use perdura_base::{CkptEpoch, PartitionId, PartitionSet, StreamId};
use perdura_device::{Disk, FileDisk, SystemClock};
use perdura_formats::ordered::{CommandFrame, encode_command};
use perdura_recovery::Family;
use perdura_wal::FrameKind;

use crate::kill_archive::{done, wait_until};
use crate::model_moments::add_increment;
use crate::support::{arg, ended, perdura};
use crate::typed_program::{Act, Program, Told};

/// Creates a crashed database. Its log has a row and, if `with_call`, a call of procedure 42.
fn crashed(dir: &Path, declared: &[Family], with_call: bool) {
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(dir).unwrap());
    let env = Env {
        disks: Disks::on_one(disk, 1),
        clock: Arc::new(SystemClock::new()),
        seed: 7,
        nodes: None,
        accept_loss: false,
    };
    let options = CoreOptions {
        partitions: 4,
        ..CoreOptions::default()
    };
    let core = Core::open(env, options, Arc::new(Progress::default())).unwrap();
    let parts = [core.partition_of(b"k")].into_iter().collect();
    let put = core.transact(&parts, |tx| tx.put(core.database(0), b"k", b"v", None));
    let _durable_with_the_flush = put.unwrap();
    for family in declared {
        core.anchor().declare(core.wal(), *family).unwrap();
    }
    if with_call {
        let command = CommandFrame {
            procedure: 42,
            time_ms: 1000,
            args: &[0xab, 0xcd],
            effects_hash: None,
        };
        let mut payload = Vec::new();
        encode_command(&mut payload, &[(PartitionId(2), 1)], &command);
        let touched: PartitionSet = [PartitionId(2)].into_iter().collect();
        let stream = StreamId(0);
        core.wal()
            .append(stream, FrameKind::Command, &payload, &touched, CkptEpoch(0));
    }
    core.flush_all().unwrap();
}

fn said(words: &[&str], dir: &Path, code: i32, parts: &[&str]) {
    let (ended_with, text) = ended(&[words, &["--data", arg(dir)]].concat());
    assert_eq!(ended_with, code, "{words:?}: {text}");
    for part in parts {
        assert!(text.contains(part), "{words:?}: no {part} in {text}");
    }
}

#[test]
fn a_log_with_calls_is_shown_and_checked_and_needs_their_program() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path(), &Family::ALL, true);
    let needs = "procedure 42";
    said(&["digest"], dir.path(), 2, &[needs]);
    said(&["restart", "--dry-run"], dir.path(), 2, &[needs]);
    let command = ["restart", "--dry-run", "--method", "command"];
    said(&command, dir.path(), 2, &[needs]);
    let value = ["restart", "--dry-run", "--method", "value"];
    said(&value, dir.path(), 2, &["cannot apply commands"]);
    let found = ["1 ordered frames", "nothing is damaged", needs];
    said(&["verify"], dir.path(), 2, &found);
    said(
        &["dump", "anchor"],
        dir.path(),
        0,
        &["ordered      effects, commands"],
    );
    let shown = ["procedure 42 at 1970-01-01", "parts [2:1], args abcd"];
    said(&["dump", "log"], dir.path(), 0, &shown);
    let shown = [
        "\"procedure\":42",
        "\"args\":\"abcd\"",
        "\"pseq\":1",
        "\"passes\":[1,2]",
    ];
    said(&["dump", "log", "--json"], dir.path(), 0, &shown);
}

#[test]
fn the_report_has_ordered_frames_only_where_the_log_may_have_any() {
    for declared in [&[][..], &[Family::Effects]] {
        let dir = tempfile::tempdir().unwrap();
        crashed(dir.path(), declared, false);
        let restart = ["restart", "--dry-run", "--json", "--data", arg(dir.path())];
        let output = perdura(&restart);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["rows"].as_u64() > Some(0));
        if declared.is_empty() {
            assert_eq!(report.get("ordered"), None);
            assert_eq!(report["method"], "differential");
            let command = ["restart", "--dry-run", "--method", "command"];
            said(&command, dir.path(), 2, &["has no ordered frames"]);
        } else {
            assert_eq!(report["ordered"]["frames"], 0);
            assert_eq!(report["method"], "value");
            said(&["digest"], dir.path(), 0, &[]);
        }
    }
}

/// Status and dry run estimate the replay of the first start after a restore. They know how fast the last long replay of a
/// restart was. The restore names the calls.
#[test]
fn the_first_start_after_a_restore_is_expected_to_be_as_fast_as_the_last_restart() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (archive, to) = (at("archive"), at("restored"));
    let told = Told {
        data: at("data"),
        archive: Some(archive.clone()),
        merges: true,
        calls: true,
        checkpoint_log_bytes: 64 << 20,
    };
    let mut rng = fastrand::Rng::with_seed(1);
    let mut program = Program::start(&told);
    wait_until(&program.server, "restorable", |restorable| {
        restorable.starts_with("yes")
    });
    let acts: Vec<Act> = (0..1500).map(|id| Act::draw(&mut rng, id + 1)).collect();
    program.act_all(&acts);
    program.server.kill();

    let status = || -> serde_json::Value {
        let text = done(&["archive", "status", "--json", "--archive", arg(&archive)]);
        serde_json::from_str(&text).unwrap()
    };
    let begun = std::time::Instant::now();
    let await_status = |is_there: &dyn Fn(&serde_json::Value) -> bool| loop {
        let told = status();
        if is_there(&told) {
            break told;
        }
        assert!(begun.elapsed().as_secs() < 60, "{told}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let mut program = Program::start(&told);
    add_increment(&program.server, &archive);
    await_status(&|told| told["first_start_seconds"].is_f64());
    let last = program.act(&acts[0]);
    await_status(&|told| told["to_epoch"].as_u64() >= Some(last));
    program.server.kill();

    let expected = status();
    let [changes, seconds] =
        ["frames_to_replay", "first_start_seconds"].map(|name| &expected[name]);
    assert!(
        changes.as_u64() > Some(0) && seconds.as_f64() > Some(0.0),
        "{expected}"
    );
    let words = ["restore", "--from", arg(&archive), "--to", arg(&to)];
    let restore = |more: &[&str]| done(&[&words[..], more].concat());
    let texts = [
        done(&["archive", "status", "--archive", arg(&archive)]),
        restore(&["--dry-run"]),
    ];
    for text in texts {
        let line = text.lines().find(|line| line.starts_with("replay "));
        assert!(
            line.is_some_and(|line| line.contains("as fast as")),
            "{text}"
        );
    }
    let dry: serde_json::Value = serde_json::from_str(&restore(&["--dry-run", "--json"])).unwrap();
    assert_eq!(dry["first_start_seconds"], *seconds);
    let told: serde_json::Value = serde_json::from_str(&restore(&["--json"])).unwrap();
    let calls = told["procedures"].as_array().unwrap();
    let epoch = |call: &serde_json::Value, name: &str| call[name].as_u64().unwrap();
    assert!(
        calls
            .iter()
            .all(|call| epoch(call, "from_epoch") <= epoch(call, "to_epoch")),
        "{told}"
    );
    let counted: u64 = calls.iter().map(|call| epoch(call, "calls")).sum();
    assert_eq!(Some(counted), told["calls_to_replay"].as_u64());
    assert!(counted > 0, "{told}");
    std::fs::remove_dir_all(&to).unwrap();
    let text = restore(&[]);
    assert!(text.contains("The calls were made in epochs "), "{text}");
}
