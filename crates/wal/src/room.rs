//! Room in the log: the files that exist for the next appends, and why more cannot be made.
//!
//! An append is admitted only if existing files have room for it, so that no accepted write waits for space on a full
//! disk. [`Wal::admit`] compares two positions: where the stream would end, and where its files end. When a stream
//! comes close to the end of its files, admission requests the next file. If [`Wal::prepare_by`] has named a thread,
//! that thread makes the file while writers wait. Otherwise the writer makes it.
//!
//! # Invariants
//! * For every position below a stream's `room_end` there is a file: a segment, or a spare of the size that the segment
//!   at this position must have.
//! * Each kind of [`Trouble`] records that one action failed. Only this action sets and clears the kind, separately for
//!   each stream.

use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{Error, Result, StreamId};

use crate::log::{Stream, Wal};
use crate::rung::Rung;
use crate::shelf::SegmentShelf;
use crate::sizes::Span;
use crate::sync::Ordering;
use crate::trouble::Trouble;

impl Stream {
    /// Publishes the end of the existing files.
    pub fn note_room(&self, shelf: &SegmentShelf) {
        let next = shelf.next_span();
        debug_assert!(
            self.reached[Rung::Disk].load(Ordering::SeqCst) <= next.start.0,
            "what is synced has a file"
        );
        self.room_end.store(next.start.0, Ordering::SeqCst);
    }

    fn room(&self) -> u64 {
        self.room_end.load(Ordering::Relaxed)
    }

    /// Returns the position of the stream's end after an append of `bytes` bytes. An eighth of `bytes` is added for
    /// block headers.
    fn end_with(&self, bytes: u64) -> u64 {
        let bytes = bytes.saturating_add(bytes >> 3);
        (self.filled_end.load(Ordering::Relaxed)).saturating_add(bytes)
    }

    /// Returns whether a writer has requested more room than exists.
    fn is_starved(&self) -> bool {
        self.wanted_end.load(Ordering::Relaxed) > self.room()
    }

    /// Returns whether `end` is beyond the existing files, and the last attempt to make a file failed. A writer that
    /// needs room up to `end` is then refused and does not wait. But the writer's request makes the preparing thread
    /// try again. The stream's [`Trouble`] does not decide this: it is cleared if the existing files suffice for the
    /// usual write.
    fn is_unextended(&self, end: u64) -> bool {
        let at = self.unextended_at.load(Ordering::SeqCst);
        self.room() <= at && at < end
    }
}

impl Wal {
    /// Names the thread that prepares segments. From then on a writer that finds no room is refused and calls `wake`.
    /// The thread must then call [`prepare_segment`](Self::prepare_segment). Only the first call has an effect.
    pub fn prepare_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _named_already = self.preparer.set(Box::new(wake));
    }

    /// Forbids or allows new files for the log. Accepted frames still get files. While new files are forbidden, writes
    /// are refused once the existing files are full, as on a full disk. The error says that the log waits to be
    /// archived. With this function the caller limits the size of the log that waits to be archived.
    pub fn hold_growth(&self, held: bool) {
        self.is_held.store(u64::from(held), Ordering::SeqCst);
    }

    /// Returns whether new files are forbidden.
    #[must_use]
    pub fn is_growth_held(&self) -> bool {
        self.is_held.load(Ordering::SeqCst) != 0
    }

    pub(crate) fn wake_preparer(&self) {
        if let Some(wake) = self.preparer.get() {
            wake();
        }
    }

    /// Returns whether the last attempt to write or extend the log found the disk full.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        let is_refused = self.troubles.has(Trouble::Refused);
        self.troubles.has(Trouble::Full) || (is_refused && !self.lacks_means())
    }

    /// Returns whether the operating system refused the last write of the log for want of memory or descriptors.
    fn lacks_means(&self) -> bool {
        self.shortages.load(Ordering::Relaxed) != 0
    }

    /// Returns whether at present the log cannot be written or extended, for any reason. Accepted blocks wait in this
    /// state, and writes are refused once they do not fit in the existing files.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.troubles.any()
    }

    /// Returns whether the files of a stream have room for `bytes` more. The files must also have room for all appends
    /// without admission: the lanes, the open block, the marks of a checkpoint, and a beacon.
    pub(crate) fn has_room(&self, s: &Stream, bytes: usize) -> bool {
        self.end_for(s, bytes) <= s.room()
    }

    /// Returns the position that a stream's files must reach so that `bytes` more have room.
    fn end_for(&self, s: &Stream, bytes: usize) -> u64 {
        s.end_with(to_u64(bytes)).saturating_add(self.reserve(s))
    }

    fn reserve(&self, s: &Stream) -> u64 {
        let blocks = 2 * to_u64(self.options.block_bytes_max) + 4 * to_u64(SECTOR_BYTES);
        blocks + s.lanes.capacity()
    }

    /// Requests files for `bytes` more in a stream from the thread that makes files. Without this thread, makes the
    /// files.
    pub fn ask_for_room(&self, stream: StreamId, bytes: usize) {
        let s = &self.streams[usize::from(stream.0)];
        let end = self.end_for(s, bytes);
        s.wanted_end.fetch_max(end, Ordering::SeqCst);
        if self.preparer.get().is_some() {
            self.wake_preparer();
            return;
        }
        // A failure needs no handling here: it is recorded in `troubles`.
        while !self.has_room(s, bytes) && matches!(self.prepare_segment(stream, &|| {}), Ok(true)) {
        }
    }

    /// Returns whether writers should wait, for a caller whose appends must not be refused. The writers should wait if,
    /// in every stream, half the permitted bytes wait for the flusher. They should also wait while files with room for
    /// `bytes` more are being made. Requests missing files.
    #[must_use]
    pub fn is_behind(&self, bytes: usize) -> bool {
        let max = self.beyond_tail(self.options.queue_bytes_max / 2);
        let is_queue_long = self.streams.iter().all(|s| s.unsynced_bytes() >= max);
        is_queue_long || self.awaits_room(bytes)
    }

    /// Returns whether a writer must wait until the files of the idlest stream have room for `bytes` more. The files
    /// must also have room for everything that is admitted during the wait. Requests missing files.
    pub(crate) fn awaits_room(&self, bytes: usize) -> bool {
        let stream = self.idlest();
        let s = &self.streams[usize::from(stream.0)];
        let bytes = bytes.saturating_add(self.options.block_bytes_max);
        let waits = || {
            !self.has_room(s, bytes) && !self.is_short() && !s.is_unextended(self.end_for(s, bytes))
        };
        if !waits() {
            return false;
        }
        self.ask_for_room(stream, bytes);
        waits()
    }

    /// Admits or refuses a transaction when a stream is close to the end of its files or some stream is in trouble.
    #[cold]
    pub(crate) fn admit_slowly(&self, stream: StreamId, bytes: usize) -> Result<()> {
        self.check()?;
        let s = &self.streams[usize::from(stream.0)];
        if !self.has_room(s, bytes) {
            self.ask_for_room(stream, bytes);
        }
        if !self.is_stuck() && self.has_room(s, bytes) {
            return Ok(());
        }
        let why = if self.is_disk_full() {
            "no space is left on the log's disk, or a quota or a limit on the size of files is \
             reached. Free space on the disk of the log. Writes then resume by themselves"
        } else if self.is_growth_held() {
            "the archive cannot be reached, and the changes that wait for it have reached their \
             limit (archive-backlog). Make the archive reachable. Writes then resume by \
             themselves"
        } else if self.lacks_means() || self.troubles.has(Trouble::Unplaced) {
            "the system has no memory or file descriptors left for the log, or the log's disk \
             fails. The write is tried again. Writes resume when it succeeds"
        } else if self.is_short() {
            "the next file of the log could not be made on its disk. It is tried again. Writes \
             resume when it succeeds"
        } else if s.is_unextended(self.end_for(s, bytes)) {
            "the log's disk has no space for a transaction of this size, or fails. Smaller \
             transactions are accepted. Free space on the disk of the log. It is tried again"
        } else {
            "the next file of the log is being made. Try again"
        };
        Err(Error::LogFull(why.into()))
    }

    /// Returns whether accepted blocks wait for a full or failing disk. Waiting for the flushers would then not help.
    /// An epoch is durable only when every stream has the epoch's part, so one stuck stream delays all streams. As long
    /// as every stream has room in its existing files, the flushers make progress.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.troubles.has(Trouble::Refused) || (self.is_short() && !self.have_all_room())
    }

    /// Returns whether [`admit`](Self::admit) refuses `bytes` only until the flushers have caught up or a file is
    /// ready. In that case the caller can wait. Returns `false` if a disk is full or fails.
    #[must_use]
    pub fn is_refused_for_now(&self, stream: StreamId, bytes: usize) -> bool {
        let s = &self.streams[usize::from(stream.0)];
        if self.has_room(s, bytes) {
            return !self.is_stuck();
        }
        !self.is_short() && !s.is_unextended(self.end_for(s, bytes))
    }

    /// Returns whether every stream has room for the appends that need no admission. Requests room for each stream that
    /// lacks it.
    fn have_all_room(&self) -> bool {
        (0..self.streams()).map(StreamId).all(|stream| {
            let s = &self.streams[usize::from(stream.0)];
            if !self.has_room(s, 0) {
                self.ask_for_room(stream, 0);
            }
            self.has_room(s, 0)
        })
    }

    /// Places a stream's next segment if the segment's file is prepared. Also prepares another file if one is due. A
    /// file is due if the room ahead is less than half of the file's size, or less than a writer has requested. Returns
    /// whether a file was made. The call is slow, because it fills the whole file with zeros. It holds no lock that a
    /// writer takes, and calls `pause` after each part of the file unless writers wait.
    ///
    /// # Errors
    /// Fails with the disk's error. The caller may call it again.
    pub fn prepare_segment(&self, stream: StreamId, pause: &dyn Fn()) -> Result<bool> {
        let s = &self.streams[usize::from(stream.0)];
        let _one_at_a_time = s.preparing.lock();
        // If a segment cannot be placed now, the next call tries again, or the flusher does when it reaches that
        // segment.
        if let Err(error) = self.place_ahead(stream)
            && self.failure().is_some()
        {
            return Err(error);
        }
        let next = s.shelf.lock().next_span();
        let filled_end = s.filled_end.load(Ordering::Relaxed);
        if !s.is_starved() && next.start.0.saturating_sub(filled_end) > next.bytes / 2 {
            // The disk may have been full until a checkpoint freed files, so the trouble is cleared.
            self.note_prepared(stream, Ok(()));
            return Ok(false);
        }
        if self.is_growth_held() {
            let error = Error::LogFull(
                "the changes that wait for the archive have reached their \
                                        limit"
                    .into(),
            );
            s.unextended_at.store(s.room(), Ordering::SeqCst);
            s.wanted_end.store(0, Ordering::SeqCst);
            self.note_prepared(stream, Err(&error));
            return Err(error);
        }
        self.note_fence(self.make_spare(stream, next.bytes, pause))?;
        Ok(true)
    }

    /// Makes a spare of `bytes` bytes. The caller holds the stream's `preparing`.
    fn make_spare(&self, stream: StreamId, bytes: u64, pause: &dyn Fn()) -> Result<()> {
        let s = &self.streams[usize::from(stream.0)];
        let pause = || {
            if !s.is_starved() {
                pause();
            }
        };
        loop {
            let plan = s.shelf.lock().plan_spare(bytes);
            let error = match plan.prepare(&pause) {
                Ok(spare) => {
                    let mut shelf = s.shelf.lock();
                    shelf.add_spare(spare);
                    assert!(shelf.has_spare(bytes), "a spare of {bytes} bytes was made");
                    s.note_room(&shelf);
                    self.note_prepared(stream, Ok(()));
                    return Ok(());
                }
                Err(error) => error,
            };
            // Spares of other sizes are removed first, because they take the space that this one needs.
            if error.is_disk_full() && matches!(s.shelf.lock().give_up_spare(), Ok(true)) {
                continue;
            }
            s.unextended_at.store(s.room(), Ordering::SeqCst);
            if error.is_disk_full() && s.is_starved() {
                self.give_back(s);
            }
            s.wanted_end.store(0, Ordering::SeqCst);
            self.note_prepared(stream, Err(&error));
            return Err(error);
        }
    }

    /// Removes the spares that were made for a writer that is now refused. The disk is full, and the disk's other users
    /// need the space. The remaining files have room for the usual write.
    fn give_back(&self, s: &Stream) {
        let mut shelf = s.shelf.lock();
        let filled_end = s.filled_end.load(Ordering::Relaxed);
        let ahead = |next: &Span| next.start.0.saturating_sub(filled_end);
        // A failure is ignored: a spare that cannot be removed stays.
        let _ = shelf.give_back(|next| ahead(next) > next.bytes / 2 + self.reserve(s));
        let before = s.room();
        s.note_room(&shelf);
        assert!(s.room() <= before, "giving files back makes no room");
    }

    /// Ensures that the flusher has a spare of this size, which usually exists already. No spare exists for the first
    /// segment of a life, or if more was appended than was admitted.
    pub(crate) fn ensure_spare(&self, stream: StreamId, bytes: u64) -> Result<()> {
        let s = &self.streams[usize::from(stream.0)];
        assert!(
            self.options.segments.contain(bytes),
            "no segment of this life has {bytes} bytes"
        );
        if s.shelf.lock().has_spare(bytes) {
            return Ok(());
        }
        let _one_at_a_time = s.preparing.lock();
        if s.shelf.lock().has_spare(bytes) {
            return Ok(());
        }
        self.make_spare(stream, bytes, &|| {})
    }

    /// Notes whether the last attempt to prepare a file succeeded.
    fn note_prepared(&self, stream: StreamId, prepared: Result<(), &Error>) {
        let full = prepared.is_err_and(Error::is_disk_full);
        for (kind, is_so) in [
            (Trouble::Full, full),
            (Trouble::Unmade, prepared.is_err() && !full),
        ] {
            match is_so {
                true => self.troubles.set(kind, stream),
                false => self.troubles.clear(kind, stream),
            }
        }
    }

    /// Returns whether a flush of `stream` finds room without having to make a segment, which is slow.
    #[must_use]
    pub fn has_room_ahead(&self, stream: StreamId) -> bool {
        let s = &self.streams[usize::from(stream.0)];
        self.has_room(s, 0)
    }
}
