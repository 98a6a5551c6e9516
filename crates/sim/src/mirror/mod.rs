//! The simulator of mirror mode. It runs the product with the newest part of the log in the memory of nodes.
//!
//! The real engine runs over disks, a network and an arbiter that fail. The arbiter stores the *view*: the permitted
//! writer, and the disks or nodes that hold acknowledged bytes. Clients write and read. Between the clients' steps,
//! blocks are shipped and copied, frames move one by one, the view changes, and checkpoints run. Nodes are killed,
//! started again with an empty memory, paused, or cut off in one direction. Connections break or stay half open. The
//! arbiter fails, sometimes after it has carried out the request. A *life* lasts while one process has the database
//! open. It ends cleanly, by a power cut that may strike nodes too, or because its process falls asleep. A sleeping
//! process continues while the next process opens the database, or after that. An open may be interrupted at any I/O
//! and then repeated. In a quarter of the runs the writers have a lease, which ends if the arbiter does not answer.
//!
//! The checks, made separately for each rung:
//!
//! * An open recovers whole epochs without a gap, up to some last epoch. The epochs include everything acknowledged at
//!   the rung `disk`. Unless the operator accepted a loss, the epochs also include everything acknowledged at the rung
//!   `mirror`.
//! * An open is refused if the view names a mirror without any remaining node. The refusal names the nodes. Once the
//!   network, the arbiter and the nodes work, an open fails for no other reason.
//! * An open with an accepted loss reports the newest epoch that it kept.
//! * A replaced writer acknowledges nothing beyond the epochs that the next life kept, unless the next life accepted a
//!   loss.
//!
//! | module | one idea |
//! |---|---|
//! | `character` | the random sizes and odds of a run |
//! | `past` | the oracle: the rows at the beginning of a life, and the life's writes |
//! | `writer` | a process that serves or sleeps: its engine and its clients' replies |
//! | `world` | the state of a run |
//! | `trouble` | faults of nodes, network and arbiter, also in the middle of an open |
//! | `steps` | the steps of a writer |
//! | `lives` | the chain of lives, and the end of each |
//! | `takeover` | the open that begins the next life: when it may be refused, and which epochs it must keep |

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
