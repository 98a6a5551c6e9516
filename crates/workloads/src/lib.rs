//! Workloads that measure the engine and its peers with one and the same client.
//!
//! | module | one idea |
//! |---|---|
//! | [`kv`] | SET and GET of random keys, over the Redis protocol or inside the process |
//! | [`figures`] | the papers' figures: data, plot, claims |
//! | [`sms`] | messages inserted and removed by interleaved transactions |
//! | [`process`] | what the kernel says of a process: peak memory, CPU time |

pub mod figures;
pub mod kv;
pub mod num;
pub mod process;
pub mod sms;
