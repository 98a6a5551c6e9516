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

/// Status and dry run say how many changes a restore replays. How long that takes, they know from the last restart.
#[test]
fn a_restore_is_expected_to_replay_as_fast_as_the_last_restart() {
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
    let start = || Program::start(&told);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut program = start();
    let notes: Vec<Act> = (0..1100).map(|id| Act::note(&mut rng, id)).collect();
    program.act_all(&notes);
    program.server.kill();

    let status = || {
        let (code, text) = ended(&["archive", "status", "--json", "--archive", arg(&archive)]);
        assert_eq!(code, 0, "{text}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let mut program = start();
    program.server.ask(&["SAVE"]);
    let begun = std::time::Instant::now();
    loop {
        program.act_all(&notes[..10]);
        let told = status();
        if told["frames_to_replay"].as_u64() > Some(0) && told["replay_seconds"].is_f64() {
            break;
        }
        assert!(begun.elapsed().as_secs() < 60, "{told}");
    }
    program.server.kill();

    let words = ["restore", "--dry-run", "--from", arg(&archive), "--to"];
    let dry = ended(&[&words[..], &[arg(&to)]].concat());
    let status = ended(&["archive", "status", "--archive", arg(&archive)]);
    for (code, text) in [dry, status] {
        assert_eq!(code, 0, "{text}");
        let line = text.lines().find(|line| line.starts_with("to replay"));
        let line = line.unwrap_or_else(|| panic!("nothing to replay: {text}"));
        assert!(
            line.contains(" s by the last restart with a replay"),
            "{line}"
        );
    }
}
