//! Flushes a log completely.

use perdura_base::{Result, StreamId};
use perdura_wal::{FlushProgress, Wal};

/// Closes the open epoch and flushes until everything is durable. For callers that have no flusher threads.
///
/// # Errors
/// See [`Wal::flush_step`].
pub fn flush_all(wal: &Wal) -> Result<()> {
    wal.close_epoch();
    for stream in (0..wal.streams()).map(StreamId) {
        while wal.flush_step(stream)? != FlushProgress::Idle {}
    }
    Ok(())
}
