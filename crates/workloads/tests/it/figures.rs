//! Makes every figure at a small scale, to test only the code. Checks files, columns and claims. The figures on real
//! nodes are made by a test of the program, because they start the program as a node.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use perdura_workloads::figures::memory_disk::real_nodes;
use perdura_workloads::figures::{FIGURES, Figure, Lab, Scale};

/// The number of threads that make figures. For many figures, a thread mostly waits for disks or for the end of a
/// measurement.
const MAKERS: usize = 4;

#[test]
fn every_figure_becomes_its_files_and_states_its_claims() {
    let next = AtomicUsize::new(0);
    let make_some = || {
        let lab = Lab::new(Scale::TINY, 1, 2, &|_| {});
        let folder = tempfile::tempdir().unwrap();
        // The last figures take longest, so they are made first.
        let is_here = |name: &str| !real_nodes::NAMES.contains(&name);
        let others = || {
            let mut figures = FIGURES.iter().rev().filter(|(name, _)| is_here(name));
            figures.nth(next.fetch_add(1, Ordering::Relaxed))
        };
        while let Some((name, make)) = others() {
            let figure = make(&lab).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            states_its_claims(&figure, name, folder.path());
        }
    };
    std::thread::scope(|scope| (0..MAKERS).for_each(|_| drop(scope.spawn(make_some))));
}

fn states_its_claims(figure: &Figure, name: &str, folder: &Path) {
    assert_eq!(figure.name, name);
    assert!(figure.claims.len() >= 3, "{name} claims something");
    assert!(!figure.rows.is_empty(), "{name} measured something");
    for row in &figure.rows {
        assert_eq!(
            row.len(),
            figure.columns.split(',').count(),
            "{name}: {row:?}"
        );
    }
    for path in figure.write(folder).unwrap() {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("NaN"), "{}", path.display());
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("json") => {
                let json: serde_json::Value = serde_json::from_str(&text).unwrap();
                assert_eq!(json["name"], name);
                assert_eq!(
                    json["claims"].as_array().unwrap().len(),
                    figure.claims.len()
                );
            }
            Some("csv") => assert_eq!(text.lines().count(), figure.rows.len() + 1),
            Some("svg") => assert!(text.starts_with("<svg") && text.ends_with("</svg>\n")),
            other => panic!("{name} wrote {other:?}"),
        }
    }
    assert!(figure.summary().contains(&figure.claims[0].what));
}
