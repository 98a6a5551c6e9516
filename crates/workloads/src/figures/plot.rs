//! Plots as SVG: panels of lines and of stacked bars, without external resources.
//!
//! The papers' figures are of few kinds, so this is not a plotting library. Axes have round ticks from zero, or
//! powers of ten, and the legend is under the panel. Colour-blind readers can distinguish the colours, and marks
//! distinguish the lines without colour.

use std::fmt::Write;

use super::axis::Axis;
use super::boxes;
pub use super::boxes::Quartiles;
use super::svg::{block, escaped, mark, path, rule, text};
use crate::num::count_f64;

/// A line of a chart.
#[derive(Debug, Clone)]
pub struct Series {
    /// The name of the line in the legend.
    pub name: String,
    /// Points in the units of the axes.
    pub points: Vec<(f64, f64)>,
    /// True if the line is dashed. Dashed lines are for comparison: they show a part of a value, a model, or the
    /// paper's values.
    pub broken: bool,
}

impl Series {
    /// Returns a solid line.
    #[must_use]
    pub fn solid(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series {
            name: name.into(),
            points,
            broken: false,
        }
    }

    /// Returns a dashed line.
    #[must_use]
    pub fn broken(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series {
            broken: true,
            ..Series::solid(name, points)
        }
    }
}

/// A bar that is a stack of parts.
#[derive(Debug, Clone)]
pub struct Bar {
    /// The text below the bar.
    pub label: String,
    /// The name and the height of each part, from the bottom up.
    pub parts: Vec<(String, f64)>,
}

/// The contents of a panel.
#[derive(Debug, Clone)]
pub enum Chart {
    /// Lines over a numeric axis.
    Lines {
        /// The name of the horizontal axis.
        x: String,
        /// The lines.
        series: Vec<Series>,
    },
    /// Lines with a logarithmic vertical axis.
    Powers {
        /// The name of the horizontal axis.
        x: String,
        /// True if the horizontal axis is logarithmic, too.
        x_powers: bool,
        /// The lines.
        series: Vec<Series>,
    },
    /// Stacked bars.
    Bars(Vec<Bar>),
    /// Boxes of quartiles. The vertical axis need not begin at zero.
    Boxes(Vec<Quartiles>),
}

impl Chart {
    /// Returns lines over a numeric axis of this name.
    #[must_use]
    pub fn lines(x: &str, series: Vec<Series>) -> Chart {
        Chart::Lines {
            x: x.into(),
            series,
        }
    }

    /// Returns a chart of lines. Its horizontal axis is numeric and has the name `x`. Both axes are logarithmic.
    #[must_use]
    pub fn powers(x: &str, series: Vec<Series>) -> Chart {
        Chart::Powers {
            x: x.into(),
            x_powers: true,
            series,
        }
    }
}

/// One chart with its axes.
#[derive(Debug, Clone)]
pub struct Panel {
    /// The text above the chart.
    pub title: String,
    /// The name of the vertical axis.
    pub y: String,
    /// The chart.
    pub chart: Chart,
}

/// Panels side by side under one title.
#[derive(Debug, Clone, Default)]
pub struct Plot {
    /// The text above all panels.
    pub title: String,
    /// The text below the title: the setting.
    pub subtitle: String,
    /// The panels.
    pub panels: Vec<Panel>,
}

const PANEL: (f64, f64) = (470.0, 330.0);
const MARGIN_LEFT: f64 = 74.0;
const MARGIN_RIGHT: f64 = 22.0;
const HEAD: f64 = 86.0;
const PANEL_HEAD: f64 = 34.0;
const AXIS: f64 = 52.0;
const LEGEND_ROW: f64 = 20.0;
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#5c5c5c", "#8a6d00",
];

impl Plot {
    /// Returns the plot as SVG. Up to three panels are in one row, and more panels in rows of two.
    #[must_use]
    pub fn svg(&self) -> String {
        let rows = self.panels.iter().map(|panel| panel.legend().len());
        let legend = count_f64(rows.max().unwrap_or(0)) * LEGEND_ROW;
        let columns = match self.panels.len() {
            0..=3 => self.panels.len().max(1),
            _ => 2,
        };
        let cell = (
            MARGIN_LEFT + PANEL.0 + MARGIN_RIGHT,
            PANEL_HEAD + PANEL.1 + AXIS + legend,
        );
        let width = cell.0 * count_f64(columns);
        let down = self.panels.len().div_ceil(columns);
        let height = HEAD - PANEL_HEAD + cell.1 * count_f64(down) + 8.0;
        let mut out = String::new();
        let _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" \
             font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" font-size=\"13\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
        );
        text(&mut out, (16.0, 26.0), "start", 17, &self.title);
        text(&mut out, (16.0, 46.0), "start", 12, &self.subtitle);
        for (index, panel) in self.panels.iter().enumerate() {
            let right = cell.0 * count_f64(index % columns);
            let lower = cell.1 * count_f64(index / columns);
            let _ = writeln!(out, "<g transform=\"translate({right:.1} {lower:.1})\">");
            panel.draw(&mut out, MARGIN_LEFT);
            out.push_str("</g>\n");
        }
        out.push_str("</svg>\n");
        out
    }
}

impl Panel {
    /// Returns a panel with a chart, a title, and the name of the vertical axis.
    #[must_use]
    pub fn new(title: impl Into<String>, y: impl Into<String>, chart: Chart) -> Panel {
        Panel {
            title: title.into(),
            y: y.into(),
            chart,
        }
    }

    /// Returns the names in the legend, in the order of their colours.
    fn legend(&self) -> Vec<&str> {
        match &self.chart {
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

    /// Returns the vertical axis.
    fn vertical(&self) -> Axis {
        match &self.chart {
            Chart::Lines { series, .. } => {
                Axis::linear(values(series, |p| p.1).fold(0.0, f64::max), 6)
            }
            Chart::Powers { series, .. } => Axis::powers(values(series, |p| p.1)),
            Chart::Bars(bars) => {
                let sums = bars
                    .iter()
                    .map(|bar| bar.parts.iter().map(|part| part.1).sum::<f64>());
                Axis::linear(sums.fold(0.0, f64::max), 6)
            }
            Chart::Boxes(boxes) => {
                let least = boxes
                    .iter()
                    .map(|of| of.at[0])
                    .fold(f64::INFINITY, f64::min);
                let most = boxes.iter().map(|of| of.at[4]).fold(0.0, f64::max);
                Axis::between(least, most, 6)
            }
        }
    }

    fn draw(&self, out: &mut String, left: f64) {
        let (width, height) = PANEL;
        let bottom = HEAD + height;
        text(
            out,
            (left + width / 2.0, HEAD - 12.0),
            "middle",
            14,
            &self.title,
        );
        let axis = self.vertical();
        let y_of = |value: f64| bottom - axis.place(value) * height;
        for (value, name) in axis.ticks() {
            let y = y_of(value);
            rule(out, (left, y), (left + width, y), "#dddddd");
            text(out, (left - 8.0, y + 4.5), "end", 13, &name);
        }
        let middle = HEAD + height / 2.0;
        let _ = writeln!(
            out,
            "<text transform=\"translate({:.1} {middle:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>",
            left - 58.0,
            escaped(&self.y)
        );
        match &self.chart {
            Chart::Lines { x, series } => {
                let right = values(series, |p| p.0).fold(0.0, f64::max);
                draw_lines(out, left, (x, Axis::linear(right, 8)), series, &y_of);
            }
            Chart::Powers {
                x,
                x_powers,
                series,
            } => {
                let axis = if *x_powers {
                    Axis::powers(values(series, |p| p.0))
                } else {
                    Axis::linear(values(series, |p| p.0).fold(0.0, f64::max), 8)
                };
                draw_lines(out, left, (x, axis), series, &y_of);
            }
            Chart::Bars(bars) => draw_bars(out, left, bars, &self.legend(), &y_of),
            Chart::Boxes(shown) => {
                boxes::draw(out, (left, width, bottom), shown, &COLOURS, &y_of);
            }
        }
        rule(out, (left, HEAD), (left, bottom), "#333333");
        rule(out, (left, bottom), (left + width, bottom), "#333333");
        for (index, name) in self.legend().into_iter().enumerate() {
            let y = bottom + AXIS + count_f64(index) * LEGEND_ROW;
            self.key(out, index, (left, y));
            text(out, (left + 44.0, y + 4.5), "start", 13, name);
        }
    }

    /// Draws the mark before a name in the legend.
    fn key(&self, out: &mut String, index: usize, (x, y): (f64, f64)) {
        let colour = COLOURS[index % COLOURS.len()];
        match &self.chart {
            Chart::Lines { series, .. } | Chart::Powers { series, .. } => {
                let broken = series.get(index).is_some_and(|line| line.broken);
                path(out, &[(x, y), (x + 36.0, y)], colour, broken);
                mark(out, index, (x + 18.0, y), colour);
            }
            Chart::Bars(_) | Chart::Boxes(_) => {
                block(out, (x + 6.0, y - 7.0), (24.0, 14.0), colour);
            }
        }
    }
}

fn values(series: &[Series], of: fn(&(f64, f64)) -> f64) -> impl Iterator<Item = f64> {
    series.iter().flat_map(|line| &line.points).map(of)
}

fn draw_lines(
    out: &mut String,
    left: f64,
    (x_name, axis): (&str, Axis),
    series: &[Series],
    y_of: &dyn Fn(f64) -> f64,
) {
    let (width, bottom) = (PANEL.0, HEAD + PANEL.1);
    let x_of = |value: f64| left + axis.place(value) * width;
    for (value, name) in axis.ticks() {
        let x = x_of(value);
        rule(out, (x, bottom), (x, bottom + 5.0), "#333333");
        text(out, (x, bottom + 20.0), "middle", 13, &name);
    }
    text(
        out,
        (left + width / 2.0, bottom + 38.0),
        "middle",
        13,
        x_name,
    );
    for (index, line) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let places: Vec<(f64, f64)> = line
            .points
            .iter()
            .map(|point| (x_of(point.0), y_of(point.1)))
            .collect();
        path(out, &places, colour, line.broken);
        for place in places {
            mark(out, index, place, colour);
        }
    }
}

fn draw_bars(out: &mut String, left: f64, bars: &[Bar], names: &[&str], y_of: &dyn Fn(f64) -> f64) {
    let bottom = HEAD + PANEL.1;
    let room = PANEL.0 / count_f64(bars.len().max(1));
    let thick = (room * 0.55).min(90.0);
    for (index, bar) in bars.iter().enumerate() {
        let centre = left + room * (count_f64(index) + 0.5);
        let mut from = 0.0;
        for (name, value) in &bar.parts {
            let colour = names.iter().position(|known| known == name).unwrap_or(0);
            let (low, high) = (y_of(from), y_of(from + value));
            block(
                out,
                (centre - thick / 2.0, high),
                (thick, low - high),
                COLOURS[colour % COLOURS.len()],
            );
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Plot {
        Plot {
            title: "Log & restart".into(),
            subtitle: "a < b".into(),
            panels: vec![
                Panel::new(
                    "(a)",
                    "Time (sec)",
                    Chart::lines(
                        "#log disks",
                        vec![
                            Series::solid("PL2P", vec![(1.0, 24.8), (2.0, 12.4), (8.0, 3.1)]),
                            Series::broken("PL2P: LR", vec![(1.0, 24.8), (8.0, 3.1)]),
                        ],
                    ),
                ),
                Panel::new(
                    "(b)",
                    "Time (sec)",
                    Chart::Bars(vec![Bar {
                        label: "DL1P-Seq".into(),
                        parts: vec![("BL".into(), 4.3), ("LL".into(), 6.4)],
                    }]),
                ),
            ],
        }
    }

    #[test]
    fn a_picture_is_well_formed_and_holds_its_data() {
        let svg = sample().svg();
        let opened = svg.matches("<text").count();
        assert_eq!(opened, svg.matches("</text>").count());
        assert!(svg.starts_with("<svg xmlns") && svg.ends_with("</svg>\n"));
        for words in [
            "Log &amp; restart",
            "a &lt; b",
            "PL2P: LR",
            "#log disks",
            "DL1P-Seq",
            "10.7",
        ] {
            assert!(svg.contains(words), "{words}");
        }
        assert_eq!(svg.matches("<polyline").count(), 4, "two lines, two keys");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert!(!svg.contains("href"), "nothing is fetched");
    }

    #[test]
    fn a_logarithmic_plot_holds_its_data() {
        let mut plot = sample();
        plot.panels[0].chart = Chart::Powers {
            x: "% distributed".into(),
            x_powers: true,
            series: vec![Series::solid("value", vec![(0.1, 2e6), (100.0, 3e4)])],
        };
        let svg = plot.svg();
        for words in ["% distributed", "10K", "10M", "0.1", "100"] {
            assert!(svg.contains(&format!(">{words}</text>")), "{words}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn an_empty_or_flat_plot_is_still_a_picture() {
        let mut plot = sample();
        for panel in &mut plot.panels {
            match &mut panel.chart {
                Chart::Lines { series, .. } | Chart::Powers { series, .. } => series.clear(),
                Chart::Bars(bars) => bars.clear(),
                Chart::Boxes(boxes) => boxes.clear(),
            }
        }
        assert!(!plot.svg().contains("NaN"));
        assert!(!Plot::default().svg().contains("NaN"));
    }
}
