//! The world of the archive: the product with its archive on a separate disk.
//!
//! The client writes and reads as in the product's mode, on disks that fail. Between the client's steps come
//! those of the archiver, the merger, a backup and an agent in another process. They work on the archive's
//! disk. This disk can fail, become unavailable for a while, or lose power, alone or together with the
//! database. A life ends in a crash, or with the loss of all of the database's disks. After such a loss a
//! restore makes the next life, at the last moment that the archive holds or at an earlier one.
//!
//! Each restored database is compared with the state of its moment, even if that moment lies in an earlier
//! life. After each crash of the archive's disk, everything that the archive has acknowledged must be there.
//!
//! | module | one idea |
//! |---|---|
//! | `character` | the character of a run |
//! | `timeline` | the oracle: the state of each epoch, across lives |
//! | `world` | the parts of a run, and its place in the loop |
//! | `steps` | the steps of archiver, merger, backup and agent, and the explanations of their failures |
//! | `store` | the archive's disk: power cuts, absence, and what it must hold afterwards |
//! | `restoring` | restores of a moment, and their comparison |
//! | `loss` | the loss of the database's disks, and the restore that makes the next life |

mod character;
mod loss;
mod restoring;
mod steps;
mod store;
mod timeline;
mod world;

use crate::lives::run_drawn;
use crate::report::{Check, CrashOptions, Tally};
use crate::swarm::Swarm;

use character::Character;
use world::ArchiveWorld;

/// Runs one seed.
pub(crate) fn run_seed(seed: u64, options: &CrashOptions) -> (Tally, u64, Check) {
    let make = |seed, mut rng, mut swarm| {
        let character = Character::draw(&mut rng, &mut swarm);
        ArchiveWorld::new(seed, rng, swarm, character)
    };
    run_drawn(seed, 0xa2c417e, options, Swarm::draw, make)
}
