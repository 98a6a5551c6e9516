//! Redis's dump files, so that a Redis user can move in, and the payloads of DUMP and RESTORE.
//!
//! A dump file ("RDB") is a header, then *opcodes* and *keys*. An opcode says something about what follows: the
//! database, a deadline, a remark. A key is a type byte, the key and the value. The type byte names an encoding rather
//! than a type. Redis writes a collection as it lies in its memory, and every generation packed small ones differently.
//! All encodings of strings, lists, sets, sorted sets, hashes and streams are read, of versions 1 to 12 (Redis 1.0 to
//! 7.4). A DUMP payload is one value in the same encoding, with version and checksum behind it.
//!
//! # Why not a crate
//! There is a maintained crate, `rdb`. It decodes what Redis writes, but a length in a compressed string decides how
//! much it allocates. Some sums of its lengths overflow, and the checksum is not checked. It drops streams and
//! functions without a report. RESTORE takes bytes from any client, so a reader here must return an error for *any*
//! wrong bytes. An import that drops keys must name them.
//!
//! # Invariants
//! * No input makes it panic, and memory grows only with bytes that were really read. A compressed string takes at most
//!   88 times its bytes, the limit of the compression. The entries of a stream's node take at most 128 times its bytes,
//!   as their fields may be named once.
//! * One key is in memory at a time.
//! * It reports what it does not understand but can step over (modules' values, deadlines of single fields). Anything
//!   else is an error that names the offset.
//!
//! | module | one idea |
//! |---|---|
//! | `source` | bytes from a reader, counted and summed up |
//! | `packed` | the encodings that hold a whole collection in one string |
//! | `lzf` | the compression of strings |
//! | `value` | a value from its type byte |
//! | `stream` | streams, read and written |
//! | `skip` | modules' values, stepped over |
//! | `file` | header, opcodes, keys, the checksum at the end |
//! | `functions` | FUNCTION DUMP and RESTORE |
//! | `payload`, `parts` | DUMP and RESTORE, at once and some elements at a time |

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

/// A length that the file gives allocates no more than this many bytes; more are allocated as they are read.
const PREALLOCATED_MAX: usize = 4096;

/// The newest version of dump files that is read.
pub const VERSION_MAX: u32 = 12;

/// The version that [`dump`] writes: that of Redis 7.0.
pub const VERSION_WRITTEN: u16 = 10;
