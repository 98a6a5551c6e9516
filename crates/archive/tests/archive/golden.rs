//! Golden files: one set for each format version, never changed. Tests read the files, and write equal bytes again.
//!
//! The files are in `tests/golden/<version>/`. If a test writes different bytes, it leaves them in `golden/` below
//! `CARGO_TARGET_TMPDIR`. To begin a new format version, put the files from there into a new folder. A compressed run
//! is read but not written again, because a new version of a codec's crate may compress a block differently.

use std::sync::Arc;

use perdura_archive::backup::{Backup, BackupHeader, BackupKind, BackupWriter, PageEntry};
use perdura_archive::manifest::{Clock, Writer};
use perdura_archive::{
    BackupId, Codec, Images, Manifest, Moment, Moments, Object, ObjectId, Role, Run, RunHeader,
    Scope,
};
use perdura_base::limits::FORMAT_VERSION;
use perdura_base::{CkptEpoch, Epoch, PartitionId, Pos, Useq, Uuid};
use perdura_device::{Access, Disk};
use perdura_page::RegionDigest;
use perdura_page::digest::page_crc;
use perdura_page::layout::{PAGE_BYTES, set_epoch, set_page_id, set_useq};
use perdura_wal::anchor::{Record, Sections, Tag};
use perdura_wal::{History, Parent, Scheme, SegmentSizes};

use crate::common::{CHUNKS, DIR, Owned, UUID, disk, header, id, open, records, write};

/// The files of version 3, by name.
const VERSION_3: [(&str, &[u8]); 8] = [
    ("run", include_bytes!("../golden/3/run")),
    ("run-lz4", include_bytes!("../golden/3/run-lz4")),
    ("run-zstd", include_bytes!("../golden/3/run-zstd")),
    ("run-merged", include_bytes!("../golden/3/run-merged")),
    ("backup-sweep", include_bytes!("../golden/3/backup-sweep")),
    (
        "backup-consistent",
        include_bytes!("../golden/3/backup-consistent"),
    ),
    ("backup-cut", include_bytes!("../golden/3/backup-cut")),
    ("manifest", include_bytes!("../golden/3/manifest")),
];

fn golden(name: &str) -> &'static [u8] {
    let file = VERSION_3.iter().find(|(other, _)| *other == name);
    file.expect("a file of the list").1
}

fn bytes_of(disk: &Arc<dyn Disk>, path: &str) -> Vec<u8> {
    let file = disk.open(path, Access::Buffered).expect("it was written");
    let len = usize::try_from(file.len().expect("memory")).expect("small");
    let mut bytes = vec![0; len];
    assert_eq!(file.read_at(0, &mut bytes).expect("memory"), len);
    bytes
}

#[test]
fn files_of_the_newest_version_are_written_as_ever() {
    assert_eq!(FORMAT_VERSION, 3, "the version of the newest folder");
    let written = [
        ("run", written_run(Codec::None)),
        ("run-lz4", written_run(Codec::Lz4)),
        ("run-zstd", written_run(Codec::Zstd)),
        ("run-merged", written_merged_run()),
        ("backup-sweep", written_backup(BackupKind::Sweep, false)),
        ("backup-consistent", written_backup(BackupKind::Sweep, true)),
        ("backup-cut", written_backup(BackupKind::Cut, false)),
        ("manifest", manifest().encode()),
    ];
    let dir = format!("{}/golden", env!("CARGO_TARGET_TMPDIR"));
    let mut others = Vec::new();
    for (name, bytes) in written {
        if bytes != golden(name) {
            std::fs::create_dir_all(&dir).expect("a folder");
            std::fs::write(format!("{dir}/{name}"), &bytes).expect("a file");
            others.push(name);
        }
    }
    others.retain(|name| !["run-lz4", "run-zstd"].contains(name));
    assert!(others.is_empty(), "{others:?} differ; see {dir}");
}

/// Returns a disk with one file at `path`, a copy of the golden file `name`.
fn disk_with(name: &str, path: &str) -> Arc<dyn Disk> {
    let disk = disk();
    let file = disk.create(path, Access::Buffered).expect("memory");
    file.write_at(0, golden(name)).expect("memory");
    disk
}

fn log() -> Vec<Owned> {
    let mut log = vec![
        Owned::one((0, 2), 1000, 5, 1, 16, &[1, 2, 3]),
        Owned::one((1, 3), 1001, 5, 9, 64, &[0xaa; 40]),
        Owned::one((1, 3), 1003, 6, 10, 64, &[0x55]),
        Owned::one((3, 7), 1002, 6, u32::MAX, PAGE_BYTES - 1, &[9]),
    ];
    // With this many equal records, a codec makes the block smaller.
    log.extend((0..20).map(|i| Owned::one((3, 8), 1003, 6, i, 100, &[7; 64])));
    log
}

fn moments() -> Moments {
    let at = |epoch: u64| Moment {
        epoch: Epoch(epoch),
        wall_us: 1_735_689_599_000_000 + epoch,
    };
    Moments::sampled(&[at(1001), at(1003)])
}

fn written_run(codec: Codec) -> Vec<u8> {
    let (disk, id) = (disk(), id(1000, 1004, 0, 7));
    write(&disk, header(id), codec, &log(), &moments()).expect("memory");
    bytes_of(&disk, &id.path(DIR))
}

#[test]
fn runs_of_each_version_are_read() {
    for name in ["run", "run-lz4", "run-zstd"] {
        let id = id(1000, 1004, 0, 7);
        let run = open(&disk_with(name, &id.path(DIR)), id).expect(name);
        run.verify(&RegionDigest::new()).expect(name);
        assert_eq!(records(&run, &Scope::All).expect(name), log());
        assert_eq!(run.moments(), &moments());
        assert_eq!((run.counts(), run.ends()), ((24, 24), &[Pos(8192)][..]));
    }
}

/// Returns the two records of a merged run, and the run's moments.
fn merged() -> ([Owned; 2], Moments) {
    let [plain, first, last, ..] = <[Owned; 24]>::try_from(log()).expect("24");
    let net = Owned {
        epochs: first.epochs.join(last.epochs),
        updates: first.updates.join(last.updates),
        ..Owned::one((1, 3), 1003, 6, 10, 64, &[0xff])
    };
    ([plain, net], Moments::sampled(&moments().list()[1..]))
}

fn written_merged_run() -> Vec<u8> {
    let (disk, id) = (disk(), id(1000, 1004, 2, 1));
    let header = RunHeader {
        only_listed_moments: true,
        life: perdura_base::LifeId(0),
        ..header(id)
    };
    let (kept, moments) = merged();
    write(&disk, header, Codec::None, &kept, &moments).expect("memory");
    bytes_of(&disk, &id.path(DIR))
}

#[test]
fn a_merged_run_of_each_version_is_read() {
    let (id, (kept, _)) = (id(1000, 1004, 2, 1), merged());
    let run: Arc<Run> = open(&disk_with("run-merged", &id.path(DIR)), id).expect("a run");
    run.verify(&RegionDigest::new()).expect("whole");
    assert_eq!(records(&run, &Scope::All).expect("whole"), kept);
    assert!(run.has_moment(Epoch(1003)) && !run.has_moment(Epoch(1001)));
}

fn backup_header(kind: BackupKind, consistent: bool) -> BackupHeader {
    let end = Epoch(1002);
    let (backup, begin) = match kind {
        BackupKind::Cut => (BackupId::cut(end), Epoch(1003)),
        BackupKind::Sweep => {
            let k = CkptEpoch(6);
            (BackupId { end, k }, Epoch(1000))
        }
    };
    BackupHeader {
        uuid: UUID,
        id: backup,
        kind,
        base: None,
        consistent,
        begin,
        wall_us: 1_735_689_599_000_000,
        chunks: CHUNKS,
        hash_seed: 42,
        scheme: 0,
        streams: 1,
        families: u8::from(consistent),
        segments: SegmentSizes {
            first: 4 << 20,
            max: 64 << 20,
        },
    }
}

/// Returns the only page of the golden backups: local page 1 of partition 2.
fn page(tag: CkptEpoch) -> (PageEntry, Vec<u8>) {
    let id = CHUNKS.page_id(PartitionId(2), 1).expect("a page");
    let mut bytes = vec![0; PAGE_BYTES];
    for (i, byte) in (0u32..).zip(&mut bytes[100..400]) {
        *byte = u8::try_from(i * 7 % 251).expect("a byte");
    }
    set_page_id(&mut bytes, id);
    set_useq(&mut bytes, Useq(3));
    set_epoch(&mut bytes, tag);
    let entry = PageEntry {
        local: 1,
        useq: Useq(3),
        crc: page_crc(id, &bytes),
        digest: RegionDigest::new().of_page(&bytes),
    };
    (entry, bytes)
}

fn tag_of(kind: BackupKind) -> CkptEpoch {
    match kind {
        BackupKind::Sweep => CkptEpoch(5),
        BackupKind::Cut => CkptEpoch(0),
    }
}

fn written_backup(kind: BackupKind, consistent: bool) -> Vec<u8> {
    let (disk, header) = (disk(), backup_header(kind, consistent));
    let (entry, bytes) = page(tag_of(kind));
    let writer = BackupWriter::create(Arc::clone(&disk), DIR, header);
    let mut writer = writer.expect("memory");
    for partition in 0..CHUNKS.partitions {
        if partition == 2 {
            writer.push(entry, &bytes).expect("memory");
        }
        let pseq = consistent.then_some(u64::from(partition) + 257);
        writer.end_partition(pseq, vec![7; usize::from(partition)]);
    }
    writer.finish().expect("memory").run().expect("memory");
    bytes_of(&disk, &header.id.path(DIR))
}

#[test]
fn backups_of_each_version_are_read() {
    for (name, kind, consistent) in [
        ("backup-sweep", BackupKind::Sweep, false),
        ("backup-consistent", BackupKind::Sweep, true),
        ("backup-cut", BackupKind::Cut, false),
    ] {
        let header = backup_header(kind, consistent);
        let (entry, _) = page(tag_of(kind));
        let path = header.id.path(DIR);
        let disk = disk_with(name, &path);
        let backup = Backup::open(disk.as_ref(), DIR, header.id, &UUID).expect(name);
        assert_eq!((*backup.header(), backup.pages()), (header, 1));
        let region = RegionDigest::new();
        backup.verify(|page| region.of_page(page)).expect(name);
        let section = backup.section(PartitionId(2)).expect(name);
        assert_eq!((section.pages, section.sidecar), (vec![entry], vec![7; 2]));
        assert_eq!(section.pseq, consistent.then_some(259));
    }
}

/// Returns an anchor for two streams. It has the sections that every database has: a geometry, and a list of images,
/// which is empty here.
fn anchor() -> Vec<u8> {
    let sizes = SegmentSizes {
        first: 4 << 20,
        max: 64 << 20,
    };
    let mut record = Record {
        history: History::begin(UUID, 1_000_000, Scheme::Differential, 2, sizes),
        sections: Sections::default(),
    };
    let geometry = [0, 0x40, 0, 0, 2, 0, 4, 0, 42, 0, 0, 0, 0, 0, 0, 0];
    record.sections.set(Tag(*b"GEOM"), true, geometry.to_vec());
    let mut images = vec![0; 4 + 2 * (32 + 2 * 16)];
    images[0] = 1;
    record.sections.set(Tag(*b"IMGS"), true, images);
    record.encode()
}

fn manifest() -> Manifest {
    let run = |begin, end, level| Object {
        id: ObjectId::Run(id(begin, end, level, 1)),
        bytes: 4096,
        crc: 0x0102_0304,
    };
    let backup = |id| Object {
        id,
        bytes: 28_672,
        crc: 0x0a0b_0c0d,
    };
    Manifest {
        number: 300,
        uuid: UUID,
        writer: Writer {
            role: Role::Database,
            life: 0x1122_3344_5566_7788,
        },
        oldest: 285,
        predecessor: 0xdead_beef,
        parent: Some(Parent {
            uuid: Uuid([0xf0; 16]),
            epoch: Epoch(999),
        }),
        is_whole: true,
        begin: Epoch(1000),
        end: Epoch(1010),
        positions: vec![Pos(8192), Pos(12_288)],
        images: Images {
            retained: vec![CkptEpoch(5), CkptEpoch(6)],
            building: Some(CkptEpoch(7)),
        },
        objects: vec![
            run(1000, 1004, 2),
            run(1004, 1010, 0),
            backup(ObjectId::Sweep(backup_header(BackupKind::Sweep, false).id)),
            backup(ObjectId::Cut(BackupId::cut(Epoch(1002)))),
        ],
        anchor: anchor(),
        clock: Clock::default(),
    }
}

#[test]
fn a_manifest_of_each_version_is_read() {
    let decoded = Manifest::decode("manifest", golden("manifest"), 300, &UUID);
    let decoded = decoded.expect("a manifest").0;
    assert_eq!(decoded, manifest());
    let anchor = decoded.anchor().expect("a record").expect("it has one");
    assert_eq!((anchor.history.uuid, anchor.history.streams), (UUID, 2));
    assert_eq!(anchor.sections.count(), 2);
}

#[test]
fn no_other_bytes_pass_for_a_file_of_a_version() {
    for (name, bytes) in VERSION_3 {
        let damaged = |at: usize| {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 1;
            let disk = disk();
            let file = disk.create("file", Access::Buffered).expect("memory");
            file.write_at(0, &bytes).expect("memory");
            let region = RegionDigest::new();
            match name.split('-').next() {
                Some("run") => Run::read(file).and_then(|run| Arc::new(run).verify(&region)),
                Some("backup") => {
                    let backup = Backup::read(file);
                    backup.and_then(|backup| backup.verify(|page| region.of_page(page)))
                }
                _ => Manifest::read(name, &bytes).map(drop),
            }
        };
        for at in (0..bytes.len()).step_by(61) {
            assert!(damaged(at).is_err(), "{name}: byte {at}");
        }
    }
}
