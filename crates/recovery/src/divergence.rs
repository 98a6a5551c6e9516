//! The differences between a replay and the log: records whose result in the replay differs from the result in the log.
//!
//! A restart stops at the first difference, unless its caller accepts all differences. If the caller accepts them, each
//! difference becomes a [`Divergence`]. The report has the count of divergences, and a list of at most
//! [`DIVERGENCES_LISTED_MAX`] divergences.

use std::fmt;

use perdura_base::num::to_u64;
use perdura_base::{Epoch, Pos, StreamId};
use perdura_formats::ordered::Part;
use perdura_wal::Origin;
use serde::Serialize;

/// The maximum number of divergences that a report lists. The report counts all divergences, listed or not.
pub const DIVERGENCES_LISTED_MAX: usize = 1000;

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Differs {
    /// The text of a procedure differs between log and program. The replay uses the program's text. The difference is
    /// noted once, at the first replayed call.
    Body,
    /// The hash of a call's effects differs between log and replay. The replay's effects are kept.
    Effects,
    /// The call aborts in the replay, so it changes nothing. But its sequence number in each partition counts as
    /// used.
    Abort,
    /// The record changes a row that does not exist. The replay skips the change.
    Row,
}

/// A record with different results in the replay and in the execution before the crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Divergence {
    /// The kind of the difference.
    pub differs: Differs,
    /// The procedure and its argument types. `None`: the record contains row changes, not a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub procedure: Option<String>,
    /// The version of the procedure according to the log: the hash of the procedure's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The log stream.
    pub stream: u8,
    /// Position of the record's block in the stream.
    pub position: u64,
    /// The record's epoch.
    pub epoch: u64,
    /// The transaction's partitions, with the transaction's sequence number in each.
    pub parts: Vec<(u16, u64)>,
    /// The result in the log.
    pub expected: String,
    /// The result of the replay.
    pub found: String,
}

impl Divergence {
    /// Makes the divergence of a record. `parts` are the record's partitions and sequence numbers. `expected` is the
    /// result in the log, `found` is the result of the replay.
    #[must_use]
    pub fn new(
        differs: Differs,
        (parts, origin): (&[Part], &Origin),
        (expected, found): (String, String),
    ) -> Divergence {
        let (StreamId(stream), Pos(position), Epoch(epoch)) =
            (origin.stream, origin.pos, origin.epoch);
        assert!(!parts.is_empty(), "a record has a partition");
        Divergence {
            differs,
            procedure: None,
            version: None,
            stream,
            position,
            epoch,
            parts: parts.iter().map(|(id, pseq)| (id.0, *pseq)).collect(),
            expected,
            found,
        }
    }

    /// Returns the sort key of the list: epoch, then stream, position and parts.
    fn place(&self) -> (u64, u8, u64, &[(u16, u64)]) {
        (self.epoch, self.stream, self.position, &self.parts)
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.procedure, &self.version) {
            (Some(procedure), Some(version)) => {
                write!(f, "procedure {procedure}, version {version}")?;
            }
            _ => f.write_str("row changes")?,
        }
        write!(f, ", stream {} at byte {}, ", self.stream, self.position)?;
        for (index, (partition, number)) in self.parts.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}transaction {number} of partition {partition}")?;
        }
        write!(f, ": expected {}, found {}", self.expected, self.found)
    }
}

/// The divergences that a restart found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Divergences {
    /// Count of all divergences.
    pub count: u64,
    /// The first divergences that were found, [`DIVERGENCES_LISTED_MAX`] at most. [`sorted`](Self::sorted) sorts the
    /// list by epoch.
    pub listed: Vec<Divergence>,
}

impl Divergences {
    /// Returns whether there was no divergence.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Counts a divergence, and lists it if the list has room.
    pub fn note(&mut self, divergence: Divergence) {
        self.count += 1;
        if self.listed.len() < DIVERGENCES_LISTED_MAX {
            self.listed.push(divergence);
        }
        assert!(
            to_u64(self.listed.len()) <= self.count,
            "each that is listed is counted"
        );
    }

    /// Sorts the list by epoch and then by position in the log, because threads find divergences in any order.
    #[must_use]
    pub fn sorted(mut self) -> Divergences {
        self.listed.sort_by(|a, b| a.place().cmp(&b.place()));
        self
    }
}

#[cfg(test)]
mod tests {
    use perdura_base::{Incarnation, PartitionId};

    use super::*;

    fn at(epoch: u64) -> Divergence {
        let origin = Origin {
            stream: StreamId(1),
            life: Incarnation(2),
            pos: Pos(4096),
            epoch: Epoch(epoch),
        };
        let parts = [(PartitionId(3), 5), (PartitionId(4), 9)];
        let said = ("effects 01".into(), "effects 02".into());
        Divergence::new(Differs::Effects, (&parts, &origin), said)
    }

    #[test]
    fn a_line_names_the_place_and_both_results() {
        let mut found = at(7);
        assert_eq!(
            found.to_string(),
            "row changes, stream 1 at byte 4096, transaction 5 of partition 3, transaction 9 of partition 4: \
             expected effects 01, found effects 02"
        );
        found.procedure = Some("pay(u64)".into());
        found.version = Some("00ff".into());
        let line = found.to_string();
        assert!(line.starts_with("procedure pay(u64), version 00ff, stream 1"));
    }

    #[test]
    fn the_list_is_bounded_and_the_count_is_not() {
        let mut all = Divergences::default();
        assert!(all.is_empty());
        for epoch in (1..=1500).rev() {
            all.note(at(epoch));
        }
        let all = all.sorted();
        assert_eq!(
            (all.count, all.listed.len()),
            (1500, DIVERGENCES_LISTED_MAX)
        );
        assert_eq!(all.listed[0].epoch, 501);
    }
}
