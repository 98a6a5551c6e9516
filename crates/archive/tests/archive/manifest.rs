//! Tests of manifests: the worked example of the format page, flips of every bit, and edits that must be refused.

use std::sync::Arc;

use perdura_archive::estimate::restore_us;
use perdura_archive::manifest::clock::GAP_US;
use perdura_archive::manifest::{Clock, Step, Writer};
use perdura_archive::{
    BackupId, Edit, Images, Manifest, Moment, Moments, Object, ObjectId, Outcome, Replay, Report,
    ReportKind, Role,
};
use perdura_base::checksum::crc32c;
use perdura_base::{CkptEpoch, Epoch, Error, Pos, Uuid};
use perdura_device::{Disk, MemDisk};
use perdura_wal::Parent;

use crate::common::{UUID, id};
use crate::example::{examples, hex};
use crate::store::{agent, create, database, open};

const PAGE: &str = include_str!("../../../../docs/formats/manifest.md");

fn sweep(end: u64, k: u64) -> ObjectId {
    ObjectId::Sweep(backup(end, k))
}

fn backup(end: u64, k: u64) -> BackupId {
    BackupId {
        end: Epoch(end),
        k: CkptEpoch(k),
    }
}

fn object(id: ObjectId) -> Object {
    Object {
        id,
        bytes: 4096,
        crc: 0x0102_0304,
    }
}

fn run(begin: u64, end: u64, level: u8) -> Object {
    object(ObjectId::Run(id(begin, end, level, 7)))
}

/// Returns the manifest of the format page's example.
fn example() -> Manifest {
    Manifest {
        number: 2,
        uuid: UUID,
        writer: Writer {
            role: Role::Agent,
            life: 0x1122_3344_5566_7788,
        },
        oldest: 1,
        predecessor: 0xdead_beef,
        parent: Some(Parent {
            uuid: Uuid(std::array::from_fn(|i| {
                0xf0 + u8::try_from(i).expect("small")
            })),
            epoch: Epoch(999),
        }),
        is_whole: false,
        begin: Epoch(1000),
        end: Epoch(1004),
        positions: vec![Pos(8192), Pos(12_288)],
        images: Images {
            retained: vec![CkptEpoch(5), CkptEpoch(6)],
            building: Some(CkptEpoch(7)),
        },
        objects: vec![
            run(1000, 1004, 1),
            Object {
                id: sweep(1002, 5),
                bytes: 28_672,
                crc: 0x0a0b_0c0d,
            },
        ],
        anchor: vec![0xa1, 0xa2],
        clock: Clock {
            seen_us: 0x0005_0000_0000_0000,
            steps: vec![Step {
                epoch: Epoch(1001),
                from_us: 0x0006_0000_0000_0000,
                to_us: 0x0004_ffff_0000_0000,
            }],
        },
    }
}

fn decode(bytes: &[u8]) -> Result<Manifest, Error> {
    Manifest::decode("m", bytes, 2, &UUID).map(|(manifest, _)| manifest)
}

#[test]
fn the_manifest_of_the_format_page_is_written_and_read() {
    let bytes = example().encode();
    let wanted = examples(PAGE);
    assert_eq!(hex(&bytes), hex(&wanted[0]));
    assert_eq!(decode(&wanted[0]).expect("the example"), example());
}

#[test]
fn every_flipped_bit_and_every_truncation_is_refused() {
    let bytes = example().encode();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            let error = decode(&bad).expect_err("a flipped bit");
            assert!(matches!(error, Error::Corrupt(_)), "byte {at}: {error}");
        }
        let error = decode(&bytes[..at]).expect_err("a part of it");
        assert!(matches!(error, Error::Corrupt(_)), "{at} bytes: {error}");
    }
    let mut more = bytes.clone();
    more.push(0);
    assert!(decode(&more).is_err());
    let other = Manifest::decode("m", &bytes, 3, &UUID).expect_err("another number");
    assert!(other.to_string().contains("manifest 3"), "{other}");
    let foreign = Manifest::decode("m", &bytes, 2, &Uuid([7; 16])).expect_err("another database");
    assert!(matches!(foreign, Error::Foreign { .. }), "{foreign}");
}

/// Decodes arbitrary bytes with a right checksum. Decoding must refuse the bytes, or encoding the decoded manifest must
/// give the same bytes.
#[test]
fn forged_bytes_are_read_without_a_panic() {
    let good = example().encode();
    let mut rng = fastrand::Rng::with_seed(8);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..100_000 {
        let mut bytes = good[..good.len() - 4].to_vec();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(6..bytes.len());
            let any = rng.u8(..);
            bytes[at] = *rng.choice(&[0, 1, 2, 0xff, any]).expect("some");
        }
        if rng.u8(0..8) == 0 {
            bytes.truncate(rng.usize(4..bytes.len()));
        }
        let crc = crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        match decode(&bytes) {
            Ok(manifest) => {
                assert_eq!(manifest.encode(), bytes);
                taken += 1;
            }
            Err(error) => {
                let is_damage = matches!(
                    error,
                    Error::Corrupt(_) | Error::Foreign { .. } | Error::Version { .. }
                );
                assert!(is_damage, "{error}");
                refused += 1;
            }
        }
    }
    assert!(taken > 1000 && refused > 1000, "{taken}, {refused}");
}

#[test]
fn runs_that_do_not_tile_are_no_manifest() {
    let at = |runs: Vec<Object>, end| Manifest {
        objects: runs,
        end: Epoch(end),
        ..example()
    };
    let good = at(vec![run(1000, 1002, 0), run(1002, 1009, 0)], 1009);
    let bytes = good.encode();
    assert_eq!(decode(&bytes).expect("a manifest"), good);
    // Flip one bit of the second run's begin, of its end, or of the first run's begin.
    let objects_at = bytes.len() - 4 - 40 - good.anchor.len() - 2 * 40;
    for (object, field) in [(1, 8), (1, 16), (0, 8)] {
        let mut bad = bytes[..bytes.len() - 4].to_vec();
        bad[objects_at + 40 * object + field] ^= 1;
        let crc = crc32c(&bad);
        bad.extend_from_slice(&crc.to_le_bytes());
        let error = decode(&bad).expect_err("a hole or an overlap").to_string();
        assert!(error.contains("side by side"), "{error}");
    }
}

#[test]
fn edits_that_do_not_fit_are_refused() {
    let add = |run, ends: &[u64]| Edit::AddRun {
        run,
        ends: ends.iter().map(|end| Pos(*end)).collect(),
        images: None,
        moments: Moments::default(),
    };
    let replace = |inputs: &[Object], output: Object, kept: Option<Vec<Epoch>>| Edit::Replace {
        inputs: inputs.iter().filter_map(|o| o.id.run()).collect(),
        output,
        kept,
    };
    let cut = BackupId::cut(Epoch(1002));
    let add_cut = |end, within| Edit::AddCut {
        cut: object(ObjectId::Cut(BackupId::cut(Epoch(end)))),
        within,
    };
    let two = Manifest {
        objects: vec![
            run(1000, 1002, 0),
            run(1002, 1004, 0),
            object(ObjectId::Cut(cut)),
        ],
        ..example()
    };
    let both = [run(1000, 1002, 0), run(1002, 1004, 0)];
    for edit in [
        add(run(1005, 1006, 0), &[8192, 12_288]),
        add(run(1003, 1006, 0), &[8192, 12_288]),
        add(run(1004, 1006, 0), &[8191, 12_288]),
        add(run(1004, 1006, 0), &[8192]),
        add(object(sweep(1003, 6)), &[8192, 12_288]),
        Edit::AddBackup(object(ObjectId::Cut(BackupId::cut(Epoch(1003))))),
        add_cut(1002, None),
        add_cut(1000, None),
        add_cut(1000, Some(id(1000, 1002, 1, 8))),
        add_cut(1000, Some(id(1002, 1004, 0, 7))),
        Edit::AddCut {
            cut: object(sweep(1003, 8)),
            within: None,
        },
        Edit::AddBackup(run(1004, 1006, 0)),
        Edit::RemoveBackup(sweep(1002, 7)),
        Edit::RemoveBackup(both[0].id),
        replace(&both[..1], run(1000, 1004, 1), None),
        replace(&both, run(1000, 1003, 1), None),
        replace(&[], run(1000, 1004, 1), None),
        // There is a cut at epoch 1002. The merged run would not have that epoch as a moment.
        replace(&both, run(1000, 1004, 1), Some(vec![Epoch(1001)])),
    ] {
        let mut manifest = two.clone();
        let refused = edit.apply(&mut manifest);
        assert!(matches!(refused, Err(Error::Usage(_))), "{edit:?}");
    }
    assert!(!two.has_all());
    let early = Manifest {
        is_whole: true,
        begin: Epoch(1),
        ..two.clone()
    };
    assert!(early.has_all());
    for edit in [
        add_cut(1000, Some(id(1000, 1002, 0, 7))),
        add_cut(1001, None),
        add_cut(1003, None),
        add_cut(9, None),
    ] {
        let mut manifest = two.clone();
        edit.apply(&mut manifest).expect("its moment is there");
        assert_eq!(manifest.backups().count(), 2);
        assert_eq!(decode(&manifest.encode()).expect("sound"), manifest);
    }
    for kept in [None, Some(vec![Epoch(1002)])] {
        let mut manifest = two.clone();
        let edit = replace(&both, run(1000, 1004, 1), kept);
        edit.apply(&mut manifest).expect("neighbours");
        assert_eq!(manifest.runs().count(), 1);
        assert_eq!(decode(&manifest.encode()).expect("sound"), manifest);
    }
    let mut manifest = two;
    let remove = |before| Edit::RemoveRuns {
        before: Epoch(before),
    };
    remove(1003).apply(&mut manifest).expect("retention");
    assert_eq!((manifest.begin, manifest.end), (Epoch(1002), Epoch(1004)));
    remove(1004).apply(&mut manifest).expect("retention");
    assert_eq!((manifest.begin, manifest.epochs()), (Epoch(1004), None));
    add(run(1004, 1006, 0), &[8192, 12_288])
        .apply(&mut manifest)
        .expect("the next run");
    assert_eq!(decode(&manifest.encode()).expect("sound"), manifest);
}

/// A note after a long time is a step before the next epoch. So it makes the last moment no older.
#[test]
fn a_note_of_the_time_makes_no_moment_older() {
    let day = 24 * GAP_US;
    let mut manifest = Manifest {
        clock: Clock {
            seen_us: day,
            steps: Vec::new(),
        },
        ..example()
    };
    let note = |epoch, wall_us| Edit::CaughtUp {
        epoch: Epoch(epoch),
        wall_us,
    };
    let refused = note(1002, 2 * day).apply(&mut manifest);
    assert!(
        matches!(refused, Err(Error::Usage(_))),
        "the archive has later epochs"
    );
    note(1003, 4 * day)
        .apply(&mut manifest)
        .expect("its last epoch");
    assert_eq!(manifest.clock.steps[0].epoch, Epoch(1004));
    let last = Moment {
        epoch: Epoch(1003),
        wall_us: day,
    };
    assert_eq!(manifest.clock.age_us(&last, 4 * day), GAP_US);
}

#[test]
fn an_archive_behind_the_anchor_or_ahead_of_the_log_is_named() {
    let manifest = example();
    assert_eq!(
        manifest.held(),
        (Epoch(1003), &[Pos(8192), Pos(12_288)][..])
    );
    manifest.check_not_behind(Epoch(1003)).expect("level");
    manifest.check_not_ahead(Epoch(1003)).expect("level");
    let behind = manifest.check_not_behind(Epoch(1004));
    assert!(matches!(
        behind,
        Err(Error::ArchiveBehind {
            archived: Epoch(1003),
            anchor: Epoch(1004)
        })
    ));
    let ahead = manifest.check_not_ahead(Epoch(1002));
    assert!(matches!(
        ahead,
        Err(Error::LostLog {
            archived: Epoch(1003),
            durable: Epoch(1002)
        })
    ));
}

#[test]
fn the_anchor_of_the_database_is_in_its_manifests_and_an_agent_keeps_it() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let store = create(&disk).expect("memory");
    assert!(store.manifest().anchor.is_empty());
    store.note_anchor(vec![1, 2, 3]);
    store.publish(Edit::Open).run().expect("memory");
    assert_eq!(store.manifest().anchor, [1, 2, 3]);
    let (beside, _) = open(&disk, agent(2)).expect("an archive");
    assert_eq!(beside.manifest().anchor, [1, 2, 3]);
    let no_record = beside.manifest().anchor().expect_err("three bytes");
    assert!(
        no_record.to_string().contains("a copy of the anchor"),
        "{no_record}"
    );
    drop(store);
    let (again, _) = open(&disk, database(3)).expect("an archive");
    assert_eq!(again.manifest().anchor, [1, 2, 3], "nothing newer was said");
}

#[test]
fn a_restore_takes_as_long_as_the_drill_for_each_byte() {
    let mut manifest = example();
    let drill = Report {
        kind: ReportKind::Drill,
        outcome: Outcome::Holds,
        uuid: UUID,
        wall_us: 1,
        from: CkptEpoch(5),
        to: CkptEpoch(0),
        begin: Epoch(1002),
        end: Epoch(1003),
        manifest: 1,
        runs: 1,
        took_us: 3000,
        replay: Replay::default(),
        digests: Vec::new(),
        text: String::new(),
    };
    assert_eq!(restore_us(&manifest, &drill), Some(3000));
    let bytes = manifest.objects.iter().map(|object| object.bytes).sum();
    manifest.objects.push(Object {
        bytes,
        ..run(1004, 1008, 0)
    });
    manifest.end = Epoch(1008);
    assert_eq!(restore_us(&manifest, &drill), Some(6000), "twice the bytes");
    let of_another = Report {
        from: CkptEpoch(4),
        ..drill.clone()
    };
    assert_eq!(
        restore_us(&manifest, &of_another),
        None,
        "its backup is gone"
    );
    let proof = Report {
        kind: ReportKind::Proof,
        ..drill
    };
    assert_eq!(restore_us(&manifest, &proof), None);
}
