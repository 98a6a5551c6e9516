//! Commands about the connection: MULTI and WATCH, CLIENT, HELLO, and subscriptions.

pub(crate) mod block;
pub(crate) mod client;
pub(crate) mod hello;
pub(crate) mod pubsub;
pub(crate) mod watch;
