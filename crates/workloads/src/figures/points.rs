//! The paper's points in a picture, over our lines.
//!
//! A point is a number that the paper's text, tables or axes state. If the paper states a ratio only, the point is that
//! ratio times our own value, and the legend says so. No point is measured from a drawing, because only the papers'
//! texts are at hand.

use serde::{Deserialize, Serialize};

use super::plot::{Chart, Plot};
use super::stated;
use crate::num::{count_f64, rounded};

/// Points that a paper gives for one of our lines, or for a bar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Points {
    /// The number of the panel, from 0.
    pub panel: usize,
    /// The name of our line, or the label of our bar, or of the first of several bars.
    pub line: String,
    /// The place in the paper, and how the points follow from it.
    pub note: String,
    /// The points in the units of the axes. The bars of a panel have the numbers 0, 1, 2 and so on.
    pub at: Vec<(f64, f64)>,
}

/// The points of a line that are meant.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Every,
    First,
    Last,
    At(f64),
}

/// A line of a panel, or a part of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    panel: usize,
    line: &'static str,
    part: Part,
}

/// Returns every point of a line. A bar or a box is a line of one point.
pub(super) fn on(panel: usize, line: &'static str) -> Spot {
    Spot {
        panel,
        line,
        part: Part::Every,
    }
}

impl Spot {
    /// Returns the line's first point.
    pub fn first(self) -> Spot {
        Spot {
            part: Part::First,
            ..self
        }
    }

    /// Returns the line's last point.
    pub fn last(self) -> Spot {
        Spot {
            part: Part::Last,
            ..self
        }
    }

    /// Returns the point of the line at `x`.
    pub fn at(self, x: f64) -> Spot {
        Spot {
            part: Part::At(x),
            ..self
        }
    }

    /// States the paper's value here.
    pub fn is(self, value: f64, note: &'static str) -> Stated {
        Stated {
            spot: self,
            value,
            base: None,
            note,
        }
    }

    /// States the paper's ratio of the value here to the value at `base`. If `base` is a whole line, its value at the
    /// same place is meant.
    pub fn times(self, ratio: f64, base: Spot, note: &'static str) -> Stated {
        Stated {
            base: Some(base),
            ..self.is(ratio, note)
        }
    }

    /// Returns the points of the plot that are meant.
    fn points(self, plot: &Plot) -> Vec<(f64, f64)> {
        let line = line(plot, self.panel, self.line);
        match self.part {
            Part::Every => line,
            Part::First => line.first().copied().into_iter().collect(),
            Part::Last => line.last().copied().into_iter().collect(),
            Part::At(x) => line.into_iter().filter(|of| is_same(of.0, x)).collect(),
        }
    }
}

/// A value that a paper states for a place in a picture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stated {
    spot: Spot,
    /// The value, or a ratio if there is a base.
    value: f64,
    base: Option<Spot>,
    note: &'static str,
}

impl Stated {
    /// Returns whether at least one point follows.
    #[cfg(test)]
    pub fn is_drawn(&self, plot: &Plot) -> bool {
        !self.points(plot).is_empty()
    }

    /// Returns the points that follow from the paper's value and our plot. A point is left out if our line or the base
    /// has none at its place, or if its value is zero.
    fn points(&self, plot: &Plot) -> Vec<(f64, f64)> {
        let value = |x: f64| {
            let Some(base) = self.base else {
                return Some(self.value);
            };
            let points = base.points(plot);
            let own = points.iter().find(|of| is_same(of.0, x));
            let only = (points.len() == 1).then(|| &points[0]);
            own.or(only).map(|of| self.value * of.1)
        };
        let places = self.spot.points(plot);
        let found = places.iter().map(|of| Some((of.0, rounded(value(of.0)?))));
        found.flatten().filter(|of| of.1 != 0.0).collect()
    }
}

/// Returns whether two places are the same but for the rounding of recorded numbers.
fn is_same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-3 * a.abs().max(b.abs())
}

/// Returns the points of a line, in the order of the horizontal axis.
fn line(plot: &Plot, panel: usize, name: &str) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = match plot.panels.get(panel).map(|panel| &panel.chart) {
        Some(Chart::Lines { series, .. } | Chart::Powers { series, .. }) => {
            let of = series.iter().filter(|line| line.name == name);
            of.flat_map(|line| line.points.iter().copied()).collect()
        }
        Some(Chart::Bars(bars)) => {
            let of = bars.iter().enumerate().filter(|(_, of)| of.label == name);
            of.map(|(index, bar)| (count_f64(index), bar.sum()))
                .collect()
        }
        Some(Chart::Boxes(boxes)) => {
            let of = boxes.iter().enumerate().filter(|(_, of)| of.label == name);
            of.map(|(index, of)| (count_f64(index), of.at[2])).collect()
        }
        None => Vec::new(),
    };
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// Returns whether a panel has bars or boxes. Their labels are below them, so the legend need not name them.
fn has_labels(plot: &Plot, panel: usize) -> bool {
    let chart = plot.panels.get(panel).map(|panel| &panel.chart);
    matches!(chart, Some(Chart::Bars(_) | Chart::Boxes(_)))
}

/// Returns the points that the paper gives for a figure. Those with the same line and note are together, and all bars
/// with the same note.
#[must_use]
pub fn of(figure: &str, plot: &Plot) -> Vec<Points> {
    let mut all: Vec<Points> = Vec::new();
    for stated in stated::of(figure) {
        let (panel, line, note) = (stated.spot.panel, stated.spot.line, stated.note);
        let at = stated.points(plot);
        let any_line = has_labels(plot, panel);
        let is_it = |of: &&mut Points| {
            (of.panel, &*of.note) == (panel, note) && (any_line || of.line == line)
        };
        match all.iter_mut().find(is_it) {
            Some(points) => points.at.extend(at),
            None if at.is_empty() => {}
            None => all.push(Points {
                panel,
                line: line.into(),
                note: note.into(),
                at,
            }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::plot::{Bar, Panel, Series};
    use super::*;

    fn plot() -> Plot {
        let lines = vec![
            Series::solid("a", vec![(4.0, 10.0), (1.0, 30.0)]),
            Series::solid("b", vec![(1.0, 5.0), (4.0, 2.0)]),
        ];
        let bar = |label: &str, height| Bar {
            label: label.into(),
            parts: vec![("x".into(), height), ("y".into(), 1.0)],
        };
        Plot {
            panels: vec![
                Panel::new("", "", Chart::lines("", lines)),
                Panel::new("", "", Chart::Bars(vec![bar("p", 2.0), bar("q", 9.0)])),
            ],
            ..Plot::default()
        }
    }

    #[test]
    fn a_ratio_becomes_points_over_our_line_and_a_value_stays() {
        let plot = plot();
        let at = |stated: Stated| stated.points(&plot);
        assert_eq!(at(on(0, "b").is(7.0, "")), [(1.0, 7.0), (4.0, 7.0)]);
        let half = on(0, "b").times(0.5, on(0, "a"), "");
        assert_eq!(at(half), [(1.0, 15.0), (4.0, 5.0)]);
        let other = on(0, "b").last().times(0.5, on(0, "a").first(), "");
        assert_eq!(at(other), [(4.0, 15.0)]);
        let bar = on(1, "q").times(2.0, on(1, "p"), "");
        assert_eq!(at(bar), [(1.0, 6.0)]);
    }

    #[test]
    fn a_point_without_its_line_or_base_is_left_out() {
        let plot = plot();
        let at = |stated: Stated| stated.points(&plot);
        assert!(at(on(0, "c").is(7.0, "")).is_empty());
        assert!(at(on(0, "a").at(2.0).is(7.0, "")).is_empty());
        assert!(at(on(0, "a").times(2.0, on(0, "c"), "")).is_empty());
        assert!(at(on(3, "a").is(7.0, "")).is_empty());
    }
}
