//! Crash runs of every mode, and the seeded bugs that each mode must find.

mod archive;
mod common;
mod copying;
mod crash;
mod damage;
mod dl_model;
mod exhaustive;
mod file_damage;
mod mirror;
mod mixed;
mod model_dl;
mod steal;
mod tables;
mod tree;
