//! The figures of *Single-pass restore after a media failure* (004): a sorted log archive, and its costs.
//!
//! | module | one idea |
//! |---|---|
//! | [`devices`] | figure 1: replaying an unsorted and a sorted log, on a modelled disk |
//! | [`copying`] | figure 3: restoring backup and log, compared with copying the backup |
//! | [`memory`] | figure 4 with its table: pages read by the size of the buffer pool |
//! | [`impact`] | figures 5 and 6: throughput and CPU while the log is archived |
//! | `overhead` | the claims of figures 5 and 6 |
//! | [`stand`] | a database that was updated, its backup and its log in an archive |
//! | [`scale`] | the sizes of the experiments |
//!
//! # Source
//! *Single-pass restore after a media failure* (004), section 4.
//!
//! # Deviations
//! The paper restores TPC-C databases. TPC-C has ordered tables here, which are restored from a backup alone. So
//! figures 1 and 4 change rows with the shares of TPC-C. Figure 3 changes rows uniformly, so that the experiment can
//! choose the ratio of log to database. A page has 16 KiB here and 8 KiB in the paper. A disk is memory whose speed is
//! limited by a model.

pub mod copying;
pub mod devices;
pub mod impact;
pub mod memory;
mod overhead;
pub mod scale;
pub mod stand;

use crate::drive::ModelledDisk;
use crate::num::f64_of;

/// The paper's hard disk: 150 MB/s, and 1 ms for an access, as in the paper's introduction.
const HARD_DISK: ModelledDisk = ModelledDisk {
    mbps: 150,
    latency_us: 1_000,
};

/// Returns the number of pages of a pool whose size is `part` of the database, at least two. The single pass reads a
/// page into one buffer and makes the restored page in another.
fn pool_pages(pages: u64, part: f64) -> usize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let pool = (f64_of(pages) * part).round() as usize;
    pool.max(2)
}

/// The paper's hard disk without its access time, for a log that is read sequentially.
const HARD_DISK_IN_ORDER: ModelledDisk = ModelledDisk {
    mbps: 150,
    latency_us: 0,
};
