//! The simulator of steal mode, in the paper's three schemes. Its transactions interleave, change pages before they
//! commit, and roll back step by step.
//!
//! Like the product's simulator, it has one thread, which takes every step of the real code. The seed determines the
//! order of the steps, and the disks fail. The checks differ:
//!
//! * A client is refused a slot exactly if a different running transaction holds the slot's lock.
//! * A read returns the lock holder's last write, or the last commit if no transaction holds the lock.
//! * After a restart that kept the epochs up to R, the slots hold exactly the changes of commits up to R. No
//!   acknowledged transaction is missing. Each kept transaction is whole, and its dependencies are also kept.
//! * Every restart method that is legal for the log gives the same rows, at every level of parallelism and in any order
//!   of jobs. A job is a part of the restart's work.
//!
//! | module | one idea |
//! |---|---|
//! | `swarm` | the random sizes and odds of a run |
//! | `row` | rows that differ from each other in few bytes, or in all |
//! | `world` | the machine with its database, and its clients |
//! | `client` | the steps of transactions |
//! | `background` | the random choice of the next step |
//! | `check` | the comparison after a restart, and restarts by other methods |
//! | `run` | the calls of the world by the simulator's loop |

mod background;
mod check;
mod client;
mod row;
mod run;
mod swarm;
mod world;

pub(crate) use run::run_seed;
