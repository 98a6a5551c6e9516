//! The sorted archive of the log.
//!
//! The log has records in the order of the commit epochs, but a restore needs the records page by page. The archive keeps
//! the records in *runs*. A run is a file with all page records of a range of epochs, sorted by partition and page. Sorting
//! loses nothing: XOR commutes, and a record's *tag* shows which images already contain the record. A restore reads a
//! backup and the runs once, side by side, and writes each page once.
//!
//! | module | one idea |
//! |---|---|
//! | [`name`] | the name of a run, and the temporary name under which it is written |
//! | [`keyed`] | the pages of key-addressed tables, as of the newest cut |
//! | [`numbers`] | the numbers of ordered frames across runs |
//! | [`record`] | the records that a run holds, plain and net |
//! | [`run`] | the format of a run: header, blocks, index, summaries, footer |
//! | [`writer`] | sorted records become a file, one I/O at a time; the file is published |
//! | [`reader`] | opening a run; reading its records in order, all of them or those of some pages |
//! | [`quick`] | run generation: records of whole epochs, sorted in memory |
//! | [`selection`] | run generation: records leave a selection tree while others arrive |
//! | [`unsorted`] | traditional archiving, for measurements: records copied in the log's order |
//! | [`generation`] | the choice among `quick`, `selection` and `unsorted` |
//! | [`archiver`] | the log's durable epochs become runs, one I/O at a time |
//! | [`merge`] | neighbouring runs become one; the records of a page become one net record |
//! | [`log_order`] | a run's records in the order of the log |
//! | [`manifest`] | the list of the archive's files; the edits that turn a manifest into the next one |
//! | [`store`] | an archive in a directory: opened after a crash, changed, verified |
//! | [`report`] | the results of comparing the archive with the database |
//! | [`estimate`] | how long a restore takes, by the last drill |
//! | [`backlog`] | runs that wait on the log's disk while the archive is unavailable |
//! | [`drain`] | moving the runs of a backlog into the archive |
//! | [`merger`] | the choice of the runs to merge, and the removal of their files |
//! | [`retention`] | the promised moments, and the files that none of them needs |
//! | [`upkeep`] | merging and removal in one process |
//! | [`agent`] | merging and removal in a process outside the database |
//!
//! The archive opens no index and has no code for tables or transactions. Its callers supply the disks. It reads no
//! clock and starts no thread. Its callers archive and merge in steps of one I/O each.
//!
//! # Source
//! C. Sauer, G. Graefe, T. Härder, "Single-pass restore after a media failure", sections 3.1 and 3.3.
//! # Deviations
//! * The paper orders the records of a page by their LSN. Ours commute, so the order within a page only makes the
//!   file deterministic. Where the paper has a range of LSNs we have a range of commit epochs, which all streams of
//!   the log share.
//! * Pages are sorted by partition and local page instead of by page id, so that the records of a partition are
//!   contiguous.
//! * The paper mentions net changes but gives no rule for combining updates. We have two rules: see [`merge`].

pub mod agent;
pub mod archiver;
pub mod backlog;
pub mod backup;
pub mod drain;
pub mod estimate;
pub mod generation;
pub mod keyed;
pub mod log_order;
pub mod manifest;
pub mod merge;
pub mod merger;
pub mod name;
pub mod numbers;
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
pub use merge::{Images, Keep, Merge, MergeOptions, Merged};
pub use merger::{MergedRun, Merger, MergerOptions, MergerStep, Policy, Verdict};
pub use name::{EpochRange, RunId};
pub use numbers::NumberChain;
pub use quick::{Quick, QuickRun, Sorted};
pub use reader::{FrameCursor, FrameOfEpoch, FramesByEpoch, Run, RunCursor, Scope};
pub use record::{EpochSpan, FragmentBytes, PageAt, RunRecord, Updates};
pub use report::{Outcome, Replay, Report, ReportId, ReportKind, Reporting};
pub use retention::Retention;
pub use run::{
    Codec, Digests, FrameAt, FrameEntry, FrameOrPlace, Frames, Moment, Moments, Numbers, PageSet,
    RunHeader,
};
pub use store::{Store, list_archives};
pub use upkeep::{Upkeep, UpkeepStep};
pub use writer::{Progress, RunSummary, RunTarget, RunWriter, Tail};
