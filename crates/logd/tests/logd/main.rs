//! Nodes behind real sockets, and the actions of clients of every kind on them.

mod hard_copy;
mod hostile;
mod mapped;
mod net;
mod nodes;
mod setup;
mod tls;
