//! The update workload, for the experiments with the log archive: changes of rows' values.
//!
//! The rows are page-addressed, so each update is logged as a difference of one page. An update chooses a row
//! at random, uniformly or by Zipf's law, and an offset in the row's value. Starting at the offset, it overwrites
//! `changed_bytes` bytes with random bytes. The database keeps its size, and the log grows with the length of the run.
//! So the experimenter can choose the ratio of log to image.
//!
//! | module | one idea |
//! |---|---|
//! | [`mod@bench`] | a run: inserts the rows into an empty database, updates them, and reports |
//! | [`keyed`] | updates of a tree, by transactions that find rows by key |
//! | [`orders`] | rows with the shares of TPC-C's changes |
//! | [`zipf`] | ranks by Zipf's law, in constant time |

pub mod bench;
pub mod keyed;
pub mod orders;
pub mod zipf;

use perdura_page::Row;

use self::orders::Orders;
use self::zipf::Zipf;
use crate::kv::{KEY_BYTES, key_of, nth_key};

/// The minimum size of a row, in bytes. The row has a head, a key and sixteen bytes of value.
pub const SLOT_BYTES_MIN: usize = 40;
/// The maximum size of a row, bytes. A longer row would need a chain of pages.
pub const SLOT_BYTES_MAX: usize = 2048;

/// The rows of the database, and the distribution of their updates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rows {
    /// The number of rows.
    pub count: u64,
    /// The size of each row with its head and key, bytes.
    pub slot_bytes: usize,
    /// The number of bytes that an update changes.
    pub changed_bytes: usize,
    /// The exponent of Zipf's law, by which rows are chosen, between 0 and 1. `None`: all rows are equally likely.
    pub zipf: Option<f64>,
}

impl Rows {
    /// Fails if these settings are invalid.
    ///
    /// # Errors
    /// The reason, in words.
    pub fn check(&self) -> Result<(), String> {
        if self.count == 0 {
            return Err("there is at least one row".into());
        }
        if !(SLOT_BYTES_MIN..=SLOT_BYTES_MAX).contains(&self.slot_bytes) {
            return Err(format!(
                "a row has {SLOT_BYTES_MIN} to {SLOT_BYTES_MAX} bytes, not {}",
                self.slot_bytes
            ));
        }
        let value = self.value_bytes();
        if !(1..=value).contains(&self.changed_bytes) {
            return Err(format!(
                "an update changes 1 to {value} bytes of a row of {}, not {}",
                self.slot_bytes, self.changed_bytes
            ));
        }
        if self.zipf.is_some_and(|theta| !(0.01..1.0).contains(&theta)) {
            return Err("an exponent of Zipf's law is 0.01 to 0.999".into());
        }
        Ok(())
    }

    /// Returns the size of a value, bytes. The value fills the rest of the slot after head and key.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        let key = key_of(0);
        let head = |value_bytes| {
            let row = Row {
                value_bytes,
                ..Row::inline(&key, &[], None)
            };
            row.bytes() - KEY_BYTES - value_bytes
        };
        // The head is one byte longer if the value's length takes two bytes.
        let room = self.slot_bytes - KEY_BYTES;
        let value = room - head(room);
        assert!(
            KEY_BYTES + value + head(value) <= self.slot_bytes,
            "a row fits its slot"
        );
        value
    }
}

/// A source of the rows to update.
#[derive(Debug, Clone)]
pub struct Draw {
    rng: fastrand::Rng,
    rows: u64,
    law: Law,
}

/// The law by which rows are drawn.
#[derive(Debug, Clone)]
enum Law {
    Uniform,
    Zipf(Zipf),
    Orders(Orders),
}

impl Draw {
    /// Makes the source of rows for a worker.
    #[must_use]
    pub fn new(rows: &Rows, zipf: Option<Zipf>, seed: u64) -> Draw {
        assert_eq!(
            rows.zipf.is_some(),
            zipf.is_some(),
            "the law that was asked for"
        );
        Draw {
            rng: fastrand::Rng::with_seed(seed),
            rows: rows.count,
            law: zipf.map_or(Law::Uniform, Law::Zipf),
        }
    }

    /// Makes a source of the rows for `changes` changes with the shares of TPC-C.
    #[must_use]
    pub fn orders(rows: &Rows, changes: u64, seed: u64) -> Draw {
        Draw {
            rng: fastrand::Rng::with_seed(seed),
            rows: rows.count,
            law: Law::Orders(Orders::new(rows.count, changes, seed)),
        }
    }

    /// Draws the number of the next row.
    pub fn row(&mut self) -> u64 {
        match &mut self.law {
            Law::Uniform => self.rng.u64(..self.rows),
            // The rows that are drawn most often are spread over the table.
            Law::Zipf(zipf) => nth_key(zipf.rank(self.rng.f64()), self.rows),
            Law::Orders(orders) => nth_key(orders.rank(), self.rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: Rows = Rows {
        count: 1000,
        slot_bytes: 256,
        changed_bytes: 40,
        zipf: None,
    };

    #[test]
    fn a_row_fills_its_slot() {
        assert_eq!(ROWS.value_bytes(), 256 - 16 - 4);
        for slot_bytes in SLOT_BYTES_MIN..=SLOT_BYTES_MAX {
            let rows = Rows { slot_bytes, ..ROWS };
            let value = vec![0; rows.value_bytes()];
            let bytes = Row::inline(&key_of(7), &value, None).bytes();
            assert!(
                bytes == slot_bytes || bytes + 1 == slot_bytes,
                "{bytes} of {slot_bytes}"
            );
        }
    }

    #[test]
    fn rows_that_cannot_be_are_refused() {
        assert_eq!(ROWS.check(), Ok(()));
        let refused = [
            Rows { count: 0, ..ROWS },
            Rows {
                slot_bytes: 39,
                ..ROWS
            },
            Rows {
                slot_bytes: 4096,
                ..ROWS
            },
            Rows {
                changed_bytes: 0,
                ..ROWS
            },
            Rows {
                changed_bytes: 237,
                ..ROWS
            },
            Rows {
                zipf: Some(1.0),
                ..ROWS
            },
            Rows {
                zipf: Some(f64::NAN),
                ..ROWS
            },
        ];
        for rows in refused {
            assert!(rows.check().is_err(), "{rows:?}");
        }
    }

    #[test]
    fn each_row_is_drawn_and_some_more_often_by_zipfs_law() {
        for theta in [None, Some(0.99)] {
            let rows = Rows {
                zipf: theta,
                ..ROWS
            };
            let zipf = theta.map(|theta| Zipf::new(rows.count, theta));
            let mut draw = Draw::new(&rows, zipf, 1);
            let mut counts = vec![0u32; 1000];
            for _ in 0..200_000 {
                counts[usize::try_from(draw.row()).unwrap()] += 1;
            }
            counts.sort_unstable_by(|a, b| b.cmp(a));
            assert!(counts[999] > 0, "{theta:?}");
            let share = f64::from(counts[0]) / 200_000.0;
            // The sum of i^-0.99 up to 1000 is 7.73.
            match theta {
                None => assert!(share < 0.002, "{share}"),
                Some(_) => assert!((0.12..0.14).contains(&share), "{share}"),
            }
        }
    }
}
