//! The work of a restart as its schedule sees it: parts of an image and units of a log that can be read
//! and played. The schedule does not know what they contain.

use std::sync::Arc;

use perdura_base::Result;

/// The work of a restart. All methods may run on any thread.
pub trait Work: Sync {
    /// A part of the image: BR returns it, and BP takes it.
    type Part: Send;
    /// A unit of the log: LR returns it, and LP takes it.
    type Unit: Send + Sync;

    /// Returns the number of parts of the image on each of its disks.
    fn parts(&self) -> Vec<usize>;
    /// Reads a part of the image (BR).
    ///
    /// # Errors
    /// Any error ends the restart.
    fn read_part(&self, disk: usize, part: usize) -> Result<Self::Part>;
    /// Puts a part of the image into memory (BP).
    ///
    /// # Errors
    /// Any error ends the restart.
    fn play_part(&self, part: Self::Part) -> Result<()>;

    /// Returns the number of log streams.
    fn streams(&self) -> usize;
    /// Finds the end of a stream. This is the first LR of the stream.
    ///
    /// # Errors
    /// Any error ends the restart.
    fn scan(&self, stream: usize) -> Result<()>;
    /// Decides where the log ends. Called after the last scan. Returns the number of units of each stream.
    ///
    /// # Errors
    /// Any error ends the restart.
    fn decide(&self) -> Result<Vec<usize>>;
    /// Reads a unit (LR). Units are numbered in the order in which they must be prepared.
    ///
    /// # Errors
    /// Any error ends the restart.
    fn read_unit(&self, stream: usize, unit: usize) -> Result<Self::Unit>;
    /// Returns the size of a unit in memory, bytes.
    fn unit_bytes(&self, unit: &Self::Unit) -> u64;
    /// Plays a unit (LP of an order-free scheme). The calls for one stream come in the order of the units, and each
    /// waits until the call before it has called `prepared`. After calling `prepared`, a call may run in parallel with
    /// others.
    ///
    /// # Errors
    /// Any error ends the restart.
    fn play_unit(&self, stream: usize, unit: &Self::Unit, prepared: &mut dyn FnMut())
    -> Result<()>;
    /// Plays a worker's share of the log (LP of an ordered scheme). Worker `worker` of `workers` takes every unit of
    /// every stream, in order within each stream, and plays its share. `next` returns the next unit of a stream, `None`
    /// at its end. A call of `next` also tells the schedule that the worker is done with the stream's previous unit.
    ///
    /// # Errors
    /// Any error ends the restart.
    fn merge(
        &self,
        worker: usize,
        workers: usize,
        next: &mut dyn FnMut(usize) -> Result<Option<Arc<Self::Unit>>>,
    ) -> Result<()>;
    /// Returns how many workers merge if there are `threads` players; 0 for an order-free scheme.
    fn mergers(&self, threads: usize) -> usize;

    /// Ends the log for the players, after the last LP. Runs a second pass if the players need it.
    ///
    /// # Errors
    /// Any error ends the restart.
    fn end_log(&self) -> Result<()>;

    /// Returns the number of sidecars to be read. An index may be built before its sidecar is read.
    fn sidecars(&self) -> usize;
    /// Reads a sidecar.
    fn read_sidecar(&self, number: usize);

    /// Prepares the pages for the building of indexes. Called once the pages are complete. Returns the number of
    /// indexes.
    ///
    /// # Errors
    /// Any error ends the restart.
    fn begin_indexes(&self) -> Result<usize>;
    /// Builds one of the indexes (IB).
    ///
    /// # Errors
    /// Any error ends the restart.
    fn build_index(&self, number: usize) -> Result<()>;
    /// Completes the indexes, after the last IB.
    ///
    /// # Errors
    /// Any error ends the restart.
    fn end_indexes(&self) -> Result<()>;
}
