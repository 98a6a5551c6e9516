//! The lowest epoch of each image, which is the lowest commit epoch of its begin marks: the section `BEGN` of the
//! anchor (docs/formats/anchor.md).
//!
//! The epochs are not in the images' own section, because older builds must still be able to read the images' section.
//! An older build keeps section `BEGN` unchanged while it makes new images. So each epoch is stored with the checkpoint
//! that it belongs to, and is ignored for any other checkpoint.

use perdura_base::cursor::{Reader, Writer};
use perdura_base::{CkptEpoch, Epoch, ImageSlot};

use crate::images::{Images, begins_by};

/// The tag of the section.
pub const SECTION: [u8; 4] = *b"BEGN";

/// Returns the section's payload. `None`: no image has a known lowest epoch.
#[must_use]
pub(crate) fn encode(images: &Images) -> Option<Vec<u8>> {
    images.iter().find_map(|image| image.begin_epoch)?;
    let mut out = Vec::with_capacity(32);
    for image in images.iter() {
        let known = image.begin_epoch.map(|epoch| (image.k.0, epoch.0));
        let (k, epoch) = known.unwrap_or_default();
        out.put_u64(k);
        out.put_u64(epoch);
    }
    Some(out)
}

/// Returns `images` with the epochs of a payload. `None`: [`encode`] never writes this payload.
#[must_use]
pub(crate) fn decode(payload: &[u8], mut images: Images) -> Option<Images> {
    let mut r = Reader::new(payload);
    for slot in ImageSlot::ALL {
        let (k, epoch) = (CkptEpoch(r.u64()?), Epoch(r.u64()?));
        if (k.0 == 0) != (epoch.0 == 0) {
            return None;
        }
        let image = images.get_mut(slot);
        let counts = image.is_complete() && image.k == k && begins_by(epoch, image.cover.end_epoch);
        image.begin_epoch = counts.then_some(epoch);
    }
    (r.remaining() == 0).then_some(images)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cover::Cover;
    use crate::images::Completion;
    use perdura_base::Pos;

    /// Returns images. Slot A holds checkpoint 9, which began in epoch 300.
    fn images() -> Images {
        let mut images = Images::empty(1, 1);
        images.get_mut(ImageSlot::A).mark_building(CkptEpoch(9));
        let completion = Completion {
            cover: Cover::of_window(&[Pos(1)], vec![Pos(2)], Epoch(301)),
            begin_epoch: Some(Epoch(300)),
            ..Completion::default()
        };
        images
            .get_mut(ImageSlot::A)
            .mark_complete(CkptEpoch(9), completion);
        images
    }

    #[test]
    fn the_example_on_the_format_page_is_read_and_written() {
        let page = include_str!("../../../docs/formats/anchor.md");
        let example = page.split("```text hex").nth(2).unwrap();
        let example = example.split("```").next().unwrap();
        let digits: String = example.chars().filter(char::is_ascii_hexdigit).collect();
        let bytes = encode(&images()).unwrap();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, hex);
        // The images as decoded from their own section, without `BEGN`.
        let without = Images::decode(&images().encode(), 1).unwrap();
        assert_eq!(without.get(ImageSlot::A).begin_epoch, None);
        assert_eq!(encode(&without), None);
        assert_eq!(decode(&bytes, without.clone()), Some(images()));
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len], without.clone()), None);
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_eq!(decode(&longer, without.clone()), None);
        let mut half = bytes;
        half[24] = 1;
        assert_eq!(decode(&half, without), None, "an epoch of no checkpoint");
    }

    #[test]
    fn an_epoch_of_another_checkpoint_does_not_count() {
        let bytes = encode(&images()).unwrap();
        let mut newer = images();
        let image = newer.get_mut(ImageSlot::A);
        image.mark_building(CkptEpoch(10));
        assert_eq!(image.begin_epoch, None);
        let building = decode(&bytes, newer.clone()).unwrap();
        assert_eq!(building.get(ImageSlot::A).begin_epoch, None);
        let completion = Completion {
            cover: Cover::of_window(&[Pos(1)], vec![Pos(2)], Epoch(400)),
            ..Completion::default()
        };
        newer
            .get_mut(ImageSlot::A)
            .mark_complete(CkptEpoch(10), completion);
        let read = decode(&bytes, newer).unwrap();
        assert_eq!(read.get(ImageSlot::A).begin_epoch, None);
    }
}
