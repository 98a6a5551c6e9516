//! Tests of the second pass. In some tests the sequence numbers in the log do not continue the image's numbers.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::{CkptEpoch, Error, PartitionId, PartitionSet, Result, StreamId, Uuid};
use perdura_device::{Disk, ManualClock, MemDisk};
use perdura_formats::ordered::{CommandFrame, Part, encode_command};
use perdura_heap::{Geometry, Heap};
use perdura_wal::{FrameKind, Origin, Scheme, SegmentSizes};

use super::*;
use crate::anchor::read_anchor;
use crate::disks::Disks;
use crate::flush::flush_all;
use crate::level::{Level, Schedule};
use crate::life::{Life, LogMemory};
use crate::method::METHODS;
use crate::owner::{claims, load};
use crate::restart::{NewDatabase, create, restart};
use crate::window::ExecutorWindow;

#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<Vec<Part>>>);

impl OrderedPlayer for Recorder {
    fn begin(&self, _: &Arc<Heap>, _: &Catalog, _: CkptEpoch) -> Result<()> {
        Ok(())
    }

    fn play(&self, frame: &OrderedFrame<'_>, _: &Origin) -> Result<()> {
        self.0.lock().push(frame.parts().to_vec());
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

fn options(disk: &Arc<dyn Disk>, player: &Arc<Recorder>) -> RestartOptions {
    RestartOptions {
        ordered: Some(Arc::clone(player) as Arc<dyn OrderedPlayer>),
        ..RestartOptions::of_records(
            Disks::on_one(Arc::clone(disk), 2),
            Arc::new(ManualClock::at(1)),
            Schedule::inline(Level::Four, 0),
            &METHODS[0],
        )
    }
}

/// Returns a database of four partitions with these transactions in the log. The first half of the transactions is in
/// one epoch. The second half is in a later epoch.
fn written(transactions: &[&[(u16, u64)]]) -> Arc<dyn Disk> {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let new = NewDatabase {
        uuid: Uuid([3; 16]),
        geometry: Geometry {
            partitions: 4,
            chunk_pages: 2,
            hash_seed: 1,
        },
        streams: 2,
        segments: SegmentSizes::fixed(64 << 10),
        scheme: Scheme::Differential,
    };
    let options = options(&disk, &Arc::default());
    create(&options.disks, &ManualClock::at(1), &new, None).unwrap();
    let memory = LogMemory {
        block_bytes_max: 4096,
        queue_bytes_max: 1 << 20,
        lanes: 1,
        mirror: None,
    };
    let restarted = restart(&options).unwrap().unwrap();
    let life = Life::begin(
        restarted,
        &options,
        memory,
        Arc::new(ExecutorWindow::default()),
    )
    .unwrap();
    life.anchor.declare(&life.wal, Family::Commands).unwrap();
    for (number, transaction) in transactions.iter().enumerate() {
        let parts = transaction.iter().map(|(p, pseq)| (PartitionId(*p), *pseq));
        let frame = CommandFrame {
            procedure: 1,
            time_ms: 0,
            args: b"",
            effects_hash: None,
        };
        let mut payload = Vec::new();
        encode_command(&mut payload, &parts.collect::<Vec<_>>(), &frame);
        let stream = StreamId(u8::try_from(number % 2).unwrap());
        let none = PartitionSet::empty();
        life.wal
            .append(stream, FrameKind::Command, &payload, &none, CkptEpoch(0));
        if number == transactions.len() / 2 {
            flush_all(&life.wal).unwrap();
        }
    }
    flush_all(&life.wal).unwrap();
    disk
}

/// The outcome of a second pass: the parts of each frame that was played, the report, and the partitions' numbers
/// afterwards.
type Outcome = (Vec<Vec<Part>>, OrderedReport, Vec<u64>);

fn played(disk: &Arc<dyn Disk>, pseq: &[u64]) -> Result<Outcome> {
    let player = Arc::new(Recorder::default());
    let options = options(disk, &player);
    let anchor = read_anchor(disk.as_ref())?.expect("it was made");
    let mut loaded = load(&options, &anchor)?;
    let second = Second {
        k: CkptEpoch(0),
        options: &options,
        declared: claims(&anchor),
        pseq: pseq.to_vec(),
        heap: &loaded.state.heap,
        catalog: &loaded.state.tables.catalog,
        target: loaded.log.cut.durable,
    };
    let report = second_pass(&second, &mut loaded.log)?;
    let partitions = (0..4).map(PartitionId);
    let numbers = partitions.map(|p| loaded.state.heap.lock(p).pseq());
    let played = player.0.lock().clone();
    Ok((played, report, numbers.collect()))
}

const LOG: [&[(u16, u64)]; 5] = [
    &[(0, 1)],
    &[(0, 2), (1, 1)],
    &[(1, 2)],
    &[(0, 3), (2, 1)],
    &[(2, 2)],
];

#[test]
fn what_the_image_has_is_not_played_and_the_rest_follows_it() {
    let disk = written(&LOG);
    for (image, reflected) in [
        ([0, 0, 0, 0], 0),
        ([1, 0, 0, 0], 1),
        ([2, 1, 0, 0], 2),
        ([2, 2, 0, 0], 3),
        ([3, 1, 1, 0], 3),
        ([3, 2, 2, 0], 5),
    ] {
        let (played, report, numbers) = played(&disk, &image).unwrap();
        assert_eq!(report.reflected, reflected);
        assert_eq!((report.frames, report.played), (5, 5 - reflected));
        assert_eq!(numbers, [3, 2, 2, 0]);
        assert_eq!(to_u64(played.len()), report.played);
        let beyond = |(p, pseq): &Part| *pseq > image[usize::from(p.0)];
        assert!(played.iter().flatten().all(beyond), "{played:?}");
    }
    let ahead = played(&disk, &[9, 9, 9, 9]).unwrap();
    assert_eq!(ahead.2, [9, 9, 9, 9], "numbers never go back");
}

#[test]
fn a_transaction_that_the_image_has_in_part_is_refused_with_its_numbers() {
    let disk = written(&LOG);
    for (image, inside, beyond) in [
        (
            [2, 0, 0, 0],
            "2 of partition 0 (image 2)",
            "1 of partition 1 (image 0)",
        ),
        (
            [1, 1, 0, 0],
            "1 of partition 1 (image 1)",
            "2 of partition 0 (image 1)",
        ),
        (
            [3, 1, 0, 0],
            "3 of partition 0 (image 3)",
            "1 of partition 2 (image 0)",
        ),
    ] {
        let error = played(&disk, &image).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
        let why = error.to_string();
        assert!(why.contains(inside) && why.contains(beyond), "{why}");
    }
}

#[test]
fn a_log_that_does_not_reach_the_image_has_a_gap() {
    let disk = written(&[&[(0, 3)], &[(0, 4)]]);
    assert_eq!(played(&disk, &[2, 0, 0, 0]).unwrap().1.played, 2);
    let error = played(&disk, &[1, 0, 0, 0]).unwrap_err().to_string();
    assert!(
        error.contains("expected transaction 2 of partition 0"),
        "{error}"
    );
}
