//! Copies the newest image to an archive, as a *backup*.
//!
//! The copy is made in steps. A step reads adjacent pages of the image, checks each page against the image's directory,
//! and passes the pages to the backup's writer. If two checkpoints run during the copy, the second may overwrite the
//! image, unless the caller [holds](perdura_recovery::checkpoint::Pin) the image. If the image is overwritten, a page
//! does not match the directory that the copy has read. The copy then ends with an error and discards the copied pages.
//! No file gets the backup's name.
//!
//! # Source
//! C. Sauer, G. Graefe, T. Härder, "Single-pass restore after a media failure", section 2: full backups. Here a backup
//! is the image of a fuzzy or consistent checkpoint.

use std::sync::Arc;

use perdura_archive::Progress;
use perdura_archive::backup::{
    BackupHeader, BackupId, BackupKind, BackupSummary, BackupTail, BackupWriter,
};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{Epoch, Error, ImageSlot, PartitionId, Result};
use perdura_device::{AlignedBuf, Disk};
use perdura_recovery::image::{
    DirEntry, ImageFile, LoadedDirectory, PAGES_HEADER_BYTES, Places, disk_of, pages_path,
    read_directory,
};
use perdura_recovery::{Anchor, Disks};

use crate::last_cut::LastCut;
use crate::since::{Since, page_entry};

/// The maximum number of pages that a step reads.
const STEP_PAGES: usize = 64;

/// Returns the header of an empty backup: the state before the first epoch.
pub(crate) fn empty_header(anchor: &Anchor) -> BackupHeader {
    BackupHeader {
        uuid: anchor.uuid,
        id: BackupId::cut(Epoch(0)),
        kind: BackupKind::Cut,
        base: None,
        consistent: false,
        begin: Epoch(1),
        wall_us: anchor.created_us,
        chunks: anchor.geometry.chunks(),
        hash_seed: anchor.geometry.hash_seed,
        scheme: anchor.scheme.code(),
        streams: anchor.streams,
        families: anchor.families.bits(),
        segments: anchor.segments,
    }
}

/// The copy of one image, or of the pages that changed after a cut.
pub struct BackupCopy {
    anchor: Arc<Anchor>,
    slot: ImageSlot,
    images: Vec<ImageFile>,
    places: Places,
    listed: LoadedDirectory,
    /// The choice of an increment's pages. `None`: the copy is a backup.
    since: Option<Since>,
    writer: Option<BackupWriter>,
    tail: Option<BackupTail>,
    partition: PartitionId,
    /// The pages of the current partition. The first `copied` pages have been copied.
    pages: Vec<(u32, DirEntry)>,
    copied: usize,
    /// The number of pages copied so far, in all partitions.
    done: u64,
    buf: AlignedBuf,
}

impl BackupCopy {
    /// Begins a copy of the pages of key-addressed tables that changed between a cut and the newest image. `None`: the
    /// image has no change of such tables, or is not of one instant.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_increment(
        disks: &Disks,
        anchor: Arc<Anchor>,
        archive: Arc<dyn Disk>,
        dir: &str,
        since: LastCut,
    ) -> Result<Option<BackupCopy>> {
        let newest = anchor.newest_image().map(|slot| anchor.image(slot));
        if !newest.is_some_and(|image| image.consistent && image.k > since.k) {
            return Ok(None);
        }
        let copy = BackupCopy::begin_since(disks, anchor, archive, dir, Some(since))?;
        let numbers = copy.listed.pseq.as_ref();
        let before = copy.since.as_ref().map(|since| &since.cut().numbers);
        if numbers == before {
            copy.abandon()?;
            return Ok(None);
        }
        Ok(Some(copy))
    }

    /// Begins a copy of the newest image that the anchor names, into the existing folder `dir` of the archive.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is no image yet, or only the image of a restore with ordered frames after it.
    /// [`Error::Usage`] if the image was made by an older build, which did not record the image's lowest epoch. Damage
    /// of the image. Errors of the disks.
    pub fn begin(
        disks: &Disks,
        anchor: Arc<Anchor>,
        archive: Arc<dyn Disk>,
        dir: &str,
    ) -> Result<BackupCopy> {
        BackupCopy::begin_since(disks, anchor, archive, dir, None)
    }

    fn begin_since(
        disks: &Disks,
        anchor: Arc<Anchor>,
        archive: Arc<dyn Disk>,
        dir: &str,
        since: Option<LastCut>,
    ) -> Result<BackupCopy> {
        anchor.check_archivable()?;
        let newest = anchor.newest_image();
        let slot = newest.ok_or_else(|| Error::Usage("there is no image yet to back up".into()))?;
        let image = anchor.image(slot);
        let begin = image.begin_epoch.ok_or_else(|| {
            Error::Usage(format!(
                "image {} was made by an older build and cannot be backed up. Take a checkpoint first",
                image.k
            ))
        })?;
        if anchor.rows_as_of(image.k) != image.k {
            return Err(Error::Usage(format!(
                "image {} was made by a restore, and the log has changes that belong to it. Take a checkpoint first",
                image.k
            )));
        }
        let geometry = anchor.geometry;
        let listed = read_directory(disks.data.as_ref(), &anchor, slot, &geometry)?;
        let open = |disk: &Arc<dyn Disk>| ImageFile::open(disk.as_ref(), slot, &anchor.uuid);
        let images = disks.images.iter().map(open).collect::<Result<_>>()?;
        let header = BackupHeader {
            id: BackupId {
                end: image.cover.end_epoch,
                k: image.k,
            },
            kind: BackupKind::Sweep,
            base: since.as_ref().map(|since| since.base().id),
            consistent: image.consistent,
            begin,
            wall_us: image.wall_us,
            ..empty_header(&anchor)
        };
        let writer = BackupWriter::create(archive, dir, header)?;
        let mut copy = BackupCopy {
            places: Places::of(&anchor),
            anchor,
            slot,
            images,
            listed,
            since: since.map(|cut| Since::new(cut, header.chunks, header.id.k)),
            writer: Some(writer),
            tail: None,
            partition: PartitionId(0),
            pages: Vec::new(),
            copied: 0,
            done: 0,
            buf: AlignedBuf::zeroed(STEP_PAGES * PAGE_BYTES),
        };
        copy.begin_partition();
        Ok(copy)
    }

    /// Finds the pages of the current partition to copy: all pages, or those that an increment needs.
    fn begin_partition(&mut self) {
        self.copied = 0;
        let present = self.listed.directory.present(self.partition);
        self.pages = match &mut self.since {
            Some(since) => since.begin_partition(self.partition, present),
            None => present.collect(),
        };
    }

    /// Returns the number of pages copied so far, and the number of pages in the image.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.done, self.listed.directory.pages())
    }

    /// Returns whether the copy is an increment.
    #[must_use]
    pub fn is_increment(&self) -> bool {
        self.since.is_some()
    }

    /// Gives up the copy and removes its file, unless the file is complete.
    ///
    /// # Errors
    /// Errors of the disk. The file then remains until the next process that has the right to make backups removes it.
    pub fn abandon(self) -> Result<()> {
        self.writer.map_or(Ok(()), BackupWriter::abandon)
    }

    /// Takes a step: at most one read, and the writes of the pages that were read. The backup exists once a step has
    /// returned [`Progress::Done`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a page that does not match the image's directory; errors of the disks. After an error the
    /// copy is given up.
    pub fn step(&mut self) -> Result<Progress<BackupSummary>> {
        if let Some(tail) = &mut self.tail {
            return tail.step();
        }
        if self.copied < self.pages.len() {
            self.copy()?;
            return Ok(Progress::More);
        }
        let writer = self.writer.as_mut().expect("the backup has not ended");
        let at = usize::from(self.partition.0);
        let pseq = self.listed.pseq.as_ref().map(|pseq| pseq[at]);
        let sidecar = match &self.since {
            None => std::mem::take(&mut self.listed.sidecars[at]),
            Some(since) => since.list(),
        };
        writer.end_partition(pseq, sidecar);
        self.partition = PartitionId(self.partition.0 + 1);
        if self.partition.0 < self.anchor.geometry.partitions {
            self.begin_partition();
        } else if let Some(writer) = self.writer.take() {
            self.tail = Some(writer.finish()?);
        }
        Ok(Progress::More)
    }

    /// Takes all steps.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn run(mut self) -> Result<BackupSummary> {
        loop {
            if let Progress::Done(summary) = self.step()? {
                return Ok(summary);
            }
        }
    }

    /// Copies the next pages that lie side by side.
    fn copy(&mut self) -> Result<()> {
        let geometry = self.anchor.geometry;
        let place = |local: u32| {
            let page = geometry.page_id(self.partition, local);
            self.places.place(page.expect("the directory was checked"))
        };
        let rest = &self.pages[self.copied..];
        let first = place(rest[0].0);
        let beside = (0u64..)
            .zip(rest.iter().take(STEP_PAGES))
            .take_while(|(nth, (local, _))| place(*local).0 == first.0 + nth);
        let some = &rest[..beside.count()];
        assert!(!some.is_empty(), "a step copies a page");
        let bytes = &mut self.buf[..some.len() * PAGE_BYTES];
        let file = &self.images[disk_of(self.partition, self.images.len())];
        let got = file.read(first, bytes)?;
        let writer = self.writer.as_mut().expect("the backup has not ended");
        for (nth, ((local, entry), page)) in some.iter().zip(bytes.chunks(PAGE_BYTES)).enumerate() {
            let id = geometry.page_id(self.partition, *local);
            let id = id.expect("the directory was checked");
            let is_read = got >= (nth + 1) * PAGE_BYTES;
            if !is_read || !ImageFile::is_listed(id, page, entry) {
                return Err(Error::corrupt(
                    pages_path(self.slot),
                    first.offset() + to_u64(nth * PAGE_BYTES),
                    format!("page {id} of checkpoint {}", self.anchor.image(self.slot).k),
                    "other bytes",
                    "The backup was cancelled. If a newer checkpoint has overwritten the image, \
                     back up that checkpoint.",
                ));
            }
            let is_held = match &mut self.since {
                Some(since) => since.is_held(*local, entry, page)?,
                None => false,
            };
            if !is_held {
                writer.push(page_entry(*local, entry), page)?;
            }
        }
        debug_assert!(first.offset() >= PAGES_HEADER_BYTES, "pages are read");
        self.copied += some.len();
        self.done += to_u64(some.len());
        Ok(())
    }
}
