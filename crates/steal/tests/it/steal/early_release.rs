//! A transaction may lock a slot before the slot's last writer is durable. It then sees a row that a crash may still
//! lose. So it must not be acknowledged before that writer is durable.

use perdura_base::PartitionId;
use perdura_steal::{Committed, Place, Records, Steal};

use crate::steal::harness::{Disks, STEAL_SCHEMES, options, row, rows};

/// Creates a durable row, and overwrites it in a transaction that is committed but not durable.
fn overwritten(disks: &Disks, steal: &Steal) -> (Place, Committed) {
    let _page = steal.grow(PartitionId(0)).unwrap();
    let mut first = steal.begin();
    let place = steal.insert(&mut first, &row(1)).unwrap().unwrap();
    let _durable = steal.commit(first);
    steal.flush_all().unwrap();
    assert_eq!(disks.env.disks.logs.len(), 2);
    let mut writer = steal.begin();
    assert!(steal.update(&mut writer, place, &row(2)).unwrap());
    (place, steal.commit(writer))
}

/// Found in review: a second transaction wrote the bytes that the row already had. The second transaction logged no
/// record, so its epoch was 0 and it was acknowledged at once. A crash then lost the two writes, although the second
/// was acknowledged.
#[test]
fn a_write_of_the_bytes_that_are_there_is_not_acknowledged_before_the_write_it_repeats() {
    for scheme in STEAL_SCHEMES {
        for records in [Records::Sparse, Records::Full] {
            for flushed in [false, true] {
                let disks = Disks::new(2, 1);
                let options = options(scheme, records);
                let steal = Steal::create(disks.env.clone(), options.clone()).unwrap();
                let (place, writer) = overwritten(&disks, &steal);
                let mut again = steal.begin();
                assert!(steal.update(&mut again, place, &row(2)).unwrap());
                let again = steal.commit(again);
                assert!(again.epoch >= writer.epoch);
                assert!(!steal.is_acked(&again), "{scheme:?}");
                if flushed {
                    steal.flush_all().unwrap();
                    assert!(steal.is_acked(&again), "its epoch is closed some day");
                }
                drop(steal);
                let steal = Steal::open(disks.env.clone(), options).unwrap().unwrap();
                let expected = if flushed { row(2) } else { row(1) };
                assert_eq!(rows(&steal)[&place], expected);
            }
        }
    }
}

/// Found in review: a transaction that only locked and read a row was acknowledged although the row's writer could
/// still be lost.
#[test]
fn a_reader_under_a_lock_is_not_acknowledged_before_the_writer_it_read() {
    for scheme in STEAL_SCHEMES {
        let disks = Disks::new(2, 1);
        let options = options(scheme, Records::Sparse);
        let steal = Steal::create(disks.env.clone(), options.clone()).unwrap();
        let (place, writer) = overwritten(&disks, &steal);
        let mut reader = steal.begin();
        assert!(steal.lock(&mut reader, place));
        let read = steal.commit(reader);
        assert!(read.epoch >= writer.epoch);
        assert!(!steal.is_acked(&read), "{scheme:?}");
        let idle = steal.begin();
        let idle = steal.commit(idle);
        assert!(steal.is_acked(&idle), "it saw nothing under a lock");
        steal.flush_all().unwrap();
        assert!(steal.is_acked(&read));
        drop(steal);
        let steal = Steal::open(disks.env, options).unwrap().unwrap();
        let mut reader = steal.begin();
        assert!(steal.lock(&mut reader, place));
        let read = steal.commit(reader);
        steal.flush_all().unwrap();
        assert!(steal.is_acked(&read), "what a restart kept is durable");
    }
}
