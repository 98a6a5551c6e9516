//! A value of ours: the median of several runs with their spread.

use serde::Serialize;

use crate::num::{median, rounded};

/// The median of several runs, with the lowest and the highest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    /// The median.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
    /// The number of runs.
    pub runs: usize,
}

impl Sample {
    /// Returns the sample of some runs. The median of no run is 0.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Sample {
        let values: Vec<f64> = values.into_iter().collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Sample {
            runs: values.len(),
            low: if low.is_finite() { low } else { 0.0 },
            high: if high.is_finite() { high } else { 0.0 },
            median: median(values),
        }
    }

    /// Returns the sample for people: the median, and the spread if there were several runs.
    #[must_use]
    pub fn text(&self, unit: &str) -> String {
        let (low, high) = (rounded(self.low), rounded(self.high));
        let middle = rounded(self.median);
        if self.runs > 1 {
            return format!("{middle}{unit} ({low} to {high})");
        }
        format!("{middle}{unit}")
    }
}

impl From<f64> for Sample {
    fn from(value: f64) -> Sample {
        Sample {
            median: value,
            low: value,
            high: value,
            runs: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_a_median_and_a_spread() {
        let sample = Sample::of([3.0, 1.0, 2.0]);
        assert_eq!((sample.median, sample.low, sample.high), (2.0, 1.0, 3.0));
        assert_eq!(sample.text(" MB"), "2 MB (1 to 3)");
        assert_eq!(Sample::from(0.5).text(""), "0.5");
        assert_eq!(Sample::of([]).median, 0.0);
    }
}
