//! The images as the anchor describes them: the section `IMGS` (docs/formats/anchor.md).

use perdura_base::cursor::{Reader, Writer};
use perdura_base::{CkptEpoch, Epoch, ImageSlot, Pos};

use crate::cover::Cover;

/// The maximum number of disks that hold the images.
pub const IMAGE_DISKS_MAX: u8 = 16;

/// The state of one checkpoint image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageState {
    /// The image holds nothing that a restart may use.
    Empty,
    /// Checkpoint `k` is overwriting the image. A restart does not use it.
    Building,
    /// The image holds checkpoint `k`, and all of it is synced.
    Complete,
}

impl ImageState {
    /// All states.
    pub const ALL: [ImageState; 3] = [Self::Empty, Self::Building, Self::Complete];

    /// Returns the state's name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ImageState::Empty => "empty",
            ImageState::Building => "building",
            ImageState::Complete => "complete",
        }
    }

    /// Returns the state after an event. `None`: the event is illegal in this state.
    #[must_use]
    pub fn after(self, event: ImageEvent) -> Option<ImageState> {
        use ImageEvent as On;
        use ImageState as Is;
        match (self, event) {
            (Is::Empty | Is::Building | Is::Complete, On::Begin) => Some(Is::Building),
            (Is::Building | Is::Complete, On::Complete) => Some(Is::Complete),
            (Is::Empty, On::Complete) => None,
            (Is::Empty | Is::Building | Is::Complete, On::Discard) => Some(Is::Empty),
        }
    }

    fn code(self) -> u8 {
        match self {
            ImageState::Empty => 0,
            ImageState::Building => 1,
            ImageState::Complete => 2,
        }
    }
}

/// An event that changes the state of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageEvent {
    /// A checkpoint is about to overwrite the first page of the image.
    Begin,
    /// The pages and the directory are synced, and the log that the image needs is durable.
    Complete,
    /// A restart found damaged pages in the image.
    Discard,
}

impl ImageEvent {
    /// All events.
    pub const ALL: [ImageEvent; 3] = [Self::Begin, Self::Complete, Self::Discard];
}

/// A checkpoint's description of an image that it has completed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completion {
    /// CRC-32C of the image's directory file.
    pub directory_crc: u32,
    /// The wall-clock time of the checkpoint's end, microseconds since 1970.
    pub wall_us: u64,
    /// The part of the log that a restart from the image needs.
    pub cover: Cover,
    /// True if all pages of the image show the state at one instant.
    pub consistent: bool,
    /// The lowest epoch that contains a begin mark of the checkpoint.
    pub begin_epoch: Option<Epoch>,
}

/// The anchor's entry for one image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageStatus {
    state: ImageState,
    /// The image's checkpoint epoch.
    pub k: CkptEpoch,
    /// CRC-32C of the image's directory file.
    pub directory_crc: u32,
    /// The wall-clock time of the checkpoint's end, microseconds since 1970.
    pub wall_us: u64,
    /// The part of the log that a restart from the image needs.
    pub cover: Cover,
    /// True if the image is complete and all its pages show the state at one instant.
    pub consistent: bool,
    /// The lowest epoch that contains a begin mark of the checkpoint. The section `BEGN` stores it. If the image is the
    /// first of an archive, the archive begins with this epoch. `None`: the image is not complete, or an older build
    /// made it.
    pub begin_epoch: Option<Epoch>,
}

/// The bit in an image's byte of flags that marks the image as consistent.
const CONSISTENT: u8 = 1;

impl ImageStatus {
    /// Returns the entry of an image that was never written.
    #[must_use]
    pub fn empty(streams: u8) -> Self {
        ImageStatus {
            state: ImageState::Empty,
            k: CkptEpoch(0),
            directory_crc: 0,
            wall_us: 0,
            cover: Cover::empty(streams),
            consistent: false,
            begin_epoch: None,
        }
    }

    /// Returns the image's state.
    #[must_use]
    pub fn state(&self) -> ImageState {
        self.state
    }

    /// Returns whether a restart can begin with the image.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.state == ImageState::Complete
    }

    /// Notes that checkpoint `k` is about to overwrite the image.
    pub fn mark_building(&mut self, k: CkptEpoch) {
        self.advance(ImageEvent::Begin);
        self.consistent = false;
        self.begin_epoch = None;
        self.k = k;
    }

    /// Notes that checkpoint `k` has completed the image.
    pub fn mark_complete(&mut self, k: CkptEpoch, completion: Completion) {
        assert!(
            self.state != ImageState::Complete || self.k == k,
            "checkpoint {k} completes an image that holds checkpoint {}",
            self.k
        );
        self.advance(ImageEvent::Complete);
        let Completion {
            directory_crc,
            wall_us,
            cover,
            consistent,
            begin_epoch,
        } = completion;
        assert!(
            begin_epoch.is_none_or(|begin| begins_by(begin, cover.end_epoch)),
            "a window begins in epoch {begin_epoch:?} and ends in epoch {}",
            cover.end_epoch
        );
        let streams = |cover: &Cover| (cover.begin.len(), cover.end.len());
        assert_eq!(
            streams(&cover),
            streams(&self.cover),
            "a window in every stream"
        );
        *self = ImageStatus {
            state: self.state,
            k,
            directory_crc,
            wall_us,
            cover,
            consistent,
            begin_epoch,
        };
    }

    /// Notes that a restart may no longer use the image. The image's checkpoint epoch stays in the entry, so that no
    /// later checkpoint gets this epoch.
    pub fn discard(&mut self) {
        self.advance(ImageEvent::Discard);
        self.consistent = false;
        self.begin_epoch = None;
    }

    fn advance(&mut self, event: ImageEvent) {
        let next = self.state.after(event);
        self.state = next.unwrap_or_else(|| panic!("{event:?} of an image that is {self:?}"));
    }
}

/// The two images, and how many disks they are spread over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Images {
    /// Count of disks, at least one. The pages of partition p are on disk p modulo `disks`, counted from 0.
    pub disks: u8,
    slots: [ImageStatus; 2],
}

impl Images {
    /// The tag of the section.
    pub const SECTION: [u8; 4] = *b"IMGS";

    /// Returns the entries of two images that were never written.
    #[must_use]
    pub fn empty(disks: u8, streams: u8) -> Images {
        assert!(
            (1..=IMAGE_DISKS_MAX).contains(&disks),
            "{disks} disks for images"
        );
        Images {
            disks,
            slots: [ImageStatus::empty(streams), ImageStatus::empty(streams)],
        }
    }

    /// Returns image A, then image B.
    pub fn iter(&self) -> impl Iterator<Item = &ImageStatus> {
        self.slots.iter()
    }

    /// Returns the image of a slot.
    #[must_use]
    pub fn get(&self, slot: ImageSlot) -> &ImageStatus {
        &self.slots[slot.index()]
    }

    /// Returns the image of a slot, for changing it.
    pub fn get_mut(&mut self, slot: ImageSlot) -> &mut ImageStatus {
        &mut self.slots[slot.index()]
    }

    /// Returns the newest complete image, if any.
    #[must_use]
    pub fn newest(&self) -> Option<ImageSlot> {
        ImageSlot::ALL
            .into_iter()
            .filter(|slot| self.get(*slot).is_complete())
            .max_by_key(|slot| self.get(*slot).k)
    }

    /// Returns the section's payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        out.put_u8(self.disks);
        out.put_zeros(3);
        for image in &self.slots {
            out.put_u8(image.state.code());
            out.put_u8(if image.consistent { CONSISTENT } else { 0 });
            out.put_zeros(2);
            out.put_u32(image.directory_crc);
            out.put_u64(image.k.0);
            out.put_u64(image.cover.end_epoch.0);
            out.put_u64(image.wall_us);
            let positions = image.cover.begin.iter().chain(&image.cover.end);
            positions.for_each(|pos| out.put_u64(pos.0));
        }
        out
    }

    /// Reads the section's payload in a database of `streams` streams. `None`: [`encode`](Self::encode) never writes
    /// this payload.
    #[must_use]
    pub fn decode(payload: &[u8], streams: u8) -> Option<Images> {
        let mut r = Reader::new(payload);
        let disks = r.u8()?;
        r.zeros(3)?;
        let slots = [
            decode_image(&mut r, streams)?,
            decode_image(&mut r, streams)?,
        ];
        let in_range = (1..=IMAGE_DISKS_MAX).contains(&disks) && r.remaining() == 0;
        in_range.then_some(Images { disks, slots })
    }
}

fn decode_image(r: &mut Reader<'_>, streams: u8) -> Option<ImageStatus> {
    let code = r.u8()?;
    let state = ImageState::ALL
        .into_iter()
        .find(|state| state.code() == code)?;
    let flags = r.u8()?;
    if flags & !CONSISTENT != 0 || flags != 0 && state != ImageState::Complete {
        return None;
    }
    r.zeros(2)?;
    let positions = |r: &mut Reader<'_>| -> Option<Vec<Pos>> {
        (0..streams).map(|_| r.u64().map(Pos)).collect()
    };
    let (directory_crc, k) = (r.u32()?, CkptEpoch(r.u64()?));
    let (end_epoch, wall_us) = (Epoch(r.u64()?), r.u64()?);
    let cover = Cover {
        begin: positions(r)?,
        end: positions(r)?,
        end_epoch,
    };
    Some(ImageStatus {
        state,
        k,
        directory_crc,
        wall_us,
        cover,
        consistent: flags & CONSISTENT != 0,
        begin_epoch: None,
    })
}

/// Returns whether `begin` can be the lowest epoch of an image whose sweep ended in epoch `end`. The highest possible
/// value is `end` + 1. With this value, the image has every change up to `end`. For example, a restore of epoch 0 makes
/// an image with this value.
pub(crate) fn begins_by(begin: Epoch, end: Epoch) -> bool {
    begin.0 <= end.0.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_state(state: ImageState) -> ImageStatus {
        ImageStatus {
            state,
            k: CkptEpoch(7),
            ..ImageStatus::empty(1)
        }
    }

    /// Compares [`ImageState::after`] with the table on the format page, cell by cell.
    #[test]
    fn an_image_changes_its_state_as_the_format_page_says() {
        let page = include_str!("../../../docs/formats/anchor.md");
        let mut cells = 0;
        for state in ImageState::ALL {
            let row = format!("| {} |", state.name());
            let row = page.lines().find_map(|line| line.strip_prefix(&row));
            let row = row.expect("the page has a row for each state");
            let named: Vec<&str> = row
                .trim_end_matches('|')
                .split('|')
                .map(str::trim)
                .collect();
            assert_eq!(named.len(), ImageEvent::ALL.len());
            for (event, named) in ImageEvent::ALL.into_iter().zip(named) {
                let next = state.after(event).map_or("illegal", ImageState::name);
                assert_eq!(next, named, "{event:?} of an image that is {state:?}");
                cells += 1;
            }
        }
        assert_eq!(cells, 9);
    }

    #[test]
    fn an_illegal_event_of_an_image_panics_and_a_legal_one_changes_its_state() {
        for state in ImageState::ALL {
            for event in ImageEvent::ALL {
                let mut image = in_state(state);
                let change = std::panic::AssertUnwindSafe(|| match event {
                    ImageEvent::Begin => image.mark_building(CkptEpoch(8)),
                    ImageEvent::Complete => {
                        let completion = Completion {
                            cover: Cover::of_window(&[Pos(1)], vec![Pos(2)], Epoch(3)),
                            ..Completion::default()
                        };
                        image.mark_complete(CkptEpoch(7), completion);
                    }
                    ImageEvent::Discard => image.discard(),
                });
                let done = std::panic::catch_unwind(change);
                assert_eq!(done.ok().map(|()| image.state()), state.after(event));
            }
        }
    }

    #[test]
    fn images_are_read_back_and_a_payload_of_another_length_is_none() {
        for streams in [1, 2, 16] {
            let mut images = Images::empty(IMAGE_DISKS_MAX, streams);
            images.slots[1].k = CkptEpoch(9);
            images.slots[1].state = ImageState::Building;
            images.slots[0].state = ImageState::Complete;
            images.slots[0].consistent = streams == 2;
            let payload = images.encode();
            assert_eq!(Images::decode(&payload, streams), Some(images));
            for len in 0..payload.len() {
                assert_eq!(Images::decode(&payload[..len], streams), None);
            }
            let longer = [payload.as_slice(), &[0]].concat();
            assert_eq!(Images::decode(&longer, streams), None);
        }
    }

    #[test]
    fn fields_of_images_out_of_their_ranges_are_refused() {
        let payload = Images::empty(1, 1).encode();
        for (at, byte) in [(0, 0), (0, 17), (1, 1), (4, 3), (5, 1), (5, 2), (6, 1)] {
            let mut odd = payload.clone();
            odd[at] = byte;
            assert_eq!(Images::decode(&odd, 1), None, "byte {at}");
        }
    }
}
