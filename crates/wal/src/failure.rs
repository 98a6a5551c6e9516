//! Failed writes of the log or the anchor. A failure is final, or only delays the write.

use perdura_base::Error;

/// The kind of a failed write to the log or the anchor.
#[derive(Debug)]
pub enum Failure {
    /// The write will be repeated. Until then no byte of the failed attempt counts.
    Delay(Error),
    /// The disk's contents are unknown from now on.
    Final(Error),
}

impl Failure {
    /// Returns the kind of an error that occurred before a segment had its file and name. Nothing has been written to
    /// the segment yet.
    pub(crate) fn of_placing(error: Error) -> Failure {
        match error.is_fenced() {
            true => Failure::Final(error),
            false => Failure::Delay(error),
        }
    }

    /// Turns a final failure into [`Error::Displaced`] if a file or directory that the log made is gone. A failing disk
    /// is not the cause: the directory was removed or replaced. A restart would find a different directory or no
    /// directory.
    pub(crate) fn of_lost_name(self) -> Failure {
        match self {
            Failure::Final(error) if error.is_not_found() || error.is_of_another_kind() => {
                Failure::Final(Error::Displaced(error.to_string()))
            }
            other => other,
        }
    }

    /// Returns the kind of a failed write. A write that found no space, no memory or no descriptor may be repeated
    /// unchanged. A sync may not be repeated, nor may a write that an I/O ring may already have accepted.
    #[must_use]
    pub(crate) fn of_write(error: Error) -> Failure {
        let passes = error.is_disk_full() || error.is_shortage();
        match passes && !is_final(&error) {
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
    /// Returns a delay only if the process lacks descriptors or memory and could not open a file or a directory.
    fn from(error: Error) -> Failure {
        match error.is_shortage() && !is_final(&error) {
            true => Failure::Delay(error),
            false => Failure::Final(error),
        }
    }
}

/// Returns whether the failed operation leaves the disk's contents unknown, whatever its error is.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::Io { op, .. } if matches!(*op, "sync" | "sync directory" | "submit"))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn is_delay(failure: &Failure) -> bool {
        matches!(failure, Failure::Delay(_))
    }

    /// A bug in an earlier build: idle clients took every descriptor, and the log stopped as if a sync had failed.
    #[test]
    fn a_shortage_delays_what_can_be_repeated_and_nothing_else() {
        let failed = |op, errno| Error::io(op, "f", io::Error::from_raw_os_error(errno));
        for (errno, passes) in [(11, true), (12, true), (23, true), (24, true), (5, false)] {
            for op in ["write", "open", "open directory"] {
                assert_eq!(
                    is_delay(&Failure::of_write(failed(op, errno))),
                    passes,
                    "{op} {errno}"
                );
                assert_eq!(
                    is_delay(&Failure::from(failed(op, errno))),
                    passes,
                    "{op} {errno}"
                );
            }
            for op in ["sync", "sync directory", "submit"] {
                assert!(
                    !is_delay(&Failure::of_write(failed(op, errno))),
                    "{op} {errno}"
                );
                assert!(!is_delay(&Failure::from(failed(op, errno))), "{op} {errno}");
            }
        }
        let gone = Failure::from(failed("open", 2)).of_lost_name();
        assert!(
            matches!(gone, Failure::Final(Error::Displaced(_))),
            "{gone:?}"
        );
        let broken = Failure::from(failed("open", 5)).of_lost_name();
        assert!(
            matches!(broken, Failure::Final(Error::Io { .. })),
            "{broken:?}"
        );
        let full = failed("write", 28);
        assert!(is_delay(&Failure::of_write(full)));
    }
}
