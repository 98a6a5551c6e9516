//! The lines about the duration of a restore and of the first start after it.

use std::time::Duration;

use perdura_archive::report::newest_report;
use perdura_archive::{ReportKind, Store};

use super::Held;

/// Returns the lines about the duration of a restore.
pub(super) fn restore_text(held: &Held) -> String {
    let mut text = String::new();
    if let Some(seconds) = held.restore_seconds {
        text += &format!("restore   about {seconds:.1} s with one thread, by the last drill\n");
    }
    let times = [held.frames_seconds, held.first_start_seconds];
    text += &to_replay_text(held.frames_to_replay, times);
    text
}

/// Returns the lines about the changes that the first start replays. `times` are the time in which these changes were made,
/// and the expected time of their replay. Empty if there are no changes.
pub fn to_replay_text(changes: u64, times: [Option<f64>; 2]) -> String {
    let [made, first_start] = times;
    if changes == 0 {
        return String::new();
    }
    format!(
        "to replay at most {changes} changes of key-addressed tables{}, at the first start after a restore\n{}",
        made_in(made),
        first_start_text(first_start)
    )
}

/// Returns a time in seconds.
pub fn seconds_of(us: Option<u64>) -> Option<f64> {
    us.map(|us| Duration::from_micros(us).as_secs_f64())
}

/// Returns the expected time of a replay of `changes`, seconds. `None`: no restart of the database is known that
/// replayed many changes.
pub fn first_start_seconds(store: &Store, changes: u64) -> Result<Option<f64>, perdura::Error> {
    let proof = newest_report(store.disk().as_ref(), store.uuid(), ReportKind::Proof)?;
    Ok(seconds_of(
        proof.and_then(|proof| proof.replay.expected_us(changes)),
    ))
}

/// Returns the line with the expected time of a replay. Empty if the time is not known.
fn first_start_text(seconds: Option<f64>) -> String {
    let Some(seconds) = seconds else {
        return String::new();
    };
    let about = match seconds {
        ..0.1 => "less than 0.1".to_owned(),
        _ => format!("about {seconds:.1}"),
    };
    format!("replay    {about} s, if it is as fast as the last long replay of a restart\n")
}

/// Returns the words for the time in which changes were made. Empty if the time is not known.
fn made_in(seconds: Option<f64>) -> String {
    seconds.map_or_else(String::new, |seconds| format!(", made in {seconds:.0} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_unknown_replays_are_told_apart() {
        assert_eq!(first_start_text(None), "");
        let text = |seconds| first_start_text(Some(seconds));
        assert!(text(0.04).starts_with("replay    less than 0.1 s, if"));
        assert!(text(2.26).starts_with("replay    about 2.3 s, if"));
    }
}
