//! The work of a restart, as the schedule sees it: reading and playing the parts of an image and the units of a log.
//! The schedule does not know their contents. It names its jobs BR, BP, LR, LP and IB: image read, image played, log
//! read, log played, index built.

use std::sync::Arc;

use perdura_base::Result;

/// The work of a restart. All methods may run on any thread.
pub trait Work: Sync {
    /// A part of the image: BR reads it, and BP plays it.
    type Part: Send;
    /// A unit of the log: LR reads it, and LP plays it.
    type Unit: Send + Sync;

    /// Returns the number of image parts on each disk.
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
    /// Finds the end of a stream. This call is the first LR job of the stream.
    ///
    /// # Errors
    /// Any error ends the restart.
    fn scan(&self, stream: usize) -> Result<()>;
    /// Decides where the log ends. The schedule calls it after the last scan. Returns the number of units of each
    /// stream.
    ///
    /// # Errors
    /// Any error ends the restart.
    fn decide(&self) -> Result<Vec<usize>>;
    /// Reads a unit (LR). Players must prepare the units of a stream in ascending order of `unit`.
    ///
    /// # Errors
    /// Any error ends the restart.
    fn read_unit(&self, stream: usize, unit: usize) -> Result<Self::Unit>;
    /// Returns the size in bytes of a unit in memory.
    fn unit_bytes(&self, unit: &Self::Unit) -> u64;
    /// Plays a unit (LP of an order-free scheme). For each stream, the schedule calls it in the order of the units. The
    /// next call begins only after this call has called `prepared`. Both calls may then run in parallel.
    ///
    /// # Errors
    /// Any error ends the restart.
    fn play_unit(&self, stream: usize, unit: &Self::Unit, prepared: &mut dyn FnMut())
    -> Result<()>;
    /// Plays a worker's share of the log (LP of an ordered scheme). Worker `worker` of `workers` takes every unit of
    /// every stream, in order within each stream, and plays its share. `next` returns the next unit of a stream, `None`
    /// at its end. Calling `next` also shows the schedule that the worker is done with the stream's previous unit.
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

    /// Signals to the players, after the last LP, that the log has ended. Runs a second pass if the players need it.
    ///
    /// # Errors
    /// Any error ends the restart.
    fn end_log(&self) -> Result<()>;

    /// Returns the number of index sidecars to be read. An index may be built before its sidecar is read.
    fn sidecars(&self) -> usize;
    /// Reads a sidecar.
    fn read_sidecar(&self, number: usize);

    /// Prepares the building of indexes. The schedule calls it when the pages are complete. Returns the number of
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
