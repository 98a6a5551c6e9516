//! Nodes behind real sockets, and what clients of every kind do to them.

mod hard_copy;
mod hostile;
mod mapped;
mod net;
mod nodes;
mod setup;
mod tls;
