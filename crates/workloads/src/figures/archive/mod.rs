//! The figures of *Single-pass restore after a media failure* (004): a sorted log archive, and its costs.
//!
//! | module | one idea |
//! |---|---|
//! | [`devices`] | figure 1: replaying an unsorted and a sorted log, on a modelled disk |
//! | [`copying`] | figure 3: restoring backup and log, beside copying the backup |
//! | [`memory`] | figure 4 with its table: pages read by the size of the buffer pool |
//! | [`impact`] | figures 5 and 6: throughput and CPU while the log is archived |
//! | [`stand`] | a database that was updated, its backup and its log in an archive |
//! | [`scale`] | the sizes of the experiments |
//!
//! # Source
//! *Single-pass restore after a media failure* (004), section 4.
//!
//! # Deviations
//! The paper restores TPC-C databases. Figures 1, 3 and 4 restore rows that were updated uniformly, so that the
//! experiment can choose the ratio of log to database. A page has 16 KiB here and 8 KiB in the paper. Disks are
//! modelled in front of memory.

pub mod copying;
pub mod devices;
pub mod impact;
pub mod memory;
pub mod scale;
pub mod stand;

use crate::drive::ModelledDisk;

/// The paper's hard disk: 150 MB/s, and 1 ms for an access, as in the paper's introduction.
const HARD_DISK: ModelledDisk = ModelledDisk {
    mbps: 150,
    latency_us: 1_000,
};

/// The hard disk without the time of accesses, for a log that is read sequentially.
const HARD_DISK_IN_ORDER: ModelledDisk = ModelledDisk {
    mbps: 150,
    latency_us: 0,
};
