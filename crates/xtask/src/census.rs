//! Prints each counted item and its place, to help lower the counts of [`count`](crate::count).

use std::path::Path;

use anyhow::Result;

use crate::count::{Measure, assertions, find, rows, wording};
use crate::product::read;

/// Prints the sizes and counts of the crates, the lengths of the sentences in the texts, and the place of each counted
/// item.
///
/// # Errors
/// A source that cannot be read.
pub fn print(root: &Path) -> Result<()> {
    let sources = read(root)?;
    let found = find(&sources);
    let rows = rows(&sources, &found);
    let names: Vec<&str> = Measure::ALL.iter().map(|m| m.name()).collect();
    println!(
        "| crate | lines | code | asserts/1000 | {} |",
        names.join(" | ")
    );
    println!("|---|---|---|---|{}", "---|".repeat(names.len()));
    let mut code = 0;
    for (folder, size) in assertions::sizes(&sources.product) {
        code += size.code;
        let numbers: Vec<String> = rows[&folder].iter().map(usize::to_string).collect();
        println!(
            "| {folder} | {} | {} | {} | {} |",
            size.lines,
            size.code,
            size.density(),
            numbers.join(" | ")
        );
    }
    let sums: Vec<String> = (0..names.len())
        .map(|at| rows.values().map(|row| row[at]).sum::<usize>().to_string())
        .collect();
    println!("| all | | {code} | | {} |\n", sums.join(" | "));
    println!("| texts | sentences | mean words | nine in ten | wording |\n|---|---|---|---|---|");
    for (folder, lengths) in wording::lengths(&sources) {
        let wording = found.iter();
        let wording = wording.filter(|one| one.folder == folder && one.measure == Measure::Wording);
        let mean = lengths.mean_tenths();
        println!(
            "| {folder} | {} | {}.{} | {} | {} |",
            lengths.count(),
            mean / 10,
            mean % 10,
            lengths.ninth_decile(),
            wording.count()
        );
    }
    for one in &found {
        println!("{} in {}: {}", one.measure.name(), one.folder, one.place);
    }
    Ok(())
}
