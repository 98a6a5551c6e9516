//! The world of the archive: the product with its archive on a separate disk.
//!
//! The product's client writes and reads as in its own mode, on disks that fail. Between the client's steps come those
//! of the archiver, the merger, a backup and an agent in another process. They work on the archive's disk, which fails
//! by itself, is unavailable for a while, and loses power alone or together with the database. A life ends in a crash,
//! or with the loss of all of the database's disks. Then a restore makes the next life, at the last moment that the
//! archive holds or at any other.
//!
//! Each restored database is compared with the state of its moment, in whichever earlier life that was. After each
//! crash of the archive, everything that it has acknowledged must be there.
//!
//! | module | one idea |
//! |---|---|
//! | `character` | the character of a run |
//! | `timeline` | the oracle: the state of each epoch, across lives |
//! | `world` | what a run consists of; its place in the loop |
//! | `steps` | the steps of archiver, merger, backup and agent, and what explains their failures |
//! | `store` | the archive's disk: power cuts, absence, and what must be there then |
//! | `restoring` | a moment is restored and compared |
//! | `loss` | the database's disks are lost, and a restore makes the next life |

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
