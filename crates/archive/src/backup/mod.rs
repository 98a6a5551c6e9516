//! The format of a backup. The page below is the only description of it.
#![doc = include_str!("../../../../docs/formats/backup.md")]

mod id;

use perdura_base::Error;

pub use id::BackupId;

/// An error that names file and offset.
fn damage(file: &str, offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Error {
    Error::corrupt(
        file,
        offset,
        expected,
        found,
        "No restore can use this backup. An older one serves, with the runs behind it.",
    )
}
