//! The world of the archive: the product with its archive on a separate disk.
//!
//! The client writes and reads as in the product's mode, on disks that fail. Between the client's steps, the archiver,
//! the merger, a backup and an agent take steps. The agent runs in a separate process. All four work on the archive's
//! disk. This disk can fail, become unavailable for a while, or lose power, alone or together with the database. A life
//! lasts from a restart to a crash, or to the loss of all disks of the database. After a loss of all disks, a restore
//! begins the next life, at the archive's last moment or at an earlier moment.
//!
//! The simulator compares each restored database with the oracle's state at the restored moment, even if this moment
//! lies in an earlier life. After each crash of the archive's disk, the simulator checks that all acknowledged data is
//! still in the archive.
//!
//! | module | one idea |
//! |---|---|
//! | `character` | the character of a run: its randomly chosen settings |
//! | `timeline` | the oracle: the state of each epoch, across lives |
//! | `world` | the state of a run, and the functions that the simulator's loop calls |
//! | `steps` | the steps of archiver, merger, backup and agent, and the explanations of their failures |
//! | `store` | the archive's disk: power cuts, absence, and what it must hold afterwards |
//! | `restoring` | restores of moments, and comparisons of the results with the oracle |
//! | `set_back` | copies of the database that were set back, and their meeting with the archive |
//! | `branch` | such copies on named timelines |
//! | `times` | restores of times, while the clock is set back and jumps |
//! | `loss` | the loss of the database's disks, and the restore that makes the next life |

mod branch;
mod character;
mod loss;
mod restoring;
mod set_back;
mod steps;
mod store;
mod timeline;
mod times;
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
        ArchiveWorld::new(seed, rng, swarm, character).with_ledger()
    };
    run_drawn(seed, 0xa2c417e, options, Swarm::draw, make)
}
