//! The simulator of steal mode: transactions that interleave, change pages before they commit and
//! roll back step by step, in the paper's three schemes.
//!
//! As in the simulator of the product, one thread takes every step of the real code in an order
//! that a seed decides, over disks that fail. What differs is what can be observed in between:
//!
//! * a slot that a running transaction holds is refused to others, and to nobody else;
//! * what is read is what the holder wrote last, or what was committed last;
//! * after a restart that kept epoch R the slots hold exactly the sum of the transactions that
//!   committed up to R: none that was acknowledged is missing, none is there by half, and none
//!   without those it depends on;
//! * every restart method that is legal for the log, at every level of parallelism and in any
//!   order of jobs, comes to the same rows.
//!
//! | module | one idea |
//! |---|---|
//! | `swarm` | what a run is like |
//! | `row` | rows that differ in few bytes or in all |
//! | `oracle` | what must be there |
//! | `world` | the machine with its database, and its clients |
//! | `client` | the steps of transactions |
//! | `background` | which step comes next |
//! | `check` | the comparison after a restart, and the other ways to it |
//! | `run` | its place in the simulator's loop |

mod background;
mod check;
mod client;
mod oracle;
mod row;
mod run;
mod swarm;
mod world;

pub(crate) use run::run_seed;
