//! Typed tables and procedures of a database: what a program declares, and what the catalog has.
//!
//! | module | one idea |
//! |---|---|
//! | [`options`] | what the program declares: tables, procedures, what the log says |
//! | [`procedures`] | a procedure whose type is not known any more |
//! | `state` | declared and found: the schemas compared, tables made, procedures numbered |
//! | `open` | the declared made |
//! | `dropped` | a table dropped, and remembered while an image or the log needs it |
//! | `call` | running a procedure |
//! | [`replay`] | playing the ordered frames of a log |
//! | `refuse` | why a replay stops |
//! | [`accept`] | going on where a replay does something else than the log says |
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), sections II-B, III and IV.

pub mod accept;
mod call;
mod dropped;
mod open;
pub mod options;
pub mod procedures;
mod refuse;
pub mod replay;
#[cfg(feature = "flaws")]
pub(crate) mod seeded;
mod state;

pub use accept::AcceptDivergence;
pub use call::Pending;
pub use options::{LogForm, TypedOptions};
pub use procedures::Registered;
pub use state::CatalogRows;
pub(crate) use state::TypedState;
