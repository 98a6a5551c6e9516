//! Workloads that measure the engine and other systems with one client.
//!
//! | module | one idea |
//! |---|---|
//! | [`kv`] | SET and GET of random keys, over the Redis protocol or inside the process |
//! | [`committing`] | threads that commit and wait, compared with bare durable writes |
//! | [`drive`] | transactions in a closed or an open loop, and their latencies until they are durable |
//! | [`figures`] | the papers' figures: data, plot, claims |
//! | [`fuse_file`] | a FUSE file system with one file, of which a loop device makes a disk |
//! | [`mirror`] | blocks in the memories of nodes, compared with durable writes |
//! | [`restoring`] | restoring an archive, compared with copying its backup |
//! | [`sms`] | messages inserted and removed by interleaved transactions |
//! | [`tpcc`] | an order-entry system: nine tables, five transactions |
//! | [`turn`] | threads that commit for a fixed time, and change a value in each commit |
//! | [`update`] | rows whose values change |
//! | [`voter`] | an election by phone: one short transaction |
//! | [`latency`] | latencies of clients, in the form that all benches share |
//! | [`process`] | the kernel's figures for a process: peak memory, CPU time |

pub mod committing;
pub mod drive;
pub mod figures;
pub mod fuse_file;
pub mod kv;
pub mod latency;
pub mod mirror;
pub mod num;
pub mod process;
pub mod restoring;
pub mod sms;
pub mod tpcc;
pub mod turn;
pub mod update;
pub mod voter;
mod written;
