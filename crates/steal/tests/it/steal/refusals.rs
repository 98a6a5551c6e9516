//! Refusals. A refused request changes nothing.

use perdura_base::{Error, PageId, PartitionId};
use perdura_recovery::image::PAGES_HEADER_BYTES;
use perdura_steal::{Place, Records, Steal, StealOptions};
use perdura_wal::Scheme;

use crate::steal::harness::{Disks, options, row, rows};

fn base() -> StealOptions {
    options(Scheme::Dl1p, Records::Full)
}

/// Found in review: a creation removed a pages file with another uuid, as if the file were a leftover. But on an image
/// disk, this file may be the only image of another database. That database has its anchor on another disk.
#[test]
fn a_database_made_on_anothers_image_disk_is_refused_and_the_other_is_whole() {
    for checkpoints in [0, 2] {
        let one = Disks::new(1, 1);
        let steal = Steal::create(one.env.clone(), base()).unwrap();
        if checkpoints > 0 {
            steal.fill((0..30).map(row)).unwrap();
        }
        for _ in 0..checkpoints {
            steal.checkpoint_now().unwrap();
        }
        let before = rows(&steal);
        drop(steal);
        let mut two = Disks::new(1, 1);
        two.env.seed = 8;
        two.env.disks.images = one.env.disks.images.clone();
        let refused = Steal::create(two.env.clone(), base()).map(drop);
        assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
        let steal = Steal::open(one.env, base()).unwrap().unwrap();
        assert_eq!(rows(&steal), before);
        two.env.disks.images = Disks::new(1, 1).env.disks.images;
        Steal::create(two.env, base()).map(drop).unwrap();
    }
}

/// If a creation was interrupted before it wrote the anchor, the next creation starts again, with a new uuid. But if
/// the pages file contains a page, the next creation fails, because an interrupted creation never leaves a page.
#[test]
fn a_creation_that_was_cut_short_is_replaced_and_a_page_beside_no_anchor_is_not() {
    for with_page in [false, true] {
        let mut again = Disks::new(1, 1);
        again.env.seed = 8;
        again.env.disks.images = vec![again.env.disks.data.clone()];
        let uuid = perdura_base::Uuid([3; 16]);
        let images = again.env.disks.images.clone();
        perdura_recovery::image::create_images(again.env.disks.data.as_ref(), &images, &uuid)
            .unwrap();
        if with_page {
            let disk = &again.env.disks.data;
            let file = disk.open("image-b/pages", perdura_device::Access::Buffered);
            file.unwrap()
                .write_at(PAGES_HEADER_BYTES, &[1; 16])
                .unwrap();
        }
        let made = Steal::create(again.env, base()).map(drop);
        if with_page {
            assert!(matches!(made, Err(Error::Foreign { .. })), "{made:?}");
        } else {
            made.unwrap();
        }
    }
}

/// Found in review: rows loaded after the first checkpoint were only in the second image. When that image was damaged,
/// the restart used the first image and the log. The first image and the log lack the rows.
#[test]
fn an_initial_load_is_refused_once_there_is_an_image() {
    let disks = Disks::new(1, 1);
    let steal = Steal::create(disks.env.clone(), base()).unwrap();
    let refused = |steal: &Steal, why: &str| {
        let message = steal.fill((0..30).map(row)).unwrap_err().to_string();
        assert!(message.contains(why), "{message}");
    };
    steal.checkpoint_begin().unwrap();
    refused(&steal, "a checkpoint is running");
    assert!(steal.checkpoint_cancel());
    assert_eq!(steal.fill((0..30).map(row)).unwrap(), 30);
    let place = steal.places(PartitionId(0))[0];
    let mut open = steal.begin();
    assert!(steal.lock(&mut open, place));
    refused(&steal, "a transaction is open");
    steal.abort(open);
    assert_eq!(steal.fill((30..60).map(row)).unwrap(), 30);
    steal.checkpoint_now().unwrap();
    refused(&steal, "an image has been taken");
    assert_eq!(rows(&steal).len(), 60);
    drop(steal);
    let steal = Steal::open(disks.env, base()).unwrap().unwrap();
    refused(&steal, "an image has been taken");
}

/// Found in review: a row longer than `slot_bytes` was accepted if the slot had room for it, and a read
/// returned only the first `slot_bytes` bytes.
#[test]
fn a_row_that_is_taken_comes_back_whole() {
    let options = StealOptions {
        slot_bytes: 90,
        ..base()
    };
    let disks = Disks::new(1, 1);
    let steal = Steal::create(disks.env, options).unwrap();
    let filled = steal.fill([[7; 91]]);
    assert!(matches!(filled, Err(Error::Usage(_))), "{filled:?}");
    let _page = steal.grow(PartitionId(0)).unwrap();
    let mut txn = steal.begin();
    let longest = [7; 90];
    let place = steal.insert(&mut txn, &longest).unwrap().unwrap();
    for bytes in 91..130 {
        let longer = vec![8; bytes];
        let inserted = steal.insert(&mut txn, &longer);
        assert!(matches!(inserted, Err(Error::Usage(_))), "{inserted:?}");
        let updated = steal.update(&mut txn, place, &longer);
        assert!(matches!(updated, Err(Error::Usage(_))), "{updated:?}");
    }
    let mut found = Vec::new();
    assert!(steal.read(place, &mut found));
    assert_eq!(found, longest);
}

#[test]
fn places_that_do_not_exist_are_free() {
    let disks = Disks::new(1, 1);
    let steal = Steal::create(disks.env, base()).unwrap();
    let _page = steal.grow(PartitionId(0)).unwrap();
    let mut txn = steal.begin();
    for page in [0, 1, 5, 1 << 20, u32::MAX].map(PageId) {
        for slot in [0, 15, 16, 1024, u16::MAX] {
            let place = Place { page, slot };
            assert!(!steal.read(place, &mut Vec::new()));
            assert!(!steal.lock(&mut txn, place));
            assert!(!steal.update(&mut txn, place, b"x").unwrap());
            assert!(!steal.delete(&mut txn, place).unwrap());
        }
    }
}

/// Found in review: a chunk size of 0 pages made a database that could not be opened, and invalid sizes of segments
/// and blocks caused panics. Blocks longer than a flusher's batch stayed in memory for ever while `flush_all` returned
/// success.
#[test]
fn settings_out_of_their_ranges_are_refused_by_name_and_leave_nothing_behind() {
    let odd = [
        (
            "chunks",
            StealOptions {
                chunk_pages: 0,
                ..base()
            },
        ),
        (
            "partitions",
            StealOptions {
                partitions: 0,
                ..base()
            },
        ),
        (
            "partitions",
            StealOptions {
                partitions: 3,
                ..base()
            },
        ),
        (
            "segments",
            StealOptions {
                segment_bytes: 4096,
                ..base()
            },
        ),
        (
            "segments",
            StealOptions {
                segment_bytes: 70_000,
                ..base()
            },
        ),
        (
            "block",
            StealOptions {
                block_bytes_max: 0,
                ..base()
            },
        ),
        (
            "block",
            StealOptions {
                block_bytes_max: 100,
                ..base()
            },
        ),
        (
            "block",
            StealOptions {
                block_bytes_max: 5000,
                ..base()
            },
        ),
        (
            "block",
            StealOptions {
                block_bytes_max: 8 << 20,
                ..base()
            },
        ),
        (
            "slots",
            StealOptions {
                slot_bytes: 0,
                ..base()
            },
        ),
        (
            "slots",
            StealOptions {
                slot_bytes: 1 << 20,
                ..base()
            },
        ),
    ];
    for (what, options) in odd {
        let disks = Disks::new(1, 1);
        let message = Steal::create(disks.env.clone(), options.clone()).map(drop);
        let message = message.unwrap_err().to_string();
        assert!(message.contains(what), "{message}");
        assert!(Steal::open(disks.env.clone(), base()).unwrap().is_none());
        // Of these settings, an open checks only the sizes of blocks and slots.
        drop(Steal::create(disks.env.clone(), base()).unwrap());
        let opened = Steal::open(disks.env, options).map(drop);
        assert_eq!(
            opened.is_err(),
            ["block", "slots"].contains(&what),
            "{what}"
        );
    }
}

/// Found in review: blocks longer than a flusher's batch never became durable. The longest allowed
/// block must become durable.
#[test]
fn blocks_of_the_longest_kind_become_durable() {
    let options = StealOptions {
        block_bytes_max: 4 << 20,
        segment_bytes: 64 << 20,
        slot_bytes: 5000,
        ..base()
    };
    let disks = Disks::new(1, 1);
    let steal = Steal::create(disks.env.clone(), options.clone()).unwrap();
    let _page = steal.grow(PartitionId(0)).unwrap();
    let mut txn = steal.begin();
    let place = steal.insert(&mut txn, &row(0)).unwrap().unwrap();
    let mut last = steal.commit(txn);
    for number in 1..1200 {
        let mut txn = steal.begin();
        assert!(steal.update(&mut txn, place, &row(number)).unwrap());
        last = steal.commit(txn);
    }
    steal.flush_all().unwrap();
    assert!(steal.is_acked(&last));
    drop(steal);
    let steal = Steal::open(disks.env, options).unwrap().unwrap();
    assert_eq!(rows(&steal)[&place], row(1199));
}
