//! The errors that stop a replay of ordered frames: the program lacks a logged procedure, or the replay's result
//! differs from the log.

use perdura_base::Error;
use perdura_recovery::ordered::Divergence;
use perdura_wal::Origin;

use super::options::TypedOptions;
use crate::catalog::ProcedureRow;

/// Returns the error for logged effects that no writer would log.
pub(super) fn damaged(origin: &Origin, expected: &str, found: &str) -> Error {
    Error::corrupt(
        format!("log stream {}", origin.stream),
        origin.pos.0,
        expected,
        found,
        "The checksums match, so this is a bug in Perdura. Copy the files and report the bug.",
    )
}

/// Returns the error for a logged call of a procedure. The program lacks this version of the procedure, or the whole
/// procedure.
pub(super) fn unknown_procedure(
    row: &ProcedureRow,
    program: &TypedOptions,
    origin: &Origin,
) -> Error {
    let mut all = program.procedures.iter().chain(program.replayed.iter());
    let way_out = match all.find(|mine| mine.name == row.name) {
        Some(mine) if mine.types == row.types => format!(
            ". Or run version {:016x} of this program instead: {WAY_OUT}",
            mine.hash
        ),
        Some(mine) => format!(
            ". The procedure {} of this program takes other arguments, {}",
            mine.name, mine.types
        ),
        None => String::new(),
    };
    Error::Usage(format!(
        "this program does not have procedure {}{}, version {:016x}, which the log calls (first \
         in epoch {} of this database, in stream {} at byte {}). Nothing was changed. Open the database with the \
         program that wrote it, and close it. Then this program can open it{way_out}",
        row.name, row.types, row.hash, origin.epoch, origin.stream, origin.pos.0
    ))
}

/// The way to continue a restart although a replay differs.
const WAY_OUT: &str = "`perdura restart --accept-divergence` (in a program, \
                       `Builder::accept_divergence`) accepts the new results and lists every \
                       record that differs";

/// Returns the error for a record whose replay differs from the log.
pub(super) fn refused(divergence: &Divergence, cause: &str) -> Error {
    let whose = match &divergence.procedure {
        Some(procedure) => format!("procedure {procedure}"),
        None => "row changes".into(),
    };
    let parts = divergence.parts.iter();
    let places: Vec<_> = parts
        .map(|(partition, number)| format!("transaction {number} of partition {partition}"))
        .collect();
    Error::corrupt(
        format!("log stream {}", divergence.stream),
        divergence.position,
        format!(
            "{whose} to do what it did before the crash ({}): {}",
            places.join(", "),
            divergence.expected
        ),
        &divergence.found,
        format!("{cause} Nothing was changed. {WAY_OUT}"),
    )
}
