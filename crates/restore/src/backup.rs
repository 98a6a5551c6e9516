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
    BackupHeader, BackupId, BackupKind, BackupSummary, BackupTail, BackupWriter, PageEntry,
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

/// The maximum number of pages that a step reads.
const STEP_PAGES: usize = 64;

/// Returns the header of an empty backup: the state before the first epoch.
pub(crate) fn empty_header(anchor: &Anchor) -> BackupHeader {
    BackupHeader {
        uuid: anchor.uuid,
        id: BackupId::cut(Epoch(0)),
        kind: BackupKind::Cut,
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

/// The copy of one image.
pub struct BackupCopy {
    anchor: Arc<Anchor>,
    slot: ImageSlot,
    images: Vec<ImageFile>,
    places: Places,
    listed: LoadedDirectory,
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
            consistent: image.consistent,
            begin,
            wall_us: image.wall_us,
            ..empty_header(&anchor)
        };
        let writer = BackupWriter::create(archive, dir, header)?;
        let pages = listed.directory.present(PartitionId(0)).collect();
        Ok(BackupCopy {
            places: Places::of(&anchor),
            anchor,
            slot,
            images,
            listed,
            writer: Some(writer),
            tail: None,
            partition: PartitionId(0),
            pages,
            copied: 0,
            done: 0,
            buf: AlignedBuf::zeroed(STEP_PAGES * PAGE_BYTES),
        })
    }

    /// Returns the number of pages copied so far, and the number of pages in the image.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.done, self.listed.directory.pages())
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
        let sidecar = std::mem::take(&mut self.listed.sidecars[at]);
        writer.end_partition(pseq, sidecar);
        self.partition = PartitionId(self.partition.0 + 1);
        if self.partition.0 < self.anchor.geometry.partitions {
            self.pages = self.listed.directory.present(self.partition).collect();
            self.copied = 0;
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
            let entry = PageEntry {
                local: *local,
                useq: entry.useq,
                crc: entry.crc,
                digest: entry.digest,
            };
            writer.push(entry, page)?;
        }
        debug_assert!(first.offset() >= PAGES_HEADER_BYTES, "pages are read");
        self.copied += some.len();
        self.done += to_u64(some.len());
        Ok(())
    }
}
