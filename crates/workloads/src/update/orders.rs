//! Draws rows with the shares of TPC-C's row changes, for experiments that need page-addressed rows only.
//!
//! | part of the rows | of TPC-C | changed |
//! |---|---|---|
//! | the first 40 % | stock and customers | 31 % of the changes, drawn by NURand |
//! | the rest | orders, their lines, history | 69 % of the changes, in order: each row is passed once |
//!
//! Both numbers follow from TPC-C and are fitted to no measurement. Of a hundred transactions 45 are New-Orders. Each
//! changes 10 stocks, and 13 rows at the ends of tables. Of 43 Payments each changes one customer and 3 other rows.
//! Each of 4 Deliveries changes 10 customers, and 120 rows of orders.
//!
//! # Source
//! TPC-C 5.11, clauses 1.2.1 (row sizes), 2.1.6 (NURand), 2.4 to 2.7, and 5.2.3 (the mix).

/// The changes of a hundred transactions to stocks and customers.
const SCATTERED: u64 = 45 * 10 + 43 + 4 * 10;
/// The changes of a hundred transactions to other rows.
const IN_ORDER: u64 = 45 * 13 + 43 * 3 + 4 * 120;
/// The row changes of a hundred transactions.
pub const CHANGES_OF_HUNDRED: u64 = SCATTERED + IN_ORDER;
/// The part of the rows that are stocks and customers, in percent. A warehouse has 100,000 stocks of 306 bytes and
/// 30,000 customers of 655, together 50 MB. The database of paper 004 has 125 MB a warehouse.
const SCATTERED_PERCENT: u64 = 40;

/// A source of the numbers of rows.
#[derive(Debug, Clone)]
pub struct Orders {
    rows: u64,
    changes: u64,
    made: u64,
    rng: fastrand::Rng,
}

impl Orders {
    /// Makes a source for `changes` changes of `rows` rows.
    ///
    /// # Panics
    /// If there are fewer than three rows.
    #[must_use]
    pub fn new(rows: u64, changes: u64, seed: u64) -> Orders {
        assert!(rows > 2, "both parts have rows");
        Orders {
            rows,
            changes: changes.max(1),
            made: 0,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// Draws the rank of the next row, in the order in which the rows were inserted.
    pub fn rank(&mut self) -> u64 {
        let scattered = self.rows * SCATTERED_PERCENT / 100;
        let made = self.made;
        self.made += 1;
        if self.rng.u64(..CHANGES_OF_HUNDRED) < SCATTERED {
            // The specification's A for 100,000 items is 8191.
            let a = (scattered * 8192 / 100_000).next_power_of_two();
            return (self.rng.u64(..a) | self.rng.u64(..scattered)) % scattered;
        }
        let rest = self.rows - scattered;
        scattered + (made * rest / self.changes).min(rest - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_changes_is_scattered_and_the_rest_passes_once() {
        let (rows, changes) = (1_000, 100_000);
        let mut orders = Orders::new(rows, changes, 7);
        let ranks: Vec<u64> = (0..changes).map(|_| orders.rank()).collect();
        let scattered = ranks.iter().filter(|rank| **rank < 400).count();
        assert!((30_000..32_000).contains(&scattered), "{scattered}");
        let in_order: Vec<u64> = ranks.into_iter().filter(|rank| *rank >= 400).collect();
        assert!(in_order.is_sorted());
        assert_eq!((in_order[0], in_order[in_order.len() - 1]), (400, 999));
    }
}
