//! The tree's file: reading pages, and writing them so that no tear can take one (docs/formats/tree-double.md).
//!
//! A [`Batch`] is written in steps of one I/O each. A failed write or sync stops the file for good: the contents of the
//! disk are then unknown, and a restart finds them out.

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

/// The most adjacent pages that one I/O reads (appendix A of the paper).
pub const RUN_PAGES_MAX: usize = 8;

/// The shape of a tree's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// First 8 bytes of the database's uuid.
    pub database: [u8; 8],
}

/// The pages and the double-write file.
pub struct PageFile {
    shape: Shape,
    pages: Arc<dyn File>,
    double: Arc<dyn File>,
    /// The reason why nothing more is written. `None`: writes are allowed.
    stopped: Mutex<Option<String>>,
    /// The highest number in any page that was written.
    newest: AtomicU64,
}

impl std::fmt::Debug for PageFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageFile({})", self.pages.path())
    }
}

/// The repair of the newest batch by a restart.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// Pages that were damaged and are whole again.
    pub restored: Vec<Pid>,
    /// Pages that were whole and were made durable.
    pub rewritten: usize,
}

impl PageFile {
    /// Makes the files of a new tree in a directory that exists, with room for `pages` pages.
    ///
    /// # Errors
    /// The disk's; `Usage` for a size that no page has.
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
    /// The disk's; `Usage` for a size that no page has, and for direct access to pages that are not whole sectors.
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

    /// Returns whether its I/O goes around the system's cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.pages.is_direct() && self.double.is_direct()
    }

    /// Returns a page of zeros, as a buffer for a read.
    #[must_use]
    pub fn buffer(&self) -> AlignedBuf {
        AlignedBuf::zeroed(self.shape.page_bytes)
    }

    pub(crate) fn offset(&self, pid: Pid) -> u64 {
        u64::from(pid.0) * to_u64(self.shape.page_bytes)
    }

    /// Makes room for `pages` pages. After the error of a full disk, work continues as before.
    ///
    /// # Errors
    /// The disk's.
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
    /// The disk's; corruption, if it is not the page that belongs there.
    pub fn read(&self, pid: Pid, buffer: &mut [u8]) -> Result<()> {
        assert_eq!(buffer.len(), self.shape.page_bytes, "one page");
        read_exact_at(&*self.pages, self.offset(pid), buffer)?;
        self.check(pid, buffer)
    }

    /// Reads adjacent pages in one I/O, as many as the buffer has room for. Returns, for each page, whether it is the
    /// page that belongs there. If it is not, [`read`](Self::read) of it is an error.
    ///
    /// # Errors
    /// The disk's.
    ///
    /// # Panics
    /// If the buffer is not of 1 to [`RUN_PAGES_MAX`] whole pages.
    pub fn read_run(&self, first: Pid, buffer: &mut [u8]) -> Result<Vec<bool>> {
        let size = self.shape.page_bytes;
        let pages = buffer.len() / size;
        assert!((1..=RUN_PAGES_MAX).contains(&pages), "{pages} pages");
        assert_eq!(buffer.len(), pages * size, "whole pages");
        // The run may go beyond the file's end.
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

    /// Returns the error for a page that is not what it must be, from byte `at` of it on.
    pub(crate) fn damaged(&self, pid: Pid, at: usize, expected: &str) -> Error {
        Error::corrupt(
            self.pages.path(),
            self.offset(pid) + to_u64(at),
            format!("{expected} in page {pid}"),
            "something else",
            "The page is damaged. A backup and the log contain it.",
        )
    }

    /// Begins to write a batch. Pages ascend, are sealed, and the file has room for them.
    ///
    /// # Panics
    /// If a page is not sealed or not of this file, or if `pages` is empty or longer than [`PAGES_MAX`].
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
    /// The disk's, and from then on always `Stopped`.
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

    /// Writes pages side by side that no other page leads to yet, so that no tear can hurt.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn lay(&self, first: Pid, pages: &[u8]) -> Result<()> {
        assert!(
            pages.len().is_multiple_of(self.shape.page_bytes),
            "whole pages"
        );
        self.pages.write_at(self.offset(first), pages)
    }

    /// Makes pages durable that were laid out.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn sync(&self) -> Result<()> {
        self.pages.sync()
    }

    /// Writes a batch, all its steps.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn write(&self, pages: &[(Pid, &[u8])]) -> Result<()> {
        let mut batch = self.begin(pages);
        while !self.step(&mut batch)? {}
        Ok(())
    }

    /// Makes the newest batch whole and durable, after a crash and before a page is read.
    ///
    /// # Errors
    /// The disk's; corruption, if one of the two files is of another database, or the double-write file is of a newer
    /// build. A page that stays damaged is no error here: reading it is.
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

    /// Reads a copy of the newest batch. Returns whether it counts.
    fn read_copy(&self, at: usize, pid: Pid, crc: u32, copy: &mut [u8]) -> Result<bool> {
        let size = self.shape.page_bytes;
        let got = self.double.read_at(to_u64(HEAD_BYTES + at * size), copy)?;
        let is_page = Node::open(copy, pid, self.shape.database).is_ok();
        Ok(got == size && checksum(copy) == crc && is_page)
    }

    /// Returns the pages that [`repair`](Self::repair) has copies of.
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

    /// Returns whether the page in its place is whole.
    fn is_whole(&self, pid: Pid, page: &mut [u8]) -> Result<bool> {
        let got = self.pages.read_at(self.offset(pid), page)?;
        Ok(got == page.len() && Node::open(page, pid, self.shape.database).is_ok())
    }

    /// Returns the highest number in any page that was written, as far as the double-write file shows it: the log
    /// reached it.
    ///
    /// # Errors
    /// The disk's.
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

/// Returns the checksum that a page begins with.
fn checksum(page: &[u8]) -> u32 {
    u32::from_le_bytes(*page.first_chunk().expect("a page has a header"))
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Double,
    SyncDouble,
    /// The run of pages that begins there.
    InPlace(usize),
    SyncPages,
    Done,
}

/// Pages on their way to the disk.
#[derive(Debug)]
pub struct Batch {
    pids: Vec<Pid>,
    /// The double-write file: head and copies.
    bytes: AlignedBuf,
    next: Step,
}

impl Batch {
    /// Returns the pages from `from` on that lie side by side: one write.
    fn run(&self, from: usize) -> Range<usize> {
        let rest = &self.pids[from..];
        let side_by_side = rest
            .windows(2)
            .take_while(|two| two[0].0 + 1 == two[1].0)
            .count();
        from..from + side_by_side + 1
    }

    /// Returns its pages.
    #[must_use]
    pub fn pids(&self) -> &[Pid] {
        &self.pids
    }
}
