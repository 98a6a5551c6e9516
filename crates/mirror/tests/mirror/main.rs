//! Tests of the mirrored log: messages, nodes, views, arbiters, and many simulated lives.

mod fuzz;
mod hard_copy;
mod lives;
mod mapped;
mod messages;
mod node;
mod register;
mod setup;
mod stories;
mod view;
mod world;
