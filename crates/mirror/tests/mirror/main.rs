//! Tests of the mirrored log: messages, nodes.

mod messages;
mod node;
mod setup;
