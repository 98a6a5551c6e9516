//! Chooses ranks at random by Zipf's law. Rank `i`, counted from 0, has a probability in proportion to
//! `(i + 1)^-theta`.
//!
//! A choice computes one power, for any number of ranks. Making a [`Zipf`] computes a power for each rank. The
//! probabilities of the first two ranks are exact. The other ranks follow the integral of the law, which differs from
//! the law's sum by at most a percent.
//!
//! # Source
//! J. Gray, P. Sundaresan, S. Englert, K. Baclawski, P. Weinberger, "Quickly generating billion-record synthetic
//! databases", SIGMOD 1994, section "Skewed distributions"; the law of YCSB.

use crate::num::f64_of;

/// A source of ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Zipf {
    count: u64,
    /// The sum of the weights of all ranks.
    zeta: f64,
    /// The sum of the weights of the first two ranks.
    first_two: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// Makes the law for `count` ranks with the exponent `theta`, which is between 0 and 1.
    ///
    /// # Panics
    /// If `count` is 0, or the exponent is not between 0 and 1.
    #[must_use]
    pub fn new(count: u64, theta: f64) -> Zipf {
        assert!(count > 0, "there is a rank");
        assert!(theta > 0.0 && theta < 1.0, "an exponent between 0 and 1");
        let weight = |rank: u64| f64_of(rank).powf(-theta);
        let zeta: f64 = (1..=count).map(weight).sum();
        let first_two = 1.0 + weight(2);
        let eta = if count > 2 {
            (1.0 - (2.0 / f64_of(count)).powf(1.0 - theta)) / (1.0 - first_two / zeta)
        } else {
            1.0
        };
        Zipf {
            count,
            zeta,
            first_two,
            alpha: 1.0 / (1.0 - theta),
            eta,
        }
    }

    /// Converts a uniform random number from 0 to 1 to a rank.
    #[must_use]
    pub fn rank(&self, uniform: f64) -> u64 {
        let sum = uniform * self.zeta;
        if sum < 1.0 {
            return 0;
        }
        if sum < self.first_two {
            return 1.min(self.count - 1);
        }
        let part = (self.eta * uniform - self.eta + 1.0).powf(self.alpha);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let rank = (f64_of(self.count) * part) as u64;
        rank.min(self.count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_as_the_law_says() {
        let zipf = Zipf::new(10_000, 0.99);
        let (mut counts, draws) = (vec![0u32; 10_000], 1_000_000);
        for i in 0..draws {
            let uniform = (f64::from(i) + 0.5) / f64::from(draws);
            counts[usize::try_from(zipf.rank(uniform)).unwrap()] += 1;
        }
        let weights: Vec<f64> = (1..=10_000).map(|i| f64::from(i).powf(-0.99)).collect();
        let all: f64 = weights.iter().sum();
        let share_of = |ranks: std::ops::Range<usize>| {
            let drawn: u32 = counts[ranks.clone()].iter().sum();
            let asked: f64 = weights[ranks].iter().sum();
            (f64::from(drawn) / f64::from(draws), asked / all)
        };
        for ranks in [0..1, 1..2, 0..10, 0..100, 0..1000, 1000..10_000] {
            let (drawn, asked) = share_of(ranks.clone());
            assert!((drawn - asked).abs() < 0.02, "{ranks:?}: {drawn}, {asked}");
        }
    }

    #[test]
    fn few_ranks_are_all_drawn_and_none_beyond() {
        for count in 1..6 {
            let zipf = Zipf::new(count, 0.5);
            let ranks: std::collections::BTreeSet<u64> = (0..1000)
                .map(|i| zipf.rank(f64::from(i) / 1000.0))
                .collect();
            assert_eq!(ranks, (0..count).collect(), "{count}");
        }
    }
}
