//! Tests of `verify`: it reads both images, and reports unparsable frames of every owner.

use std::sync::Arc;

use perdura_base::{CkptEpoch, PartitionSet, StreamId};
use perdura_device::Disk;
use perdura_recovery::verify::{Findings, verify};
use perdura_recovery::{Life, RestartMode, flush_all, restart};
use perdura_wal::FrameKind;

use crate::made::{life, options};

fn opened(disk: &Arc<dyn Disk>) -> Life {
    let options = options(disk, RestartMode::Real);
    let restarted = restart(&options).unwrap().expect("it was made");
    life(restarted, &options)
}

fn looked_at(disk: &Arc<dyn Disk>) -> Findings {
    let dry = options(disk, RestartMode::Dry);
    let verified = verify(&dry, &|_| Ok((0, String::new()))).unwrap();
    verified.expect("a database").found
}

#[test]
fn a_frame_that_does_not_parse_is_named_whoever_owns_it() {
    for kind in [FrameKind::Group, FrameKind::Record, FrameKind::Command] {
        let disk = crate::made::database(1);
        let life = opened(&disk);
        let none = PartitionSet::empty();
        life.wal
            .append(StreamId(0), kind, &[255], &none, CkptEpoch(0));
        flush_all(&life.wal).unwrap();
        drop(life);
        let found = looked_at(&disk);
        let what = &found.problems[0].what;
        assert!(what.contains("bytes that do not parse"), "{kind:?}: {what}");
    }
}

#[test]
fn each_image_is_read_and_has_what_the_anchor_says() {
    let disk = crate::made::database(1);
    let life = opened(&disk);
    life.checkpoint_now().unwrap();
    drop(life);
    let found = looked_at(&disk);
    let states: Vec<_> = found.images.iter().map(|image| image.state).collect();
    assert_eq!(states.len(), 2, "{states:?}");
    assert!(states.contains(&"complete"), "{states:?}");
}
