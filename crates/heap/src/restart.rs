//! The restart of a partition: pages of the image and records of the log are combined in memory, in any order. Then the
//! update numbers are checked.
//!
//! Every record that the caller passes is applied. The caller has already compared the record's tag with the image's
//! epoch. Memory begins as zeros, and records are XOR differences, so the order of an image page and its records does
//! not matter. If no record has changed a page yet, the image's page is assigned to it. Otherwise the logged region of
//! the image's page is XORed into it. The 16 bytes of meta before that region are in no record, so they are always
//! assigned from the image.
//!
//! XOR itself cannot detect a lost or doubled record. So the update numbers of a page's applied records must be exactly
//! the next numbers after the image's number, each once. The image's page may be loaded after its records. So the
//! number of each applied record is noted, and the noted numbers are checked at the end. A number is noted as its
//! distance from the first noted number. Distances stay right when the numbers wrap at 2^32. The check compares the
//! count, the lowest number, the highest number and a sum of hashes of the numbers. Changes of interleaved transactions
//! have no update numbers and are not counted. A clean rollback of an interleaved transaction leaves no record.
//!
//! # Source
//! Differential logging, algorithm 3 (one-pass restart), in the simpler form that suffices if only whole committed
//! groups are in the log. Section 4.3, fully parallel restart: log and backup are played onto zeros in parallel.
//! # Deviations
//! The paper does not say how a restart ends. Here every page becomes dirty for the image that was not loaded, because
//! that image may be from an unfinished checkpoint. Every page that the restart has changed also becomes dirty for the
//! loaded image.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Error, ImageSlot, PageId, Result, Useq};
use perdura_page::diff::xor_into;
use perdura_page::layout::{self, META_BYTES, PAGE_BYTES};
use perdura_page::{Change, PageRecord};

use crate::entry::LOCAL_PAGES_MAX;
use crate::pages::{DIRTY_BOTH, IDENTITY_UNKNOWN, PageState, SPARSE_PAGES, flag, index};
use crate::partition::Partition;
use crate::touch::Touch;

/// A page whose replayed records have wrong update numbers. Correct numbers are exactly `image_useq + 1 ..= last`, each
/// once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UseqGap {
    /// The page.
    pub page: PageId,
    /// The update number of the page in its image; 0 if the image does not have the page.
    pub image_useq: Useq,
    /// The number of records applied to the page.
    pub seen: u32,
    /// The lowest update number that was applied. Numbers wrap at 2^32, so they are ordered by their distance from the
    /// image's number.
    pub first: Useq,
    /// The highest update number that was applied.
    pub last: Useq,
}

impl Partition {
    /// Loads a page of an image, before or after records are applied to the page.
    ///
    /// # Panics
    /// Panics if `bytes` is not a page, if the page was loaded and then changed, or if `local` is above the limit of
    /// [`apply`](Self::apply), 2^24 pages.
    pub fn load_page(&mut self, local: u32, bytes: &[u8]) {
        assert_eq!(bytes.len(), PAGE_BYTES);
        assert!(local < LOCAL_PAGES_MAX);
        self.pages.touch(local);
        let state = self.pages.state(local);
        let changed = state.flags & flag::CHANGED != 0;
        assert!(
            !changed || state.flags & flag::IN_IMAGE == 0,
            "a page has one image"
        );
        state.flags |= flag::IN_IMAGE;
        let identities = layout::identities(bytes);
        state.identity = identities.map_or(IDENTITY_UNKNOWN, |all| {
            u8::try_from(all.bytes_max).unwrap_or(IDENTITY_UNKNOWN)
        });
        if identities.is_none_or(|all| all.special) {
            state.flags |= flag::SPECIAL;
        }
        let page = self.pages.page_mut(local);
        if changed {
            page[..META_BYTES].copy_from_slice(&bytes[..META_BYTES]);
            xor_into(&mut page[META_BYTES..], &bytes[META_BYTES..]);
        } else {
            page.copy_from_slice(bytes);
        }
    }

    /// XORs a record into its page.
    ///
    /// # Errors
    /// Fails with `Corrupt` if the page cannot belong to this partition.
    pub fn apply(&mut self, record: &PageRecord<'_>) -> Result<()> {
        let local = self.admit(record.page)?;
        self.apply_admitted(record, local);
        Ok(())
    }

    /// Like [`apply`](Self::apply), for a page that [`admit`](Self::admit) has accepted.
    pub(crate) fn apply_admitted(&mut self, record: &PageRecord<'_>, local: u32) {
        if self.touched.len() < self.pages.states.len() {
            self.touched
                .resize(self.pages.states.len(), Touch::default());
        }
        self.touched[index(local)].note(record.useq);
        for run in record.fragments() {
            self.marks.note(local, run.offset, run.bytes.len());
        }
        record.xor_into(self.pages.page_mut(local));
    }

    /// Redoes a change of an interleaved transaction if `redo` is true, otherwise undoes it. Such changes have no
    /// update numbers.
    ///
    /// # Errors
    /// Fails with `Corrupt` if the page cannot belong to this partition.
    pub fn apply_change(&mut self, page: PageId, change: &Change<'_>, redo: bool) -> Result<()> {
        let local = self.admit(page)?;
        self.change_admitted(local, change, redo);
        Ok(())
    }

    /// Like [`apply_change`](Self::apply_change), for a page that [`admit`](Self::admit) has accepted.
    pub(crate) fn change_admitted(&mut self, local: u32, change: &Change<'_>, redo: bool) {
        change.for_each_run(|offset, len| self.marks.note(local, offset, len));
        let page = self.pages.page_mut(local);
        if redo {
            change.redo(page);
        } else {
            change.undo(page);
        }
    }

    /// Makes room for a page that a record names, and marks the page as changed. Returns its local index.
    pub(crate) fn admit(&mut self, page: PageId) -> Result<u32> {
        let geometry = &self.pages.geometry;
        let local = geometry.local_index(page);
        if geometry.partition_of_page(page) != self.id() || local >= LOCAL_PAGES_MAX {
            return Err(Error::corrupt(
                "log record",
                0,
                format!("a page of partition {}", self.id()),
                format!("page {page}"),
                "The log was written under another geometry or is damaged.",
            ));
        }
        if self.pages.touch(local) && local >= SPARSE_PAGES {
            // Applying a record reads before it writes. If memory is read before it is written, the kernel maps it
            // twice, and the second time interrupts every other processor.
            self.pages.page_mut(local).fill(0);
        }
        self.pages.state(local).flags |= flag::CHANGED;
        self.marks.grow(self.pages.states.len());
        Ok(local)
    }

    /// Returns the pages with a gap or a duplicate in the applied records. The caller has loaded the image and applied
    /// all records, and has not called [`finish_restart`](Self::finish_restart) yet.
    #[must_use]
    pub fn useq_gaps(&self) -> Vec<UseqGap> {
        let touched = (0u32..).zip(&self.touched).filter(|(_, t)| t.count > 0);
        touched
            .map(|(local, touch)| (local, touch, layout::useq(self.pages.page(local))))
            .filter(|(_, touch, image_useq)| !touch.is_dense_after(*image_useq))
            .map(|(local, touch, image_useq)| UseqGap {
                page: self.pages.page_id(local),
                image_useq,
                seen: touch.count,
                first: touch.first(),
                last: touch.last(),
            })
            .collect()
    }

    /// Returns how many pages were changed by records. The caller calls it before the indexes are built.
    #[must_use]
    pub fn touched_pages(&self) -> u64 {
        let changed = |state: &&PageState| state.flags & flag::CHANGED != 0;
        u64::try_from(self.pages.states.iter().filter(changed).count()).unwrap_or(u64::MAX)
    }

    /// Ends the replay. Every page gets the epoch `tag`, which is at least the image's epoch. The page's next record
    /// has this tag, so the record does not count as part of the image. A page that records have changed gets the
    /// highest applied update number.
    /// Every page becomes dirty for the image slot that was not loaded. A page becomes dirty for the loaded slot too if
    /// a record has changed it or the image does not have it. Without an image every page becomes dirty for each slot.
    pub fn finish_restart(&mut self, tag: CkptEpoch, image_slot: Option<ImageSlot>) {
        let bit = |slot: ImageSlot| 1u8 << slot.index();
        assert!(self.touched.len() <= self.pages.states.len());
        for local in self.pages.used() {
            let touch = self.touched.get(index(local)).copied().unwrap_or_default();
            let in_image = self.pages.has_flag(local, flag::IN_IMAGE);
            let id = self.pages.page_id(local);
            let page = self.pages.page_mut(local);
            layout::set_epoch(page, tag);
            layout::set_page_id(page, id);
            if touch.count > 0 {
                layout::set_useq(page, touch.last());
            }
            let changed =
                self.pages.has_flag(local, flag::CHANGED) && !armed(Flaw::RestartChangesClean);
            let as_anchored = in_image && !changed;
            let dirty = match image_slot {
                None => DIRTY_BOTH,
                Some(_) if as_anchored && armed(Flaw::OtherImageTrusted) => 0,
                Some(slot) if as_anchored => bit(slot.other()),
                Some(_) => DIRTY_BOTH,
            };
            let state = self.pages.state(local);
            state.dirty = dirty;
            state.flags &= !(flag::IN_IMAGE | flag::UNTOUCHED);
        }
        self.touched = Vec::new();
    }
}
