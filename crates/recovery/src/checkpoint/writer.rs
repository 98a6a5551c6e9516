//! The writer of one image disk.
//!
//! If a database has several image disks, a thread for each disk writes the pages of a checkpoint. So the disks write
//! at the same time. The checkpointer copies pages and gives them to the writers, and it stops while a writer has too
//! many. With one image disk, and in the simulator, the checkpointer itself writes.
//!
//! A page stays in the writer's list until its write has returned. If the checkpoint is cancelled, the pages of this
//! list become dirty again. A cancelled checkpoint first waits for its writes. So none of them can spoil the next image.
//!
//! # Source
//! *Differential Logging* (000), section 2.3: checkpoints onto several disks at once.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use perdura_base::{Error, PartitionId, Result};
use perdura_device::AlignedBuf;

use super::BATCH_BYTES;
use crate::image::{ImageFile, Place};

/// The bytes that may wait for one writer's thread. The checkpointer waits while there are more.
pub(super) const WAITING_BYTES_MAX: usize = 2 * BATCH_BYTES;

/// Pages side by side in a pages file, with their bytes.
pub(super) struct PageRun {
    pub partition: PartitionId,
    /// The pages by their local numbers, in the order of the file.
    pub locals: Vec<u32>,
    /// The place of the first page.
    pub place: Place,
    /// The staging buffer, and the part of it that has the run's bytes.
    pub staging: Arc<AlignedBuf>,
    pub range: Range<usize>,
}

impl PageRun {
    fn write(&self, image: &ImageFile) -> Result<()> {
        image.write(self.place, &self.staging[self.range.clone()])
    }
}

/// A page that is perhaps not on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unwritten {
    pub partition: PartitionId,
    pub local: u32,
}

/// An order to a writer's thread. The thread answers each order with its result.
enum Order {
    Write(PageRun),
    Sync,
}

/// The thread that writes to an image disk.
struct Worker {
    orders: Sender<Order>,
    results: Receiver<Result<()>>,
    handle: JoinHandle<()>,
}

/// The pages of a run that the thread has perhaps not written.
struct InFlight {
    partition: PartitionId,
    locals: Vec<u32>,
    bytes: usize,
}

/// The writer of one image disk.
pub(super) struct Writer {
    image: Arc<ImageFile>,
    /// `None`: the caller's thread writes.
    worker: Option<Worker>,
    /// The runs whose writes have not returned, the oldest first.
    in_flight: VecDeque<InFlight>,
    waiting_bytes: usize,
    /// The pages of failed writes.
    failed: Vec<Unwritten>,
    /// The first error of a write.
    error: Option<Error>,
}

impl Writer {
    /// Returns a writer that writes on the caller's thread.
    pub fn new(image: ImageFile) -> Writer {
        Writer {
            image: Arc::new(image),
            worker: None,
            in_flight: VecDeque::new(),
            waiting_bytes: 0,
            failed: Vec::new(),
            error: None,
        }
    }

    /// Starts a thread for the writes. If the system cannot start one, the caller's thread continues to write.
    pub fn start_thread(&mut self) {
        assert!(self.in_flight.is_empty(), "no write has begun");
        let (orders, todo) = channel();
        let (done, results) = channel();
        let image = Arc::clone(&self.image);
        let name = format!("image-{}", self.image.disk_number());
        let started = Builder::new().name(name).spawn(move || {
            for order in todo {
                let result = match order {
                    Order::Write(run) => run.write(&image),
                    Order::Sync => image.sync(),
                };
                // The checkpoint has ended if the receiver is gone.
                let _ = done.send(result);
            }
        });
        self.worker = started.ok().map(|handle| Worker {
            orders,
            results,
            handle,
        });
    }

    /// Returns the bytes that wait for the disk.
    pub fn load(&mut self) -> usize {
        while let Some(Ok(result)) = self.worker.as_ref().map(|w| w.results.try_recv()) {
            self.end_oldest(result);
        }
        self.waiting_bytes
    }

    /// Writes a run, or gives it to the thread.
    ///
    /// # Errors
    /// The error of this write or of an earlier one.
    pub fn write(&mut self, run: PageRun) -> Result<()> {
        let bytes = run.range.len();
        self.waiting_bytes += bytes;
        self.in_flight.push_back(InFlight {
            partition: run.partition,
            locals: run.locals.clone(),
            bytes,
        });
        match &self.worker {
            None => {
                let result = run.write(&self.image);
                self.end_oldest(result);
            }
            // A thread that has ended answers no order, which `wait_oldest` reports.
            Some(worker) => drop(worker.orders.send(Order::Write(run))),
        }
        while self.load() > WAITING_BYTES_MAX {
            self.wait_oldest();
        }
        self.check()
    }

    /// Waits until all writes have returned.
    ///
    /// # Errors
    /// The first error of a write.
    pub fn drain(&mut self) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.wait_oldest();
        }
        assert_eq!(self.waiting_bytes, 0, "a drained writer waits for nothing");
        self.check()
    }

    /// Begins to make the written pages durable. The caller's thread has already synced them if there is no other.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn begin_sync(&self) -> Result<()> {
        assert!(self.in_flight.is_empty(), "every write has returned");
        match &self.worker {
            None => self.image.sync(),
            Some(worker) => {
                drop(worker.orders.send(Order::Sync));
                Ok(())
            }
        }
    }

    /// Waits until the sync has returned.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn end_sync(&self) -> Result<()> {
        match &self.worker {
            None => Ok(()),
            Some(worker) => worker.results.recv().unwrap_or_else(|_| Err(ended())),
        }
    }

    /// Ends the thread after its last write, and returns the pages that are perhaps not written.
    pub fn end(&mut self) -> Vec<Unwritten> {
        // The error is that of the cancelled checkpoint, or it comes too late to matter.
        let _cancelled = self.drain();
        self.join();
        std::mem::take(&mut self.failed)
    }

    fn check(&mut self) -> Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Waits for the result of the oldest write.
    fn wait_oldest(&mut self) {
        let worker = self.worker.as_ref();
        let result = worker
            .expect("only a thread has writes in flight")
            .results
            .recv();
        self.end_oldest(result.unwrap_or_else(|_| Err(ended())));
    }

    /// Notes the result of the oldest write.
    fn end_oldest(&mut self, result: Result<()>) {
        let run = self.in_flight.pop_front();
        let run = run.expect("a result belongs to a write in flight");
        assert!(run.bytes <= self.waiting_bytes, "its bytes were counted");
        self.waiting_bytes -= run.bytes;
        if let Err(error) = result {
            let partition = run.partition;
            let pages = run.locals.into_iter();
            self.failed
                .extend(pages.map(|local| Unwritten { partition, local }));
            self.error.get_or_insert(error);
        }
    }

    fn join(&mut self) {
        if let Some(Worker { orders, handle, .. }) = self.worker.take() {
            drop(orders);
            // If the thread panicked, its open orders have failed.
            drop(handle.join());
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.join();
    }
}

/// Returns the error of a thread that ended before its orders were done.
fn ended() -> Error {
    Error::Stopped("the thread that writes an image has ended".into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use perdura_base::limits::PAGE_BYTES;
    use perdura_base::{ImageSlot, Uuid};
    use perdura_device::{Disk, DiskLayer, File, FileLayer, MemDisk};

    use super::*;

    /// A disk whose writes take some time. Writes fail after the first `works` ones.
    struct SlowDisk {
        inner: MemDisk,
        done: Arc<AtomicU32>,
        works: u32,
    }

    struct SlowFile {
        inner: Arc<dyn File>,
        done: Arc<AtomicU32>,
        works: u32,
    }

    impl DiskLayer for SlowDisk {
        fn behind(&self) -> &dyn Disk {
            &self.inner
        }

        fn in_front(&self, _: &str, inner: Arc<dyn File>) -> Arc<dyn File> {
            let (done, works) = (Arc::clone(&self.done), self.works);
            Arc::new(SlowFile { inner, done, works })
        }
    }

    impl FileLayer for SlowFile {
        fn behind(&self) -> &dyn File {
            self.inner.as_ref()
        }

        fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
            std::thread::sleep(Duration::from_millis(20));
            if self.done.fetch_add(1, Ordering::SeqCst) >= self.works {
                let error = std::io::Error::other("the disk fails");
                return Err(Error::io("write", self.path(), error));
            }
            self.inner.write_at(offset, data)
        }
    }

    /// Gives `pages` pages to a writer with a thread whose disk fails after `works` of them. Returns the pages that are
    /// perhaps not written, and the count of writes that had returned when the writer had ended.
    fn ended_after(pages: u32, works: u32) -> (Vec<Unwritten>, u32) {
        let (slot, uuid) = (ImageSlot::A, Uuid::default());
        let done = Arc::default();
        let disk = SlowDisk {
            inner: MemDisk::new(),
            done: Arc::clone(&done),
            works,
        };
        ImageFile::create(&disk.inner, slot, &uuid, 0).unwrap();
        let mut writer = Writer::new(ImageFile::open(&disk, slot, &uuid).unwrap());
        writer.start_thread();
        assert!(writer.worker.is_some(), "a thread writes");
        let staging = Arc::new(AlignedBuf::zeroed(PAGE_BYTES));
        for local in 0..pages {
            // An earlier write may have failed already. This one counts all the same.
            let _earlier = writer.write(PageRun {
                partition: PartitionId(3),
                locals: vec![local],
                place: Place(u64::from(local)),
                staging: Arc::clone(&staging),
                range: 0..PAGE_BYTES,
            });
        }
        let unwritten = writer.end();
        (unwritten, done.load(Ordering::SeqCst))
    }

    /// A late write would spoil the next image in this slot.
    #[test]
    fn a_writer_ends_after_its_last_write_and_names_what_was_not_written() {
        assert_eq!(ended_after(4, 4), (Vec::new(), 4));
        let pages = [2, 3].map(|local| Unwritten {
            partition: PartitionId(3),
            local,
        });
        assert_eq!(ended_after(4, 2), (pages.to_vec(), 4));
    }
}
