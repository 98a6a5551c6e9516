//! The figures of *A Database Redo Log System Based on Virtual Memory Disk* (003): the log in the memory of two nodes.
//!
//! | module | one idea |
//! |---|---|
//! | [`delay`] | formulas 3 and 4: the delay of disk and memory by the size of a block |
//! | [`reliability`] | section 3.2: how often data are lost, and to what |
//! | [`paper`] | the paper's formulas and its printed tables |
//! | [`media`] | what a block is written to, and how long that takes |
//! | [`losses`] | closed forms of the time between two losses |
//! | [`nodes`] | the same by simulation: nodes that fail and return |
//! | [`scale`] | how large the experiments are |
//!
//! # Source
//! *A Database Redo Log System Based on Virtual Memory Disk* (003), sections 3.2 and 4.2.
//!
//! # Deviations
//! The paper counts the chance that all nodes are down at once. Data are lost when one pair is down while its tail is not
//! copied to a disk, and [`losses`] counts that.

pub mod delay;
pub mod losses;
pub mod media;
pub mod nodes;
pub mod paper;
pub mod reliability;
pub mod scale;

/// Lines of a table for a terminal: columns of numbers to the right, others to the left.
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
