//! A tree of pages on disk: its parts, its lives, and a model.

mod bulk;
mod check;
mod counted;
mod file;
mod lives;
mod model;
mod notes;
mod pool;
mod read_ahead;
