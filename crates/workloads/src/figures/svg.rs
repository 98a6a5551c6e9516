//! The SVG shapes of plots. Their colours are classes, because a dark page has others.

use std::fmt::Write;

/// The class of the lines behind a chart.
pub(super) const GRID: &str = "grid";
/// The class of the axes, and of the lines of a box.
pub(super) const AXIS_LINE: &str = "axis";

/// The colours of a light page and of a dark one. A line's class is `c` and its number, modulo the count of colours.
const COLOURS: [(&str, &str); 8] = [
    ("#0072b2", "#4da9e0"),
    ("#d55e00", "#f0843c"),
    ("#009e73", "#2fc79b"),
    ("#cc79a7", "#e39ac2"),
    ("#56b4e9", "#8accf0"),
    ("#e69f00", "#f2b840"),
    ("#5c5c5c", "#a8a8a8"),
    ("#8a6d00", "#c4a334"),
];

/// The colours of everything else: the sheet, the words, the lines behind a chart, the axes.
const LIGHT: [&str; 4] = ["#ffffff", "#1f2328", "#d1d9e0", "#59636e"];
const DARK: [&str; 4] = ["#0d1117", "#f0f6fc", "#3d444d", "#9198a1"];

/// Returns the start of a picture: its size, its colours and its sheet.
pub(super) fn start(width: f64, height: f64) -> String {
    let rules = |[sheet, words, grid, axis]: [&str; 4], colours: [&str; 8]| {
        let mut out = format!(
            ".sheet,.hollow{{fill:{sheet}}}.block{{stroke:{sheet}}}text{{fill:{words}}}.ink{{color:{words}}}\
             .grid{{stroke:{grid}}}.axis{{stroke:{axis}}}.median{{stroke:{words};stroke-width:2}}"
        );
        for (index, colour) in colours.iter().enumerate() {
            let _ = write!(out, ".c{index}{{color:{colour}}}");
        }
        out
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" \
         font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" font-size=\"13\">\n\
         <style>\n{}\n@media (prefers-color-scheme: dark) {{{}}}\n</style>\n\
         <rect class=\"sheet\" width=\"100%\" height=\"100%\"/>\n",
        rules(LIGHT, COLOURS.map(|pair| pair.0)),
        rules(DARK, COLOURS.map(|pair| pair.1)),
    )
}

/// Divides each text into lines of at most about `letters` letters.
pub(super) fn wrapped(texts: &[&str], letters: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for text in texts {
        let mut line = String::new();
        for word in text.split_whitespace() {
            let length = line.chars().count() + 1 + word.chars().count();
            if !line.is_empty() && crate::num::count_f64(length) > letters {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
        if !line.is_empty() {
            lines.push(line);
        }
    }
    lines
}

/// Returns the class of the line, part or box with this number.
fn class(index: usize) -> String {
    format!("c{}", index % COLOURS.len())
}

/// Draws words at a position.
pub(super) fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, size: u8, words: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{}</text>",
        escaped(words)
    );
}

/// Draws a thin line.
pub(super) fn rule(out: &mut String, from: (f64, f64), to: (f64, f64), class: &str) {
    let _ = writeln!(
        out,
        "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
        from.0, from.1, to.0, to.1
    );
}

/// Draws a thick line through positions, dashed if `broken`.
pub(super) fn path(out: &mut String, places: &[(f64, f64)], index: usize, broken: bool) {
    let places: Vec<String> = places
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let dash = if broken {
        " stroke-dasharray=\"6 4\""
    } else {
        ""
    };
    let _ = writeln!(
        out,
        "<polyline class=\"{}\" points=\"{}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\"{dash}/>",
        class(index),
        places.join(" ")
    );
}

/// Draws a mark in one of four shapes, so that lines differ without colour.
pub(super) fn mark(out: &mut String, index: usize, place: [f64; 2]) {
    let paint = format!("class=\"{}\" fill=\"currentColor\"", class(index));
    out.push_str(&shape(index, place, 1.0, &paint));
}

/// Draws a large, hollow mark with a letter: a point of the paper, for the line with this number. `None`: for no line.
pub(super) fn hollow(out: &mut String, index: Option<usize>, [x, y]: [f64; 2], letter: &str) {
    let class = index.map_or("ink".to_owned(), class);
    let paint = format!("class=\"{class} hollow\" stroke=\"currentColor\" stroke-width=\"1.5\"");
    out.push_str(&shape(index.unwrap_or(3), [x, y], 1.7, &paint));
    text(out, (x, y + 3.0), "middle", 8, letter);
}

fn shape(index: usize, [x, y]: [f64; 2], size: f64, paint: &str) -> String {
    let corners: &[(f64, f64)] = match index % 4 {
        0 => {
            let radius = 4.0 * size;
            return format!("<circle {paint} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/>\n");
        }
        1 => &[(-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)],
        2 => &[(0.0, -4.8), (4.6, 3.6), (-4.6, 3.6)],
        _ => &[(0.0, -5.2), (5.2, 0.0), (0.0, 5.2), (-5.2, 0.0)],
    };
    let corners: Vec<String> = corners
        .iter()
        .map(|(dx, dy)| format!("{:.1},{:.1}", x + dx * size, y + dy * size))
        .collect();
    format!("<polygon {paint} points=\"{}\"/>\n", corners.join(" "))
}

/// Draws a filled rectangle.
pub(super) fn block(
    out: &mut String,
    (x, y): (f64, f64),
    (width, height): (f64, f64),
    index: usize,
) {
    let _ = writeln!(
        out,
        "<rect class=\"{} block\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         fill=\"currentColor\"/>",
        class(index)
    );
}

/// Escapes words for XML.
pub(super) fn escaped(words: &str) -> String {
    words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
