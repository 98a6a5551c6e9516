//! Tests of the B+-tree on disk: tests of the parts, tests over several lives with crashes, and a model.

mod bulk;
mod check;
mod counted;
mod file;
mod lives;
mod model;
mod notes;
mod pool;
mod read_ahead;
