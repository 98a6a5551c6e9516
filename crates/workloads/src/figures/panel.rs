//! Drawing a panel: its axes, its chart, the paper's points over it, and its legend.

use std::fmt::Write;

use super::axis::Axis;
use super::boxes;
use super::plot::{Bar, Chart, Panel, Series};
use super::points::Points;
use super::svg::{AXIS_LINE, GRID, block, escaped, hollow, mark, path, rule, text};
use crate::num::count_f64;

const PANEL: (f64, f64) = (470.0, 330.0);
const MARGIN_LEFT: f64 = 74.0;
const MARGIN_RIGHT: f64 = 22.0;
const HEAD: f64 = 86.0;
const PANEL_HEAD: f64 = 34.0;
const AXIS: f64 = 52.0;
/// The height of the head above the panels, if the text below the title has one line.
pub(super) const HEAD_LINE: f64 = HEAD - PANEL_HEAD;
/// The width of a panel with its margins, and its height without the legend.
pub(super) const CELL: (f64, f64) = (
    MARGIN_LEFT + PANEL.0 + MARGIN_RIGHT,
    PANEL_HEAD + PANEL.1 + AXIS,
);
/// The height of a row of the legend.
pub(super) const LEGEND_ROW: f64 = 20.0;

/// A panel, and the paper's points in it.
pub(super) struct Shown<'a> {
    /// The panel.
    pub panel: &'a Panel,
    /// The paper's points.
    pub points: Vec<&'a Points>,
}

impl Shown<'_> {
    /// Returns the number of rows of the legend.
    pub fn rows(&self) -> usize {
        self.legend().len() + self.points.len()
    }

    /// Returns the names in the legend, in the order of their colours.
    fn legend(&self) -> Vec<&str> {
        match &self.panel.chart {
            Chart::Lines { series, .. } | Chart::Powers { series, .. } => {
                series.iter().map(|line| line.name.as_str()).collect()
            }
            Chart::Bars(bars) => {
                let mut names: Vec<&str> = Vec::new();
                for (name, _) in bars.iter().flat_map(|bar| &bar.parts) {
                    if !names.contains(&name.as_str()) {
                        names.push(name);
                    }
                }
                names
            }
            Chart::Boxes(_) => Vec::new(),
        }
    }

    /// Returns a coordinate of the paper's points.
    fn given(&self, of: fn(&(f64, f64)) -> f64) -> impl Iterator<Item = f64> {
        self.points.iter().flat_map(|points| &points.at).map(of)
    }

    /// Returns the vertical axis.
    fn vertical(&self) -> Axis {
        let given = self.given(|p| p.1);
        match &self.panel.chart {
            Chart::Lines { series, .. } => {
                Axis::linear(values(series, |p| p.1).chain(given).fold(0.0, f64::max), 6)
            }
            Chart::Powers { series, .. } => Axis::powers(values(series, |p| p.1).chain(given)),
            Chart::Bars(bars) => {
                let sums = bars.iter().map(Bar::sum);
                Axis::linear(sums.chain(given).fold(0.0, f64::max), 6)
            }
            Chart::Boxes(boxes) => {
                let ends = boxes.iter().flat_map(|of| [of.at[0], of.at[4]]);
                let (least, most) = ends
                    .chain(given)
                    .fold((f64::INFINITY, 0.0_f64), |(least, most), value| {
                        (least.min(value), most.max(value))
                    });
                Axis::between(least, most, 6)
            }
        }
    }

    /// Returns the position on the horizontal axis of each value, in pixels from the left of the picture. The values of
    /// bars and boxes are their numbers from 0.
    fn horizontal(&self) -> Horizontal {
        let xs = |series| values(series, |p| p.0).chain(self.given(|p| p.0));
        match &self.panel.chart {
            Chart::Lines { series, .. }
            | Chart::Powers {
                series,
                x_powers: false,
                ..
            } => Horizontal::Axis(Axis::linear(xs(series).fold(0.0, f64::max), 8)),
            Chart::Powers { series, .. } => Horizontal::Axis(Axis::powers(xs(series))),
            Chart::Bars(bars) => Horizontal::Places(bars.len()),
            Chart::Boxes(boxes) => Horizontal::Places(boxes.len()),
        }
    }

    /// Draws the panel.
    pub fn draw(&self, out: &mut String) {
        let (width, height) = PANEL;
        let (left, bottom) = (MARGIN_LEFT, HEAD + height);
        let title = (left + width / 2.0, HEAD - 12.0);
        text(out, title, "middle", 14, &self.panel.title);
        let axis = self.vertical();
        let y_of = |value: f64| bottom - axis.place(value) * height;
        for (value, name) in axis.ticks() {
            let y = y_of(value);
            rule(out, (left, y), (left + width, y), GRID);
            text(out, (left - 8.0, y + 4.5), "end", 13, &name);
        }
        let middle = HEAD + height / 2.0;
        let _ = writeln!(
            out,
            "<text transform=\"translate({:.1} {middle:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>",
            left - 58.0,
            escaped(&self.panel.y)
        );
        let horizontal = self.horizontal();
        match &self.panel.chart {
            Chart::Lines { x, series } | Chart::Powers { x, series, .. } => {
                draw_lines(out, (x, &horizontal), series, &y_of);
            }
            Chart::Bars(bars) => draw_bars(out, bars, &self.legend(), &y_of),
            Chart::Boxes(shown) => boxes::draw(out, (left, width, bottom), shown, &y_of),
        }
        for (letter, points) in self.lettered() {
            for (x, y) in &points.at {
                let place = [horizontal.place(*x), y_of(*y)];
                hollow(out, self.shape(points), place, &letter);
            }
        }
        rule(out, (left, HEAD), (left, bottom), AXIS_LINE);
        rule(out, (left, bottom), (left + width, bottom), AXIS_LINE);
        self.draw_legend(out);
    }

    fn draw_legend(&self, out: &mut String) {
        let top = HEAD + PANEL.1 + AXIS;
        let mut row = 0;
        let mut next = |out: &mut String, name: &str| {
            let y = top + count_f64(row) * LEGEND_ROW;
            row += 1;
            text(out, (MARGIN_LEFT + 44.0, y + 4.5), "start", 13, name);
            (MARGIN_LEFT, y)
        };
        for (index, name) in self.legend().into_iter().enumerate() {
            let place = next(out, name);
            self.key(out, index, place);
        }
        for (letter, points) in self.lettered() {
            let shape = self.shape(points);
            let of = match shape {
                // A line of the paper's own values says so itself.
                Some(_) if !points.line.contains("paper") => {
                    format!("{} in the paper", points.line)
                }
                _ => "the paper".to_owned(),
            };
            let (x, y) = next(out, &format!("{of}, {}", points.note));
            hollow(out, shape, [x + 18.0, y], &letter);
        }
    }

    /// Returns the paper's points with the letters of their marks.
    fn lettered(&self) -> impl Iterator<Item = (String, &Points)> {
        let letters = ('a'..='z').map(String::from);
        letters.zip(self.points.iter().copied())
    }

    /// Returns the number of the line that the paper's points are about. `None`: they are about a bar or a box.
    fn shape(&self, points: &Points) -> Option<usize> {
        match &self.panel.chart {
            Chart::Lines { series, .. } | Chart::Powers { series, .. } => {
                series.iter().position(|line| line.name == points.line)
            }
            Chart::Bars(_) | Chart::Boxes(_) => None,
        }
    }

    /// Draws the mark before a name in the legend.
    fn key(&self, out: &mut String, index: usize, (x, y): (f64, f64)) {
        match &self.panel.chart {
            Chart::Lines { series, .. } | Chart::Powers { series, .. } => {
                let broken = series.get(index).is_some_and(|line| line.broken);
                path(out, &[(x, y), (x + 36.0, y)], index, broken);
                mark(out, index, [x + 18.0, y]);
            }
            Chart::Bars(_) | Chart::Boxes(_) => block(out, (x + 6.0, y - 7.0), (24.0, 14.0), index),
        }
    }
}

/// The horizontal axis.
enum Horizontal {
    /// An axis of numbers.
    Axis(Axis),
    /// Equal places for this number of bars or boxes.
    Places(usize),
}

impl Horizontal {
    /// Returns the position of a value, or of the bar with this number, in pixels.
    fn place(&self, value: f64) -> f64 {
        match self {
            Horizontal::Axis(axis) => MARGIN_LEFT + axis.place(value) * PANEL.0,
            Horizontal::Places(count) => {
                MARGIN_LEFT + PANEL.0 / count_f64((*count).max(1)) * (value + 0.5)
            }
        }
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        match self {
            Horizontal::Axis(axis) => axis.ticks(),
            Horizontal::Places(_) => Vec::new(),
        }
    }
}

fn values(series: &[Series], of: fn(&(f64, f64)) -> f64) -> impl Iterator<Item = f64> {
    series.iter().flat_map(|line| &line.points).map(of)
}

fn draw_lines(
    out: &mut String,
    (name, axis): (&str, &Horizontal),
    series: &[Series],
    y_of: &dyn Fn(f64) -> f64,
) {
    let bottom = HEAD + PANEL.1;
    for (value, name) in axis.ticks() {
        let x = axis.place(value);
        rule(out, (x, bottom), (x, bottom + 5.0), AXIS_LINE);
        text(out, (x, bottom + 20.0), "middle", 13, &name);
    }
    let middle = MARGIN_LEFT + PANEL.0 / 2.0;
    text(out, (middle, bottom + 38.0), "middle", 13, name);
    for (index, line) in series.iter().enumerate() {
        let places: Vec<(f64, f64)> = line
            .points
            .iter()
            .map(|point| (axis.place(point.0), y_of(point.1)))
            .collect();
        path(out, &places, index, line.broken);
        for (x, y) in places {
            mark(out, index, [x, y]);
        }
    }
}

fn draw_bars(out: &mut String, bars: &[Bar], names: &[&str], y_of: &dyn Fn(f64) -> f64) {
    let bottom = HEAD + PANEL.1;
    let room = PANEL.0 / count_f64(bars.len().max(1));
    let thick = (room * 0.55).min(90.0);
    for (index, bar) in bars.iter().enumerate() {
        let centre = MARGIN_LEFT + room * (count_f64(index) + 0.5);
        let mut from = 0.0;
        for (name, value) in &bar.parts {
            let colour = names.iter().position(|known| known == name).unwrap_or(0);
            let (low, high) = (y_of(from), y_of(from + value));
            let corner = (centre - thick / 2.0, high);
            block(out, corner, (thick, low - high), colour);
            from += value;
        }
        text(out, (centre, y_of(from) - 5.0), "middle", 12, &amount(from));
        text(out, (centre, bottom + 20.0), "middle", 13, &bar.label);
    }
}

fn amount(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}
