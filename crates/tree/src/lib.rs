//! A second data component: tables in pages on disk. It deals with keys, pages and the numbers of operations, but not
//! with transactions.
//!
//! | module | one idea |
//! |---|---|
//! | [`contract`] | the contract between the tree and its callers |
//! | [`tree`] | tables: descents, reads, scans, writes |
//! | [`structure`] | changes of structure, and their redo |
//! | [`split`], [`merge`] | the changes of structure themselves |
//! | [`bulk`] | filling a new tree |
//! | [`redo`] | the redo of one operation |
//! | [`monitor`] | the notes while pages become dirty and are written: the records Δ and BW, and the dirty pages |
//! | [`dirty_pages`] | the dirty page table of a restart, and the redo test that needs no page |
//! | [`pool`] | the pages in memory, and the writer |
//! | [`read_ahead`] | pages are read before they are wanted: by a list, by the log, or all that lead to others |
//! | [`mod@file`] | reads pages, and writes them so that a torn write loses none |
//! | [`check`](mod@check) | the check of a tree's links |
//! | [`scrub`](mod@scrub) | the check that pages on disk are whole |
//! | [`analysis`] | the making of the table: from Δ records, from BW records and operations, or from a checkpoint's pages |
//!
//! # Source
//! Logical recovery: D. Lomet, K. Tzoumas, M. Zwilling, "Implementing Performance Competitive Logical Recovery". As
//! printed, it loses updates; the modules name their differences.

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
