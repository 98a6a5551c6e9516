//! The replies to clients until the database has opened.

use crate::engine::Progress;
use std::time::Duration;

/// Returns the error reply to every command that needs the data.
pub(crate) fn text(progress: &Progress, elapsed: Duration) -> String {
    let percent = progress.percent();
    let left = match progress.eta_seconds(elapsed) {
        Some(seconds) => format!("about {seconds} s left"),
        None => String::from("time left not known yet"),
    };
    format!("LOADING Perdura is loading the dataset in memory: {percent}% done, {left}")
}

/// Returns the fields of the INFO section `persistence`, by Redis names.
pub(crate) fn info(progress: &Progress, elapsed: Duration) -> [(&'static str, String); 5] {
    let eta = progress
        .eta_seconds(elapsed)
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

/// Returns the progress as a text for people.
pub(crate) fn status(progress: &Progress, elapsed: Duration) -> String {
    let percent = progress.percent();
    match progress.eta_seconds(elapsed) {
        Some(seconds) => format!("Loading: {percent} %, about {seconds} s left"),
        None => format!("Loading: {percent} %"),
    }
}
