//! The simulator of steal mode: transactions that interleave, change pages before they commit and roll back step by
//! step, in the paper's three schemes.
//!
//! Like the simulator of the product, it has one thread, which takes every step of the real code in an order that the
//! seed determines, over disks that fail. The checks differ:
//!
//! * A slot is refused exactly if another running transaction holds it.
//! * A read returns the holder's last write, or the last commit.
//! * After a restart that kept epoch R the slots hold exactly the changes of the transactions that committed up to R.
//!   No acknowledged transaction is missing, no transaction is present in part, and each is there with all
//!   transactions that it depends on.
//! * Every restart method that is legal for the log, at every level of parallelism and in any order of jobs, produces
//!   the same rows.
//!
//! | module | one idea |
//! |---|---|
//! | `swarm` | the character of a run |
//! | `row` | rows that differ in few bytes or in all |
//! | `world` | the machine with its database, and its clients |
//! | `client` | the steps of transactions |
//! | `background` | draws the next step |
//! | `check` | the comparison after a restart, and the other ways to it |
//! | `run` | its place in the simulator's loop |

mod background;
mod check;
mod client;
mod row;
mod run;
mod swarm;
mod world;

pub(crate) use run::run_seed;
