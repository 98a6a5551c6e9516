//! Tests of runs and archives on simulated disks. The tests cover backups, the examples on the format pages, damage of
//! each bit, the generation and merging of runs, and crashes.

mod backup;
mod common;
mod crash;
mod damage;
mod damaged_backups;
mod drain;
mod example;
mod forged;
mod frames;
mod generation;
mod golden;
mod history;
mod log;
mod manifest;
mod mend;
mod merge;
mod merger;
mod quick;
mod races;
mod retention;
mod runs;
mod store;
