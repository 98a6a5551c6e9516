//! Interleaved transactions over pages, and over rows of a tree.

mod keyed;
mod mixed;
mod steal;
