//! Every method restores the committed rows, whatever state a crash leaves. A rollback continues after a crash.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use perdura_device::{CrashProfile, FaultPlan, SimDisk};
use perdura_recovery::Method;
use perdura_steal::{Keyed, KeyedOptions};
use perdura_tree::monitor::Limits;
use perdura_wal::Scheme;

use crate::keyed::support::{TABLE, crash, digest_of, env, insist, methods, open, options, put};

fn with(scheme: Scheme, method: &Method) -> KeyedOptions {
    KeyedOptions {
        method: method.name,
        ..options(scheme)
    }
}

#[test]
fn every_method_comes_to_the_rows_that_were_committed() {
    for scheme in [Scheme::Logical, Scheme::Physiological] {
        for seed in 0..12 {
            let mut rng = Rng::with_seed(seed);
            let disk = SimDisk::new(seed);
            let streams = rng.usize(1..4);
            let made = Keyed::create(env(&disk, streams), options(scheme), None);
            let keyed = made.expect("a new database");
            let mut rows = BTreeMap::new();
            for round in 0..60 {
                let mut txn = keyed.txns().begin();
                let mut mine = rows.clone();
                for _ in 0..rng.usize(1..12) {
                    let key = vec![rng.u8(b'a'..=b'y'), rng.u8(b'a'..=b'd')];
                    let value = (rng.u8(..4) > 0).then(|| vec![rng.u8(..); rng.usize(1..60)]);
                    put(&keyed, &mut txn, &key, value.as_deref());
                    match value {
                        Some(value) => mine.insert(key, value),
                        None => mine.remove(&key),
                    };
                }
                if rng.u8(..4) == 0 {
                    while !insist(&keyed, || keyed.txns().abort_step(&mut txn)) {}
                } else {
                    rows = mine;
                    let _flushed_below = keyed.txns().commit(txn);
                }
                if round % 25 == 24 {
                    insist(&keyed, || keyed.checkpoint_now());
                }
                let _one_io = keyed.txns().write_step().expect("no disk fails");
            }
            keyed.flush_all().expect("no disk fails");
            let mut lost = keyed.txns().begin();
            put(&keyed, &mut lost, b"zz", Some(b"never committed"));
            put(&keyed, &mut lost, b"aa", Some(b"never committed"));
            keyed.flush_all().expect("no disk fails");
            drop(keyed);
            crash(&disk, seed);
            let before = disk.snapshot();
            let mut digests = Vec::new();
            for method in methods(scheme) {
                let keyed = open(&disk, streams, &with(scheme, method));
                for (key, value) in &rows {
                    let found = keyed.txns().read(TABLE, key).expect("a row");
                    assert_eq!(found.as_ref(), Some(value), "{} seed {seed}", method.name);
                }
                let report = keyed.report().tree.expect("a tree's report");
                assert_eq!((report.losers, keyed.txns().stats().compensations), (1, 2));
                digests.push(digest_of(&keyed));
                drop(keyed);
                disk.restore(&before);
            }
            assert!(digests.len() >= 3);
            assert!(
                digests.iter().all(|digest| *digest == digests[0]),
                "{digests:?}"
            );
        }
    }
}

/// Leaves two transactions open. The first has undone five of its changes. Returns the digest of the database without
/// the two transactions, and the number of changes that are still to be undone.
fn half_rolled_back(disk: &Arc<SimDisk>, options: &KeyedOptions) -> (String, u64) {
    let keyed = Keyed::create(env(disk, 2), options.clone(), None).expect("a new database");
    let mut txn = keyed.txns().begin();
    for n in 0u8..60 {
        put(&keyed, &mut txn, &[n], Some(&[n; 40]));
    }
    let _flushed_below = keyed.txns().commit(txn);
    insist(&keyed, || keyed.checkpoint_now());
    let digest = digest_of(&keyed);
    let mut lost = [keyed.txns().begin(), keyed.txns().begin()];
    for n in 0u8..40 {
        let txn = &mut lost[usize::from(n % 2)];
        let value = [n + 1; 60];
        let value = (n % 5 > 0).then_some(&value[..]);
        put(&keyed, txn, &[n], value);
    }
    for _ in 0..5 {
        insist(&keyed, || keyed.txns().abort_step(&mut lost[0]));
    }
    keyed.flush_all().expect("no disk fails");
    (digest, 40 - 5)
}

/// Returns whether a restart undoes only the changes that are not yet undone. If the restart also undid compensations,
/// the rows would still be right, because records have whole old rows. But with a crash in each rollback, the rollback
/// would never end.
fn only_what_is_left_is_taken_back() -> bool {
    let disk = SimDisk::new(11);
    let options = options(Scheme::Logical);
    let (digest, left) = half_rolled_back(&disk, &options);
    crash(&disk, 1);
    let keyed = open(&disk, 2, &options);
    assert_eq!(digest_of(&keyed), digest);
    keyed.report().records.undone == left && keyed.txns().stats().compensations == left
}

#[test]
fn a_restart_takes_back_what_no_compensation_has() {
    assert!(only_what_is_left_is_taken_back());
}

/// Crashes at each I/O of a restart and of the rollbacks after it, three times in a row.
#[test]
fn a_rollback_goes_on_where_a_crash_stopped_it() {
    assert_eq!(rollbacks_over_crashes(), Ok(()));
}

/// Interrupts restarts and rollbacks by crashes. Returns a description of what is wrong afterwards.
fn rollbacks_over_crashes() -> Result<(), String> {
    for scheme in [Scheme::Logical, Scheme::Physiological] {
        let disk = SimDisk::new(11);
        let mut options = options(scheme);
        options.frames = 24;
        let (digest, _) = half_rolled_back(&disk, &options);
        let begin = disk.snapshot();
        let mut cut = 1;
        loop {
            disk.restore(&begin);
            let mut was_cut = false;
            for attempt in 0..3 {
                disk.set_plan(FaultPlan {
                    cut_after_ops: Some(cut + attempt),
                    ..FaultPlan::default()
                });
                let opened = Keyed::open(env(&disk, 2), options.clone());
                // Some of the rollbacks' records become durable.
                let ended = opened.and_then(|keyed| keyed.expect("a database").flush_all());
                was_cut |= ended.is_err();
                disk.crash(
                    CrashProfile::ALL[usize::try_from(cut).unwrap_or(0) % CrashProfile::ALL.len()],
                    cut,
                );
                disk.set_plan(FaultPlan::default());
            }
            let keyed = Keyed::open(env(&disk, 2), options.clone())
                .map_err(|error| format!("cut {cut}: {error}"))?;
            let keyed = keyed.expect("a database");
            if digest_of(&keyed) != digest {
                return Err(format!("cut {cut}: other rows"));
            }
            drop(keyed);
            if !was_cut {
                break;
            }
            cut += 1;
        }
    }
    Ok(())
}

/// The restart method log1 waits only for leaf pages; log2 waits for no page. Some pages are in no list of pages to
/// read ahead. log2 finds these pages by the keys of the next operations.
#[test]
fn log1_waits_for_no_page_of_the_index_and_log2_for_none() {
    let disk = SimDisk::new(5);
    let mut options = options(Scheme::Logical);
    options.frames = 64;
    // No Δ (note of dirty pages) is cut, so all operations lie in the log's tail, after the last Δ.
    options.limits = Some(Limits {
        notes: 1000,
        written: 1000,
    });
    let key = |row: u16| row.to_be_bytes().to_vec();
    let mut rows = (0..600).map(|row| (key(row), vec![0; 40]));
    let made = Keyed::create(env(&disk, 1), options.clone(), Some(&mut rows));
    let keyed = made.expect("a new database");
    insist(&keyed, || keyed.checkpoint_now());
    let mut txn = keyed.txns().begin();
    for row in (0..600).step_by(20) {
        put(&keyed, &mut txn, &key(row), Some(&[1; 40]));
    }
    let _flushed_below = keyed.txns().commit(txn);
    keyed.flush_all().expect("no disk fails");
    drop(keyed);
    crash(&disk, 1);
    let before = disk.snapshot();
    let stalls = ["log0", "log1", "log2"].map(|method| {
        options.method = method;
        let keyed = open(&disk, 1, &options);
        let report = keyed.report().tree.expect("a tree's report");
        assert_eq!((report.operations, report.applied), (30, 30), "{method}");
        drop(keyed);
        disk.restore(&before);
        assert!(report.index_seconds <= report.redo_seconds, "{method}");
        (report.data_stalls, report.index_stalls)
    });
    assert_eq!(stalls, [(30, 4), (30, 1), (0, 1)], "log0, log1 and log2");
}

#[cfg(feature = "flaws")]
#[test]
fn a_compensation_that_is_taken_back_shows() {
    use perdura_base::flaw::{Flaw, arm};
    arm(Some(Flaw::CompensationUndone));
    let is_right = only_what_is_left_is_taken_back();
    arm(None);
    assert!(!is_right, "the mistake went unnoticed");
}
