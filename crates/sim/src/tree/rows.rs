//! The rows of a tree in an open database, and the comparison with the expected rows.

use perdura_base::Error;
use perdura_recovery::Life;

use crate::report::Check;

use super::client::{State, TABLES};

/// Returns all rows of a database's tree. If the pages in memory must wait for the log, flushes the log.
pub(crate) fn rows_of(life: &Life) -> Result<State, Error> {
    let mut rows = State::new();
    let tree = life.trees.first().expect("the database has a tree");
    for table in TABLES {
        let mut from = Some(Vec::new());
        while let Some(at) = from {
            let mut leaf = Vec::new();
            let scanned = tree.scan(table, &at, |key, value| {
                leaf.push(((table, key.to_vec()), value.to_vec()));
            });
            from = match scanned {
                Ok(next) => next,
                Err(Error::LogFull(_)) => {
                    life.flush_all()?;
                    leaf.clear();
                    Some(at)
                }
                Err(error) => return Err(error),
            };
            rows.extend(leaf);
        }
    }
    Ok(rows)
}

/// Compares the tree of an open database with the expected rows.
pub(crate) fn compare(life: &Life, expected: &State) -> Check {
    let rows = rows_of(life).map_err(|error| format!("a scan: {error}"))?;
    if rows == *expected {
        return Ok(());
    }
    let missing = expected
        .iter()
        .find(|(spot, row)| rows.get(*spot) != Some(row));
    let beyond = rows.keys().find(|spot| !expected.contains_key(*spot));
    Err(format!(
        "{} rows, the model has {}; it has {missing:?}, and not {beyond:?}",
        rows.len(),
        expected.len()
    ))
}
