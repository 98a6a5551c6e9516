//! The character of a run in mirror mode: the sizes, and the odds of each kind of step.

use fastrand::Rng;
use perdura::CoreOptions;
use perdura_device::CrashProfile;

use crate::swarm::{pick, shift, sometimes};

/// The number of kinds of step.
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
    /// The longest value, bytes.
    pub value_max: u16,
    /// The number of virtual partitions.
    pub partitions: u16,
    /// The most bytes of a stream that may be shipped before they are synced.
    pub tail_bytes: u64,
    /// The number of planned lives.
    pub lives: u32,
    /// The most steps in a life.
    pub steps: u32,
    /// Odds that a life has a fault of a disk planned, of 100.
    pub faults: u8,
    /// Odds that faults strike while the database is opened, of 100.
    pub nested: u8,
    /// Odds that a life ends with its process asleep, of 100.
    pub sleeps: u8,
    /// Odds that a life ends cleanly, of 100.
    pub clean: u8,
    /// Odds that a power cut at the end of a life also strikes nodes, of 100.
    pub together: u8,
    /// The profile that decides which unsynced writes survive a crash. `None`: drawn for each
    /// crash.
    pub profile: Option<CrashProfile>,
    /// Odds of the kinds of step, as weights.
    pub odds: [u32; KINDS],
}

impl Character {
    /// Draws the character of a seed.
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
