//! Computes the position below which the log may be deleted. Only [`truncation_floor`] computes it, and an assertion
//! checks it before each deletion.

use perdura_base::Pos;
use perdura_base::flaw::{Flaw, armed};

use crate::anchor::Anchor;
use crate::images::ImageStatus;

/// Returns, for each stream, the first position that a restart or the archive still needs. The anchor must be durable.
///
/// The log is kept from the begin mark of the *older* complete image's checkpoint. So a restart can begin with the
/// newer image or with the older image. A damaged page of the newer image can be rebuilt from the older image. If there
/// is an archive, all log after the archive's end is kept, too.
#[must_use]
pub fn truncation_floor(anchor: &Anchor) -> Vec<Pos> {
    let complete = || anchor.images.iter().filter(|image| image.is_complete());
    let archived = anchor.archived.as_ref().map(|archived| &archived.ends);
    let floor: Vec<Pos> = (0..usize::from(anchor.streams))
        .map(|s| {
            let images = complete().map(|image| image.cover.begin[s]);
            let reach = if armed(Flaw::TruncateAtNewer) {
                images.max()
            } else {
                images.min()
            };
            let reach = reach.unwrap_or(Pos(0));
            match archived {
                Some(archived) if !armed(Flaw::LogCutBeforeRun) => reach.min(archived[s]),
                _ => reach,
            }
        })
        .collect();
    let safe = |s: usize, image: &ImageStatus| floor[s] <= image.cover.begin[s];
    assert!(
        (0..floor.len()).all(|s| complete().all(|image| safe(s, image))),
        "no log is cut before every retained image has passed it"
    );
    assert!(
        archived.is_none_or(|ends| floor.iter().zip(ends).all(|(floor, end)| floor <= end)),
        "no log is cut before the archive has it"
    );
    floor
}
