//! Redis's dump files, which a user of Redis can import, and the payloads of DUMP and RESTORE.
//!
//! A dump file ("RDB") is a header, then *opcodes* and *keys*. Opcodes have several purposes. One names the database of
//! the following keys, and one gives the deadline of the next key. A key is stored as a type byte, the key and the
//! value. The type byte names an encoding rather than a type. Redis writes a small collection in its form in memory,
//! and each generation of Redis packs small collections differently. This crate reads all encodings of strings, lists,
//! sets, sorted sets, hashes and streams, in the format versions 1 to 12 (Redis 1.0 to 7.4). A DUMP payload is one
//! value in an encoding of dump files, followed by the version and the checksum.
//!
//! # Why not a crate
//! There is a maintained crate, `rdb`. It decodes dumps that Redis wrote, but it allocates as many bytes as a
//! compressed string claims. In `rdb` some sums of lengths overflow, and the checksum is not checked. It drops streams
//! and functions without a report. RESTORE takes bytes from any client, so a reader here must return an error for *any*
//! wrong bytes. An import that drops keys must name them.
//!
//! # Invariants
//! * No input makes the crate panic. Memory grows only with the bytes that were read. A compressed string unpacks to at
//!   most 88 times its bytes, the limit of the compression. The entries of a stream's node unpack to at most 128 times
//!   the node's bytes. They can be longer than the node, because it stores shared field names once.
//! * One key is in memory at a time.
//! * The crate skips modules' values and the deadlines of single fields, and reports them. For data that it does not
//!   know, the crate returns an error with the offset.
//!
//! | module | one idea |
//! |---|---|
//! | `source` | bytes from a reader, with their count and checksum |
//! | `packed` | the encodings that hold a whole collection in one string |
//! | `lzf` | the compression of strings |
//! | `value` | a value from its type byte |
//! | `stream` | streams, read and written |
//! | `skip` | modules' values, stepped over |
//! | `file` | header, opcodes, keys, the checksum at the end |
//! | `functions` | FUNCTION DUMP and RESTORE |
//! | `payload`, `parts` | DUMP and RESTORE: a whole value in one call, or some elements in each call |

mod error;
mod file;
mod functions;
mod lzf;
mod packed;
mod parts;
mod payload;
mod skip;
mod source;
mod stream;
mod value;

pub use error::{Error, Result};
pub use file::{Entry, File, Item, What};
pub use functions::{dump_functions, parse_functions};
pub use parts::{CollectionType, Parts};
pub use payload::{StringPayload, dump, parse_dump};
pub use stream::{Stream, StreamConsumer, StreamEntry, StreamGroup, StreamId, StreamPending};
pub use value::Value;

/// The maximum number of bytes or items for which memory is allocated before any of them is read. If the input states a
/// greater length, memory for the rest is allocated as the rest is read.
const PREALLOCATED_MAX: usize = 4096;

/// The newest version of dump files that is read.
pub const VERSION_MAX: u32 = 12;

/// The version that [`dump`] writes: the version of Redis 7.0.
pub const VERSION_WRITTEN: u16 = 10;
