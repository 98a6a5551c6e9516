//! Hashes, lists, sets and sorted sets over a transaction's rows.
//!
//! A collection is *small* while all of it fits in the row of its key, packed by [`small`]. When it
//! outgrows that, its elements become rows of their own and the key's row only names their home; it
//! does not go back. A command must not see which of the two it works on: it talks to the module of
//! its type, which keeps the rule in one place. The server, the simulator and the embedded
//! interface all use these modules.
//!
//! | module | one idea |
//! |---|---|
//! | [`small`] | the packed form: one codec for all four types |
//! | [`number`] | integers and decimals in the forms that Redis reads and writes |

pub mod number;
pub mod small;

use perdura_base::Error;
use perdura_txn::Abort;

/// Why an operation on a key did not happen. Nothing of it was written.
#[derive(Debug)]
pub enum Fault {
    /// The key holds a value of another type.
    WrongType,
    /// The transaction cannot go on, or must run again; to be handed on.
    Abort(Abort),
}

impl From<Abort> for Fault {
    fn from(abort: Abort) -> Self {
        Fault::Abort(abort)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Abort(Abort::Error(error))
    }
}
