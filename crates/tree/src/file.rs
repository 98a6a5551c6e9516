//! The tree's file: reads pages, and writes pages so that a torn write loses no page (docs/formats/tree-double.md).
//!
//! A [`Batch`] is written in steps of one I/O each. After a failed write or sync, the contents of the disk are unknown.
//! So the file accepts no more writes until a restart has repaired it.

mod whose;

use parking_lot::Mutex;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{Error, Gsn, Pid, Result};
use perdura_device::{Access, AlignedBuf, Disk, File, read_exact_at};
use perdura_page::tree_double::{BatchHead, HEAD_BYTES, PAGES_MAX, newest_number};
use perdura_page::tree_page::{Node, SIZES};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The file of pages, in the tree's directory.
pub const PAGES: &str = "pages";
/// The double-write file.
pub const DOUBLE: &str = "double";

/// The maximum number of adjacent pages that one I/O reads (appendix A of the paper).
pub const RUN_PAGES_MAX: usize = 8;

/// The shape of a tree's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The size of a page, bytes.
    pub page_bytes: usize,
    /// The first 8 bytes of the database's uuid.
    pub database: [u8; 8],
}

/// The file of pages and the double-write file.
pub struct PageFile {
    shape: Shape,
    pages: Arc<dyn File>,
    double: Arc<dyn File>,
    /// The reason why the file accepts no more writes. `None`: it accepts writes.
    stopped: Mutex<Option<String>>,
    /// The highest change number in any page that was written.
    newest: AtomicU64,
}

impl std::fmt::Debug for PageFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageFile({})", self.pages.path())
    }
}

/// The pages that [`PageFile::repair`] has written.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// Damaged pages that have been restored.
    pub restored: Vec<Pid>,
    /// The number of pages that were whole. They were written again, because they may not have been durable.
    pub rewritten: usize,
}

impl PageFile {
    /// Creates the files of a new tree in an existing directory, with room for `pages` pages.
    ///
    /// # Errors
    /// Errors of the disk; `Usage` if a page cannot have this size.
    pub fn create(disk: &dyn Disk, dir: &str, shape: Shape, pages: u32) -> Result<PageFile> {
        check_size(shape.page_bytes)?;
        let file = PageFile {
            shape,
            pages: disk.create(&format!("{dir}/{PAGES}"), Access::Buffered)?,
            double: disk.create(&format!("{dir}/{DOUBLE}"), Access::Buffered)?,
            stopped: Mutex::new(None),
            newest: AtomicU64::new(0),
        };
        file.grow(pages)?;
        let double = HEAD_BYTES + PAGES_MAX * shape.page_bytes;
        file.double.allocate(to_u64(double))?;
        file.pages.sync()?;
        file.double.sync()?;
        disk.sync_dir(dir)?;
        Ok(file)
    }

    /// Opens the files of a tree. The caller then calls [`repair`](Self::repair).
    ///
    /// # Errors
    /// Errors of the disk; `Usage` if a page cannot have this size. `Usage` for direct access if the page size is not a
    /// multiple of the sector size.
    pub fn open(disk: &dyn Disk, dir: &str, shape: Shape, access: Access) -> Result<PageFile> {
        check_size(shape.page_bytes)?;
        if access == Access::Direct && !shape.page_bytes.is_multiple_of(SECTOR_BYTES) {
            let bytes = shape.page_bytes;
            return Err(Error::Usage(format!(
                "pages of {bytes} bytes cannot be read past the system's cache, which needs \
                 multiples of {SECTOR_BYTES}"
            )));
        }
        Ok(PageFile {
            shape,
            pages: disk.open(&format!("{dir}/{PAGES}"), access)?,
            double: disk.open(&format!("{dir}/{DOUBLE}"), access)?,
            stopped: Mutex::new(None),
            newest: AtomicU64::new(0),
        })
    }

    /// Returns the size of a page, bytes.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.shape.page_bytes
    }

    /// Returns whether I/O bypasses the system's cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.pages.is_direct() && self.double.is_direct()
    }

    /// Returns a buffer of one page, filled with zeros.
    #[must_use]
    pub fn buffer(&self) -> AlignedBuf {
        AlignedBuf::zeroed(self.shape.page_bytes)
    }

    pub(crate) fn offset(&self, pid: Pid) -> u64 {
        u64::from(pid.0) * to_u64(self.shape.page_bytes)
    }

    /// Extends the file to `pages` pages. If the disk is full, the file stays usable.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn grow(&self, pages: u32) -> Result<()> {
        let len = self.offset(Pid(pages));
        if self.pages.len()? < len {
            self.pages.allocate(len)?;
        }
        Ok(())
    }

    /// Reads a page.
    ///
    /// # Errors
    /// Errors of the disk; corruption, if the bytes are not a valid page with this page number.
    pub fn read(&self, pid: Pid, buffer: &mut [u8]) -> Result<()> {
        assert_eq!(buffer.len(), self.shape.page_bytes, "one page");
        read_exact_at(&*self.pages, self.offset(pid), buffer)?;
        self.check(pid, buffer)
    }

    /// Fills the buffer with adjacent pages in one I/O. Returns true for each valid page, and false for each page that
    /// [`read`](Self::read) would refuse.
    ///
    /// # Errors
    /// Errors of the disk.
    ///
    /// # Panics
    /// If the buffer's length is not 1 to [`RUN_PAGES_MAX`] times the page size.
    pub fn read_run(&self, first: Pid, buffer: &mut [u8]) -> Result<Vec<bool>> {
        let size = self.shape.page_bytes;
        let pages = buffer.len() / size;
        assert!((1..=RUN_PAGES_MAX).contains(&pages), "{pages} pages");
        assert_eq!(buffer.len(), pages * size, "whole pages");
        // The run may reach beyond the file's end.
        let got = self.pages.read_at(self.offset(first), buffer)?;
        let found = (first.0..=u32::MAX).zip(buffer.chunks(size)).enumerate();
        let is_whole =
            |(at, (pid, page))| (at + 1) * size <= got && self.check(Pid(pid), page).is_ok();
        Ok(found.map(is_whole).collect())
    }

    fn check(&self, pid: Pid, page: &[u8]) -> Result<()> {
        let opened = Node::open(page, pid, self.shape.database);
        opened
            .map(|_| ())
            .map_err(|malformed| self.damaged(pid, malformed.at, malformed.expected))
    }

    /// Returns the error for a page that differs from the expected page at byte `at`.
    pub(crate) fn damaged(&self, pid: Pid, at: usize, expected: &str) -> Error {
        Error::corrupt(
            self.pages.path(),
            self.offset(pid) + to_u64(at),
            format!("{expected} in page {pid}"),
            "something else",
            "The page is damaged. A backup and the log contain it.",
        )
    }

    /// Returns a batch of pages, which [`step`](Self::step) then writes. The pages must be sealed and in ascending
    /// order, and the file must have room for them.
    ///
    /// # Panics
    /// If a page is not sealed or belongs to another file. If `pages` is empty or longer than [`PAGES_MAX`].
    #[must_use = "nothing is written yet"]
    pub fn begin(&self, pages: &[(Pid, &[u8])]) -> Batch {
        let size = self.shape.page_bytes;
        let mut bytes = AlignedBuf::zeroed(HEAD_BYTES + pages.len() * size);
        let mut head = BatchHead {
            page_bytes: size,
            database: self.shape.database,
            newest: Gsn(0),
            pages: Vec::with_capacity(pages.len()),
        };
        for (at, (pid, page)) in pages.iter().enumerate() {
            let opened = Node::open(page, *pid, self.shape.database);
            assert!(opened.is_ok(), "page {pid}: {opened:?}");
            head.pages.push((*pid, checksum(page)));
            if let Ok(node) = opened {
                head.newest = head.newest.max(node.plsn()).max(node.dlsn());
            }
            bytes[HEAD_BYTES + at * size..][..size].copy_from_slice(page);
        }
        let before = self.newest.fetch_max(head.newest.0, Ordering::SeqCst);
        head.newest = head.newest.max(Gsn(before));
        head.encode(&mut bytes);
        let pids = pages.iter().map(|(pid, _)| *pid).collect();
        let next = if armed(Flaw::NoDoubleWrite) {
            Step::InPlace(0)
        } else {
            Step::Double
        };
        Batch { pids, bytes, next }
    }

    /// Takes one step of a batch: one I/O. Returns whether the batch is durable.
    ///
    /// # Errors
    /// Errors of the disk. After an error of the disk, every step returns `Stopped`.
    pub fn step(&self, batch: &mut Batch) -> Result<bool> {
        if let Some(why) = &*self.stopped.lock() {
            return Err(Error::Stopped(why.clone()));
        }
        let done = self.take_step(batch);
        if let Err(error) = &done {
            let why = format!("writing the tree's pages: {error}");
            *self.stopped.lock() = Some(why);
        }
        done
    }

    fn take_step(&self, batch: &mut Batch) -> Result<bool> {
        batch.next = match batch.next {
            Step::Double => {
                self.double.write_at(0, &batch.bytes)?;
                Step::SyncDouble
            }
            Step::SyncDouble => {
                if !armed(Flaw::DoubleNotSynced) {
                    self.double.sync()?;
                }
                Step::InPlace(0)
            }
            Step::InPlace(from) => {
                let run = batch.run(from);
                let begin = HEAD_BYTES + run.start * self.shape.page_bytes;
                let len = run.len() * self.shape.page_bytes;
                let offset = self.offset(batch.pids[run.start]);
                self.pages
                    .write_at(offset, &batch.bytes[begin..begin + len])?;
                if run.end < batch.pids.len() {
                    Step::InPlace(run.end)
                } else {
                    Step::SyncPages
                }
            }
            Step::SyncPages => {
                self.pages.sync()?;
                Step::Done
            }
            Step::Done => Step::Done,
        };
        Ok(batch.next == Step::Done)
    }

    /// Writes adjacent pages that no other page leads to yet, so a torn write does no harm.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn lay(&self, first: Pid, pages: &[u8]) -> Result<()> {
        assert!(
            pages.len().is_multiple_of(self.shape.page_bytes),
            "whole pages"
        );
        self.pages.write_at(self.offset(first), pages)
    }

    /// Syncs the file, so that the pages written by [`lay`](Self::lay) are durable.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn sync(&self) -> Result<()> {
        self.pages.sync()
    }

    /// Writes a batch by taking all its steps.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn write(&self, pages: &[(Pid, &[u8])]) -> Result<()> {
        let mut batch = self.begin(pages);
        while !self.step(&mut batch)? {}
        Ok(())
    }

    /// Restores the damaged pages of the newest batch from their copies, and makes the batch's pages durable. A restart
    /// must do this before it reads a page.
    ///
    /// # Errors
    /// Errors of the disk; corruption, if a file belongs to another database, or a newer build wrote the double-write
    /// file. A damaged page without a whole copy causes an error only when it is read.
    pub fn repair(&self) -> Result<Repaired> {
        let mut repaired = Repaired::default();
        let head = self.batch_head()?;
        self.check_owner(head.as_ref())?;
        self.newest.fetch_max(self.reach()?.0, Ordering::SeqCst);
        let Some(head) = head else {
            return Ok(repaired);
        };
        let (mut page, mut copy) = (self.buffer(), self.buffer());
        for (at, (pid, crc)) in head.pages.iter().enumerate() {
            let is_whole = self.is_whole(*pid, &mut page)?;
            if !is_whole {
                if !self.read_copy(at, *pid, *crc, &mut copy)? {
                    continue;
                }
                page.copy_from_slice(&copy);
            }
            if armed(Flaw::PagesBelievedUnwritten) && is_whole {
                continue;
            }
            self.pages.write_at(self.offset(*pid), &page)?;
            if is_whole {
                repaired.rewritten += 1;
            } else {
                repaired.restored.push(*pid);
            }
        }
        self.pages.sync()?;
        Ok(repaired)
    }

    /// Reads the copy of a page from the double-write file. Returns whether the copy is whole.
    fn read_copy(&self, at: usize, pid: Pid, crc: u32, copy: &mut [u8]) -> Result<bool> {
        let size = self.shape.page_bytes;
        let got = self.double.read_at(to_u64(HEAD_BYTES + at * size), copy)?;
        let is_page = Node::open(copy, pid, self.shape.database).is_ok();
        Ok(got == size && checksum(copy) == crc && is_page)
    }

    /// Returns the pages that have a whole copy in the double-write file. [`repair`](Self::repair) can restore these
    /// pages.
    ///
    /// # Errors
    /// As [`repair`](Self::repair).
    pub(crate) fn restorable(&self) -> Result<BTreeSet<Pid>> {
        let mut restorable = BTreeSet::new();
        let mut copy = self.buffer();
        let head = self.batch_head()?;
        self.check_owner(head.as_ref())?;
        let entries = head.iter().flat_map(|head| &head.pages).enumerate();
        for (at, (pid, crc)) in entries {
            if self.read_copy(at, *pid, *crc, &mut copy)? {
                restorable.insert(*pid);
            }
        }
        Ok(restorable)
    }

    /// Reads a page from the file of pages. Returns whether it is whole.
    fn is_whole(&self, pid: Pid, page: &mut [u8]) -> Result<bool> {
        let got = self.pages.read_at(self.offset(pid), page)?;
        Ok(got == page.len() && Node::open(page, pid, self.shape.database).is_ok())
    }

    /// Returns the highest change number in any page that was written. The double-write file records this number. The
    /// log must extend at least to it.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn reach(&self) -> Result<Gsn> {
        let mut bytes = AlignedBuf::zeroed(HEAD_BYTES);
        let got = self.double.read_at(0, &mut bytes)?;
        let newest = newest_number(&bytes[..got], self.shape.database);
        Ok(newest.unwrap_or_default())
    }

    fn batch_head(&self) -> Result<Option<BatchHead>> {
        let mut bytes = AlignedBuf::zeroed(HEAD_BYTES);
        let got = self.double.read_at(0, &mut bytes)?;
        let refused = |at: usize, expected: &str| {
            Error::corrupt(
                self.double.path(),
                to_u64(at),
                expected,
                "something else",
                "Pages that a crash has torn cannot be repaired without this file. Restore the \
                 database, or open it with the build that wrote it.",
            )
        };
        let head = BatchHead::decode(&bytes[..got]);
        let head = head.map_err(|malformed| refused(malformed.at, malformed.expected))?;
        match head {
            Some(head) if head.database != self.shape.database => {
                Err(refused(12, "the double-write file of this database"))
            }
            Some(head) if head.page_bytes != self.shape.page_bytes => {
                let size = self.shape.page_bytes;
                Err(refused(8, &format!("pages of {size} bytes")))
            }
            head => Ok(head),
        }
    }
}

fn check_size(page_bytes: usize) -> Result<()> {
    if page_bytes.is_power_of_two() && SIZES.contains(&page_bytes) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "a page of a tree has 512 to 32768 bytes, a power of two, not {page_bytes}"
    )))
}

/// Returns the checksum in the header of a page.
fn checksum(page: &[u8]) -> u32 {
    u32::from_le_bytes(*page.first_chunk().expect("a page has a header"))
}

/// The next step of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Double,
    SyncDouble,
    /// A write of adjacent pages to the file of pages. The number is the first page's index in the batch.
    InPlace(usize),
    SyncPages,
    Done,
}

/// A batch: pages that are being written.
#[derive(Debug)]
pub struct Batch {
    pids: Vec<Pid>,
    /// The content of the double-write file: its head, and copies of the pages.
    bytes: AlignedBuf,
    next: Step,
}

impl Batch {
    /// Returns the longest range of indexes that begins at `from` and whose pages are adjacent in the file. One write
    /// can cover these pages.
    fn run(&self, from: usize) -> Range<usize> {
        let rest = &self.pids[from..];
        let side_by_side = rest
            .windows(2)
            .take_while(|two| two[0].0 + 1 == two[1].0)
            .count();
        from..from + side_by_side + 1
    }

    /// Returns the pages of the batch.
    #[must_use]
    pub fn pids(&self) -> &[Pid] {
        &self.pids
    }
}
