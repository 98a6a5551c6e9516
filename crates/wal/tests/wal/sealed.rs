//! Blocks that are sealed and not yet written. A device receives such blocks, to send them to other machines.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use perdura_base::{Pos, StreamId};
use perdura_device::{Access, CrashProfile, Disk, FaultPlan, SimDisk};
use perdura_wal::segment::{SEGMENT_HEADER_BYTES, SegmentId};
use perdura_wal::{FlushProgress, Rung, Wal};

use crate::setup::{anchor, append, open, scan};

/// A block as the device received it.
struct Shipped {
    stream: StreamId,
    pos: Pos,
    bytes: Vec<u8>,
}

/// Takes the steps of all flushers until they are idle. Continues after a refused write. Returns the number of refused
/// writes.
fn flush_through_refusals(wal: &Wal) -> usize {
    wal.close_epoch();
    let mut refused = 0;
    for stream in (0..wal.streams()).map(StreamId) {
        loop {
            match wal.flush_step(stream) {
                Ok(FlushProgress::Idle) => break,
                Ok(_) => {}
                Err(error) if error.is_disk_full() => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    refused
}

#[test]
fn an_observer_receives_each_sealed_block_once_in_order_and_before_it_is_durable() {
    let mut refused = 0;
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = SimDisk::new(seed);
        let anchor = anchor(2);
        let wal = Arc::new(open(&disk, &anchor, 1));
        let shipped: Arc<Mutex<Vec<Shipped>>> = Arc::default();
        let log: Arc<OnceLock<Weak<Wal>>> = Arc::default();
        log.set(Arc::downgrade(&wal)).unwrap();
        let received = Arc::clone(&shipped);
        wal.ship_by(move |block| {
            let wal = log.get().and_then(Weak::upgrade).unwrap();
            assert!(wal.durable(Rung::Disk) < block.epoch);
            assert!(wal.synced(block.stream) <= block.pos);
            received.lock().unwrap().push(Shipped {
                stream: block.stream,
                pos: block.pos,
                bytes: block.bytes.to_vec(),
            });
        });
        for _ in 0..60 {
            let payload = vec![rng.u8(..); rng.usize(0..9000)];
            append(&wal, rng.u8(0..2), &payload);
            if rng.u8(0..6) == 0 {
                disk.set_plan(FaultPlan {
                    refuse_write_at: Some((rng.u64(1..6), rng.u64(1..3))),
                    ..FaultPlan::default()
                });
                refused += flush_through_refusals(&wal);
            }
        }
        refused += flush_through_refusals(&wal);
        disk.crash(CrashProfile::Nothing, seed);
        let shipped = shipped.lock().unwrap();
        let (scans, _) = scan(&disk, &anchor).unwrap();
        for scan in &scans {
            let of_stream = || shipped.iter().filter(|block| block.stream == scan.stream);
            let durable: Vec<Pos> = scan.blocks.iter().map(|block| block.pos).collect();
            assert_eq!(
                of_stream().map(|block| block.pos).collect::<Vec<_>>(),
                durable
            );
            for block in of_stream() {
                assert_eq!(block.bytes, on_disk(&disk, block), "stream {}", scan.stream);
            }
        }
    }
    assert!(refused > 20, "{refused}");
}

/// Returns the bytes that the segment has at a block's position.
fn on_disk(disk: &Arc<SimDisk>, block: &Shipped) -> Vec<u8> {
    let anchor = anchor(2);
    let span = anchor.segments.span_at(Pos(0), block.pos);
    let id = SegmentId {
        stream: block.stream,
        start: span.start,
        incarnation: anchor.incarnation,
    };
    let file = disk.life().open(&id.path(), Access::Buffered).unwrap();
    let mut bytes = vec![0; block.bytes.len()];
    let offset = SEGMENT_HEADER_BYTES + (block.pos.0 - span.start.0);
    assert_eq!(file.read_at(offset, &mut bytes).unwrap(), bytes.len());
    bytes
}
