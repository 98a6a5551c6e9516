//! The two ways in which a write of the log or the anchor fails: one passes, the other is final.

use perdura_base::Error;

/// How a write of the log or the anchor failed.
#[derive(Debug)]
pub enum Failure {
    /// The write is repeated later: no byte of it counts yet.
    Delay(Error),
    /// The disk's contents are no longer known.
    Final(Error),
}

impl Failure {
    /// The failure to give a segment a file and its name: nothing is written there yet.
    pub(crate) fn of_placing(error: Error) -> Failure {
        match error.is_fenced() {
            true => Failure::Final(error),
            false => Failure::Delay(error),
        }
    }

    /// The failure of a write. A write that found no space may be repeated with the same bytes; a sync
    /// behind it that found none may not.
    #[must_use]
    pub(crate) fn of_write(error: Error) -> Failure {
        let of_sync = matches!(&error, Error::Io { op, .. } if *op == "sync");
        match error.is_disk_full() && !of_sync {
            true => Failure::Delay(error),
            false => Failure::Final(error),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Delay(error) | Failure::Final(error) => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Final(error)
    }
}
