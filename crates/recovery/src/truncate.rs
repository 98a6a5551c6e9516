//! How far the log may be cut. One function computes it, and one assertion guards it.

use perdura_base::Pos;
use perdura_base::flaw::{Flaw, armed};

use crate::anchor::Anchor;
use crate::images::ImageStatus;

/// The position in every stream below which no restart needs the log any more, given an anchor
/// that is durable. `archived` is how far the archive holds every stream, if there is one.
///
/// The log reaches back to the *older* complete image, so that either image can be restarted
/// from, and a damaged page of one be rebuilt from the other.
#[must_use]
pub fn truncation_floor(anchor: &Anchor, archived: Option<&[Pos]>) -> Vec<Pos> {
    let complete = || anchor.images.iter().filter(|image| image.is_complete());
    let floor: Vec<Pos> = (0..usize::from(anchor.streams))
        .map(|s| {
            let images = complete().map(|image| image.cover.begin[s]);
            let reach = if armed(Flaw::TruncateAtNewer) {
                images.max()
            } else {
                images.min()
            };
            let archive = archived.map(|archived| archived[s]);
            let reach = reach.unwrap_or(Pos(0));
            archive.map_or(reach, |archive| reach.min(archive))
        })
        .collect();
    let safe = |s: usize, image: &ImageStatus| floor[s] <= image.cover.begin[s];
    assert!(
        armed(Flaw::TruncateAtNewer)
            || (0..floor.len()).all(|s| complete().all(|image| safe(s, image))
                && archived.is_none_or(|archived| floor[s] <= archived[s])),
        "no log is cut before every retained image and the archive have passed it"
    );
    floor
}
