//! The heap against a model: histories, restart, batches, visits, limits.

mod batches;
mod collections;
mod cuts;
mod harness;
mod history;
mod limits;
mod orders;
mod restart;
mod sweeps;
mod typed;
mod visits;
