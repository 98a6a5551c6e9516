//! The world of the mirror: the product whose newest log is in the memory of nodes.
//!
//! The real engine runs over disks, a network and an arbiter that fail. Clients write and read. Between their
//! steps blocks are shipped and copied, frames move one by one, the view changes, and checkpoints run. Nodes
//! are killed, started again with an empty memory, paused, or cut off in one direction. Connections break or
//! stay half open. The arbiter fails, sometimes only after it has carried out the request. A life ends
//! cleanly or by a power cut that may strike nodes too, or its process falls asleep. A sleeping process
//! continues while the next process opens the database, or after that. Opens are interrupted at any I/O and
//! begun again. In a quarter of the runs writers have a lease, which ends if the arbiter does not answer.
//!
//! The checks, made separately for each rung:
//!
//! * An open brings back a prefix of the epochs, whole. The prefix has everything that was acknowledged at
//!   the disk's rung. Unless a loss was accepted, it also has everything that was acknowledged at the
//!   mirror's rung.
//! * An open is refused if both nodes of a mirror that the view names are gone, and the refusal names them.
//!   An open fails for no other reason once the network, the arbiter and the nodes work.
//! * An accepted loss names the newest epoch that was kept.
//! * A writer that was replaced acknowledges nothing beyond the epochs of the next life.
//!
//! | module | one idea |
//! |---|---|
//! | `character` | the character of a run |
//! | `past` | the oracle: the rows at the beginning of a life, and its writes |
//! | `writer` | a process that serves, or sleeps: its engine, its clients' replies |
//! | `world` | the parts of a run |
//! | `trouble` | faults of nodes, network and arbiter, also in the middle of an open |
//! | `steps` | the steps of a writer |
//! | `lives` | the chain of lives, and their ends |
//! | `takeover` | the next open: its reasons to refuse, and the epochs that it must bring back |

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

/// Runs one seed.
pub(crate) fn run_seed(seed: u64, options: &CrashOptions) -> (Tally, u64, Check) {
    let mut rng = Rng::with_seed(scramble(seed ^ 0x6d69_7272));
    let character = Character::draw(&mut rng, options.streams, options.profile);
    let mut world = World::new(seed, rng, character);
    let result = guarded(|| world.chain());
    account(&mut world.tally, &mut world.trace, &world.disks);
    (std::mem::take(&mut world.tally), world.trace, result)
}
