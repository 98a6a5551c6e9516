//! The work of a restart as its schedule sees it: parts of an image and units of a log that can be read
//! and played. The schedule does not know what they contain.

use std::sync::Arc;

use perdura_base::Result;

/// The work of a restart. All methods may run on any thread.
pub trait Work: Sync {
    /// A part of the image, from BR to BP.
    type Part: Send;
    /// A unit of the log, from LR to LP.
    type Unit: Send + Sync;

    /// Returns the number of parts of the image on each of its disks.
    fn parts(&self) -> Vec<usize>;
    /// Reads a part of the image (BR).
    ///
    /// # Errors
    /// Any ends the restart.
    fn read_part(&self, disk: usize, part: usize) -> Result<Self::Part>;
    /// Puts a part of the image into memory (BP).
    ///
    /// # Errors
    /// Any ends the restart.
    fn play_part(&self, part: Self::Part) -> Result<()>;

    /// Returns the number of log streams.
    fn streams(&self) -> usize;
    /// Finds the end of a stream: its first LR.
    ///
    /// # Errors
    /// Any ends the restart.
    fn scan(&self, stream: usize) -> Result<()>;
    /// Decides which part of the log counts, after the last scan. Returns the number of units of
    /// each stream.
    ///
    /// # Errors
    /// Any ends the restart.
    fn decide(&self) -> Result<Vec<usize>>;
    /// Reads a unit (LR). Units are numbered in the order in which they must be prepared.
    ///
    /// # Errors
    /// Any ends the restart.
    fn read_unit(&self, stream: usize, unit: usize) -> Result<Self::Unit>;
    /// Returns the size of a unit in memory, bytes.
    fn unit_bytes(&self, unit: &Self::Unit) -> u64;
    /// Plays a unit (LP of an order-free scheme). Calls of one stream come one after the other, in
    /// the units' order, up to the point where `prepared` is called. The rest runs beside others.
    ///
    /// # Errors
    /// Any ends the restart.
    fn play_unit(&self, stream: usize, unit: &Self::Unit, prepared: &mut dyn FnMut())
    -> Result<()>;
    /// Plays a worker's share of the log (LP of an ordered scheme). Worker `worker` of `workers`
    /// takes every unit of every stream, each stream's in order, and plays its share. `next` gives
    /// the next unit of a stream, `None` at its end. Each call of `next` gives back the previous
    /// unit.
    ///
    /// # Errors
    /// Any ends the restart.
    fn merge(
        &self,
        worker: usize,
        workers: usize,
        next: &mut dyn FnMut(usize) -> Result<Option<Arc<Self::Unit>>>,
    ) -> Result<()>;
    /// Returns the number of workers that merge, with `threads` players; 0 for an order-free
    /// scheme.
    fn mergers(&self, threads: usize) -> usize;

    /// Ends the log for its players after the last LP, with a second pass if they need one.
    ///
    /// # Errors
    /// Any ends the restart.
    fn end_log(&self) -> Result<()>;

    /// Returns the number of sidecars to be read. An index may be built before they are read.
    fn sidecars(&self) -> usize;
    /// Reads one of them.
    fn read_sidecar(&self, number: usize);

    /// Makes the pages ready to be indexed, once they are complete. Returns the number of indexes.
    ///
    /// # Errors
    /// Any ends the restart.
    fn begin_indexes(&self) -> Result<usize>;
    /// Builds one of the indexes (IB).
    ///
    /// # Errors
    /// Any ends the restart.
    fn build_index(&self, number: usize) -> Result<()>;
    /// Ends the indexes, after the last IB.
    ///
    /// # Errors
    /// Any ends the restart.
    fn end_indexes(&self) -> Result<()>;
}
