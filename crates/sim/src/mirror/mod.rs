//! The world of the mirror: the product whose newest log lies in the memory of nodes.
//!
//! The real engine runs over disks, a network and an arbiter that fail. Clients write and read; between their steps blocks are
//! shipped and copied, frames move one by one, the view changes, checkpoints run. Nodes are killed, started again with an empty
//! memory, paused, cut off in one direction; connections break or stay half open; the arbiter fails, also after it has done
//! what it was asked. A life ends cleanly, in a power cut with or without nodes, or falls asleep: its process
//! goes on later, while a next one opens the database or when that has. Opens are interrupted at any I/O and begun again. In a quarter of
//! the runs writers have a lease, which an arbiter that does not answer ends.
//!
//! What is checked, for each rung by itself:
//!
//! * an open brings back a prefix of the epochs, whole, which has all that clients were acknowledged at the disk's rung, and at the
//!   mirror's unless a loss was accepted;
//! * an open is refused if both nodes of a mirror that the view names are gone, and names them; it fails for no other reason
//!   once the network, the arbiter and the nodes work;
//! * an accepted loss names the newest epoch that was kept;
//! * a writer that was replaced acknowledges nothing beyond what the next life has.
//!
//! | module | one idea |
//! |---|---|
//! | `character` | the character of a run |
//! | `past` | the oracle: what a life began with, and what it wrote |
//! | `writer` | a process that serves, or sleeps: its engine, its clients' answers |
//! | `world` | what a run consists of |
//! | `trouble` | faults of nodes, network and arbiter, also in the middle of an open |
//! | `steps` | the steps of a writer |
//! | `lives` | the chain of lives: how they end |
//! | `takeover` | the next open: what it may refuse, and what it must bring back |

mod character;
mod lives;
mod past;
mod steps;
mod takeover;
mod trouble;
mod world;
mod writer;

use fastrand::Rng;

use crate::content::scramble;
use crate::lives::{account, guarded};
use crate::report::{Check, CrashOptions, Tally};

use character::Character;
use world::World;

/// One run.
pub(crate) fn run_seed(seed: u64, options: &CrashOptions) -> (Tally, u64, Check) {
    let mut rng = Rng::with_seed(scramble(seed ^ 0x6d69_7272));
    let character = Character::draw(&mut rng, options.streams, options.profile);
    let mut world = World::new(seed, rng, character);
    let result = guarded(|| world.chain());
    account(&mut world.tally, &mut world.trace, &world.disks);
    (std::mem::take(&mut world.tally), world.trace, result)
}
