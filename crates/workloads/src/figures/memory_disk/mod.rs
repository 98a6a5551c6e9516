//! The figures of *A Database Redo Log System Based on Virtual Memory Disk* (003): the log in the memory of two nodes.
//!
//! | module | one idea |
//! |---|---|
//! | [`delay`] | formulas 3 and 4: the delay of disk and memory by the size of a block |
//! | [`reliability`] | section 3.2: the frequency and the causes of losses of data |
//! | `loss_claims` | the claims about losses of data |
//! | [`table2`] | table 2: TPC-C by users and blocks with the log on the disk; also without injected delays |
//! | [`table3`] | table 3: TPC-C by users and blocks with the log in memory, and the gain over table 2 |
//! | `gain_claims` | the claims about table 3 |
//! | [`tables`] | the runs of both tables, with the paper's delays injected |
//! | [`cell`] | a cell of the tables, and its gain in closed form |
//! | [`users`] | users who think and wait, in virtual and in real time |
//! | [`as_found`] | TPC-C without injected delays |
//! | [`paper`] | the paper's formulas and its printed tables |
//! | [`media`] | the media to which blocks are written, and the time of a write to each |
//! | [`losses`] | closed forms of the time between two losses |
//! | [`nodes`] | the time between two losses by simulation: nodes that fail and return |
//! | [`real_nodes`] | tables 2 and 3 on a mounted disk and on running nodes |
//! | [`scale`] | the sizes of the experiments |
//!
//! # Source
//! *A Database Redo Log System Based on Virtual Memory Disk* (003), sections 3.2 and 4.2.
//!
//! # Deviations
//! The paper computes the chance that all nodes are down at once. But data are already lost when one pair of nodes is
//! down while its tail is on no disk. [`losses`] computes the rate of such losses. The paper's tables need two
//! assumptions that the paper does not print: the size of a transaction's redo, and the think time ([`tables`]).

use self::cell::{FITTED_GAIN, REDO_KB};
use self::tables::Tables;
use super::Lab;

pub mod as_found;
pub mod cell;
pub mod delay;
mod gain_claims;
mod loss_claims;
pub mod losses;
pub mod media;
pub mod nodes;
pub mod paper;
pub mod real_nodes;
pub mod reliability;
pub mod scale;
pub mod table2;
pub mod table3;
pub mod tables;
pub mod users;

/// Returns texts that describe the assumptions and settings of tables 2 and 3.
fn setting(lab: &Lab<'_>, tables: &Tables) -> Vec<String> {
    let scale = &lab.scale.memory_disk;
    vec![
        format!(
            "TPC-C, {} warehouses of {} items and {} customers, page-addressed, in memory; each transaction is executed, in {:.0} us of a processor on average",
            scale.warehouses.warehouses,
            scale.warehouses.items,
            scale.warehouses.customers,
            tables.executed_us
        ),
        format!(
            "first assumption: users think {:.1} ms, uniform from half of it to one and a half: fitted to a gain of {FITTED_GAIN} at 100 users and 4 KB",
            1e3 * tables.think.as_secs_f64()
        ),
        format!(
            "second assumption: a transaction's redo is padded to B = {REDO_KB} KB (it logs {:.0} bytes), in blocks of L KB, each waited for by formula \
             3 (disk) or 4 (memory)",
            tables.logged_bytes
        ),
        format!(
            "clock: virtual, {} s for 500 users and as much longer for fewer, {} cores: executing takes the processor's time that it took here, waits and think times pass on the schedule's clock",
            scale.virtual_time.as_secs_f64(),
            lab.cores
        ),
    ]
}

/// Returns the lines of a table for a terminal. Columns of numbers are aligned to the right, and columns of text to
/// the left.
fn table(head: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let columns = head.iter().enumerate().map(|(column, name)| {
        let cells = || rows.iter().map(move |row| row[column].as_str());
        let width = cells()
            .chain([*name])
            .map(|cell| cell.chars().count())
            .max();
        let is_numeric = cells().all(|cell| cell.parse::<f64>().is_ok());
        (width.unwrap_or(0), is_numeric)
    });
    let columns: Vec<(usize, bool)> = columns.collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells
            .zip(&columns)
            .map(|(cell, (width, is_numeric))| match is_numeric {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(&mut head.iter().copied())];
    for row in rows {
        assert_eq!(row.len(), columns.len(), "a cell for each column");
        lines.push(line(&mut row.iter().map(String::as_str)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_a_table_are_as_wide_as_their_widest_cell() {
        let rows = [
            vec!["4".into(), "memory".into()],
            vec!["64".into(), "disk".into()],
        ];
        assert_eq!(
            table(&["KB", "on"], &rows),
            ["KB  on", " 4  memory", "64  disk"]
        );
    }
}
