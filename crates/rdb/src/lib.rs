//! Redis's dump files, so that a Redis user can move in, and the payloads of DUMP and RESTORE.
//!
//! A dump file ("RDB") is a header, then *opcodes* and *keys*. An opcode names the database of the following keys,
//! gives the deadline of the next key, or carries a remark, for example. A key is stored as a type byte, the key and
//! the value. The type byte names an encoding rather than a type. Redis writes a collection as it lies in memory, and
//! each generation of Redis packs small collections differently. This crate reads all encodings of strings, lists,
//! sets, sorted sets, hashes and streams, in the format versions 1 to 12 (Redis 1.0 to 7.4). A DUMP payload is one
//! value in the same encoding, followed by the version and the checksum.
//!
//! # Why not a crate
//! There is a maintained crate, `rdb`. It decodes dumps that Redis wrote, but it allocates as many bytes as a
//! compressed string claims. Some of its sums of lengths overflow, and it does not check the checksum. It drops streams
//! and functions without a report. RESTORE takes bytes from any client, so a reader here must return an error for *any*
//! wrong bytes. An import that drops keys must name them.
//!
//! # Invariants
//! * No input makes the crate panic. Memory grows only with the bytes that were read. A compressed string unpacks to at
//!   most 88 times its bytes, the limit of the compression. The entries of a stream's node unpack to at most 128 times
//!   the node's bytes: a node names fields that its entries share only once.
//! * One key is in memory at a time.
//! * The crate reports data that it cannot keep but can step over (modules' values, deadlines of single fields).
//!   Anything else that it does not understand is an error that names the offset.
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
//! | `payload`, `parts` | DUMP and RESTORE: a whole value at once, or some elements at a time |

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

/// The most bytes or items for which a length in the file allocates memory in advance. Memory for more is allocated as
/// they are read.
const PREALLOCATED_MAX: usize = 4096;

/// The newest version of dump files that is read.
pub const VERSION_MAX: u32 = 12;

/// The version that [`dump`] writes: that of Redis 7.0.
pub const VERSION_WRITTEN: u16 = 10;
