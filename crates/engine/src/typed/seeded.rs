//! A seeded bug for tests: a restart logs again the frames that it replays; see [`perdura_base::flaw`].

use std::cell::RefCell;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, PartitionSet};
use perdura_formats::ordered::{Part, encode_head};
use perdura_wal::{FrameKind, Wal};

std::thread_local! {
    static PLAYED: RefCell<Vec<Vec<Part>>> = const { RefCell::new(Vec::new()) };
}

/// Notes that a replay begins.
pub(super) fn begin() {
    PLAYED.take();
}

/// Notes a frame that is played.
pub(super) fn note(parts: &[Part]) {
    if armed(Flaw::ReplayLogsAgain) {
        PLAYED.with_borrow_mut(|played| played.push(parts.to_vec()));
    }
}

/// Logs the played frames again, with unchanged numbers.
pub(crate) fn log_again(wal: &Wal) {
    for parts in PLAYED.take() {
        let mut payload = Vec::new();
        encode_head(&mut payload, &parts, false);
        let homes: PartitionSet = parts.iter().map(|(id, _)| *id).collect();
        let kind = FrameKind::Effects;
        let _again = wal.append(wal.idlest(), kind, &payload, &homes, CkptEpoch(0));
    }
}
