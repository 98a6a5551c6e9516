//! The character of a run with a tree.

use fastrand::Rng;
use perdura_device::CrashProfile;
use perdura_recovery::{Level, METHODS, Method, Player};
use perdura_steal::{KeyedOptions, Route};
use perdura_tree::monitor::Limits;
use perdura_wal::{Scheme, TailOptions};

use crate::course::Course;
use crate::swarm::{draw_schedule, draw_streams, pick, shift, sometimes};

use super::client::{KeyShape, TABLES};

/// The number of kinds of step.
pub(crate) const KINDS: usize = 14;

/// The character of a run.
#[derive(Debug, Clone)]
pub(crate) struct Swarm {
    /// True if each stream has a separate disk.
    pub logs_apart: bool,
    pub options: KeyedOptions,
    pub course: Course,
    pub keys: KeyShape,
    pub odds: [u32; KINDS],
}

/// Returns the methods that can restart a tree of this scheme.
pub(crate) fn legal(scheme: Scheme) -> Vec<&'static Method> {
    let of_tree = |method: &&Method| matches!(method.player, Player::Tree(_));
    let legal = METHODS.iter().filter(of_tree);
    let legal = legal.filter(|method| method.schemes.contains(&scheme));
    legal.collect()
}

/// Draws the scheme of a tree's records.
pub(crate) fn draw_scheme(rng: &mut Rng) -> Scheme {
    let schemes = [Scheme::Logical, Scheme::Logical, Scheme::Physiological];
    pick(rng, &schemes)
}

/// Chooses, at random, the counts of notes after which a log record with the notes is due. The counts are small.
pub(crate) fn draw_limits(rng: &mut Rng) -> Limits {
    Limits {
        notes: pick(rng, &[1, 4, 16, 64]),
        written: pick(rng, &[1, 4, 16]),
    }
}

fn draw_options(rng: &mut Rng) -> KeyedOptions {
    let scheme = draw_scheme(rng);
    let limits = draw_limits(rng);
    KeyedOptions {
        page_bytes: pick(rng, &[512, 512, 1024]),
        tables: TABLES.to_vec(),
        dirty_percent: pick(rng, &[10, 25, 60, 90]),
        restart_dirty_percent: pick(rng, &[0, 0, 10, 80]),
        limits: Some(limits),
        segment_bytes: 131_072,
        block_bytes_max: pick(rng, &[8192, 16384]),
        queue_bytes_max: pick(rng, &[65536, 8 << 20, 8 << 20]),
        route: pick(rng, &[Route::Idlest, Route::Scattered, Route::Scattered]),
        schedule: draw_schedule(rng, Level::One),
        ..KeyedOptions::new(scheme, rng.usize(14..=40))
    }
}

/// Chooses, at random, the weight of each kind of step.
fn draw_odds(rng: &mut Rng) -> [u32; KINDS] {
    [
        shift(rng, 10),
        shift(rng, 24),
        shift(rng, 6),
        shift(rng, 10),
        sometimes(rng, 6),
        shift(rng, 1),
        shift(rng, 3),
        shift(rng, 10),
        shift(rng, 1),
        shift(rng, 9),
        sometimes(rng, 2),
        shift(rng, 6),
        sometimes(rng, 1),
        sometimes(rng, 2),
    ]
}

impl Swarm {
    /// Draws the character for a seed.
    pub fn draw(rng: &mut Rng, streams: Option<u8>, profile: Option<CrashProfile>) -> Swarm {
        let streams = streams.unwrap_or_else(|| draw_streams(rng));
        let long = rng.u8(0..24) == 0;
        let options = draw_options(rng);
        let rot = rng.u8(0..24) == 0;
        let mut swarm = Swarm {
            logs_apart: streams > 1 && rng.bool(),
            course: Course {
                crashes: pick(rng, &[1, 1, 1, 2, 2, 4, 4, 5]),
                steps: if long {
                    600
                } else {
                    pick(rng, &[80, 140, 200])
                },
                rot,
                ..Course::calm(streams, profile)
            },
            keys: KeyShape::draw(rng, options.page_bytes),
            odds: draw_odds(rng),
            options,
        };
        swarm.course.draw_faults(rng);
        if rng.u8(0..4) == 0 {
            swarm.options.mirror = Some(TailOptions {
                tail_bytes_max: 64 << 10,
            });
            // A restart after rot does not use the memory, but might need the log that it holds. So these runs have
            // no rot.
            swarm.course.rot = false;
        }
        swarm
    }
}
