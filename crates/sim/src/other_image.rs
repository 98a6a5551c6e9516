//! A restart after damage to the newest image. The older image must replace it.

use std::sync::Arc;

use perdura::Core;
use perdura_base::Result;
use perdura_base::error::Family;
use perdura_device::{CrashProfile, SimDisk};
use perdura_recovery::image::{directory_path, folder};
use perdura_recovery::{Anchor, RestartReport};
use perdura_steal::Steal;

use crate::over_core::damage_page;
use crate::report::Check;

/// An engine that can return the report of its restart.
pub(crate) trait Restarted: Sized {
    fn restart_report(&self) -> &RestartReport;
    fn checkpoint(&self) -> Result<()>;
}

impl Restarted for Core {
    fn restart_report(&self) -> &RestartReport {
        self.report()
    }

    fn checkpoint(&self) -> Result<()> {
        self.checkpoint_now()
    }
}

impl Restarted for Steal {
    fn restart_report(&self) -> &RestartReport {
        self.report()
    }

    fn checkpoint(&self) -> Result<()> {
        self.checkpoint_now()
    }
}

/// The inputs of a check that the older image can replace the newest image. They are the engine, the disks before the
/// engine's restart, a function that opens a second engine, and a comparison with the model.
pub(crate) struct OtherImage<'a, E, O, C> {
    pub engine: &'a E,
    pub before: &'a [Arc<SimDisk>],
    /// The disks that hold the pages of images.
    pub image_disks: &'a [Arc<SimDisk>],
    pub open: O,
    /// Compares the second engine with the rows of the world's engine.
    pub compare: C,
}

impl<E, O, C> OtherImage<'_, E, O, C>
where
    E: Restarted,
    O: Fn(&[Arc<SimDisk>]) -> Result<E>,
    C: Fn(&E) -> Check,
{
    /// Damages the newest image, wholly or in one page. A restart from the older image must then lead to the rows of
    /// the world's engine. Another restart, after the next checkpoint, must lead to them too.
    pub fn check(&self, anchor: &Anchor, choice: u64) -> Check {
        let Some(newest) = anchor.newest_image() else {
            return Ok(());
        };
        let report = self.engine.restart_report();
        let directory = directory_path(newest, anchor.image(newest).k);
        let both = anchor.images.iter().all(|image| image.is_complete());
        let one_page = choice.is_multiple_of(2) && report.pages_fetched > 0;
        if one_page {
            let pages = format!("{}/pages", folder(newest));
            for disk in self.image_disks {
                damage_page(disk, &pages, choice / 2);
            }
        } else if !self.before[0].flip(&directory, 40, 3) {
            return Err(format!(
                "{directory} is not there although the anchor names it"
            ));
        }
        let other = match (self.open)(self.before) {
            Ok(other) => other,
            Err(error) if both => {
                return Err(format!("the older image does not stand in: {error}"));
            }
            Err(error) if error.family() == Family::Corruption => return Ok(()),
            Err(error) => return Err(format!("a damaged image: {error}")),
        };
        // If only one page was damaged, the database may start from its only image, because the image may not list
        // that page.
        if !both && !one_page {
            return Err("the only image is damaged and yet the database started".to_owned());
        }
        self.same(&other, "from the older image")?;
        other
            .checkpoint()
            .map_err(|error| format!("the repairing checkpoint: {error}"))?;
        for disk in self.before {
            disk.crash(CrashProfile::Nothing, choice);
        }
        drop(other);
        let again = (self.open)(self.before);
        let again = again.map_err(|error| format!("after the repairing checkpoint: {error}"))?;
        self.same(&again, "after the repairing checkpoint")
    }

    fn same(&self, other: &E, when: &str) -> Check {
        let kept = other.restart_report().durable_epoch;
        if kept < self.engine.restart_report().durable_epoch {
            return Err(format!("{when}: acknowledged epochs are missing"));
        }
        (self.compare)(other).map_err(|what| format!("{when}: {what}"))
    }
}
