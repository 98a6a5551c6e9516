//! The experiments of paper 000 on real disks: directories that the caller names.
//!
//! | module | one idea |
//! |---|---|
//! | [`check`] | refusals before anything is measured |
//! | [`folders`] | new subdirectories, and their files out of the cache |
//! | [`laid_out`] | files whose space was written before |
//! | [`rates`] | the rates of the disks |
//! | [`beside`] | claims about real disks, and about their models |
//!
//! An experiment takes a [`Backing`] and asks it for its disks. The rest of the experiment is the same on every site.

pub mod beside;
pub mod check;
pub mod folders;
pub mod laid_out;
pub mod rates;

use std::path::PathBuf;

use anyhow::Result;
use serde_json::Value;

use self::folders::Folders;
use self::rates::Rates;
use super::lab::Plant;

/// The figures that can run on real disks.
pub const FIGURES: [&str; 4] = ["000-fig5", "000-fig6", "000-fig8", "000-fig9"];

/// The length of a timed run on real disks, as a multiple of the length on models. A real disk stalls from time to time,
/// and in a short run nothing may become durable.
const LONGER: u32 = 3;

/// The directories of real disks. An experiment with k disks of a kind uses the first k of that kind.
#[derive(Debug, Clone)]
pub struct RealDisks {
    /// The directories of log disks, at least one.
    pub logs: Vec<PathBuf>,
    /// The directories of image disks. Empty: images are in memory, and experiments with image disks are refused.
    pub images: Vec<PathBuf>,
}

/// The disks on which an experiment runs.
#[derive(Clone, Copy)]
pub enum Backing<'a> {
    /// Models over memory.
    Modelled,
    /// Directories of real disks.
    Real {
        /// The directories.
        disks: &'a RealDisks,
        /// The measured rates of the directories.
        rates: &'a Rates,
    },
}

impl Backing<'_> {
    /// Returns new, empty disks.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn plant(self, logs: usize, images: usize) -> Result<Plant> {
        let plant = Plant::new(logs, images);
        match self {
            Backing::Modelled => Ok(plant),
            Backing::Real { disks, .. } => Ok(plant.with_real(Folders::new(disks, logs, images)?)),
        }
    }

    /// Returns new, empty disks as [`plant`](Self::plant) does. The space of files was written before, so a new file
    /// costs no transfer.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn laid_out(self, logs: usize, images: usize) -> Result<Plant> {
        let plant = Plant::new(logs, images);
        match self {
            Backing::Modelled => Ok(plant),
            Backing::Real { disks, .. } => {
                let folders = Folders::new(disks, logs, images)?;
                Ok(plant.with_real(folders.laid_out()))
            }
        }
    }

    /// Returns the counts of log disks that this site has.
    #[must_use]
    pub fn log_counts(self, wanted: &[usize]) -> Vec<usize> {
        let most = match self {
            Backing::Modelled => usize::MAX,
            Backing::Real { disks, .. } => disks.logs.len(),
        };
        wanted
            .iter()
            .copied()
            .filter(|count| *count <= most)
            .collect()
    }

    /// Returns the counts of disks that this site has of both kinds.
    #[must_use]
    pub fn pair_counts(self, wanted: &[usize]) -> Vec<usize> {
        let most = match self {
            Backing::Modelled => usize::MAX,
            Backing::Real { disks, .. } => disks.images.len(),
        };
        let mut counts = self.log_counts(wanted);
        counts.retain(|count| *count <= most);
        counts
    }

    /// Returns the factor by which a timed run is longer than on models.
    #[must_use]
    pub fn longer(self) -> u32 {
        match self {
            Backing::Modelled => 1,
            Backing::Real { .. } => LONGER,
        }
    }

    /// Returns the name of the disks in progress messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Backing::Modelled => "modelled disks",
            Backing::Real { .. } => "real disks",
        }
    }

    /// Returns the cell of a row that names the rate of the disks.
    #[must_use]
    pub fn rate_cell(self, modelled_mbps: u64) -> Value {
        match self {
            Backing::Modelled => modelled_mbps.into(),
            Backing::Real { .. } => "real".into(),
        }
    }

    /// Returns lines about real disks for a figure's setting: number and rates, and which of the counts `wanted` are
    /// missing. Empty for modelled disks.
    #[must_use]
    pub fn setting(self, wanted: &[usize], counts: &[usize]) -> Vec<String> {
        let Backing::Real { disks, rates } = self else {
            return Vec::new();
        };
        let mut lines = vec![rates.describe(disks)];
        let missing: Vec<String> = wanted
            .iter()
            .filter(|count| !counts.contains(count))
            .map(ToString::to_string)
            .collect();
        if !missing.is_empty() {
            lines.push(format!(
                "not on real disks, because too few directories are given: points and claims with {} disks",
                missing.join(", ")
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disks(logs: usize, images: usize) -> RealDisks {
        let dirs = |count| vec![PathBuf::from("d"); count];
        RealDisks {
            logs: dirs(logs),
            images: dirs(images),
        }
    }

    #[test]
    fn points_that_need_more_disks_are_left_out_and_named() {
        let (disks, rates) = (disks(3, 2), Rates::default());
        let site = Backing::Real {
            disks: &disks,
            rates: &rates,
        };
        assert_eq!(site.log_counts(&[1, 2, 4]), [1, 2]);
        assert_eq!(site.pair_counts(&[2, 4]), [2]);
        assert_eq!(Backing::Modelled.pair_counts(&[2, 4]), [2, 4]);
        let lines = site.setting(&[1, 2, 4], &[1, 2]);
        assert!(lines[1].contains("with 4 disks"), "{lines:?}");
        assert_eq!(site.setting(&[1, 2], &[1, 2]).len(), 1);
        assert!(Backing::Modelled.setting(&[1, 2], &[1]).is_empty());
    }
}
