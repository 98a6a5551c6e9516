//! Refusals before anything is measured: directories that are missing, not writable, or too small.

use std::collections::BTreeMap;

use super::super::scale::Scale;
use super::super::space::{Device, check_space, notes_on, usable};
use super::{FIGURES, LONGER, RealDisks};

/// The space of a row in a log with its load, bytes: its values before and after, with the heads of two frames.
const LOADED_ROW: u64 = 640;
/// The space of a transaction's records in a log, bytes, for two messages and their frames.
const LOGGED_TXN: u64 = 1_500;
/// The space of a row in two images, bytes.
const IMAGED_ROW: u64 = 1_000;
/// The space of segments that are prepared ahead, bytes.
const PREPARED: u64 = 256 << 20;
/// The bytes that a log grows by in a second of figure 9, at most. The client limits them, not the disk.
const LOGGED_SECOND: u64 = 400_000_000;

/// The free space that an experiment needs, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Need {
    /// The space in each directory of a log disk.
    log: u64,
    /// The space in each directory of an image disk.
    image: u64,
}

impl Need {
    /// Returns the need of a figure. The first disk of each kind holds all data of that kind alone in some point.
    fn of(figure: &str, scale: &Scale) -> Need {
        let images = scale.rows * IMAGED_ROW;
        let log = match figure {
            "000-fig9" => {
                let seconds = ((scale.warm_up + scale.measured) * LONGER).as_millis();
                let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
                LOGGED_SECOND.saturating_mul(seconds) / 1000 + scale.rows * LOADED_ROW
            }
            _ => scale.rows * LOADED_ROW + scale.txns * LOGGED_TXN,
        };
        Need {
            log: log + PREPARED,
            image: images + PREPARED / 2,
        }
    }

    /// Returns the need of several figures, which run one after the other.
    fn most(figures: &[&str], scale: &Scale) -> Need {
        let needs = figures.iter().map(|figure| Need::of(figure, scale));
        needs.fold(Need { log: 0, image: 0 }, |a, b| Need {
            log: a.log.max(b.log),
            image: a.image.max(b.image),
        })
    }
}

/// Checks the directories for the figures `figures`. Returns notes for the user.
///
/// # Errors
/// A message that names the directory and says what to do.
pub fn check(disks: &RealDisks, figures: &[&str], scale: &Scale) -> Result<Vec<String>, String> {
    let figures: Vec<&str> = figures
        .iter()
        .copied()
        .filter(|figure| FIGURES.contains(figure))
        .collect();
    check_counts(disks, &figures)?;
    let need = Need::most(&figures, scale);
    let logs = disks.logs.iter().map(|dir| ("--log-dir", dir, need.log));
    let images = disks
        .images
        .iter()
        .map(|dir| ("--image-dir", dir, need.image));
    let mut devices: BTreeMap<u64, Device<'_>> = BTreeMap::new();
    for (argument, dir, bytes) in logs.chain(images) {
        let device = devices.entry(usable(argument, dir)?).or_default();
        device.dirs.push(dir);
        device.need += bytes;
    }
    let mut notes = Vec::new();
    for device in devices.values() {
        check_space(device)?;
        notes.extend(notes_on(device));
    }
    Ok(notes)
}

/// Fails if there are too few directories for a figure.
fn check_counts(disks: &RealDisks, figures: &[&str]) -> Result<(), String> {
    if figures.is_empty() {
        return Err(format!(
            "--log-dir and --image-dir are for the figures {}",
            FIGURES.join(", ")
        ));
    }
    if disks.logs.is_empty() {
        return Err(
            "--image-dir needs --log-dir: name a directory on each log disk as well".to_owned(),
        );
    }
    let fewest = disks.logs.len().min(disks.images.len());
    if figures.contains(&"000-fig8") && fewest < 2 {
        return Err(format!(
            "000-fig8 needs 2 or 4 disks of each kind, and there are {} --log-dir and {} --image-dir: name at least \
             two directories of each kind",
            disks.logs.len(),
            disks.images.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    fn disks(logs: &[&Path], images: &[&Path]) -> RealDisks {
        let paths = |dirs: &[&Path]| dirs.iter().map(PathBuf::from).collect();
        RealDisks {
            logs: paths(logs),
            images: paths(images),
        }
    }

    #[test]
    fn needs_grow_with_the_scale() {
        for figure in FIGURES {
            let [small, full] = [Scale::SMALL, Scale::FULL].map(|scale| Need::of(figure, &scale));
            assert!(small.log < full.log && small.image < full.image, "{figure}");
        }
        let all = Need::most(&FIGURES, &Scale::FULL);
        assert!(
            FIGURES
                .iter()
                .all(|figure| Need::of(figure, &Scale::FULL).log <= all.log)
        );
    }

    #[test]
    fn disks_that_share_a_device_are_noted_and_not_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        let notes = check(&disks(&[at, at], &[]), &["000-fig6"], &Scale::TINY).unwrap();
        assert!(
            notes[0].ends_with("are on one device: they share its rate"),
            "{notes:?}"
        );
        let left = fs::read_dir(at).unwrap().count();
        assert_eq!(left, 0, "a check leaves no files");
    }

    #[test]
    fn too_few_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        let refused =
            |disks: &RealDisks, figure: &str| check(disks, &[figure], &Scale::TINY).unwrap_err();
        assert!(refused(&disks(&[at], &[]), "000-fig7").contains("are for the figures"));
        assert!(refused(&disks(&[], &[at]), "000-fig6").contains("needs --log-dir"));
        let why = refused(&disks(&[at, at], &[at]), "000-fig8");
        assert!(why.contains("2 --log-dir and 1 --image-dir"), "{why}");
    }
}
