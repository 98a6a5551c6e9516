//! Finds where a restart would cut the log. It loads no image, plays no log, and changes nothing.

use perdura_base::{Epoch, Pos, Result, StreamId};
use perdura_wal::{Check, scan_stream};

use crate::anchor::Anchor;
use crate::archived::check_archive;
use crate::close::durable_end;
use crate::given::check_given;
use crate::mirrored::check_alone;
use crate::options::RestartOptions;

/// Returns the last epoch that a restart of a stopped database would keep.
///
/// # Errors
/// The errors of a restart that are visible in the log's blocks and in the names of the files.
pub fn log_end(options: &RestartOptions, anchor: &Anchor) -> Result<Epoch> {
    check_given(options, anchor)?;
    check_alone(anchor)?;
    let begin = match anchor.newest_image() {
        Some(slot) => anchor.image(slot).cover.begin.clone(),
        None => vec![Pos(0); usize::from(anchor.streams)],
    };
    let lives = anchor.lives();
    let mut scans = Vec::with_capacity(begin.len());
    for ((number, from), disk) in (0..).zip(begin).zip(&options.disks.logs) {
        let disk = disk.as_ref();
        scans.push(scan_stream(
            disk,
            &lives,
            StreamId(number),
            from,
            Check::InDoubt,
        )?);
    }
    assert_eq!(
        scans.len(),
        usize::from(anchor.streams),
        "every stream is scanned"
    );
    let cut = anchor.decide_cut(&scans, false)?;
    check_archive(anchor, None, &durable_end(&cut))?;
    assert!(
        anchor.vouched.epoch <= cut.durable,
        "a log that ends before epoch {} is refused",
        anchor.vouched.epoch
    );
    Ok(cut.durable)
}
