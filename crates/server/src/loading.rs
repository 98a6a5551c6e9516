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

/// Returns the fields about a restart in the INFO section `persistence`. All but the last have Redis's names. `loads` has
/// the progress and the time since the start, until the database has opened. `absent` is the count of partitions that
/// are not loaded yet.
pub(crate) fn info(
    loads: Option<(&Progress, Duration)>,
    absent: usize,
) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("loading", u8::from(loads.is_some()).to_string()),
        ("async_loading", "0".to_owned()),
    ];
    fields.extend(
        loads
            .into_iter()
            .flat_map(|(progress, elapsed)| progress_fields(progress, elapsed)),
    );
    fields.push(("partitions_to_load", absent.to_string()));
    fields
}

fn progress_fields(progress: &Progress, elapsed: Duration) -> [(&'static str, String); 5] {
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
