//! Every figure at a scale at which only the machinery is tried: files, columns, claims.

use perdura_workloads::figures::{FIGURES, Lab, Scale};

#[test]
fn every_figure_becomes_its_files_and_states_its_claims() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::new(Scale::TINY, 1, 2, &|_| {});
    for (name, make) in FIGURES {
        let figure = make(&lab).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        assert_eq!(figure.name, name);
        assert!(figure.claims.len() >= 3, "{name} claims something");
        assert!(!figure.rows.is_empty(), "{name} measured something");
        for row in &figure.rows {
            assert_eq!(row.len(), figure.columns.len(), "{name}: {row:?}");
        }
        for path in figure.write(folder.path()).unwrap() {
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
}
