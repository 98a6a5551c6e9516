//! Recovery: checkpoints while the database runs, and the restart after a crash.
//!
//! This crate follows from one idea: **(image, log) → state**, with two predicates. `reflected(record, image)`: does
//! the image hold the record's change? `wanted(transaction, target)`: should the recovered state hold the transaction's
//! changes? A commuting record is applied iff the two answers differ. Each record has an owner. In a restart the owners
//! play their frames in turn, in the order of the module `owner`. A restart method is a row of [`method::METHODS`],
//! which names the player.
//!
//! | module | one idea |
//! |---|---|
//! | [`image`] | the two images' files: pages and directory |
//! | [`anchor`] | the anchor's contents: the log's history and the sections that this build knows |
//! | [`images`] | the images as the anchor lists them, and the changes of their states |
//! | [`anchor_cell`] | the anchor in memory, and the one way to change it |
//! | [`families`] | the families of ordered frames that a log may hold; a family is declared before its first frame |
//! | [`component`], [`tables`] | data components, as restart and checkpoint use them; the kinds of tables |
//! | [`checkpoint`] | the fuzzy sweep, a state machine with one I/O per step |
//! | [`cover`] | the part of the log that a checkpoint covers |
//! | [`window`] | the transaction layer's work at the begin and the end of a checkpoint's window |
//! | [`mod@vouch`] | writing the log's durable end into the anchor |
//! | [`sections`] | sections of the anchor: a mirror, a tree |
//! | [`archived`], `begins` | the archive's end, noted in the anchor; the lowest epoch of each image |
//! | [`truncate`] | the position up to which the log may be cut |
//! | [`rule`] | the two predicates, and which state an image holds |
//! | [`method`] | the table of restart methods |
//! | `owner`, [`claims`] | the owners of records, in the order in which a restart runs them; the frames that each owner plays |
//! | [`player`] | the players that the rows of [`method`] name |
//! | [`level`], [`work`], `jobs`, [`schedule`] | the levels; the jobs; their progress; the choice of each thread's next job |
//! | [`mod@recover`] | (image, log) → pages: the first owner's part |
//! | [`base`], [`source`] | the interfaces of an image and a log to recover from |
//! | [`plan`], [`load`] | choosing the slot to load, falling back to the other slot, repairing pages; loading |
//! | [`streams`] | a database's log streams as a source |
//! | `cursor` | the frames of one owner, merged from all streams into one order |
//! | `route`, `pass` | which player takes a frame; the state that the players of one pass share |
//! | `replay`, `judge` | the jobs of the schedule; the work of each player on a frame |
//! | [`ordered`], [`ordered_player`] | ordered frames, played in each partition in their order; the interface of their player |
//! | [`divergence`] | the records whose replay differs from the log |
//! | [`tree`] | the tree's part of a restart: numbered frames, in the order of their numbers; the tree's share of a checkpoint |
//! | [`threads`] | running threads in parallel and waiting for all of them |
//! | [`indexing`] | making tables from pages: reading the catalog and building indexes, as jobs of the schedule |
//! | [`fates`] | the fate of each transaction of a stream |
//! | `merge`, `undo` | replay in the global order of serial numbers; the second pass, which undoes |
//! | `restored` | the image of a restore, whose key-addressed rows are older than its other pages |
//! | [`found`] | the contents of the disks: a database, nothing, or the remains of one |
//! | `create` | making a new database |
//! | `options`, `given`, [`mod@restart`], `close` | a restart's arguments; their check; its phases; closing a life |
//! | [`life`] | an open database beneath its transactions |
//! | `sweep_digest` | the digests of an image by partition, which a proof compares |
//! | [`salvage`], `mended` | recovering the remains of a database that a restart refuses |
//! | [`verify`] | checks every byte that a restart could need |
//! | [`mod@dump`] | a frame's contents as text |
//! | [`report`] | the progress of a restart, and its report |
//!
//! # Source
//! *Differential Logging* (000), algorithms 2 and 3 and section 4.2, with the corrections that
//! [`checkpoint`] and [`rule`] name.

pub mod active;
pub mod anchor;
pub mod anchor_cell;
pub mod archived;
pub mod base;
mod begins;
mod branch;
pub mod checkpoint;
pub mod claims;
mod close;
pub mod component;
pub mod cover;
mod create;
mod creating;
mod cursor;
pub mod demand;
pub mod disks;
pub mod divergence;
pub mod dump;
pub mod families;
pub mod fates;
mod findings;
mod flush;
pub mod footing;
pub mod found;
mod given;
mod heap_pages;
pub mod image;
pub mod images;
pub mod indexing;
mod jobs;
mod judge;
pub mod level;
pub mod life;
mod lineage;
pub mod load;
pub mod log_end;
mod losses;
mod means;
mod mended;
mod merge;
pub mod method;
mod mirrored;
mod options;
pub mod ordered;
pub mod ordered_player;
mod owner;
mod parent;
mod pass;
mod places;
pub mod plan;
pub mod player;
pub mod recover;
mod replay;
pub mod report;
pub mod restart;
mod restored;
mod route;
pub mod rule;
pub mod salvage;
pub mod schedule;
pub mod sections;
pub mod source;
mod stats;
pub mod streams;
mod sweep_digest;
pub mod tables;
pub mod threads;
pub mod tree;
mod tree_means;
pub mod truncate;
mod undo;
pub mod verify;
pub mod vouch;
pub mod window;
pub mod work;

pub use anchor::{Anchor, open_anchor, read_anchor};
pub use anchor_cell::AnchorCell;
pub use archived::check_archive;
pub use branch::{TIMELINES, TimelineName, timeline_dir};
pub use checkpoint::{CheckpointProgress, CheckpointStats, Checkpointer};
pub use component::Data;
pub use cover::Cover;
pub use disks::Disks;
pub use families::{Families, Family};
pub use image::{DirEntry, Directory};
pub use images::{IMAGE_DISKS_MAX, ImageState, ImageStatus, Images};
pub use level::{Level, Schedule};
pub use losses::{AcceptedLoss, LOSSES_MAX, Losses};
pub use method::{METHODS, Method, Methods};
pub use mirrored::undrained;
pub use options::RestartMode;
pub use ordered::{OrderedFrame, OrderedPlayer};
pub use owner::{check_methods, dump, writes_in_place};
pub use player::Player;
pub use report::{Progress, RestartReport};
pub use restart::{NewDatabase, RestartOptions, Restarted, Tail, create, restart};
pub use restored::RestoredRows;
pub use sections::mirrored::Mirrored;

pub use flush::flush_all;
pub use life::{Checkpoints, Life, LogMemory};
pub use sweep_digest::SweepDigest;
pub use tables::{Addressing, Catalog, ComponentKind, KeyOrder, TableKind};
pub use vouch::vouch;
pub use window::{Beginning, Begun, ExecutorWindow, Window};
