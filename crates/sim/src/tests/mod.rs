//! Crash runs of every mode, and the seeded mistakes that each must catch.

mod archive;
mod common;
mod crash;
mod dl_model;
mod mirror;
mod steal;
mod tables;
mod tree;
