//! Checks of the repository that the compiler does not make.
//!
//! * `cargo xtask layers`: a crate depends only on crates of lower layers.
//! * `cargo xtask tidy`: the house rules that can be checked in the text.
//! * `cargo xtask subjects`: the lengths of the subjects of commits.
//! * `cargo xtask census`: prints every counted item, crate by crate, with its place.
//! * `cargo xtask record`: records counts that have fallen; see `ratchet.rs`. It also writes the
//!   file of all messages, and the page with the verdicts on the papers' figures.
//!
//! Each check prints every fault with its place, and ends with exit code 1 if there is a fault.

mod census;
mod count;
mod files;
mod layers;
mod messages;
mod product;
mod ratchet;
mod scan;
mod subjects;
mod tidy;
mod verdicts;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask layers | cargo xtask tidy | cargo xtask subjects | cargo xtask census | cargo xtask record";

fn main() -> ExitCode {
    let verb = std::env::args().nth(1);
    let faults = match verb.as_deref() {
        Some("layers") => layers::check(&root()),
        Some("tidy") => tidy::check(&root()),
        Some("subjects") => subjects::check(&root()),
        Some("census") => census::print(&root()).map(|()| Vec::new()),
        Some("record") => record(&root()).map(|()| Vec::new()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match faults {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            for fault in &faults {
                eprintln!("{fault}");
            }
            eprintln!("{} fault(s)", faults.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn record(root: &Path) -> anyhow::Result<()> {
    // The page is a document, so it is written before the documents are read and counted.
    verdicts::record(root)?;
    let sources = product::read(root)?;
    messages::record(root, &sources.product)?;
    let found = count::find(&sources);
    ratchet::record(root, &count::rows(&sources, &found))
}

/// Returns the directory of the workspace, two levels above this crate.
fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .map_or_else(|| here.clone(), PathBuf::from)
}
