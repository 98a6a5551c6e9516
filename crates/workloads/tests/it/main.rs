//! Tests of the figures, and of the workloads on typed tables.

mod figures;
mod typed;
