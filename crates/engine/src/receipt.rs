//! Receipts. A client keeps the receipt of a write. With the receipt the client can later check whether a data
//! directory contains the write.
//!
//! The text form of a receipt is a token, `<first 8 hex digits of the database's uuid>-<life>-<epoch>-<durability>`,
//! for example `0f3ac81e-4-99213-disk`.

use std::fmt::{self, Display};
use std::str::FromStr;

use perdura_base::{Epoch, Incarnation, Uuid};

use crate::db::Db;
use crate::durability::Durability;

mod judge;

pub use judge::{Fate, Judged, Newest};

/// The receipt of a write, as of the time when the reply was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The first four bytes of the database's uuid.
    pub database: [u8; 4],
    /// The write's *life*: the time between two restarts of the database.
    pub incarnation: Incarnation,
    /// The write's commit epoch.
    pub epoch: Epoch,
    /// A durability that the write had reached. It may have reached a higher one.
    pub durability: Durability,
}

impl Receipt {
    /// Returns whether a database with this uuid may have issued the receipt.
    #[must_use]
    pub fn is_of(&self, uuid: &Uuid) -> bool {
        self.database == beginning(uuid)
    }
}

fn beginning(uuid: &Uuid) -> [u8; 4] {
    let [a, b, c, d, ..] = uuid.0;
    [a, b, c, d]
}

impl Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = u32::from_be_bytes(self.database);
        let (life, epoch) = (self.incarnation.0, self.epoch.0);
        write!(
            f,
            "{database:08x}-{life}-{epoch}-{}",
            self.durability.name()
        )
    }
}

/// The error for a text that is no receipt. It holds the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoReceipt(String);

impl Display for NoReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not a receipt. A receipt looks like 0f3ac81e-4-99213-disk",
            self.0.escape_debug()
        )
    }
}

impl std::error::Error for NoReceipt {}

impl FromStr for Receipt {
    type Err = NoReceipt;

    fn from_str(text: &str) -> Result<Receipt, NoReceipt> {
        parse(text).ok_or_else(|| NoReceipt(text.chars().take(80).collect()))
    }
}

/// Parses a receipt. Returns `None` for any other text. A number has one valid spelling, so that each receipt has only
/// one token.
fn parse(text: &str) -> Option<Receipt> {
    let mut parts = text.split('-');
    let mut part = || parts.next();
    let database = u32::from_str_radix(part()?, 16).ok()?;
    let incarnation = Incarnation(part()?.parse().ok()?);
    let epoch = Epoch(part()?.parse().ok()?);
    let durability = Durability::named(part()?.as_bytes())?;
    let receipt = Receipt {
        database: database.to_be_bytes(),
        incarnation,
        epoch,
        durability,
    };
    // Lives and epochs are counted from 1, so 0 is invalid.
    let is_given = incarnation > Incarnation(0) && epoch > Epoch(0);
    (is_given && receipt.to_string() == text).then_some(receipt)
}

impl Db {
    /// Returns the receipt of a write. The write was made in `epoch` and has reached `durability`.
    #[must_use]
    pub fn receipt(&self, epoch: Epoch, durability: Durability) -> Receipt {
        let anchor = self.shared.core().anchor().get();
        assert!(
            epoch <= self.shared.core().wal().current(),
            "epoch {epoch} has not begun"
        );
        Receipt {
            database: beginning(&anchor.uuid),
            incarnation: anchor.incarnation,
            epoch,
            durability,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_one_token_and_back() {
        let receipt = Receipt {
            database: [0x0f, 0x3a, 0xc8, 0x1e],
            incarnation: Incarnation(4),
            epoch: Epoch(99_213),
            durability: Durability::Disk,
        };
        assert_eq!(receipt.to_string(), "0f3ac81e-4-99213-disk");
        for durability in Durability::ALL {
            let receipt = Receipt {
                durability,
                ..receipt
            };
            assert_eq!(receipt.to_string().parse(), Ok(receipt));
        }
        let mut uuid = Uuid([7; 16]);
        uuid.0[..4].copy_from_slice(&receipt.database);
        assert!(receipt.is_of(&uuid) && !receipt.is_of(&Uuid([7; 16])));
    }

    #[test]
    fn what_no_database_gives_is_no_receipt() {
        let odd = [
            "",
            "0f3ac81e",
            "0f3ac81e-4-99213",
            "0f3ac81e-4-99213-disk-",
            "0f3ac81e-4-99213-disc",
            "0f3ac81e-4-99213-Disk",
            "0F3ac81e-4-99213-disk",
            "f3ac81e-4-99213-disk",
            "0f3ac81e-+4-99213-disk",
            "0f3ac81e-04-99213-disk",
            "0f3ac81e-0-99213-disk",
            "0f3ac81e-4-0-disk",
            "0f3ac81e-4294967296-1-disk",
            "0f3ac81e-4-18446744073709551616-disk",
            "0f3ac81e-4-99213-disk\n",
        ];
        for text in odd {
            let error = text.parse::<Receipt>().expect_err(text).to_string();
            assert!(error.contains("is not a receipt"), "{error}");
        }
    }
}
