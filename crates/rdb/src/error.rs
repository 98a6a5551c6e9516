//! The errors of reading a dump.

use std::io;

/// The reason why a dump cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("reading failed at byte {at}: {source}")]
    Io {
        /// The position of the error in the file.
        at: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The input ends within a part of the dump.
    #[error("it ends at byte {at}, in the middle of {of}; is it cut off?")]
    Truncated {
        /// The length of the input.
        at: u64,
        /// The part that was being read.
        of: &'static str,
    },
    /// The input is no dump.
    #[error("this is not a dump of Redis: it does not begin with REDIS and a version")]
    Foreign,
    /// The dump has a version that this crate cannot read.
    #[error("version {found} of the dump format is newer than {newest}, the newest known")]
    Version {
        /// The dump's version.
        found: u32,
        /// The newest version that this crate reads.
        newest: u32,
    },
    /// The bytes cannot be decoded.
    #[error("byte {at}: {why}")]
    Corrupt {
        /// The position of the first wrong byte.
        at: u64,
        /// The reason.
        why: &'static str,
    },
    /// The value of a key is wrong.
    #[error("the value of key '{}', from byte {at} on: {why}", shown(.key))]
    Key {
        /// The key.
        key: Vec<u8>,
        /// The position of the key's value.
        at: u64,
        /// The reason.
        why: String,
    },
    /// The checksum in the dump does not match the dump's bytes.
    #[error(
        "the checksum is {found:016x}, but the bytes before it have the checksum \
             {computed:016x}"
    )]
    Checksum {
        /// The checksum in the dump.
        found: u64,
        /// The checksum computed from the dump's bytes.
        computed: u64,
    },
}

/// The result of reading a dump.
pub type Result<T> = std::result::Result<T, Error>;

/// Returns a key as text for people: the first 100 bytes, and `...` for a longer key. Unprintable bytes are escaped.
fn shown(key: &[u8]) -> String {
    let cut = &key[..key.len().min(100)];
    let more = if cut.len() < key.len() { "..." } else { "" };
    format!("{}{more}", cut.escape_ascii())
}

impl Error {
    /// Returns an error that names the key. The key's value begins at `at`. Errors other than [`Error::Corrupt`] and
    /// [`Error::Truncated`] are returned unchanged.
    pub(crate) fn of_key(self, key: &[u8], at: u64) -> Error {
        match self {
            Error::Corrupt { .. } | Error::Truncated { .. } => Error::Key {
                key: key.to_vec(),
                at,
                why: self.to_string(),
            },
            other => other,
        }
    }
}
