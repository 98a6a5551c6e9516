//! Files that are prepared for a writer which is refused after all.

use perdura_base::StreamId;
use perdura_device::{FaultPlan, SimDisk};

use crate::setup::*;

/// They stayed until segments needed them, and the images lacked the space.
#[test]
fn what_was_prepared_for_a_writer_that_a_full_disk_refuses_is_given_back() {
    let disk = SimDisk::new(17);
    let wal = open(&disk, &anchor(1), 1);
    wal.prepare_by(|| {});
    let s = StreamId(0);
    while wal.prepare_segment(s, &|| {}).unwrap() {}
    let used = || -> u64 { disk.files().iter().map(|(_, len)| len).sum() };
    let before = used();
    disk.set_plan(FaultPlan {
        capacity_bytes: Some(before + 6 * SEGMENT_BYTES),
        ..FaultPlan::default()
    });
    let (long, middle) = (20 * SEGMENT_BYTES, 3 * SEGMENT_BYTES);
    let (long, middle) = (long.try_into().unwrap(), middle.try_into().unwrap());
    for _ in 0..3 {
        wal.admit(s, long).unwrap_err();
        let refused = loop {
            match wal.prepare_segment(s, &|| {}) {
                Ok(true) => {}
                Ok(false) => panic!("the writer has asked for more"),
                Err(error) => break error,
            }
        };
        assert!(refused.is_disk_full());
        assert!(used() <= before + SEGMENT_BYTES, "{before} {}", used());
        assert!(!wal.prepare_segment(s, &|| {}).unwrap() && !wal.is_short());
        assert!(!wal.is_refused_for_now(s, long));
        wal.admit(s, 100).unwrap();
    }
    // Another one whose files there is space for waits and is admitted.
    assert!(wal.admit(s, middle).is_err() && wal.is_refused_for_now(s, middle));
    while wal.prepare_segment(s, &|| {}).unwrap() {}
    wal.admit(s, middle).unwrap();
}
