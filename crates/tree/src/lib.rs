//! A second data component: tables in pages on disk. It knows keys, pages and the numbers of operations, and no transaction.
//!
//! What is here so far decides which operations a restart has to redo, and holds and writes pages. The tree over them is not here
//! yet.
//!
//! | module | one idea |
//! |---|---|
//! | [`monitor`] | what is noted while pages become dirty and are written: the records Δ and BW, and which pages are dirty |
//! | [`dirty_pages`] | the dirty page table of a restart, and the redo test that needs no page |
//! | [`pool`] | the pages in memory, and the writer |
//! | [`file`] | reading pages, and writing them so that no tear takes one |
//! | [`analysis`] | how the table is made: of Δ records, of BW records and operations, or of a checkpoint's pages |
//!
//! # Source
//! Logical recovery: D. Lomet, K. Tzoumas, M. Zwilling, "Implementing Performance Competitive Logical Recovery". Typed in as
//! printed it loses updates; the modules say where they differ.

pub mod analysis;
pub mod dirty_pages;
pub mod file;
pub mod monitor;
pub mod pool;
