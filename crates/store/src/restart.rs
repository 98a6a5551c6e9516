//! Restart: image pages are assigned, records are XORed, and the update numbers are checked.
//!
//! A record is applied unconditionally; the caller has compared its tag with the image's epoch.
//! XOR itself cannot tell a lost or doubled record, so every page counts: the update numbers
//! applied must be exactly those after the image's, each once. They are taken as distances from
//! the image's number, which makes the wrap at 2^32 vanish, and compared as a set by count,
//! lowest, highest and a sum of mixed values, since records come in any order.
//!
//! # Source
//! Differential logging, algorithm 3 (one-pass restart), as it collapses when only whole
//! committed groups are in the log.
//! # Deviations
//! What the paper leaves open at the end of restart: every page is dirty for the other image,
//! which may hold half a checkpoint, and every page changed by restart for this one.

use perdura_base::checksum::mix64;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Error, ImageSlot, PageId, Result, Useq};
use perdura_page::PageRecord;
use perdura_page::layout::{self, PAGE_BYTES};

use crate::index::LOCAL_PAGES_MAX;
use crate::pages::{DIRTY_BOTH, flag, index};
use crate::partition::Partition;

/// A page whose replayed records are not exactly `image_useq + 1 ..= last`, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UseqGap {
    /// The page.
    pub page: PageId,
    /// The update number in its image; 0 if it is not in the image.
    pub image_useq: Useq,
    /// Records applied.
    pub seen: u32,
    /// The lowest update number applied, on the circle that begins at the image's.
    pub first: Useq,
    /// The highest update number applied.
    pub last: Useq,
}

/// What was applied to one page: distances of update numbers from the image's.
#[derive(Clone, Copy, Default)]
pub(crate) struct Touch {
    /// The image's number, kept here so that a record after the first needs no look at the
    /// page's header.
    image: Useq,
    count: u32,
    min: u32,
    max: u32,
    sum: u64,
}

impl Touch {
    fn note(&mut self, distance: u32) {
        self.min = if self.count == 0 {
            distance
        } else {
            self.min.min(distance)
        };
        self.max = self.max.max(distance);
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.wrapping_add(mix64(u64::from(distance)));
    }

    /// Whether the distances were `1..=count`, each once.
    fn is_dense(&self) -> bool {
        self.min == 1
            && self.max == self.count
            && self.sum
                == (1..=self.count)
                    .map(|d| mix64(u64::from(d)))
                    .fold(0, u64::wrapping_add)
    }
}

impl Partition {
    /// Assigns a page from an image, before any record of it is applied.
    ///
    /// # Panics
    /// If a record of the page was applied already, if `bytes` is not a page, or beyond the 2^24
    /// local pages that [`apply`](Self::apply) accepts.
    pub fn load_page(&mut self, local: u32, bytes: &[u8]) {
        assert_eq!(bytes.len(), PAGE_BYTES);
        assert!(local < LOCAL_PAGES_MAX);
        let early = self.touched.get(index(local)).is_none_or(|t| t.count == 0);
        assert!(early, "an image page is loaded before its records");
        self.pages.grow_to(local);
        self.pages.fresh = self.pages.fresh.max(local + 1);
        self.pages.page_mut(local).copy_from_slice(bytes);
        self.pages.state(local).flags |= flag::IN_IMAGE;
    }

    /// XORs a record into its page.
    ///
    /// # Errors
    /// `Corrupt` if the page cannot be one of this partition's.
    pub fn apply(&mut self, record: &PageRecord<'_>) -> Result<()> {
        let geometry = &self.pages.geometry;
        let local = geometry.local_index(record.page);
        if geometry.partition_of_page(record.page) != self.id() || local >= LOCAL_PAGES_MAX {
            return Err(Error::corrupt(
                "log record",
                0,
                format!("a page of partition {}", self.id()),
                format!("page {}", record.page),
                "The log was written under another geometry or is damaged.",
            ));
        }
        self.pages.grow_to(local);
        self.pages.fresh = self.pages.fresh.max(local + 1);
        if self.touched.len() < self.pages.states.len() {
            self.touched
                .resize(self.pages.states.len(), Touch::default());
        }
        let touch = &mut self.touched[index(local)];
        let page = self.pages.page_mut(local);
        if touch.count == 0 {
            touch.image = layout::useq(page);
            layout::set_page_id(page, record.page);
        }
        touch.note(record.useq.since(touch.image));
        record.xor_into(page);
        self.pages.state(local).flags |= flag::CHANGED;
        Ok(())
    }

    /// The pages whose applied records have a gap or a duplicate. To be asked before
    /// [`finish_restart`](Self::finish_restart).
    #[must_use]
    pub fn useq_gaps(&self) -> Vec<UseqGap> {
        let touched = (0u32..).zip(&self.touched).filter(|(_, t)| t.count > 0);
        touched
            .filter(|(_, touch)| !touch.is_dense())
            .map(|(local, touch)| {
                let image_useq = touch.image;
                UseqGap {
                    page: self.pages.page_id(local),
                    image_useq,
                    seen: touch.count,
                    first: Useq(image_useq.0.wrapping_add(touch.min)),
                    last: Useq(image_useq.0.wrapping_add(touch.max)),
                }
            })
            .collect()
    }

    /// Pages changed by records since the start or the last
    /// [`finish_restart`](Self::finish_restart).
    #[must_use]
    pub fn touched_pages(&self) -> u64 {
        u64::try_from(self.touched.iter().filter(|t| t.count > 0).count()).unwrap_or(u64::MAX)
    }

    /// Ends the replay. Every page gets the image's epoch, so that its next record is not
    /// reflected in that image, and the update number of its last record. A page is dirty for
    /// the image's slot if a record changed it or the image does not have it, and always for the
    /// other slot; for both if there was no image.
    pub fn finish_restart(&mut self, image_epoch: CkptEpoch, image_slot: Option<ImageSlot>) {
        let bit = |slot: ImageSlot| 1u8 << slot.index();
        for local in 0..self.pages.fresh {
            let touch = self.touched.get(index(local)).copied().unwrap_or_default();
            let in_image = self.pages.has_flag(local, flag::IN_IMAGE);
            let id = self.pages.page_id(local);
            let page = self.pages.page_mut(local);
            layout::set_epoch(page, image_epoch);
            layout::set_page_id(page, id);
            if touch.count > 0 {
                let last = Useq(touch.image.0.wrapping_add(touch.max));
                layout::set_useq(page, last);
            }
            let changed = touch.count > 0 && !armed(Flaw::RestartChangesClean);
            let as_anchored = in_image && !changed;
            let dirty = match image_slot {
                None => DIRTY_BOTH,
                Some(_) if as_anchored && armed(Flaw::OtherImageTrusted) => 0,
                Some(slot) if as_anchored => bit(slot.other()),
                Some(_) => DIRTY_BOTH,
            };
            let state = self.pages.state(local);
            state.dirty = dirty;
            state.flags &= !flag::IN_IMAGE;
        }
        self.touched = Vec::new();
    }
}
