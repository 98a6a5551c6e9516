//! Typed tables and procedures of a database: the program's declarations, and the catalog's entries.
//!
//! | module | one idea |
//! |---|---|
//! | [`options`] | the program's declarations: tables, procedures, the form of the log |
//! | [`procedures`] | a procedure with its type erased |
//! | `state` | declarations and catalog: schemas compared, tables made, ids given to procedures |
//! | [`replay`] | playing the ordered frames of a log |
//! | `refuse` | the reasons why a replay stops |
//! | [`accept`] | continuing although a replay differs from the log |
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
