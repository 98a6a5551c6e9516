//! The progress line of a transfer on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::report::Read;

/// A line on stderr that shows keys, bytes, rate and remaining time. Nothing is shown if stderr is not a terminal.
pub struct Line(ProgressBar);

impl Line {
    /// Returns a progress line for `total` steps. `None` means that the number of steps is unknown.
    pub fn new(total: Option<u64>) -> Line {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(5));
        let spent = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            // If a write to the terminal fails, only this line is lost.
            let _ = write!(out, "{} s", state.elapsed().as_secs());
        };
        let template = if total.is_some() {
            "{percent:>3} % {bar:30} {msg}, {spent} gone, {eta} left"
        } else {
            "{msg}, {spent} gone"
        };
        let style = ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .with_key("spent", spent);
        bar.set_style(style);
        Line(bar)
    }

    /// Shows the current step, and the counts of everything read so far.
    pub fn show(&self, step: u64, read: &Read) {
        if self.0.is_hidden() {
            return;
        }
        let seconds = self.0.elapsed().max(Duration::from_millis(1));
        let keys = read.total();
        let rate = u128::from(keys) * 1000 / seconds.as_millis().max(1);
        self.0.set_message(format!(
            "{keys} keys, {} MiB, {rate} keys/s",
            read.bytes >> 20
        ));
        self.0.set_position(step);
    }

    /// Removes the line.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}
