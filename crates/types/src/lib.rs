//! Hashes, lists, sets, sorted sets and streams over a transaction's rows.
//!
//! A collection is *small* while all of it fits in the row of its key, packed by [`small`]. When it outgrows that
//! row, each of its elements becomes a row, and the key's row only names the home of these rows. The collection never
//! becomes small again. The module of each type chooses between the two forms, so that commands do not depend on the
//! form. The server, the simulator and the embedded interface all use these modules.
//!
//! | module | one idea |
//! |---|---|
//! | [`small`] | the packed form: one codec for all four types |
//! | [`open`] | from a key to its collection, for reading |
//! | [`change`] | a collection that is being changed, in whichever form it has |
//! | [`hash`], [`list`], [`set`], [`zset`] | the types |
//! | [`geo`] | places on a map, as members of a sorted set |
//! | [`hll`] | estimates of how many different elements were added, as strings |
//! | [`stream`] | streams, which have no packed form |
//! | [`whole`] | operations on a key of any type |
//! | [`sample`] | random elements, each once |
//! | [`texts`] | many texts in one piece of memory |
//! | [`number`], [`score`], [`decimal`] | integers, scores and decimals in the forms that Redis reads and writes |

pub mod change;
pub mod decimal;
pub mod geo;
pub mod hash;
pub mod hll;
pub mod list;
pub mod number;
pub mod open;
pub mod sample;
pub mod score;
pub mod set;
pub mod small;
pub mod stream;
pub mod texts;
pub mod whole;
pub mod zset;

pub use change::{Change, Left};
pub use open::{Entry, Source, Text};
pub use texts::Texts;
pub use whole::{Part, copy, encoding, type_name, visit};

use perdura_base::Error;

/// The reason why an operation on a key failed. A failed operation has written nothing.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The key holds a value of a different type.
    #[error("the key holds a value of another type")]
    WrongType,
    /// The transaction cannot continue, or must run again. Callers pass this on.
    #[error(transparent)]
    Abort(#[from] Error),
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::WrongType => Error::Usage(fault.to_string()),
            Fault::Abort(error) => error,
        }
    }
}
