//! A second data component: tables in pages on disk. It knows keys, pages and the numbers of operations, and no
//! transaction.
//!
//! | module | one idea |
//! |---|---|
//! | [`contract`] | what passes between it and its callers |
//! | [`tree`] | tables: descents, reads, scans, writes |
//! | [`structure`] | changes of structure, and their redo |
//! | [`split`], [`merge`] | the changes that there are |
//! | [`bulk`] | filling a new tree |
//! | [`redo`] | the redo of one operation |
//! | [`monitor`] | what is noted while pages become dirty and are written: the records Δ and BW, and which pages are dirty |
//! | [`dirty_pages`] | the dirty page table of a restart, and the redo test that needs no page |
//! | [`pool`] | the pages in memory, and the writer |
//! | [`read_ahead`] | pages are read before they are wanted: by a list, by the log, or all that lead to others |
//! | [`mod@file`] | reading pages, and writing them so that no tear takes one |
//! | [`check`](mod@check) | whether a tree hangs together |
//! | [`scrub`](mod@scrub) | whether the pages on disk are whole |
//! | [`analysis`] | how the table is made: of Δ records, of BW records and operations, or of a checkpoint's pages |
//!
//! # Source
//! Logical recovery: D. Lomet, K. Tzoumas, M. Zwilling, "Implementing Performance Competitive Logical Recovery". Typed
//! in as printed it loses updates; the modules say where they differ.

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
