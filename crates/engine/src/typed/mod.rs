//! Typed tables and procedures of a database: the program's declarations, and the catalog's entries.
//!
//! | module | one idea |
//! |---|---|
//! | [`options`] | what the program declares: tables, procedures, what the log says |
//! | [`procedures`] | a procedure whose type is not known any more |
//! | `state` | declared and found: the schemas compared, tables made, procedures numbered |
//! | [`replay`] | playing the ordered frames of a log |
//! | `refuse` | why a replay stops |
//! | [`accept`] | going on where a replay does something else than the log says |
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), sections II-B, III and IV.

pub mod accept;
pub mod options;
pub mod procedures;
mod refuse;
pub mod replay;
#[cfg(feature = "flaws")]
pub(crate) mod seeded;
mod state;

pub use crate::catalog::CatalogRows;
pub use accept::AcceptDivergence;
pub use options::{LogForm, TypedOptions};
pub use procedures::Registered;
pub(crate) use state::TypedState;
