//! The format of a backup. The page below is the only description of it.
#![doc = include_str!("../../../../docs/formats/backup.md")]

//!
//! | module | one idea |
//! |---|---|
//! | `id` | names |
//! | `header`, `section`, `used`, `footer` | the encoding and decoding of the file's parts |
//! | `writer`, `reader` | writing pages into a file and reading them |

mod footer;
mod header;
mod id;
mod reader;
mod section;
mod used;
mod writer;

use perdura_base::Error;

pub use header::{BackupHeader, BackupKind, HEADER_BYTES};
pub use id::BackupId;
pub use reader::{Backup, READ_PAGES};
pub use section::{PageEntry, Section};
pub use used::{UsedPage, encode_used, is_keyed};
pub use writer::{BackupSummary, BackupTail, BackupWriter};

/// Makes an error that names the file and the offset.
pub(crate) fn damage(
    file: &str,
    offset: u64,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> Error {
    Error::corrupt(
        file,
        offset,
        expected,
        found,
        "No restore can use this backup. Restore from an older backup; it needs the runs after it.",
    )
}
