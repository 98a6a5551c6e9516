//! The two ways in which a write of the log or the anchor fails: one passes, the other is final.

use perdura_base::Error;

/// The kind of failure of a write of the log or the anchor.
#[derive(Debug)]
pub enum Failure {
    /// The write is repeated later: no byte of it counts yet.
    Delay(Error),
    /// The disk's contents are no longer known.
    Final(Error),
}

impl Failure {
    /// Returns the failure to give a segment a file and its name: nothing is written there yet.
    pub(crate) fn of_placing(error: Error) -> Failure {
        match error.is_fenced() {
            true => Failure::Final(error),
            false => Failure::Delay(error),
        }
    }

    /// Returns the failure after a name that the log has made was not found. No disk fails so, and a restart would find
    /// another directory, or none.
    pub(crate) fn of_lost_name(self) -> Failure {
        match self {
            Failure::Final(error) if error.is_not_found() || error.is_of_another_kind() => {
                Failure::Final(Error::Displaced(error.to_string()))
            }
            other => other,
        }
    }

    /// Returns the failure of a write. A write that found no space, no memory or no descriptor may be repeated with the
    /// same bytes. A sync may not, nor may a write that a ring has perhaps taken.
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
    /// Returns a delay only for a process without descriptors or memory: it could not open a file or a directory.
    fn from(error: Error) -> Failure {
        match error.is_shortage() && !is_final(&error) {
            true => Failure::Delay(error),
            false => Failure::Final(error),
        }
    }
}

/// Returns whether the operation leaves the disk's contents unknown when it fails, whatever the error.
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

    /// A thousand idle clients once took every descriptor, and the log stopped as after a failed sync.
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
