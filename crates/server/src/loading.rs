//! What clients are told until the database has opened.

use crate::engine::Progress;
use std::time::Duration;

/// Seconds left, if the rest goes as fast as what is done.
fn seconds_left(progress: &Progress, elapsed: Duration) -> Option<u64> {
    let (done, total) = (progress.loaded_bytes(), progress.total_bytes());
    let left = u128::from(total.saturating_sub(done));
    let ms = (elapsed.as_millis() * left).checked_div(u128::from(done))?;
    u64::try_from(ms.div_ceil(1000)).ok()
}

/// The error that every command gets which needs the data.
pub(crate) fn text(progress: &Progress, elapsed: Duration) -> String {
    let percent = progress.percent();
    let left = match seconds_left(progress, elapsed) {
        Some(seconds) => format!("about {seconds} s left"),
        None => String::from("time left not known yet"),
    };
    format!("LOADING Perdura is loading the dataset in memory: {percent}% done, {left}")
}

/// The fields of INFO's persistence section, by Redis's names.
pub(crate) fn info(progress: &Progress, elapsed: Duration) -> [(&'static str, String); 5] {
    let eta = seconds_left(progress, elapsed)
        .and_then(|s| i64::try_from(s).ok())
        .unwrap_or(-1);
    [
        ("loading_phase", progress.phase().to_owned()),
        ("loading_total_bytes", progress.total_bytes().to_string()),
        ("loading_loaded_bytes", progress.loaded_bytes().to_string()),
        ("loading_loaded_perc", format!("{}.00", progress.percent())),
        ("loading_eta_seconds", eta.to_string()),
    ]
}

/// The same for people.
pub(crate) fn status(progress: &Progress, elapsed: Duration) -> String {
    let percent = progress.percent();
    match seconds_left(progress, elapsed) {
        Some(seconds) => format!("Loading: {percent} %, about {seconds} s left"),
        None => format!("Loading: {percent} %"),
    }
}
