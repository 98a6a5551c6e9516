//! The scale of an axis: the position of each value, and the ticks.

use crate::num::nice_step;

/// The scale of an axis, from end to end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Axis {
    /// A linear scale with round steps.
    Linear {
        /// The difference between two ticks.
        step: f64,
        /// The value at the start.
        from: f64,
        /// The value at the end.
        to: f64,
    },
    /// A logarithmic scale between two powers of ten.
    Powers {
        /// The exponent at the start.
        from: i32,
        /// The exponent at the end.
        to: i32,
    },
}

impl Axis {
    /// Returns a linear axis for values up to `top`, with at most about `ticks` ticks.
    pub fn linear(top: f64, ticks: u32) -> Axis {
        let step = nice_step(top, ticks);
        Axis::Linear {
            step,
            from: 0.0,
            to: step * (top / step).ceil().max(1.0),
        }
    }

    /// Returns a linear axis for values from `least` to `most`. The axis need not start at zero.
    pub fn between(least: f64, most: f64, ticks: u32) -> Axis {
        if least.is_nan() || most <= least {
            return Axis::linear(most, ticks);
        }
        let step = nice_step(most - least, ticks);
        // A value that differs from a tick only by rounding counts as the tick.
        Axis::Linear {
            step,
            from: step * (least / step + 1e-6).floor(),
            to: step * (most / step - 1e-6).ceil(),
        }
    }

    /// Returns a logarithmic axis for these values. Values that are not above zero are left out.
    pub fn powers(values: impl Iterator<Item = f64>) -> Axis {
        let (mut least, mut most) = (f64::MAX, 0.0_f64);
        for value in values.filter(|value| *value > 0.0) {
            least = least.min(value);
            most = most.max(value);
        }
        if most == 0.0 {
            return Axis::Powers { from: 0, to: 1 };
        }
        // A value that differs from a power of ten only by rounding counts as that power.
        let from = (-30..30).rev().find(|n| power(*n) <= least * 1.000_001);
        let from = from.unwrap_or(-30);
        let to = (from + 1..40).find(|n| power(*n) >= most * 0.999_999);
        Axis::Powers {
            from,
            to: to.unwrap_or(40),
        }
    }

    /// Returns the position of a value on the axis: 0 at the start, 1 at the end. On a logarithmic axis, a value that
    /// is not above zero is put at the start.
    pub fn place(self, value: f64) -> f64 {
        match self {
            Axis::Linear { from, to, .. } => (value - from) / (to - from),
            Axis::Powers { .. } if value <= 0.0 => 0.0,
            Axis::Powers { from, to } => {
                assert!(from < to, "an axis has a length");
                (value.log10() - f64::from(from)) / f64::from(to - from)
            }
        }
    }

    /// Returns the values and the texts of the ticks.
    pub fn ticks(self) -> Vec<(f64, String)> {
        match self {
            Axis::Linear { step, from, to } => {
                let mut ticks = Vec::new();
                let mut tick = from;
                while tick <= to + step / 2.0 {
                    ticks.push((tick, name(tick, step)));
                    tick += step;
                }
                ticks
            }
            Axis::Powers { from, to } => (from..=to)
                .map(|exponent| (power(exponent), name(power(exponent), power(exponent))))
                .collect(),
        }
    }
}

fn power(exponent: i32) -> f64 {
    10f64.powi(exponent)
}

/// Returns the text of a tick, with K for thousands, M for millions, and as many decimals as the step needs.
fn name(value: f64, step: f64) -> String {
    if step >= 1_000_000.0 {
        return format!("{}M", (value / 1e6).round());
    }
    if step >= 1000.0 {
        return format!("{}K", (value / 1000.0).round());
    }
    let decimals = if step >= 1.0 {
        0
    } else if step >= 0.1 {
        1
    } else if step >= 0.01 {
        2
    } else {
        3
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(axis: Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|tick| tick.1).collect()
    }

    #[test]
    fn a_linear_axis_begins_at_zero() {
        let axis = Axis::linear(24.8, 6);
        assert_eq!(names(axis), ["0", "5", "10", "15", "20", "25"]);
        assert_eq!(axis.place(12.5), 0.5);
        assert_eq!(names(Axis::linear(0.0, 6)), ["0", "1"]);
    }

    #[test]
    fn an_axis_between_two_values_begins_at_a_round_one() {
        let axis = Axis::between(19.2, 19.9, 6);
        assert_eq!(names(axis), ["19.2", "19.4", "19.6", "19.8", "20.0"]);
        assert!((axis.place(19.6) - 0.5).abs() < 1e-9);
        assert_eq!(
            names(Axis::between(3.0, 3.0, 6)),
            names(Axis::linear(3.0, 6))
        );
    }

    #[test]
    fn a_logarithmic_axis_has_whole_powers_of_ten() {
        let axis = Axis::powers([0.1, 3.0, 100.0, 0.0].into_iter());
        assert_eq!(names(axis), ["0.1", "1", "10", "100"]);
        assert_eq!(axis.place(0.1), 0.0);
        assert!((axis.place(100.0) - 1.0).abs() < 1e-12);
        assert_eq!(axis.place(0.0), 0.0);
        assert_eq!(
            names(Axis::powers([2_000_000.0].into_iter())),
            ["1M", "10M"]
        );
        assert_eq!(names(Axis::powers(std::iter::empty())), ["1", "10"]);
    }
}
