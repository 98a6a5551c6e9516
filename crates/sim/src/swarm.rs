//! The character of a run: the features, sizes and odds that its seed chooses. Each seed turns some features on and
//! some off, and changes the odds of the others. Runs therefore differ more than with one fixed set of odds (swarm
//! testing).
//!
//! # Source
//! Groce et al., *Swarm Testing*, ISSTA 2012.

use fastrand::Rng;
use perdura::{CoreOptions, OrphanLimits};
use perdura_device::CrashProfile;
use perdura_recovery::{Level, Schedule};

use crate::content::scramble;
use crate::course::Course;

/// The character of a run.
#[derive(Debug, Clone)]
pub struct Swarm {
    /// True if each stream has a separate disk.
    pub disks_apart: bool,
    /// The engine's options, fixed at the creation of the database.
    pub options: CoreOptions,
    /// The part of the character that all simulated worlds have in common.
    pub course: Course,
    /// The number of collection shapes among which the run chooses: 5 with streams, 4 without streams.
    pub shapes: usize,
    /// True if every new collection is a stream, whatever shape the random choice gives.
    pub streams_alone: bool,
    /// Odds, out of 100, that a transaction is a script.
    pub scripts: u8,
    /// The number of keys in a database.
    pub keys: u8,
    /// The number of databases in use.
    pub databases: u8,
    /// Odds, out of 100, that a value is medium or large.
    pub medium: u8,
    /// Odds, out of 100, that a value is longer than a page.
    pub large: u8,
    /// Odds, out of 100, that a key gets an expiry.
    pub expiry: u8,
    /// Odds, out of 100, that an operation concerns collections.
    pub collections: u8,
    /// The number of field and member names in use.
    pub names: u16,
    /// Odds, out of 100, that an element is too long for a packed collection.
    pub long: u8,
    /// Odds, out of 100, that a change affects many elements.
    pub bulk: u8,
    /// Odds of each kind of step.
    pub odds: Odds,
}

/// Odds of the kinds of step, as weights.
#[derive(Debug, Clone, Copy)]
pub struct Odds {
    /// A transaction that writes.
    pub write: u32,
    /// A transaction that reads.
    pub read: u32,
    /// Close the epoch.
    pub close: u32,
    /// Flush a stream.
    pub flush: u32,
    /// Begin a checkpoint.
    pub begin: u32,
    /// Step the checkpoint.
    pub sweep: u32,
    /// Prepare a segment.
    pub prepare: u32,
    /// Purge and reclaim.
    pub purge: u32,
    /// Append a beacon.
    pub beacon: u32,
    /// Empty a database.
    pub empty: u32,
    /// Continue a scan.
    pub scan: u32,
    /// Move the clock.
    pub clock: u32,
    /// Record the durable epoch in the anchor.
    pub vouch: u32,
    /// Build a collection before a key names it.
    pub draft: u32,
    /// Take, read or end a snapshot.
    pub snapshot: u32,
}

impl Odds {
    pub(crate) fn all(&self) -> [u32; 15] {
        [
            self.write,
            self.read,
            self.close,
            self.flush,
            self.begin,
            self.sweep,
            self.prepare,
            self.purge,
            self.beacon,
            self.empty,
            self.scan,
            self.clock,
            self.vouch,
            self.draft,
            self.snapshot,
        ]
    }
}

pub(crate) fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(0..of.len())]
}

/// Picks an element with a clone of `rng`, so that `rng` itself does not advance.
fn pick_aside<T: Copy>(rng: &Rng, of: &[T]) -> T {
    let drawn = usize::from(rng.clone().u16(..));
    of[drawn % of.len()]
}

/// Chooses the number of streams at random. One of 64 runs has 16 streams. The other runs have 1 to 8 streams, mostly
/// 1 or 2.
pub(crate) fn draw_streams(rng: &mut Rng) -> u8 {
    if rng.u8(0..64) == 0 {
        return 16;
    }
    pick(
        rng,
        &[
            1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6, 7, 8,
        ],
    )
}

/// Returns the weight of a kind of step: `base` times 1, 2 or 4.
pub(crate) fn shift(rng: &mut Rng, base: u32) -> u32 {
    base * pick(rng, &[1, 2, 2, 4])
}

/// Returns the weight of a kind of step: `base` in half of the runs, else 0.
pub(crate) fn sometimes(rng: &mut Rng, base: u32) -> u32 {
    if rng.bool() { base } else { 0 }
}

/// Chooses, at random, a schedule for a restart at this level on one thread. The schedule's seed orders the restart's
/// jobs. The schedule often has too little memory for waiting records.
pub(crate) fn draw_schedule(rng: &mut Rng, level: Level) -> Schedule {
    let usual = Schedule::inline(level, rng.u64(..));
    Schedule {
        pile_bytes: pick(rng, &[1, 4096, usual.pile_bytes]),
        ..usual
    }
}

impl Swarm {
    /// Draws the character for a seed.
    #[must_use]
    pub fn draw(rng: &mut Rng, streams: Option<u8>, profile: Option<CrashProfile>) -> Swarm {
        let streams = streams.unwrap_or_else(|| draw_streams(rng));
        let long = rng.u8(0..24) == 0;
        let options = CoreOptions {
            partitions: pick(rng, &[2, 2, 4, 8]),
            chunk_pages: pick(rng, &[2, 4]),
            // A clone of `rng` draws this value. `rng` itself does not advance, so that old seeds still lead to the
            // same runs.
            segment_bytes: pick_aside(rng, &[65536, 65536, 131_072, 524_288, 200 * 4096]),
            segment_bytes_first: 65536,
            block_bytes_max: pick(rng, &[8192, 16384]),
            queue_bytes_max: pick(rng, &[65536, 8 << 20, 8 << 20, 8 << 20]),
            memory_limit: if rng.u8(0..20) == 0 {
                rng.u64(200_000..2_000_000)
            } else {
                u64::MAX
            },
            consistent_checkpoints: pick_aside(rng, &[false, true]),
            orphans: OrphanLimits {
                at_once: pick(rng, &[0, 3, 128]),
                debt_rows: pick(rng, &[0, 20, 16_384]),
                step_rows: pick(rng, &[1, 5, 256]),
                chain_pages: pick_aside(rng, &[1, 1, 2, 1024]),
            },
            ..CoreOptions::default()
        };
        let rot = rng.u8(0..24) == 0;
        let mut swarm = Swarm {
            disks_apart: streams > 1 && rng.bool(),
            course: Course {
                crashes: pick(rng, &[1, 1, 1, 1, 2, 2, 2, 4, 5]),
                steps: if long { 400 } else { pick(rng, &[40, 60, 80]) },
                rot,
                memory_is_short: options.memory_limit < u64::MAX,
                ..Course::calm(streams, profile)
            },
            shapes: pick_aside(rng, &[4, 5]),
            streams_alone: false,
            scripts: 0,
            keys: pick(rng, &[3, 8, 20]),
            databases: pick(rng, &[1, 1, 3]),
            medium: pick(rng, &[0, 10, 40]),
            large: pick(rng, &[0, 0, 0, 3]),
            expiry: pick(rng, &[0, 0, 20]),
            collections: pick(rng, &[0, 40, 80, 95]),
            names: pick(rng, &[4, 20, 200]),
            long: pick(rng, &[0, 10, 40]),
            bulk: pick(rng, &[0, 0, 3, 8]),
            odds: Odds {
                write: shift(rng, 12),
                read: shift(rng, 2),
                close: shift(rng, 8),
                flush: shift(rng, 12),
                begin: shift(rng, 1),
                sweep: shift(rng, 10),
                prepare: pick_aside(rng, &[1, 1, 3]) * sometimes(rng, 1),
                purge: sometimes(rng, 2),
                beacon: sometimes(rng, 1),
                empty: if rng.u8(0..4) == 0 { 1 } else { 0 },
                scan: sometimes(rng, 4),
                clock: sometimes(rng, 1),
                vouch: sometimes(rng, 2),
                draft: pick_aside(rng, &[0, 0, 3, 8]),
                snapshot: pick_aside(rng, &[0, 2, 0]),
            },
            options,
        };
        swarm.course.draw_faults(rng);
        swarm
    }

    /// Returns the character with up to two changes. Some seeds allow scripts as transactions. Some seeds make streams
    /// the only collections. Both changes depend on the seed alone, so that the runs of old seeds stay unchanged.
    pub(crate) fn with_scripts_and_streams(self, seed: u64) -> Swarm {
        let aside = scramble(seed ^ 0x5c71_9726);
        let scripts = if aside.is_multiple_of(3) { 40 } else { 0 };
        if !(aside >> 32).is_multiple_of(8) {
            return Swarm { scripts, ..self };
        }
        Swarm {
            scripts,
            streams_alone: true,
            keys: 3,
            collections: 95,
            ..self
        }
    }
}
