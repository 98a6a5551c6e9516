//! Image to memory: the newest one that can be trusted, and each page only if the directory
//! vouches for it.
//!
//! A page that does not check out is taken from the older image instead, with the older image's
//! epoch as its base: the same rule with a smaller k, and the log read from further back. That is
//! why both images are kept and the log reaches back to the older one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Error, ImageSlot, PageId, PartitionId, Pos, Result};
use perdura_device::{AlignedBuf, Disk};
use perdura_store::Heap;
use perdura_wal::{Anchor, ImageState};

use crate::image::{DirEntry, Directory, ImageFile, LoadedDirectory, folder, read_directory};
use crate::report::Progress;

/// Pages read at once.
const RUN_PAGES: usize = 64;

/// An image in memory.
pub struct LoadedImage {
    /// Which slot it came from; `None` if there is no image yet.
    pub slot: Option<ImageSlot>,
    /// Its checkpoint epoch.
    pub k: CkptEpoch,
    /// What it lists.
    pub directory: Directory,
    /// Hash index entries by partition.
    pub sidecars: Vec<Vec<u8>>,
    /// Where each stream must be read from.
    pub begin: Vec<Pos>,
    /// Pages that came from the older image, with its epoch.
    pub rebuilt: BTreeMap<PageId, CkptEpoch>,
    /// Slots that were complete and cannot be relied on any more, wholly or in part. They must not
    /// be named again before they are rewritten, and be rewritten first: the image that stood in
    /// for them is the only one left.
    pub damaged: Vec<ImageSlot>,
    /// What an operator should know.
    pub notes: Vec<String>,
    /// Pages loaded.
    pub pages: u64,
    /// Bytes read.
    pub bytes: u64,
}

impl LoadedImage {
    /// The slot whose pages on disk are what memory was loaded from, all of them.
    #[must_use]
    pub fn trusted_slot(&self) -> Option<ImageSlot> {
        self.slot.filter(|slot| !self.damaged.contains(slot))
    }

    /// The epoch that a page's records are held against.
    #[must_use]
    pub fn base_of(&self, page: PageId) -> CkptEpoch {
        if self.rebuilt.is_empty() {
            return self.k;
        }
        self.rebuilt.get(&page).copied().unwrap_or(self.k)
    }
}

struct Candidate {
    slot: ImageSlot,
    k: CkptEpoch,
    file: ImageFile,
    listed: LoadedDirectory,
}

/// Loads the newest usable image into an empty heap, with `threads` readers.
///
/// # Errors
/// [`Error::Corrupt`] if a page is damaged and no other image can stand in, or if no complete
/// image can be read.
pub fn load_image(
    heap: &Heap,
    disk: &Arc<dyn Disk>,
    anchor: &Anchor,
    threads: usize,
    progress: &Progress,
) -> Result<LoadedImage> {
    let mut slots: Vec<ImageSlot> = ImageSlot::ALL
        .into_iter()
        .filter(|slot| anchor.image(*slot).state == ImageState::Complete)
        .collect();
    slots.sort_by_key(|slot| std::cmp::Reverse(anchor.image(*slot).k));
    let mut notes = Vec::new();
    let mut damaged = Vec::new();
    let mut last_error = None;
    for (rank, slot) in slots.iter().enumerate() {
        let candidate = match open_candidate(heap, disk.as_ref(), anchor, *slot) {
            Ok(candidate) => candidate,
            Err(error) if is_damage(&error) => {
                notes.push(format!("image {slot} cannot be used: {error}"));
                last_error = Some(error);
                damaged.push(*slot);
                continue;
            }
            Err(error) => return Err(error),
        };
        let older = slots.get(rank + 1).copied();
        let mut image = load_candidate(heap, disk, anchor, candidate, older, threads, progress)?;
        image.damaged.append(&mut damaged);
        image.notes.append(&mut notes);
        return Ok(image);
    }
    if let Some(error) = last_error {
        return Err(error);
    }
    Ok(LoadedImage {
        slot: None,
        k: CkptEpoch(0),
        directory: Directory::empty(anchor.partitions),
        sidecars: vec![Vec::new(); usize::from(anchor.partitions)],
        begin: vec![Pos(0); usize::from(anchor.streams)],
        rebuilt: BTreeMap::new(),
        damaged,
        notes,
        pages: 0,
        bytes: 0,
    })
}

fn is_damage(error: &Error) -> bool {
    error.is_not_found() || matches!(error, Error::Corrupt(_) | Error::Foreign { .. })
}

fn open_candidate(
    heap: &Heap,
    disk: &dyn Disk,
    anchor: &Anchor,
    slot: ImageSlot,
) -> Result<Candidate> {
    let file = ImageFile::open(disk, slot, &anchor.uuid)?;
    let listed = read_directory(disk, anchor, slot, heap.geometry())?;
    Ok(Candidate {
        slot,
        k: anchor.image(slot).k,
        file,
        listed,
    })
}

fn load_candidate(
    heap: &Heap,
    disk: &Arc<dyn Disk>,
    anchor: &Anchor,
    candidate: Candidate,
    older: Option<ImageSlot>,
    threads: usize,
    progress: &Progress,
) -> Result<LoadedImage> {
    let Candidate {
        slot,
        k,
        file,
        listed,
    } = candidate;
    progress.add_total(listed.directory.pages() * to_u64(PAGE_BYTES));
    let next = AtomicU64::new(0);
    let bytes = AtomicU64::new(listed.bytes);
    let bad = Mutex::new(Vec::new());
    run_threads(threads, || {
        // Pages of a partition lie side by side only within a chunk.
        let run = RUN_PAGES.min(usize::from(anchor.chunk_pages));
        let mut buf = AlignedBuf::zeroed(run * PAGE_BYTES);
        loop {
            let taken = next.fetch_add(1, Ordering::Relaxed);
            let Some(id) = u16::try_from(taken)
                .ok()
                .filter(|id| *id < anchor.partitions)
            else {
                return Ok(());
            };
            let id = PartitionId(id);
            let entries: Vec<(u32, DirEntry)> = listed.directory.present(id).collect();
            let damaged = load_partition(heap, &file, id, &entries, &mut buf, progress)?;
            bytes.fetch_add(to_u64(entries.len() * PAGE_BYTES), Ordering::Relaxed);
            bad.lock().extend(damaged);
            if armed(Flaw::JunkBeyondDirectory) {
                load_junk(heap, &file, id, &listed.directory)?;
            }
        }
    })?;
    let mut image = LoadedImage {
        slot: Some(slot),
        k,
        pages: listed.directory.pages(),
        directory: listed.directory,
        sidecars: listed.sidecars,
        begin: anchor.image(slot).begin.clone(),
        rebuilt: BTreeMap::new(),
        damaged: Vec::new(),
        notes: Vec::new(),
        bytes: bytes.into_inner(),
    };
    let bad = bad.into_inner();
    if !bad.is_empty() {
        rebuild_pages(heap, disk.as_ref(), anchor, &mut image, slot, older, &bad)?;
    }
    Ok(image)
}

/// Reads one partition's pages in runs; returns those that the directory does not vouch for.
fn load_partition(
    heap: &Heap,
    file: &ImageFile,
    id: PartitionId,
    entries: &[(u32, DirEntry)],
    buf: &mut AlignedBuf,
    progress: &Progress,
) -> Result<Vec<(PageId, u32)>> {
    let geometry = *heap.geometry();
    let page_of = |local| {
        geometry
            .page_id(id, local)
            .expect("the directory was checked")
    };
    let mut bad = Vec::new();
    let mut at = 0;
    while at < entries.len() {
        let first = page_of(entries[at].0);
        let run = entries[at..]
            .iter()
            .take(buf.len() / PAGE_BYTES)
            .zip(first.0..)
            .take_while(|((local, _), expected)| page_of(*local).0 == *expected)
            .count();
        let got = file.read(first, &mut buf[..run * PAGE_BYTES])?;
        let mut part = heap.lock(id);
        for (i, (local, entry)) in entries[at..at + run].iter().enumerate() {
            let page = page_of(*local);
            let whole = (i + 1) * PAGE_BYTES <= got;
            let bytes = &buf[i * PAGE_BYTES..(i + 1) * PAGE_BYTES];
            let listed = whole && ImageFile::is_listed(page, bytes, entry);
            if listed || armed(Flaw::ImageCrcUnchecked) {
                part.load_page(*local, bytes);
            } else {
                bad.push((page, *local));
            }
        }
        progress.add_done(to_u64(run * PAGE_BYTES));
        at += run;
    }
    Ok(bad)
}

fn rebuild_pages(
    heap: &Heap,
    disk: &dyn Disk,
    anchor: &Anchor,
    image: &mut LoadedImage,
    slot: ImageSlot,
    older: Option<ImageSlot>,
    bad: &[(PageId, u32)],
) -> Result<()> {
    let worst = bad[0].0;
    let give_up = |why: &str| {
        Error::corrupt(
            format!("{}/pages", folder(slot)),
            crate::image::page_offset(worst),
            format!(
                "page {worst} as the directory of checkpoint {} lists it",
                image.k
            ),
            format!("other bytes ({} page(s) are damaged)", bad.len()),
            format!("It cannot be rebuilt: {why}. Restore a backup."),
        )
    };
    let older = older.ok_or_else(|| give_up("the other image is not complete"))?;
    let stand_in = open_candidate(heap, disk, anchor, older)
        .map_err(|error| give_up(&format!("the other image cannot be read either: {error}")))?;
    let mut buf = AlignedBuf::zeroed(PAGE_BYTES);
    for (page, local) in bad {
        let id = heap.geometry().partition_of_page(*page);
        let entry = stand_in.listed.directory.get(id, *local);
        // A page the older image does not list is zeros there, which is what memory holds.
        if entry.is_present() {
            let got = stand_in.file.read(*page, &mut buf)?;
            if got < PAGE_BYTES || !ImageFile::is_listed(*page, &buf, &entry) {
                return Err(give_up("the same page of the other image is damaged too"));
            }
            heap.lock(id).load_page(*local, &buf);
        }
        image.rebuilt.insert(*page, stand_in.k);
        image.directory.set(id, *local, DirEntry::default());
        image.notes.push(format!(
            "page {page} of image {slot} is damaged; rebuilt from image {older} and the log"
        ));
    }
    image.damaged.push(slot);
    let reach = &anchor.image(older).begin;
    for (begin, older) in image.begin.iter_mut().zip(reach) {
        *begin = (*begin).min(*older);
    }
    Ok(())
}

/// The seeded bug of believing whatever stands in the file beyond the image's directory.
#[cold]
fn load_junk(heap: &Heap, file: &ImageFile, id: PartitionId, listed: &Directory) -> Result<()> {
    let mut buf = AlignedBuf::zeroed(PAGE_BYTES);
    for local in 0..u32::from(heap.geometry().chunk_pages) {
        let Some(page) = heap.geometry().page_id(id, local) else {
            return Ok(());
        };
        let got = file.read(page, &mut buf)?;
        let whole = got == PAGE_BYTES && perdura_page::layout::page_id(&buf) == page;
        if !listed.get(id, local).is_present() && whole && buf.iter().any(|b| *b != 0) {
            heap.lock(id).load_page(local, &buf);
        }
    }
    Ok(())
}

/// Runs `work` on the caller's thread and on `threads - 1` others; the first error wins.
pub(crate) fn run_threads(threads: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    if threads <= 1 {
        return work();
    }
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(&work)).collect();
        let mut result = work();
        for other in others {
            let ended = other
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(ended);
        }
        result
    })
}
