//! Plots as SVG: panels of lines and of stacked bars, without external resources.
//!
//! The papers' figures are of few kinds, so this is not a plotting library. Axes have round ticks from zero, or
//! powers of ten, and the legend is under the panel. Colour-blind readers can distinguish the colours, and marks
//! distinguish the lines without colour. The paper's points are hollow marks over ours. A plot is part of a figure's
//! JSON file, so a picture can be drawn again without a measurement.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

pub use super::boxes::Quartiles;
use super::panel::{CELL, HEAD_LINE, LEGEND_ROW, Shown};
use super::points::Points;
use super::svg::{self, text};
use crate::num::count_f64;

/// A line of a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// The text below the bar.
    pub label: String,
    /// The name and the height of each part, from the bottom up.
    pub parts: Vec<(String, f64)>,
}

impl Bar {
    /// Returns the height of the whole bar.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.parts.iter().map(|part| part.1).sum()
    }
}

/// The contents of a panel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// The text above the chart.
    pub title: String,
    /// The name of the vertical axis.
    pub y: String,
    /// The chart.
    pub chart: Chart,
}

/// Panels side by side under one title.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// The text above all panels.
    pub title: String,
    /// The text below the title: the setting.
    pub subtitle: String,
    /// The panels.
    pub panels: Vec<Panel>,
}

/// The height of a line in the head.
const HEAD_ROW: f64 = 18.0;
/// The width of a letter in the head, about.
const LETTER: f64 = 6.5;

impl Plot {
    /// Returns the plot as SVG, with the name of its paper and with the paper's points. Up to three panels are in one
    /// row, and more panels in rows of two.
    #[must_use]
    pub fn svg(&self, paper: &str, points: &[Points]) -> String {
        let shown: Vec<Shown<'_>> = self
            .panels
            .iter()
            .enumerate()
            .map(|(index, panel)| Shown {
                panel,
                points: points.iter().filter(|of| of.panel == index).collect(),
            })
            .collect();
        let rows = shown.iter().map(Shown::rows);
        let legend = count_f64(rows.max().unwrap_or(0)) * LEGEND_ROW;
        let columns = match self.panels.len() {
            0..=3 => self.panels.len().max(1),
            _ => 2,
        };
        let cell = (CELL.0, CELL.1 + legend);
        let width = cell.0 * count_f64(columns);
        let head = svg::wrapped(&[paper, &self.subtitle], (width - 32.0) / LETTER);
        let extra = count_f64(head.len().saturating_sub(1)) * HEAD_ROW;
        let down = self.panels.len().div_ceil(columns);
        let height = HEAD_LINE + extra + cell.1 * count_f64(down) + 8.0;
        let mut out = svg::start(width, height);
        text(&mut out, (16.0, 26.0), "start", 17, &self.title);
        for (index, line) in head.iter().enumerate() {
            let y = 46.0 + count_f64(index) * HEAD_ROW;
            text(&mut out, (16.0, y), "start", 12, line);
        }
        for (index, shown) in shown.iter().enumerate() {
            let right = cell.0 * count_f64(index % columns);
            let lower = extra + cell.1 * count_f64(index / columns);
            let _ = writeln!(out, "<g transform=\"translate({right:.1} {lower:.1})\">");
            shown.draw(&mut out);
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
        let svg = sample().svg("Lee, Kim, Cha", &[]);
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
    fn the_papers_points_are_drawn_and_the_axes_have_room_for_them() {
        let points = |panel, line: &str, at| Points {
            panel,
            line: line.into(),
            note: "section 5".into(),
            at: vec![at],
        };
        let given = [
            points(0, "PL2P", (8.0, 88.0)),
            points(1, "DL1P-Seq", (0.0, 70.0)),
        ];
        let svg = sample().svg("Lee, Kim, Cha", &given);
        for words in [
            "Lee, Kim, Cha",
            "PL2P in the paper, section 5",
            "the paper, section 5",
            "100",
            "80",
        ] {
            assert!(svg.contains(&format!(">{words}</text>")), "{words}");
        }
        assert_eq!(svg.matches(" hollow\"").count(), 4, "two points, two keys");
    }

    #[test]
    fn a_logarithmic_plot_holds_its_data() {
        let mut plot = sample();
        plot.panels[0].chart = Chart::Powers {
            x: "% distributed".into(),
            x_powers: true,
            series: vec![Series::solid("value", vec![(0.1, 2e6), (100.0, 3e4)])],
        };
        let svg = plot.svg("", &[]);
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
        assert!(!plot.svg("", &[]).contains("NaN"));
        assert!(!Plot::default().svg("", &[]).contains("NaN"));
    }
}
