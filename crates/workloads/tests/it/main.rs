//! Figures and workloads over typed tables.

mod figures;
mod typed;
