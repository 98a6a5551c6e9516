//! Tables in pages on disk: a second data component, beside the tables in memory. It deals with keys, pages and the
//! numbers of operations, but not with transactions.
//!
//! | module | one idea |
//! |---|---|
//! | [`contract`] | the contract between the tree and its callers |
//! | [`tree`] | tables: descents, reads, scans, writes |
//! | [`structure`] | how changes of structure are planned, logged, made and redone |
//! | [`split`], [`merge`] | the kinds of changes of structure: new tables, splits, merges |
//! | [`bulk`] | filling a new tree |
//! | [`redo`] | the redo of one operation |
//! | [`monitor`] | the dirty pages, and notes of dirtied and written pages: the records Δ and BW |
//! | [`dirty_pages`] | the dirty page table of a restart, and the redo test that reads no page |
//! | [`pool`] | the pages in memory, and the writer |
//! | [`read_ahead`] | reads pages before redo needs them: pages of a list, pages named by the log, or all inner pages |
//! | [`mod@file`] | reads pages, and writes them so that a torn write loses no page |
//! | [`check`](mod@check) | the check of a tree's links |
//! | [`scrub`](mod@scrub) | the check that pages on disk are whole |
//! | [`analysis`] | makes the dirty page table: by Δ records, by BW records, or by a checkpoint's end record |
//!
//! # Source
//! Logical recovery: D. Lomet, K. Tzoumas, M. Zwilling, "Implementing Performance Competitive Logical Recovery". The
//! printed algorithms lose updates. Each module lists where it deviates from them.

pub mod analysis;
pub mod bulk;
pub mod check;
pub mod contract;
pub mod dirty_pages;
pub mod file;
pub mod merge;
pub mod monitor;
pub mod pool;
pub mod read_ahead;
pub mod rebuilt;
pub mod redo;
pub mod scrub;
pub mod split;
pub mod structure;
pub mod tree;
