//! The manner of a transaction: its time, the form of its log record, and the caller's patience.

use crate::ordered::Says;
use crate::patience::Patience;

/// A transaction's time, and the form of the transaction's log record.
#[derive(Debug, Clone, Copy)]
pub struct Manner<'a> {
    /// The transaction's time, milliseconds since 1970.
    pub now_ms: u64,
    /// The form in which changes to key-addressed tables are logged.
    pub says: Says<'a>,
    /// The caller's patience with latches that others hold.
    pub patience: Patience<'a>,
}

impl<'a> Manner<'a> {
    /// Returns the manner of a transaction that waits for its latches as long as necessary.
    #[must_use]
    pub fn new(now_ms: u64, says: Says<'a>) -> Self {
        let patience = Patience::ENDLESS;
        Manner {
            now_ms,
            says,
            patience,
        }
    }
}
