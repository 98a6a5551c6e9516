//! Accepting the results of a replay that differ from the log.
//!
//! A replay of logged commands calls the procedures again. A procedure may give a new result, because the procedure is
//! not deterministic or its text has changed. Then the restart stops and changes nothing. An operator can accept the
//! new results instead. Each record that differs is then reported, and its new result replaces the logged one. The open
//! ends with a checkpoint, so that the next open does not replay these records.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_formats::ordered::Part;
use perdura_recovery::ordered::{Differs, Divergence, Divergences};
use perdura_wal::Origin;

use crate::catalog::ProcedureRow;

/// The consent to replay results that differ from the log, with a function to call for each differing record.
#[derive(Clone)]
pub struct AcceptDivergence(Arc<dyn Fn(&Divergence) + Send + Sync>);

impl AcceptDivergence {
    /// Returns a value that calls `hear` for each differing record, on the replaying thread.
    pub fn new(hear: impl Fn(&Divergence) + Send + Sync + 'static) -> AcceptDivergence {
        AcceptDivergence(Arc::new(hear))
    }
}

impl fmt::Debug for AcceptDivergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AcceptDivergence")
    }
}

/// The differences that one replay accepted.
#[derive(Debug)]
pub(super) struct Accepted {
    accept: AcceptDivergence,
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    divergences: Divergences,
    /// The ids of procedures with a changed text. Commands in the log refer to a procedure by its id.
    bodies: BTreeSet<u32>,
}

impl Accepted {
    /// Returns a list without differences.
    pub fn new(accept: AcceptDivergence) -> Accepted {
        Accepted {
            accept,
            found: Mutex::default(),
        }
    }

    /// Reports a difference and adds it to the list.
    pub fn note(&self, divergence: Divergence) {
        (self.accept.0)(&divergence);
        self.found.lock().divergences.note(divergence);
    }

    /// Notes that the text of a procedure has changed. Only the first call for each procedure has
    /// an effect.
    pub fn note_body(&self, row: &ProcedureRow, runs: u64, parts: &[Part], origin: &Origin) {
        if !self.found.lock().bodies.insert(row.id) {
            return;
        }
        assert_ne!(row.hash, runs, "another text has another hash");
        let said = (
            format!("version {:016x}", row.hash),
            format!("version {runs:016x}, which was run instead"),
        );
        self.note(of_procedure(
            row,
            Divergence::new(Differs::Body, (parts, origin), said),
        ));
    }

    /// Returns the accepted differences, sorted.
    pub fn divergences(&self) -> Divergences {
        self.found.lock().divergences.clone().sorted()
    }
}

/// Adds the procedure's name and version to the difference of a call.
pub(super) fn of_procedure(row: &ProcedureRow, divergence: Divergence) -> Divergence {
    Divergence {
        procedure: Some(format!("{}{}", row.name, row.types)),
        version: Some(format!("{:016x}", row.hash)),
        ..divergence
    }
}
