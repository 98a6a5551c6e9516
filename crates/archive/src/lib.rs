//! The sorted archive of the log.
//!
//! The log has records in the order of their commits, and a restore needs them page by page. The archive keeps them in
//! *runs*: files that hold all page records of a range of epochs, sorted by partition and page. The tag of a page's
//! record says on which side of each image it is, and XOR commutes, so sorting loses nothing. A restore reads image and
//! runs once, side by side, and writes each page once.
//!
//! | module | one idea |
//! |---|---|
//! | [`name`] | the name of a run, and the temporary name under which it is written |
//! | [`record`] | the records that a run holds, plain and net |
//! | [`run`] | the format of a run: header, blocks, index, summaries, footer |
//! | [`writer`] | sorted records become a file, one I/O at a time; publication |
//! | [`reader`] | opening a run, its records in order, of all pages or of some |
//! | [`quick`] | run generation: records of whole epochs, sorted in memory |
//! | [`selection`] | run generation: records leave a selection tree while others arrive |
//! | [`unsorted`] | traditional archiving, to be measured: records copied in the log's order |
//! | [`generation`] | these three, one row each |
//! | [`archiver`] | the log's durable epochs become runs, one I/O at a time |
//! | [`merge`] | neighbouring runs become one, and records of one page one net record |
//! | [`log_order`] | a run's records in the order of the log |
//! | [`manifest`] | the list of the archive's files; the step from one manifest to the next |
//! | [`store`] | an archive in a directory: opened after a crash, changed, verified |
//! | [`report`] | the results of comparing the archive with the database |
//! | [`backlog`] | the place where runs wait while the archive is away |
//! | [`drain`] | a backlog becomes part of the archive |
//! | [`merger`] | the choice of the runs to merge, and the removal of their files |
//! | [`retention`] | the promised moments, and the files that none of them needs |
//! | [`upkeep`] | merging and removal, by one process |
//! | [`agent`] | merging and removal from outside the database |
//!
//! The archive opens no index and knows neither tables nor transactions. It takes disks from outside, reads no clock
//! and starts no thread. Its callers archive and merge in steps of one I/O each.
//!
//! # Source
//! C. Sauer, G. Graefe, T. Härder, "Single-pass restore after a media failure", sections 3.1 and 3.3.
//! # Deviations
//! * The paper orders the records of a page by their LSN. Ours commute, so the order within a page is only for
//!   determinism; a range of LSNs is a range of commit epochs, which all streams of the log share.
//! * Pages are sorted by partition and local page instead of their ids, so that a partition is one piece.
//! * Combining updates into a net change, which the paper names without rules, has two: see [`merge`].

pub mod agent;
pub mod archiver;
pub mod backlog;
pub mod backup;
pub mod drain;
pub mod generation;
pub mod log_order;
pub mod manifest;
pub mod merge;
pub mod merger;
pub mod name;
mod output;
pub mod quick;
pub mod reader;
pub mod record;
pub mod report;
pub mod retention;
pub mod run;
mod sealed;
pub mod selection;
pub mod store;
pub mod unsorted;
pub mod upkeep;
mod workspace;
pub mod writer;

pub use agent::Agent;
pub use archiver::{ArchivedRun, Archiver, ArchiverOptions, ArchiverStep};
pub use backup::BackupId;
pub use drain::{Drain, DrainStep};
pub use generation::Generation;
pub use log_order::LogOrder;
pub use manifest::{Edit, Manifest, Object, ObjectId, Role, Writer};
pub use merge::{Follows, Images, Keep, Merge, MergeOptions, Merged};
pub use merger::{MergedRun, Merger, MergerOptions, MergerStep, Policy, Verdict};
pub use name::{EpochRange, RunId};
pub use quick::{Quick, QuickRun, Sorted};
pub use reader::{Run, RunCursor, Scope};
pub use record::{EpochSpan, FragmentBytes, PageAt, RunRecord, Updates};
pub use report::{Outcome, Report, ReportId, ReportKind, Reporting};
pub use retention::Retention;
pub use run::{Codec, Digests, Moment, Moments, PageSet, RunHeader};
pub use store::{Store, list_archives};
pub use upkeep::{Upkeep, UpkeepStep};
pub use writer::{Progress, RunSummary, RunTarget, RunWriter, Tail};
