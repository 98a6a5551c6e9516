//! The random parameters of a run in mirror mode: its sizes, and the odds of each kind of step. The seed determines
//! all of them.

use fastrand::Rng;
use perdura::CoreOptions;
use perdura_device::CrashProfile;

use crate::swarm::{pick, shift, sometimes};

/// Count of the kinds of step.
pub(super) const KINDS: usize = 16;

/// The character of a run.
#[derive(Debug, Clone)]
pub(super) struct Character {
    /// The number of log streams.
    pub streams: u8,
    /// The number of groups of two nodes.
    pub groups: u8,
    /// True if each stream has a separate disk.
    pub apart: bool,
    /// The number of keys in use.
    pub keys: u8,
    /// The length of the longest value, in bytes.
    pub value_max: u16,
    /// The number of virtual partitions.
    pub partitions: u16,
    /// The maximum size of the part of a stream that is shipped but not yet synced, in bytes.
    pub tail_bytes: u64,
    /// The number of planned lives.
    pub lives: u32,
    /// The maximum number of steps in a life.
    pub steps: u32,
    /// Odds, out of 100, that a disk fault is planned in a life.
    pub faults: u8,
    /// Odds, out of 100, that faults strike while the database is being opened.
    pub nested: u8,
    /// Odds, out of 100, that a life ends with its process asleep.
    pub sleeps: u8,
    /// Odds, out of 100, that a life ends cleanly.
    pub clean: u8,
    /// Odds, out of 100, that a power cut at the end of a life also strikes nodes.
    pub together: u8,
    /// The crash profile, which chooses the surviving unsynced writes. `None`: each crash chooses a profile at random.
    pub profile: Option<CrashProfile>,
    /// The weight of each kind of step in the random choice of the next step.
    pub odds: [u32; KINDS],
}

impl Character {
    /// Draws the character for a seed.
    pub fn draw(rng: &mut Rng, streams: Option<u8>, profile: Option<CrashProfile>) -> Character {
        let drawn = pick(rng, &[1, 1, 1, 2, 2, 3]);
        let groups = pick(rng, &[1, 1, 2]);
        let is_calm = rng.u8(0..4) == 0;
        let unless_calm = |weight: u32| if is_calm { 0 } else { weight };
        Character {
            streams: streams.unwrap_or(drawn),
            groups,
            apart: rng.u8(0..3) == 0,
            keys: pick(rng, &[3, 10, 24]),
            value_max: pick(rng, &[20, 200, 2000, 6000]),
            partitions: pick(rng, &[1, 2, 4]),
            tail_bytes: pick(rng, &[32 << 10, 64 << 10, 64 << 10, 256 << 10]),
            lives: pick(rng, &[2, 3, 4]),
            steps: pick(rng, &[30, 50, 80]),
            faults: pick(rng, &[0, 0, 30]),
            nested: pick(rng, &[0, 20, 50]),
            sleeps: pick(rng, &[0, 15, 40]),
            clean: pick(rng, &[5, 15]),
            together: pick(rng, &[0, 10, 40]),
            profile,
            odds: [
                shift(rng, 6),
                shift(rng, 1),
                shift(rng, 4),
                shift(rng, 4),
                shift(rng, 3),
                shift(rng, 4),
                shift(rng, 2),
                shift(rng, 1),
                sometimes(rng, 1),
                shift(rng, 1),
                sometimes(rng, 1),
                sometimes(rng, 1),
                shift(rng, 1),
                unless_calm(sometimes(rng, 1)),
                unless_calm(sometimes(rng, 1)),
                shift(rng, 1),
            ],
        }
    }

    /// Returns the settings of the engine.
    pub fn options(&self) -> CoreOptions {
        CoreOptions {
            partitions: self.partitions,
            chunk_pages: 4,
            segment_bytes: 128 << 10,
            segment_bytes_first: 64 << 10,
            block_bytes_max: 16 << 10,
            tables: &["rows"],
            ..CoreOptions::default()
        }
    }
}
