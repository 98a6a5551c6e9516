//! What clients are told until the database has opened.

use crate::engine::Progress;

/// The error that every command gets which needs the data.
pub(crate) fn text(progress: &Progress) -> String {
    let percent = progress.percent();
    let left = match progress.eta_seconds() {
        Some(seconds) => format!("about {seconds} s left"),
        None => String::from("time left unknown"),
    };
    format!("LOADING Perdura is loading the dataset in memory: {percent}% done, {left}")
}

/// The fields of INFO's persistence section, by Redis's names.
pub(crate) fn info(progress: &Progress, out: &mut String) {
    use std::fmt::Write;
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "loading_phase:{}\r\nloading_total_bytes:{}\r\nloading_loaded_bytes:{}\r\n\
         loading_loaded_perc:{}.00\r\nloading_eta_seconds:{}\r\n",
        progress.phase(),
        progress.total_bytes(),
        progress.loaded_bytes(),
        progress.percent(),
        progress
            .eta_seconds()
            .map_or(-1, |s| i64::try_from(s).unwrap_or(i64::MAX)),
    );
}
