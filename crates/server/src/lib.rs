//! The Redis protocol in front of the engine.
//!
//! A loop is a thread that serves the sockets of its clients and executes their commands in the order of arrival. A server
//! has one or several loops. Each command is one transaction of the engine. A command takes microseconds, and the reply is appended at once. But a reply *leaves*
//! only when the epoch that it waits for is durable. So the loop never waits for the disk, and one sync of the disk
//! serves every command that ran in the meantime. No client sees a state that a crash could undo.
//!
//! # Parts
//! * `resp`: the parser of requests and the encoder of replies.
//! * `replies`: holds a reply until its epoch is durable. `rung_waits`: clients that wait in WAITDUR.
//!   `stalled`: the replies that wait while the log cannot be written.
//! * `connection`, `session`: a client's bytes, and the client's state, for example its user and database.
//! * `command`: the table of commands and their functions.
//! * `poll`, `control`, `net`, `tls`: the loop, the messages from other threads to it, and the sockets.
//! * `crew`, `peers`, `common`: several loops, the states of the others, and what all loops share.
//! * `settings`: all settings, from every source. `http`: metrics and the status page. `supervise`: the reports to
//!   systemd.
//! * `alarms`: the one list of alarms. `signals`: the signals that the loop acts on.
//! * `serve`: start and end.
//!
//! # What the server does not have
//! Modules, Redis's replication and its cluster mode.

mod acl;
mod ahead;
mod alarms;
mod alone;
mod beside;
mod blocking;
#[cfg(test)]
mod browsers;
mod changes;
mod command;
mod common;
mod conditions;
mod connection;
mod control;
mod cpus;
mod crew;
mod crowd;
mod deadlines;
mod denial;
mod descriptors;
mod engine;
mod flights;
#[cfg(test)]
mod fuzz;
mod gate;
mod glob;
mod host_name;
mod http;
#[cfg(all(test, feature = "shuttle"))]
mod interleave;
mod jobs;
mod latency;
mod loading;
mod mailbox;
mod net;
mod notify;
mod options;
mod output;
mod part;
mod pause;
mod poll;
mod pressure;
mod pubsub;
mod replies;
mod resp;
mod rounds;
mod rung_waits;
mod scans;
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
mod sync;
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
