//! The Redis protocol in front of the engine.
//!
//! One thread runs a loop over all sockets and executes every command itself, each as one
//! transaction of the engine, in the order in which they arrive. A command is done in
//! microseconds and its reply is appended at once; but a reply *leaves* only when the epoch it
//! rests on is durable. So the loop never waits for the disk, the disk's one sync serves every
//! command that ran meanwhile, and no client sees a state that a crash could take back.
//!
//! # Parts
//! * `resp`: requests in, replies out, byte by byte.
//! * `replies`: what holds a reply back until its epoch is durable. `rung_waits`: who waits for more. `stalled`: replies that wait
//!   for a log which cannot be written.
//! * `connection`, `session`: a client's bytes, and what it has told about itself.
//! * `command`: the table of commands and their functions.
//! * `poll`, `control`, `net`, `tls`: the loop, how other threads reach it, and the sockets.
//! * `settings`: what can be set, from wherever. `http`: metrics and the status page. `supervise`: what
//!   systemd is told.
//! * `alarms`: the one list of what is wrong. `signals`: those that the loop acts on.
//! * `serve`: start and end.
//!
//! # What is absent
//! Key iteration, types other than strings, and users other than `default`.

mod acl;
mod ahead;
mod alarms;
mod beside;
mod blocking;
#[cfg(test)]
mod browsers;
mod changes;
mod command;
mod connection;
mod control;
mod deadlines;
mod descriptors;
mod engine;
#[cfg(test)]
mod fuzz;
mod glob;
mod http;
mod jobs;
mod latency;
mod loading;
mod net;
mod notify;
mod options;
mod output;
mod pause;
mod poll;
mod pubsub;
mod replies;
mod resp;
mod rounds;
mod rung_waits;
mod serve;
mod session;
pub mod settings;
mod signals;
mod slowlog;
mod spikes;
mod stalled;
mod state;
mod stats;
mod supervise;
mod tell;
#[cfg(test)]
mod testbed;
mod tls;
mod tracking;
mod watch;

pub use options::{DebugAccess, OnStop, ServeError, ServerOptions, readable, unguarded};
pub use serve::{Server, serve};
pub use tls::{TlsAuthClients, TlsFiles};

pub(crate) use perdura::types::{decimal, number};
