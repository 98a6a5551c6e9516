//! The simulator of a tree. Its transactions interleave and address rows by their keys. Pages reach the disk before
//! the transactions commit. A restart uses one of six methods.
//!
//! Like the simulator of steal mode, it has one thread, which takes every step of the real code. The seed determines
//! the order of the steps, and the disks fail. The steps come from transactions, the page writer, flushers and
//! checkpoints. Pages are tiny, and few pages are in memory. So pages are split, merged, evicted and written all the
//! time. The checks:
//!
//! * A client is refused a row exactly if another running transaction holds the row's lock.
//! * A read returns the lock holder's last write, or the last commit if no transaction holds the lock.
//! * After a restart that kept the epochs up to R, the tables hold exactly the changes of commits up to R. Every
//!   transaction that a crash left open is undone. It does not matter how much of it was on disk, or how many crashes
//!   interrupt the undo.
//! * From one state of the disks, every method gives the same rows. So an operation that a restart skips, because of
//!   its table of dirty pages, was on disk.
//!
//! | module | one idea |
//! |---|---|
//! | `swarm` | the random settings of a run |
//! | `world` | the machine with its database, and its clients |
//! | `client` | the steps of transactions |
//! | `background` | the random choice of the next step |
//! | `memory` | the memory that holds the log in addition to the disks, in a quarter of the runs |
//! | `rows` | the rows of a tree, and the comparison with the expected rows |
//! | `check` | the comparison after a restart, and restarts in other ways |
//! | `run` | the functions that the simulator's loop calls |

mod background;
mod check;
pub(crate) mod client;
mod memory;
pub(crate) mod rows;
mod run;
pub(crate) mod swarm;
mod world;

pub(crate) use run::run_seed;
