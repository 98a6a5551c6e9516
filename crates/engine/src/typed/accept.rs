//! Accepting the results of a replay that differ from the log.
//!
//! A command log brings data back by calling procedures again. A procedure may do something else now, because it is not
//! deterministic or its text has changed. Then the restart stops, and nothing is changed. An operator can accept the
//! new result instead. Each record that differs is named, and the re-executed result is valid from there on. A
//! checkpoint ends the open, so that the next one replays none of it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_formats::ordered::Part;
use perdura_recovery::ordered::{Differs, Divergence, Divergences};
use perdura_wal::Origin;

use crate::catalog::ProcedureRow;

/// Accepts the results of a replay that differ from the log, and gets each record that differs.
#[derive(Clone)]
pub struct AcceptDivergence(Arc<dyn Fn(&Divergence) + Send + Sync>);

impl AcceptDivergence {
    /// Calls `hear` for each record, on the thread that replays it.
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
    /// Procedures whose text has changed, by the number that commands name.
    bodies: BTreeSet<u32>,
}

impl Accepted {
    /// Returns one without differences.
    pub fn new(accept: AcceptDivergence) -> Accepted {
        Accepted {
            accept,
            found: Mutex::default(),
        }
    }

    /// Adds a difference.
    pub fn note(&self, divergence: Divergence) {
        (self.accept.0)(&divergence);
        self.found.lock().divergences.note(divergence);
    }

    /// Notes, the first time, that the text of a procedure has changed.
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

    /// Returns the accepted differences, in order.
    pub fn divergences(&self) -> Divergences {
        self.found.lock().divergences.clone().sorted()
    }
}

/// Adds the procedure to a difference of a call.
pub(super) fn of_procedure(row: &ProcedureRow, divergence: Divergence) -> Divergence {
    Divergence {
        procedure: Some(format!("{}{}", row.name, row.types)),
        version: Some(format!("{:016x}", row.hash)),
        ..divergence
    }
}
