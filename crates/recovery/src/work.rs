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

    /// Parts of the image on each of its disks.
    fn parts(&self) -> Vec<usize>;
    /// BR.
    ///
    /// # Errors
    /// Any ends the restart.
    fn read_part(&self, disk: usize, part: usize) -> Result<Self::Part>;
    /// BP.
    ///
    /// # Errors
    /// Any ends the restart.
    fn play_part(&self, part: Self::Part) -> Result<()>;

    /// Number of log streams.
    fn streams(&self) -> usize;
    /// The first LR of a stream: finds its end.
    ///
    /// # Errors
    /// Any ends the restart.
    fn scan(&self, stream: usize) -> Result<()>;
    /// After the last scan: decides what counts. Returns the number of units of each stream.
    ///
    /// # Errors
    /// Any ends the restart.
    fn decide(&self) -> Result<Vec<usize>>;
    /// LR. Units are numbered in the order in which they must be prepared.
    ///
    /// # Errors
    /// Any ends the restart.
    fn read_unit(&self, stream: usize, unit: usize) -> Result<Self::Unit>;
    /// Bytes of memory a unit takes.
    fn unit_bytes(&self, unit: &Self::Unit) -> u64;
    /// LP of an order-free scheme. Calls of one stream come one after the other, in the units'
    /// order, up to the point where `prepared` is called; the rest runs beside others.
    ///
    /// # Errors
    /// Any ends the restart.
    fn play_unit(&self, stream: usize, unit: &Self::Unit, prepared: &mut dyn FnMut())
    -> Result<()>;
    /// LP of an ordered scheme: worker `worker` of `workers` takes every unit of every stream,
    /// each stream's in order, and plays its share. `next` gives the next unit of a stream, `None`
    /// at its end; to ask for it gives the one before back.
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

    /// After the last LP: ends the log for its players, with a second pass if they need one.
    ///
    /// # Errors
    /// Any ends the restart.
    fn end_log(&self) -> Result<()>;

    /// Sidecars to be read; it need not have happened when an index is built.
    fn sidecars(&self) -> usize;
    /// Reads one of them.
    fn read_sidecar(&self, number: usize);

    /// Once the pages are complete: makes them ready to be indexed. Returns the number of indexes.
    ///
    /// # Errors
    /// Any ends the restart.
    fn begin_indexes(&self) -> Result<usize>;
    /// IB: builds one of them.
    ///
    /// # Errors
    /// Any ends the restart.
    fn build_index(&self, number: usize) -> Result<()>;
    /// After the last IB.
    ///
    /// # Errors
    /// Any ends the restart.
    fn end_indexes(&self) -> Result<()>;
}
