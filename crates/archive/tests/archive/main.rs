//! Runs on simulated disks: backups, the format's example, damage of every bit, generation and merging.

mod backup;
mod common;
mod damage;
mod example;
mod forged;
mod merge;
mod quick;
mod runs;
