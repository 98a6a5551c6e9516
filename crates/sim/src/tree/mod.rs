//! The simulator of a tree. Transactions interleave over rows by their keys, pages reach the disk before they commit,
//! and six methods restart.
//!
//! Like the simulator of steal mode, it has one thread, which takes every step of the real code in an order that the
//! seed determines, over disks that fail. The steps are those of transactions, the writer of pages, flushers and
//! checkpoints. Pages are tiny and few are in memory, so pages are split, merged, evicted and written all the time. The
//! checks:
//!
//! * A row is refused exactly if another running transaction has it.
//! * A read returns its holder's last write, or the last commit.
//! * After a restart that kept epoch R the tables hold exactly the sum of the transactions that committed up to R.
//!   Everything that a crash left open is undone, however much of it was on disk and however many crashes interrupt
//!   that.
//! * Every method leads from the same disks to the same rows. So each operation that a table of dirty pages skips was
//!   on disk.
//!
//! | module | one idea |
//! |---|---|
//! | `swarm` | the character of a run |
//! | `world` | the machine with its database, and its clients |
//! | `client` | the steps of transactions |
//! | `background` | draws the next step |
//! | `memory` | the memory that holds the log beside its disks, in a quarter of the runs |
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
