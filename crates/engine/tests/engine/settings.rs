//! Settings out of their ranges.

use std::sync::Arc;

use perdura::{Core, CoreOptions, Error, Progress};
use perdura_device::SimDisk;
use perdura_recovery::read_anchor;

use crate::core_steps::{env, small};

/// Found in review: chunks of no page made a database whose anchor nobody could read.
#[test]
fn chunks_of_no_page_and_odd_sizes_are_refused_by_name_and_leave_nothing_behind() {
    let odd = [
        (
            "chunk",
            CoreOptions {
                chunk_pages: 0,
                ..small()
            },
        ),
        (
            "partitions",
            CoreOptions {
                partitions: 3,
                ..small()
            },
        ),
        (
            "segment",
            CoreOptions {
                segment_bytes: 4096,
                ..small()
            },
        ),
        (
            "block",
            CoreOptions {
                block_bytes_max: 5000,
                ..small()
            },
        ),
        (
            "block",
            CoreOptions {
                block_bytes_max: 8 << 20,
                ..small()
            },
        ),
    ];
    for (what, options) in odd {
        let disk = SimDisk::new(1);
        let opened = Core::open(env(&disk, 1), options, Arc::new(Progress::default()));
        let refused = opened.map(drop);
        assert!(
            matches!(&refused, Err(Error::Usage(text)) if text.contains(what)),
            "{what}: {refused:?}"
        );
        assert!(read_anchor(disk.life().as_ref()).unwrap().is_none());
    }
}
