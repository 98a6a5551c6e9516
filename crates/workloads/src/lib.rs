//! Workloads that measure the engine and its peers with one and the same client.
//!
//! | module | one idea |
//! |---|---|
//! | [`kv`] | SET and GET of random keys, over the Redis protocol or inside the process |
//! | [`process`] | what the kernel says of a process: peak memory, CPU time |

pub mod kv;
pub mod process;
