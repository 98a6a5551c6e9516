//! The engine's items that the server uses, in one place.

pub(crate) use perdura::types::{self, Fault, Source};
pub(crate) use perdura::{
    Attempt, Db, Delayed, Draft, Durability, End, Epoch, Error, Flushed, Kind, Latching, MemoryUse,
    Options, Packing, PartitionId, PartitionSet, Progress, Reached, Renewal, RowRef, Rung, Shape,
    TEXT_KEY_BYTES_MAX, TEXT_PAGE_BYTES, TableId, Text, Ticket, Tx, ValueCursor, descriptors,
    files, open_regular, read_input, scan_places, set_lane,
};

#[cfg(test)]
pub(crate) use perdura::{Receipt, UNDECLARED_KEY};

/// Returns the text of the error reply for an engine's error. It begins with the code that Redis clients look
/// for.
pub(crate) fn error_text(error: &Error) -> String {
    match error {
        Error::OutOfMemory { .. } => {
            String::from("OOM command not allowed when used memory > 'maxmemory'.")
        }
        Error::LogFull(why) => {
            format!("MISCONF the log has no room, so writes are refused and reads continue: {why}")
        }
        Error::Stopped(why) => format!("ERR the database has stopped: {why}"),
        Error::Fenced(_) | Error::Displaced(_) => format!("ERR the database has stopped: {error}"),
        other => format!("ERR {other}"),
    }
}

/// Returns the error reply for a request with an unknown outcome. The request's writes are only in memory, because the
/// log cannot be written.
pub(crate) fn outcome_unknown(is_disk_full: bool) -> String {
    let why = match is_disk_full {
        true => "no space is left on the disk of the log. Free space there",
        false => "the disk of the log fails, and is tried again",
    };
    format!(
        "UNKNOWN the outcome of this request is unknown: {why}. Its writes are in memory. They \
         become durable when the log can be written again, and are lost if the server ends \
         before that"
    )
}
