//! The heap against a model: histories, restart, visits, limits.

mod harness;
mod history;
mod limits;
mod orders;
mod restart;
mod sweeps;
mod visits;
