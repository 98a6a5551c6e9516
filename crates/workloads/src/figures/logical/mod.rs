//! The figures of *Implementing Performance Competitive Logical Recovery* (002), which compares redo by keys with redo
//! by page ids.
//!
//! | module | one idea |
//! |---|---|
//! | [`redo_time`] | figure 2(a): redo time by the size of the memory |
//! | `redo_claims` | the claims about figure 2(a) |
//! | [`dirty`] | figure 2(b): the size of the table of dirty pages, compared with the memory and with the dirty pages |
//! | [`records`] | figure 2(c): Δ and BW records, and their share of the log |
//! | [`interval`] | figure 3: redo time by the checkpoint interval |
//! | [`detail`] | appendix D: the table of dirty pages by the contents of a Δ record |
//! | [`prefetch`] | appendix A: redo time by the source of the pages that are read ahead |
//! | [`stand`] | a history for each size of memory and interval, and the restarts of its crash |
//! | `history` | uniform updates, ten checkpoints, a crash |
//! | `restarts` | one restart of a crash |
//! | `noted` | the records about the tree in the log |
//! | `other_pages` | one log, redone onto pages of two sizes |
//! | `ground` | disks: modelled, or the machine's own |
//! | `judged` | tests of claims: each can be missed |
//! | [`scale`] | the sizes of the experiments |
//!
//! # Source
//! *Implementing Performance Competitive Logical Recovery* (002), section 5, appendices B to D.
//!
//! # Deviations
//! The paper measures SQL Server, which has its own writer of dirty pages. Perdura's writer keeps the number of dirty
//! pages below a quarter of the memory, and writes the oldest first. This causes the shape of figure 2(b). ARIES is
//! our addition.

pub mod detail;
pub mod dirty;
mod ground;
mod history;
pub mod interval;
#[cfg(test)]
pub(super) mod judged;
mod noted;
mod other_pages;
pub mod prefetch;
pub mod records;
mod redo_claims;
pub mod redo_time;
mod restarts;
pub mod scale;
pub mod stand;
mod unsynced;

use anyhow::{Result, anyhow};
use perdura_recovery::Method;

use self::history::Plan;

/// A method, and its name in the paper.
struct Named {
    method: &'static str,
    label: &'static str,
}

const fn named(method: &'static str, label: &'static str) -> Named {
    Named { method, label }
}

/// All methods, in the paper's order.
const METHODS: [Named; 6] = [
    named("log0", "Log0"),
    named("log1", "Log1"),
    named("log2", "Log2"),
    named("sql1", "SQL1"),
    named("sql2", "SQL2"),
    named("aries", "ARIES"),
];

/// Returns the plan of a history with this size of memory and the shortest checkpoint interval.
const fn at_cache(cache: u64) -> Plan {
    Plan {
        cache,
        interval: 1,
        with_numbers: false,
    }
}

/// Returns all methods.
fn all_methods() -> Result<Vec<&'static Method>> {
    METHODS.iter().map(|of| method_of(of.method)).collect()
}

/// Returns a method by its name.
fn method_of(name: &str) -> Result<&'static Method> {
    Method::by_name(name).map_err(|why| anyhow!(why))
}
