//! Compares our server with a real Redis 7.0: random commands must get equal replies from the two servers.
//!
//! The measure is Redis itself, not our reading of the manual. A seed makes a *script*: a few thousand commands over a
//! small pool of keys of all types. Some commands have options, illegal mixtures of options, wrong arities or wrong
//! types. The script is sent to a `redis-server` and to our server, and the bytes of every reply are compared. At the
//! end the servers' data is compared key by key. Before this last comparison, some scripts end our server without a
//! checkpoint and restart it.
//!
//! # Why a script is made before it is run
//! A script depends on its seed alone and not on replies, so a failing script can be shortened. [`shrink`] leaves units
//! of the script out while the two servers still differ. The result is a handful of commands to paste into two
//! redis-cli.
//!
//! # Replies that are not compared byte by byte
//! [`rules`] has the whole list. Replies without an order defined by Redis are sorted. Deadlines have a tolerance.
//! Random replies must consist of members of the collection. [`exceptions`] has the differences that `docs/redis.md`
//! documents, each with its sentence there.
//!
//! | module | one idea |
//! |---|---|
//! | [`reply`] | a reply as it came |
//! | [`wire`] | one connection |
//! | [`pair`] | both servers, started and restarted |
//! | [`grammar`], [`words`], [`tables`] | the language of commands, its words, and its sentences |
//! | `lua` | random scripts and libraries |
//! | [`step`] | a step of a script |
//! | [`script`], [`scenes`] | a seed's script; scenes of several connections |
//! | [`play`] | runs a script over the connections in `wires` |
//! | `crowd`, `whole` | steps with blocked and listening clients; steps with iterations and dumps |
//! | `dataset` | compares the data of both servers |
//! | [`divergence`] | a difference between the two servers |
//! | [`contents`] | all that one server holds |
//! | [`builds`] | two builds of our server under the same scripts, killed and started again |
//! | [`rules`], [`exceptions`] | the rules by which replies are equivalent |
//! | [`shrink`] | the shortest script that still fails |
//! | [`hunt`] | many seeds |
//! | [`stall`] | the effect of one client's load on the PINGs of another |

pub mod builds;
pub mod contents;
mod crowd;
mod dataset;
pub mod divergence;
pub mod exceptions;
pub mod grammar;
pub mod hunt;
mod lua;
pub mod pair;
pub mod play;
pub mod reply;
pub mod rules;
pub mod scenes;
pub mod script;
pub mod shrink;
pub mod stall;
pub mod step;
pub mod tables;
mod whole;
pub mod wire;
mod wires;
pub mod words;
