//! Tests of the comparison of an archive's history with a database's.

use std::sync::Arc;

use perdura_archive::store::Creation;
use perdura_archive::{
    Codec, Edit, Moment, Moments, Object, ObjectId, RunHeader, RunWriter, Store,
};
use perdura_base::{Epoch, Error, Incarnation, LifeId, Pos};
use perdura_device::{Disk, MemDisk};
use perdura_page::RegionDigest;
use perdura_wal::anchor::{Record, Sections, Tag};
use perdura_wal::lineage::SECTION;
use perdura_wal::{History, Lineage, PastLife, Scheme, SegmentSizes};

use crate::common::{UUID, header, id};
use crate::store::images;

/// Returns the lineage of a database that left life 7 at `end`, and is in life `newest`.
fn lives(end: u64, newest: u64) -> Lineage {
    let left = PastLife {
        id: LifeId(7),
        incarnation: Incarnation(1),
        end: Epoch(end),
    };
    Lineage {
        id: LifeId(newest),
        past: if end > 0 { vec![left] } else { Vec::new() },
    }
}

/// Returns the anchor of a database with these lives, encoded.
fn anchor(lives: &Lineage) -> Vec<u8> {
    let sizes = SegmentSizes::fixed(1 << 20);
    let mut sections = Sections::default();
    let mut payload = Vec::new();
    lives.encode(&mut payload);
    sections.set(Tag(SECTION), true, payload);
    let history = History::begin(UUID, 0, Scheme::Differential, 1, sizes);
    Record { history, sections }.encode()
}

/// Makes an archive with the anchor of life 7, and one run of epochs 1 to 10 that life 8 has written.
fn archive(names_the_run: bool) -> Arc<Store> {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let creation = Creation {
        uuid: UUID,
        life: 1,
        begin: Epoch(1),
        positions: vec![Pos(0)],
        images: images(),
        parent: None,
        is_whole: true,
        anchor: anchor(&lives(0, 7)),
    };
    let store = Store::create(Arc::clone(&disk), creation).expect("memory");
    let run = RunHeader {
        life: LifeId(8),
        ..header(id(1, 11, 0, 0))
    };
    let digest = Arc::new(RegionDigest::new());
    let moments = Moments::sampled(&[Moment {
        epoch: Epoch(10),
        wall_us: 10,
    }]);
    let writer = RunWriter::create(disk, &store.runs_dir(), run, Codec::Lz4, digest);
    let written = writer.and_then(|writer| writer.finish(&moments, &[Pos(900)]));
    let summary = written.expect("memory").run().expect("memory");
    if names_the_run {
        let edit = Edit::AddRun {
            run: Object {
                id: ObjectId::Run(summary.id),
                bytes: summary.bytes,
                crc: summary.crc,
            },
            ends: vec![Pos(900)],
            images: None,
            moments,
        };
        store.publish(edit).run().expect("memory");
    }
    store
}

/// A manifest that was made of the files has an older anchor than its last run. The database was refused. The last run
/// names its life, also if no manifest names the run.
#[test]
fn the_last_run_says_which_history_the_archive_has() {
    for names_the_run in [false, true] {
        let store = archive(names_the_run);
        store.check_history(&lives(4, 8)).expect("life 8 wrote it");
        for other in [lives(4, 9), lives(6, 9), lives(0, 5)] {
            let refused = store.check_history(&other);
            assert!(
                matches!(refused, Err(Error::OtherHistory { .. })),
                "{other:?}"
            );
        }
    }
}
