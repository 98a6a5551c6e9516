//! The engine from outside: what a user of the crate relies on.

mod core_steps;
mod with_threads;
