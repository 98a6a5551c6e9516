//! Backup and restore, from an image and an archive's runs.
//!
//! A restart does not use this crate. A restore and a restart share the code of images and the rule for applying
//! records. The shared code is in [`perdura_recovery`].
//!
//! | module | one idea |
//! |---|---|
//! | [`backup`] | copying an image to an archive |
//! | `restore`, `progress` | making a new database from a backup and the archive's runs; the progress of a restore |
//! | [`virtual_backup`] | making a backup from an older backup and the archive's runs |
//! | `choose` | the choice of the backup that a restore begins with |
//! | `at` | the moment that an operator gives |
//! | `reach` | the epochs whose records a restore needs |
//! | `tail` | the part of a surviving log that the archive does not have |
//! | `many` | merging runs before a restore, if there are too many to read at the same time |
//! | `frames` | the ordered frames of a restore, which become the new database's log |
//! | [`last_cut`] | the cut of key-addressed tables that a new increment compares with |
//! | `listed` | the runs that a restore may read |
//! | `scratch` | the folder of runs that only one restore reads |
//! | `plan` | the plan of a restore: a moment, a backup, and runs |
//! | `since` | the pages of an increment |
//! | `served` | the moments that can be restored from a backup |
//! | `part` | one partition's merge join |
//! | `buffers` | the page buffers of a restore |
//! | `sink` | the destination of the pages: an image, or a backup |
//! | `log_order`, `pool` | the traditional restore in the order of the log, for comparison |
//! | [`proof`] | proving that an image and the records after it give the next image |
//! | `trial` | estimating the duration of a restore |
//! | [`drill`] | comparing a trial restore with the archive's digests |

mod at;
pub mod backup;
mod buffers;
mod choose;
mod deadlines;
mod distrust;
pub mod drill;
mod frames;
pub mod last_cut;
mod listed;
mod log_order;
mod many;
mod part;
mod plan;
mod pool;
mod progress;
pub mod proof;
mod reach;
pub mod reachable;
mod restore;
mod scratch;
mod served;
mod since;
mod sink;
mod tail;
mod timeline;
mod trial;
pub mod virtual_backup;

pub use at::{At, Chosen};
pub use choose::Sources;
pub use deadlines::Deadlines;
pub use distrust::failed_reports;
pub use frames::{CarriedCalls, CarriedFrames};
pub use log_order::{ReplayReport, restore_in_log_order};
pub use many::RUNS_MAX;
pub use plan::RestorePlan;
pub use progress::RestoreProgress;
pub use restore::{
    RestoreMeans, RestoreReport, THREADS_A_CORE, default_threads, restore, restore_within,
};
pub use scratch::Scratch;
pub use served::{RunMoments, Served, served};
pub use tail::{Complete, LogTail, Surviving, drained_lives, read_tail};
pub use trial::{Trial, try_plan};
