//! Box plots: the quartiles of a few measurements, and their extremes.

use serde::{Deserialize, Serialize};

use super::svg::{AXIS_LINE, block, rule, text};

/// The numbers that a box shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Quartiles {
    /// The text below the box.
    pub label: String,
    /// The least measurement, the first quartile, the median, the third quartile, the largest measurement.
    pub at: [f64; 5],
}

impl Quartiles {
    /// Returns the quartiles of these measurements. Without measurements, all are zero. A quartile that falls between
    /// two measurements is interpolated.
    #[must_use]
    pub fn of(label: &str, mut values: Vec<f64>) -> Quartiles {
        values.sort_by(f64::total_cmp);
        let at = |quarter: usize| {
            let Some(last) = values.len().checked_sub(1) else {
                return 0.0;
            };
            // The position of the quartile, in quarters of the distance between two measurements.
            let (low, rest) = (last * quarter / 4, last * quarter % 4);
            let part = f64::from(u8::try_from(rest).expect("below four")) / 4.0;
            let high = values[(low + 1).min(last)];
            values[low] + (high - values[low]) * part
        };
        Quartiles {
            label: label.into(),
            at: std::array::from_fn(at),
        }
    }
}

/// Draws boxes side by side from `left` on, above `bottom`.
pub(super) fn draw(
    out: &mut String,
    (left, width, bottom): (f64, f64, f64),
    boxes: &[Quartiles],
    y_of: &dyn Fn(f64) -> f64,
) {
    let mut centre = left;
    let room = width / crate::num::count_f64(boxes.len().max(1));
    let thick = (room * 0.45).min(70.0);
    for (index, shown) in boxes.iter().enumerate() {
        centre += if index == 0 { room / 2.0 } else { room };
        let [least, first, median, third, most] = shown.at.map(y_of);
        for (from, to) in [(least, first), (third, most)] {
            rule(out, (centre, from), (centre, to), AXIS_LINE);
        }
        for end in [least, most] {
            let half = thick / 4.0;
            rule(out, (centre - half, end), (centre + half, end), AXIS_LINE);
        }
        let corner = (centre - thick / 2.0, third);
        block(out, corner, (thick, first - third), index);
        let half = thick / 2.0;
        rule(
            out,
            (centre - half, median),
            (centre + half, median),
            "median",
        );
        text(out, (centre, bottom + 20.0), "middle", 13, &shown.label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_between_the_measurements() {
        let of = |values: &[f64]| Quartiles::of("x", values.to_vec()).at;
        assert_eq!(of(&[5.0, 1.0, 3.0, 2.0, 4.0]), [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(of(&[1.0, 2.0]), [1.0, 1.25, 1.5, 1.75, 2.0]);
        assert_eq!(of(&[7.0]), [7.0; 5]);
        assert_eq!(of(&[]), [0.0; 5]);
    }
}
