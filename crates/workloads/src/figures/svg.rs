//! The SVG shapes of plots.

use std::fmt::Write;

/// Draws words at a position.
pub(super) fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, size: u8, words: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{}</text>",
        escaped(words)
    );
}

/// Draws a thin line.
pub(super) fn rule(out: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let _ = writeln!(
        out,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
        from.0, from.1, to.0, to.1
    );
}

/// Draws a thick line through positions, dashed if `broken`.
pub(super) fn path(out: &mut String, places: &[(f64, f64)], colour: &str, broken: bool) {
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
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>",
        places.join(" ")
    );
}

/// Draws a mark in one of four shapes, so that lines differ without colour.
pub(super) fn mark(out: &mut String, index: usize, (x, y): (f64, f64), colour: &str) {
    let shape: &[(f64, f64)] = match index % 4 {
        0 => {
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"
            );
            return;
        }
        1 => &[(-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)],
        2 => &[(0.0, -4.8), (4.6, 3.6), (-4.6, 3.6)],
        _ => &[(0.0, -5.2), (5.2, 0.0), (0.0, 5.2), (-5.2, 0.0)],
    };
    let corners: Vec<String> = shape
        .iter()
        .map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy))
        .collect();
    let _ = writeln!(
        out,
        "<polygon points=\"{}\" fill=\"{colour}\"/>",
        corners.join(" ")
    );
}

/// Draws a filled rectangle.
pub(super) fn block(
    out: &mut String,
    (x, y): (f64, f64),
    (width, height): (f64, f64),
    colour: &str,
) {
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         fill=\"{colour}\" stroke=\"#ffffff\"/>"
    );
}

/// Escapes words for XML.
pub(super) fn escaped(words: &str) -> String {
    words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
