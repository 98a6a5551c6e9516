//! The simulator of a tree: transactions that interleave over rows by their keys, pages that reach the disk before they commit, and
//! restarts by six methods.
//!
//! As in the simulator of steal mode, one thread takes every step of the real code in an order that the seed determines, over disks
//! that fail: transactions, the writer of pages, flushers, checkpoints. Pages are tiny and few are in memory, so that pages are split, merged,
//! evicted and written all the time. What is checked:
//!
//! * a row is refused exactly if another running transaction has it;
//! * a read returns what its holder wrote last, or what was committed last;
//! * after a restart that kept epoch R the tables hold exactly the sum of the transactions that committed up to R: what a crash left open is
//!   taken back, whatever of it was on disk and however many crashes interrupt that;
//! * every method comes from the same disks to the same rows, so each operation that a table of dirty pages skips was on disk.
//!
//! | module | one idea |
//! |---|---|
//! | `swarm` | the character of a run |
//! | `world` | the machine with its database, and its clients |
//! | `client` | the steps of transactions |
//! | `background` | draws the next step |
//! | `memory` | what holds the log beside its disks, in a quarter of the runs |
//! | `rows` | the rows of a tree, and the comparison with those that must be there |
//! | `check` | the comparison after a restart, and the other ways to it |
//! | `run` | its place in the simulator's loop |

mod background;
mod check;
pub(crate) mod client;
mod memory;
pub(crate) mod rows;
mod run;
pub(crate) mod swarm;
mod world;

pub(crate) use run::run_seed;
