//! The character of a run in steal mode.

use fastrand::Rng;
use perdura_device::CrashProfile;
use perdura_recovery::{Level, METHODS, Method, Schedule};
use perdura_steal::{Records, Route, StealOptions};
use perdura_wal::Scheme;

use crate::course::Course;
use crate::swarm::{draw_schedule, draw_streams, pick, shift, sometimes};

/// The character of a run.
#[derive(Debug, Clone)]
pub(crate) struct Swarm {
    pub scheme: Scheme,
    /// True if each stream has a separate disk.
    pub logs_apart: bool,
    pub image_disks: u8,
    /// True if the images are on separate disks, not on the anchor's disk.
    pub images_apart: bool,
    pub options: StealOptions,
    pub course: Course,
    /// The limit of committed rows. Once it is reached, inserts become deletes.
    pub rows_max: usize,
    /// True if the database begins with rows, which are not logged.
    pub filled: bool,
    pub odds: [u32; KINDS],
}

/// The number of kinds of step.
pub(crate) const KINDS: usize = 16;

/// The schemes among which a run chooses at random. A scheme that is listed more often is chosen more often.
const SCHEMES: [Scheme; 7] = [
    Scheme::Dl1p,
    Scheme::Dl1p,
    Scheme::Dl1p,
    Scheme::Dl1p,
    Scheme::Dl2p,
    Scheme::Pl2p,
    Scheme::Pl2p,
];

/// Returns the methods that are legal for a scheme's log at a level.
pub(crate) fn legal(scheme: Scheme, level: Level) -> Vec<&'static Method> {
    let legal = |method: &&Method| method.check(scheme, level).is_ok();
    METHODS.iter().filter(legal).collect()
}

/// Chooses, at random, a level, a method that is legal at this level, and a schedule for one thread. The schedule's
/// seed orders the restart's jobs.
pub(crate) fn draw_level(rng: &mut Rng, scheme: Scheme) -> (&'static Method, Schedule) {
    loop {
        let level = pick(rng, &Level::ALL);
        let methods = legal(scheme, level);
        if !methods.is_empty() {
            let schedule = draw_schedule(rng, level);
            return (pick(rng, &methods), schedule);
        }
    }
}

fn draw_options(rng: &mut Rng, scheme: Scheme) -> StealOptions {
    let (method, schedule) = draw_level(rng, scheme);
    StealOptions {
        scheme,
        records: pick(rng, &[Records::Full, Records::Sparse]),
        slot_bytes: pick(rng, &[64, 64, 256, 2048, 5448]),
        partitions: pick(rng, &[1, 2, 2, 4]),
        chunk_pages: pick(rng, &[1, 2, 4]),
        segment_bytes: 65536,
        block_bytes_max: pick(rng, &[8192, 16384]),
        queue_bytes_max: pick(rng, &[65536, 8 << 20, 8 << 20, 8 << 20]),
        route: pick(rng, &[Route::Idlest, Route::Scattered, Route::Scattered]),
        memory_limit: u64::MAX,
        schedule,
        method: method.name,
    }
}

/// Chooses, at random, the weight of each kind of step.
fn draw_odds(rng: &mut Rng) -> [u32; KINDS] {
    [
        shift(rng, 10),
        shift(rng, 14),
        shift(rng, 8),
        sometimes(rng, 6),
        shift(rng, 12),
        sometimes(rng, 6),
        shift(rng, 1),
        shift(rng, 3),
        shift(rng, 10),
        shift(rng, 1),
        shift(rng, 9),
        sometimes(rng, 1),
        sometimes(rng, 1),
        sometimes(rng, 1),
        if rng.u8(0..3) == 0 { 1 } else { 0 },
        sometimes(rng, 2),
    ]
}

impl Swarm {
    /// Draws the character for a seed.
    pub fn draw(rng: &mut Rng, streams: Option<u8>, profile: Option<CrashProfile>) -> Swarm {
        let streams = streams.unwrap_or_else(|| draw_streams(rng));
        let scheme = pick(rng, &SCHEMES);
        let long = rng.u8(0..24) == 0;
        let image_disks = pick(rng, &[1, 1, 1, 2, 3]);
        let options = draw_options(rng, scheme);
        let rot = rng.u8(0..24) == 0;
        let mut swarm = Swarm {
            scheme,
            logs_apart: streams > 1 && rng.bool(),
            image_disks,
            images_apart: image_disks > 1 || rng.bool(),
            options,
            course: Course {
                crashes: pick(rng, &[1, 1, 1, 2, 2, 4, 4, 5]),
                steps: if long {
                    500
                } else {
                    pick(rng, &[80, 120, 160])
                },
                rot,
                ..Course::calm(streams, profile)
            },
            rows_max: pick(rng, &[4, 12, 40]),
            filled: rng.u8(0..4) == 0,
            odds: draw_odds(rng),
        };
        swarm.course.draw_faults(rng);
        swarm
    }
}
