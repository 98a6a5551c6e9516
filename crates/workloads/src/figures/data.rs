//! The space that the figures of papers 002 and 003 need in their data folder.

use std::path::Path;

use super::scale::Scale;
use super::space::{Device, check_space, usable};

/// The log segments of a TPC-C database and those that are prepared ahead, bytes.
const LOG: u64 = 512 << 20;
/// The space for each customer of a TPC-C database in two images and in the log, bytes. A customer has some 3 items in
/// stock and an order.
const CUSTOMER: u64 = 12_000;
/// The number of districts of a warehouse.
const DISTRICTS: u64 = 10;
/// The space for small files, bytes.
const SMALL_FILES: u64 = 64 << 20;

/// The space of a figure of paper 002, in multiples of its table's size. The histories change pages of copies.
const TABLES_OF_ONE: u64 = 5;
/// The space of all figures of paper 002, in multiples of the table's size. Their histories remain until the end.
const TABLES_OF_ALL: u64 = 9;

/// Returns the space that a figure alone needs in its data folder, bytes. 0: it has no files there.
fn need(figure: &str, scale: &Scale) -> u64 {
    let tpcc = &scale.memory_disk.warehouses;
    let customers = u64::from(tpcc.warehouses) * DISTRICTS * u64::from(tpcc.customers);
    match figure {
        "003-delay" => SMALL_FILES,
        // Two databases, one with its log on the disk and one with its log on nodes.
        _ if figure.ends_with("-real") => LOG + 2 * customers * CUSTOMER,
        _ if figure.starts_with("003-table") => LOG + customers * CUSTOMER,
        _ if figure.starts_with("002-") => TABLES_OF_ONE * scale.logical.own_bytes() + SMALL_FILES,
        _ => 0,
    }
}

/// Returns the space that figures need, bytes. The figures run one after the other.
fn need_of_all(figures: &[&str], scale: &Scale) -> u64 {
    let needs = figures.iter().map(|figure| need(figure, scale));
    let most = needs.max().unwrap_or(0);
    let logical = figures.iter().filter(|figure| figure.starts_with("002-"));
    match logical.count() {
        ..2 => most,
        _ => most.max(TABLES_OF_ALL * scale.logical.own_bytes()),
    }
}

/// Checks the data folder `dir` for the figures `figures`. The figures run one after the other. `argument` named the folder,
/// which need not exist yet.
///
/// # Errors
/// A message that names the argument and the folder, and says what to do.
pub fn check(argument: &str, dir: &Path, figures: &[&str], scale: &Scale) -> Result<(), String> {
    let need = need_of_all(figures, scale);
    if need == 0 {
        return Ok(());
    }
    let there = dir.ancestors().find(|place| place.exists());
    let place = there.unwrap_or(Path::new("."));
    let _number = usable(argument, place)?;
    check_space(&Device {
        dirs: vec![place],
        need,
    })
    .map_err(|why| format!("{argument} {}: {why}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_grow_with_the_scale() {
        for figure in ["002-fig2a", "003-table2", "003-table3-real"] {
            let [small, full] = [Scale::SMALL, Scale::FULL].map(|scale| need(figure, &scale));
            assert!(0 < small && small < full, "{figure}");
        }
        // The most that was used at a time, as measured.
        assert!(need("002-fig2a", &Scale::SMALL) > 1_556_000_000);
        assert!(need("003-table2-real", &Scale::SMALL) > 641_000_000);
        assert!(need("003-table3", &Scale::FULL) > 2_400_000_000);
        // Not measured: the full scale of real media, and of all figures of paper 002.
        let real = need("003-table3-real", &Scale::FULL);
        assert!(real > 2 * 2_400_000_000, "two databases");
        assert_eq!(need("000-fig5", &Scale::FULL), 0, "it is in memory");
        let all = need_of_all(&["002-fig2a", "002-fig3"], &Scale::FULL);
        assert!(all > need("002-fig2a", &Scale::FULL) && all > 30_000_000_000);
    }

    #[test]
    fn a_folder_without_space_is_refused_before_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("a/b");
        let mut scale = Scale::FULL;
        check("--data", &data, &["003-delay"], &scale).unwrap();
        scale.memory_disk.warehouses.customers = u32::MAX;
        let why = check("--data", &data, &["003-delay", "003-table2"], &scale).unwrap_err();
        let named = format!("--data {}: ", data.display());
        assert!(
            why.starts_with(&named) && why.contains("are needed and"),
            "{why}"
        );
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let why = check("--data", &file, &["003-delay"], &scale).unwrap_err();
        assert!(why.contains("is not a directory"), "{why}");
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 1, "a check leaves no files");
    }
}
