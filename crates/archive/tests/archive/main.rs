//! Runs on simulated disks: the format's example, damage of every bit, generation and merging.

mod common;
mod damage;
mod example;
mod forged;
mod merge;
mod quick;
mod runs;
