//! Ids of entries: a time in milliseconds, and a number within that millisecond.

use std::fmt;

use crate::number::{parse_u64, push_u64};

/// The id of an entry. Ids ascend in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Id {
    /// Milliseconds. They count from 1970 if the server chose the id.
    pub ms: u64,
    /// The number within the millisecond.
    pub seq: u64,
}

impl Id {
    /// The lowest id, which no entry has.
    pub const MIN: Id = Id { ms: 0, seq: 0 };
    /// The greatest id.
    pub const MAX: Id = Id {
        ms: u64::MAX,
        seq: u64::MAX,
    };

    /// Reads `ms` or `ms-seq`. If the text has no `-seq`, the id gets the argument `seq`.
    #[must_use]
    pub fn parse(text: &[u8], seq: u64) -> Option<Id> {
        let dash = text.iter().position(|byte| *byte == b'-');
        Some(match dash {
            None => Id {
                ms: parse_u64(text)?,
                seq,
            },
            Some(at) => Id {
                ms: parse_u64(&text[..at])?,
                seq: parse_u64(&text[at + 1..])?,
            },
        })
    }

    /// Returns the next greater id; `None` for the greatest.
    #[must_use]
    pub fn next(self) -> Option<Id> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Id { seq, ..self }),
            None => Some(Id {
                ms: self.ms.checked_add(1)?,
                seq: 0,
            }),
        }
    }

    /// Returns the next lesser id; `None` for the least.
    #[must_use]
    pub fn previous(self) -> Option<Id> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Id { seq, ..self }),
            None => Some(Id {
                ms: self.ms.checked_sub(1)?,
                seq: u64::MAX,
            }),
        }
    }

    /// Returns the bytes that encode the id in the names of rows. The bytes sort as the ids do.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    /// Returns the id of the bytes that [`to_bytes`](Self::to_bytes) returns.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Id {
        let number = u128::from_be_bytes(bytes);
        let [ms, seq] = [number >> 64, number & u128::from(u64::MAX)];
        let half = |half: u128| u64::try_from(half).unwrap_or(u64::MAX);
        Id {
            ms: half(ms),
            seq: half(seq),
        }
    }

    /// Appends the id as clients read it.
    pub fn push(self, out: &mut Vec<u8>) {
        push_u64(out, self.ms);
        out.push(b'-');
        push_u64(out, self.seq);
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written_and_their_bytes_sort_as_they_do() {
        let ids = [
            Id::MIN,
            Id { ms: 0, seq: 1 },
            Id {
                ms: 0,
                seq: u64::MAX,
            },
            Id { ms: 1, seq: 0 },
            Id { ms: 256, seq: 255 },
            Id::MAX,
        ];
        for pair in ids.windows(2) {
            assert!(pair[0] < pair[1] && pair[0].to_bytes() < pair[1].to_bytes());
        }
        for id in ids {
            assert_eq!(Id::parse(id.to_string().as_bytes(), 7), Some(id));
            assert_eq!(Id::from_bytes(id.to_bytes()), id);
            assert_eq!(id.next().and_then(Id::previous).unwrap_or(id), id);
            assert_eq!(id.previous().and_then(Id::next).unwrap_or(id), id);
        }
        assert_eq!(Id::parse(b" +01-+2", 7), Some(Id { ms: 1, seq: 2 }));
        assert_eq!(Id::parse(b"5", 7), Some(Id { ms: 5, seq: 7 }));
        for wrong in [
            &b""[..],
            b"-",
            b"1-",
            b"-1",
            b"1-2-3",
            b"x",
            b"1-++2",
            b"18446744073709551616",
        ] {
            assert_eq!(Id::parse(wrong, 0), None, "{wrong:?}");
        }
    }
}
