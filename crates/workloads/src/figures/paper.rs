//! A value that a paper states, and how far ours may be from it.

use serde::Serialize;

/// The default tolerance of a value, as a fraction of the value.
pub const TOLERANCE: f64 = 0.15;

/// A value that a paper states: a number or a range.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Paper {
    /// The paper's words or numbers.
    pub words: String,
    /// The lowest value that agrees with the words. `None`: the paper states none.
    low: Option<f64>,
    /// The highest value that agrees with the words. `None`: the paper states none.
    high: Option<f64>,
    /// The tolerance on both sides: a fraction of the value, or an absolute number.
    tolerance: f64,
    /// True if the tolerance is absolute.
    absolute: bool,
}

impl Paper {
    fn ranged(words: &str, low: Option<f64>, high: Option<f64>) -> Paper {
        Paper {
            words: words.into(),
            low,
            high,
            tolerance: TOLERANCE,
            absolute: false,
        }
    }

    /// Returns a value that the paper states as `words`.
    #[must_use]
    pub fn of(words: &str, value: f64) -> Paper {
        Paper::ranged(words, Some(value), Some(value))
    }

    /// Returns a range that the paper states as `words`.
    #[must_use]
    pub fn between(words: &str, low: f64, high: f64) -> Paper {
        assert!(low <= high, "a range ascends: {words}");
        Paper::ranged(words, Some(low), Some(high))
    }

    /// Returns a value that the paper states as a minimum: all larger values agree with it.
    #[must_use]
    pub fn above(words: &str, low: f64) -> Paper {
        Paper::ranged(words, Some(low), None)
    }

    /// Returns a value that the paper states as a maximum: all smaller values agree with it.
    #[must_use]
    pub fn below(words: &str, high: f64) -> Paper {
        Paper::ranged(words, None, Some(high))
    }

    /// Returns the value of a quantity about which the paper says nothing.
    #[must_use]
    pub fn silent() -> Paper {
        Paper::ranged("-", None, None)
    }

    /// Sets an absolute tolerance. A value of zero needs it, because any fraction of zero is zero.
    #[must_use]
    pub fn within(self, tolerance: f64) -> Paper {
        Paper {
            tolerance,
            absolute: true,
            ..self
        }
    }

    /// Returns an end of the paper's range, and the signed distance of `ours` from the range. If `ours` is outside, the
    /// end is the nearest one. Inside, the distance is 0, and the end is the low one if the paper has it. `None`: the
    /// paper has no value.
    fn distance(&self, ours: f64) -> Option<(f64, f64)> {
        match (self.low, self.high) {
            (None, None) => None,
            (Some(low), _) if ours < low => Some((low, ours - low)),
            (_, Some(high)) if ours > high => Some((high, ours - high)),
            (low, high) => Some((low.or(high)?, 0.0)),
        }
    }

    /// Returns the signed distance of `ours` from the paper's range, divided by the range's nearest end. `None`: the
    /// paper has no value, or that end is zero.
    #[must_use]
    pub fn off(&self, ours: f64) -> Option<f64> {
        let (end, distance) = self.distance(ours)?;
        (end != 0.0).then(|| distance / end.abs())
    }

    /// Returns the signed distance of `ours` from the paper's range, or 0 if it is within the tolerance. `None`: the
    /// paper has no value.
    #[must_use]
    pub fn beyond(&self, ours: f64) -> Option<f64> {
        let (end, distance) = self.distance(ours)?;
        let free = if self.absolute {
            self.tolerance
        } else {
            self.tolerance * end.abs()
        };
        let is_beyond = distance.abs() > free || distance.is_nan();
        Some(if is_beyond { distance } else { 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_compared_with_the_nearest_end() {
        let six = Paper::of("about 6", 6.0);
        assert_eq!(six.beyond(5.2), Some(0.0));
        assert!((six.off(3.0).unwrap() + 0.5).abs() < 1e-12);
        let range = Paper::between("5 to 7", 5.0, 7.0);
        assert_eq!((range.off(6.0), range.beyond(8.0)), (Some(0.0), Some(0.0)));
        assert!(range.beyond(8.2) > Some(1.0));
        let above = Paper::above("above 1.8", 1.8);
        assert_eq!((above.off(9.0), above.beyond(1.6)), (Some(0.0), Some(0.0)));
        assert!(above.beyond(1.5) < Some(0.0));
        let below = Paper::below("below 1.15", 1.15);
        assert!(below.beyond(1.5) > Some(0.0) && below.beyond(0.1) == Some(0.0));
        assert_eq!(Paper::silent().beyond(1.0), None);
        let zero = Paper::of("none", 0.0).within(0.01);
        assert_eq!((zero.off(0.005), zero.beyond(0.005)), (None, Some(0.0)));
        assert!(zero.beyond(0.1) > Some(0.0));
    }
}
