//! Crash runs of every mode, and the seeded bugs that each mode must find.
//!
//! | module | one idea |
//! |---|---|
//! | [`exhaustive`] | small histories; a crash at every I/O; then, for every n, a failure of the n-th I/O |
//! | [`damage`] | a small database with damage at every byte, one byte at a time |
//! | [`file_damage`] | every file truncated, zeroed, exchanged and deleted; three checks must agree on each case |
//! | [`copying`] | copies of a running database |
//! | [`mistakes`] | seeded bugs that the simulator makes in place of the product |
//! | [`model_dl`] | a model of the algorithm alone, in memory, with every variant and mistake |

mod archive;
mod common;
mod copying;
mod crash;
mod damage;
mod dl_model;
mod exhaustive;
mod file_damage;
mod mirror;
pub(crate) mod mistakes;
mod mixed;
mod model_dl;
mod steal;
mod tables;
mod tree;
