//! Tests of the heap against a model, with histories, restarts, batches, visits and limits.

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
