//! Loads the image of a plan. Reads runs of pages that lie side by side, checks each page against the directory, and
//! puts the intact pages into memory.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{Epoch, Error, PageId, Result};
use perdura_device::AlignedBuf;
use perdura_heap::{Geometry, Heap};

use crate::base::{Base, Image};
use crate::heap_pages::load_pages;
use crate::image::{ImageFile, Place, disk_of};
use crate::plan::{BadPage, ImagePlan, Run, page_of};
use crate::rule::ImageKind;

#[cfg(feature = "flaws")]
mod seeded;

/// The bytes of a run of pages.
pub struct LoadedRun {
    disk: usize,
    run: usize,
    /// The buffer. Its first `got` bytes are this run's. The bytes after them are left from the buffer's earlier use.
    buf: AlignedBuf,
    got: usize,
}

impl ImagePlan {
    /// Takes a buffer of at least `len` bytes with any contents. Buffers are reused. Otherwise the kernel would have to
    /// map, fill and unmap as much memory as the whole image needs.
    fn take_buffer(&self, len: usize) -> AlignedBuf {
        let spare = self.buffers.lock().pop();
        spare
            .filter(|buf| buf.len() >= len)
            .unwrap_or_else(|| AlignedBuf::zeroed(len))
    }
}

impl ImagePlan {
    /// Loads the pages of this image that `is_wanted` selects. Returns how many of them are damaged.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn load_some(&self, heap: &Heap, is_wanted: &dyn Fn(PageId) -> bool) -> Result<u64> {
        let (geometry, mut damaged) = (heap.geometry(), 0);
        for (disk, runs) in self.runs.iter().enumerate() {
            for (number, run) in runs.iter().enumerate() {
                let page = |local: u32| page_of(geometry, run.partition, local);
                if !run.entries.iter().any(|(local, _)| is_wanted(page(*local))) {
                    continue;
                }
                let loaded = self.read(disk, number)?;
                let (sound, bad) = self.compared(geometry, run, &loaded);
                let is_wanted_too = |(local, _): &&(u32, &[u8])| is_wanted(page(*local));
                let wanted: Vec<_> = sound.iter().filter(is_wanted_too).copied().collect();
                load_pages(heap, run.partition, &wanted);
                damaged += to_u64(bad.iter().filter(|(_, page)| is_wanted(*page)).count());
            }
        }
        Ok(damaged)
    }

    /// Returns the pages of a run that match the directory, with their bytes, and those that do not.
    fn compared<'r>(
        &self,
        geometry: &Geometry,
        run: &Run,
        loaded: &'r LoadedRun,
    ) -> (Vec<(u32, &'r [u8])>, Vec<BadPage>) {
        let first = run.entries.first().map_or(0, |(local, _)| *local);
        let (mut sound, mut bad) = (Vec::with_capacity(run.entries.len()), Vec::new());
        for (local, entry) in &run.entries {
            let page = page_of(geometry, run.partition, *local);
            let at = usize::try_from(local - first).unwrap_or(0) * PAGE_BYTES;
            let bytes = &loaded.buf[at..at + PAGE_BYTES];
            let whole = at + PAGE_BYTES <= loaded.got;
            let listed = whole && ImageFile::is_listed(page, bytes, entry);
            if listed || armed(Flaw::ImageCrcUnchecked) {
                sound.push((*local, bytes));
            } else {
                bad.push((run.slot, page));
            }
        }
        assert_eq!(
            sound.len() + bad.len(),
            run.entries.len(),
            "each page of a run is sound or damaged"
        );
        (sound, bad)
    }
}

impl Image for ImagePlan {
    type Part = LoadedRun;

    fn kind(&self) -> ImageKind {
        ImageKind::Sweep(self.k)
    }

    #[inline]
    fn base_of(&self, page: PageId) -> Option<&Base> {
        if !self.lost.is_empty() && self.lost.contains(&page) {
            None
        } else if !self.rebuilt.is_empty() && self.rebuilt.contains(&page) {
            Some(&self.older)
        } else {
            Some(&self.newest)
        }
    }

    fn parts(&self) -> Vec<usize> {
        self.runs.iter().map(Vec::len).collect()
    }

    fn bytes(&self, part: &LoadedRun) -> u64 {
        to_u64(part.got)
    }

    /// Reads a part, which is a run of pages. If a page of the newest image cannot be read, zeros replace the page.
    /// Zeros match no entry of the directory, so the page counts as damaged. If a page of the older image cannot be
    /// read, returns the error.
    fn read(&self, disk: usize, part: usize) -> Result<LoadedRun> {
        let run = &self.runs[disk][part];
        // A run may have gaps, where pages are loaded from the other image. The read includes the gaps.
        let last = run.entries.last().map_or(0, |(local, _)| *local);
        let first = run.entries.first().map_or(0, |(local, _)| *local);
        let pages = usize::try_from(last - first).unwrap_or(0) + 1;
        let len = pages * PAGE_BYTES;
        let mut buf = self.take_buffer(len);
        let bytes = &mut buf[..len];
        let mut got = 0;
        if !run.entries.is_empty() {
            let file = &self.files[&run.slot][disk];
            match file.read(self.places.place(run.first), bytes) {
                Ok(read) => got = read,
                Err(error) if !error.is_unreadable() => return Err(error),
                Err(error) if run.slot != self.slot.unwrap_or(run.slot) => return Err(error),
                Err(_) => {
                    bytes.fill(0);
                    got = bytes.len();
                    // The pages lie at consecutive places in the file. Their page ids are not consecutive: they jump
                    // where a chunk ends.
                    let first = self.places.place(run.first).0;
                    for (place, bytes) in (first..).zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
                        if !matches!(file.read(Place(place), bytes), Ok(PAGE_BYTES)) {
                            bytes.fill(0);
                        }
                    }
                }
            }
        }
        assert!(
            got <= bytes.len() && last >= first,
            "{got} bytes of {} were read, pages {first} to {last}",
            bytes.len()
        );
        Ok(LoadedRun {
            disk,
            run: part,
            buf,
            got,
        })
    }

    /// Puts the pages of a run into memory, except pages that do not match the directory.
    fn play(&self, heap: &Heap, loaded: LoadedRun) -> Result<u64> {
        #[cfg(feature = "flaws")]
        if armed(Flaw::JunkBeyondDirectory) && (loaded.disk, loaded.run) == (0, 0) {
            self.load_junk(heap)?;
        }
        debug_assert!(
            loaded.got <= loaded.buf.len(),
            "what was read lies in its buffer"
        );
        let run = &self.runs[loaded.disk][loaded.run];
        if run.entries.is_empty() {
            return Ok(0);
        }
        assert_eq!(
            disk_of(run.partition, self.runs.len()),
            loaded.disk,
            "the pages of partition {} are on one disk",
            run.partition
        );
        let (sound, bad) = self.compared(heap.geometry(), run, &loaded);
        load_pages(heap, run.partition, &sound);
        let damaged = to_u64(bad.len());
        self.bad.lock().extend(bad);
        self.buffers.lock().push(loaded.buf);
        Ok(damaged)
    }

    fn check_end(&self, end: Epoch) -> Result<()> {
        let Some(slot) = self.slot else {
            return Ok(());
        };
        let needs = self.end_epoch;
        if end >= needs || armed(Flaw::OneStreamSuffices) {
            return Ok(());
        }
        Err(Error::corrupt(
            "log",
            0,
            format!("the log up to epoch {needs}, which image {slot} needs"),
            format!("nothing valid beyond epoch {end}"),
            "Acknowledged transactions are missing. Restore the log's files from a backup.",
        ))
    }
}
