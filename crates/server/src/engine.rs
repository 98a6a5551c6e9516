//! What the server uses of the engine, in one place.

pub(crate) use perdura::types::{self, Fault, Source};
pub(crate) use perdura::{
    Attempt, Db, Delayed, Draft, Durability, End, Epoch, Error, Flushed, Kind, MemoryUse, Options,
    Packing, PartitionId, PartitionSet, Progress, Reached, Renewal, RowRef, Rung, Shape,
    TEXT_KEY_BYTES_MAX, TEXT_PAGE_BYTES, TableId, Text, Ticket, Tx, ValueCursor, descriptors,
    files, open_regular, read_input, scan_places,
};

#[cfg(test)]
pub(crate) use perdura::{Receipt, UNDECLARED_KEY};

/// An engine's error as a reply, with the code that Redis clients look for.
pub(crate) fn error_text(error: &Error) -> String {
    match error {
        Error::OutOfMemory { .. } => {
            String::from("OOM command not allowed when used memory > 'maxmemory'.")
        }
        Error::LogFull(why) => {
            format!("MISCONF the log has no room, so writes are refused and reads go on: {why}")
        }
        Error::Stopped(why) => format!("ERR the database has stopped: {why}"),
        Error::Fenced(_) | Error::Displaced(_) => format!("ERR the database has stopped: {error}"),
        other => format!("ERR {other}"),
    }
}
