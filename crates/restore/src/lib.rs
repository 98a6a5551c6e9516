//! Backup and restore, from an image and an archive's runs.
//!
//! A restart needs none of it. [`perdura_recovery`] has the parts that it shares with a restart:
//! images and the rule of records.
//!
//! | module | one idea |
//! |---|---|
//! | [`backup`] | an image is copied to an archive |
//! | `restore`, `progress` | a new database is made of such a copy and the archive's runs; the progress of that |
//! | [`virtual_backup`] | a backup is made of an older one and the archive's runs |
//! | `choose` | the archive's backup that a restore begins with |
//! | `at` | the moment that an operator names |
//! | `reach` | the epochs that make a difference |
//! | `tail` | a log that survived, beyond the archive |
//! | `many` | too many runs to read side by side |
//! | `listed` | the present runs, few of them open |
//! | `scratch` | the place of runs that only one restore reads |
//! | `plan` | the backup and runs that restore a moment |
//! | `served` | the moments that a backup serves |
//! | `part` | one partition's merge join |
//! | `sink` | the destination of the pages: an image, or a backup |
//! | `log_order`, `pool` | the traditional restore in the order of the log, to compare with |
//! | [`proof`] | an image, and the records between it and the next one, give the next one |
//! | [`drill`] | a trial restore is compared with the archive's digests |

mod at;
pub mod backup;
mod choose;
pub mod drill;
mod listed;
mod log_order;
mod many;
mod part;
mod plan;
mod pool;
mod progress;
pub mod proof;
mod reach;
mod restore;
mod scratch;
mod served;
mod sink;
mod tail;
pub mod virtual_backup;

pub use at::At;
pub use choose::Sources;
pub use log_order::{ReplayReport, restore_in_log_order};
pub use many::RUNS_MAX;
pub use plan::RestorePlan;
pub use progress::RestoreProgress;
pub use restore::{RestoreMeans, RestoreReport, THREADS_A_CORE, restore};
pub use scratch::Scratch;
pub use served::{Served, served};
pub use tail::read_tail;
