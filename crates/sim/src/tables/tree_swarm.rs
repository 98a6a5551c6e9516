//! The character of a run that has tables and a tree.

use fastrand::Rng;
use perdura_device::CrashProfile;
use perdura_recovery::tree::TreeMeans;
use perdura_wal::Scheme;

use crate::swarm::{pick, shift, sometimes};
use crate::tree::client::{KeyShape, KeyStep};
use crate::tree::swarm::{draw_limits, draw_scheme};

use super::swarm::{KINDS_OF_TABLES, Swarm};

/// The kinds of step that a tree has. The array of odds has the same order.
pub(crate) const STEPS: [KeyStep; 7] = [
    KeyStep::Begin,
    KeyStep::Put,
    KeyStep::Remove,
    KeyStep::Commit,
    KeyStep::Abort,
    KeyStep::Read,
    KeyStep::WritePages,
];

/// The character of the tree in a run.
#[derive(Debug, Clone)]
pub(crate) struct TreeSwarm {
    pub scheme: Scheme,
    pub page_bytes: usize,
    pub keys: KeyShape,
    /// A limit of dirty pages. The page writer stops early if at most this many pages are dirty.
    pub dirty_max: usize,
}

fn draw_odds(rng: &mut Rng) -> [u32; STEPS.len()] {
    [
        shift(rng, 6),
        shift(rng, 14),
        shift(rng, 4),
        shift(rng, 6),
        sometimes(rng, 4),
        sometimes(rng, 2),
        shift(rng, 4),
    ]
}

impl Swarm {
    /// Chooses, at random, the character of a run that has a tree. Such a run logs everything, because the tree and
    /// the tables share one log.
    pub fn draw_mixed(rng: &mut Rng, streams: Option<u8>, profile: Option<CrashProfile>) -> Swarm {
        let mut swarm = Swarm::draw(rng, streams, profile);
        if std::mem::take(&mut swarm.unlogged) {
            swarm.draw_typed(rng);
        }
        let (page_bytes, frames) = (pick(rng, &[512, 512, 1024]), rng.usize(12..=40));
        swarm.options.tree = TreeMeans {
            limits: draw_limits(rng),
            dirty_max: frames * pick(rng, &[0, 0, 10, 80]) / 100,
            ..TreeMeans::of_frames(frames)
        };
        swarm.tree = Some(TreeSwarm {
            scheme: draw_scheme(rng),
            page_bytes,
            keys: KeyShape::draw(rng, page_bytes),
            dirty_max: (frames * pick(rng, &[10, 25, 60, 90]) / 100).max(1),
        });
        swarm.odds[KINDS_OF_TABLES..].copy_from_slice(&draw_odds(rng));
        swarm.course.steps *= 2;
        swarm
    }
}
