//! Tests of nodes with real sockets and many kinds of clients.

mod hard_copy;
mod hostile;
mod mapped;
mod net;
mod nodes;
mod setup;
mod tls;
