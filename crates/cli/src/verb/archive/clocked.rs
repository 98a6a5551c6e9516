//! The clock of a database in the status of its archive.

use perdura_archive::Manifest;
use perdura_base::moment::moment;
use serde::Serialize;

/// The database's clock, as the archive saw it.
#[derive(Serialize)]
pub struct Clocked {
    /// The time until which the archive has everything, microseconds since 1970.
    caught_up_us: u64,
    steps: Vec<ShownStep>,
}

/// A step of the clock: it was set back, jumped, or nothing was written for more than an hour.
#[derive(Serialize)]
struct ShownStep {
    before_epoch: u64,
    from_us: u64,
    to_us: u64,
}

impl Clocked {
    /// Returns the clock of a manifest.
    pub fn of(manifest: &Manifest) -> Clocked {
        let steps = manifest.clock.steps.iter().map(|step| ShownStep {
            before_epoch: step.epoch.0,
            from_us: step.from_us,
            to_us: step.to_us,
        });
        Clocked {
            caught_up_us: manifest.clock.seen_us,
            steps: steps.collect(),
        }
    }

    /// Returns the lines of a status about the clock.
    pub fn lines(&self) -> String {
        let mut text = match self.caught_up_us {
            0 => String::new(),
            seen => format!("complete  until {}\n", moment(seen)),
        };
        for step in &self.steps {
            let what = match step.to_us < step.from_us {
                true => "was set back",
                false => "jumped, or nothing was written,",
            };
            text += &format!(
                "clock     {what} from {} to {} before epoch {}\n",
                moment(step.from_us),
                moment(step.to_us),
                step.before_epoch
            );
        }
        text
    }
}
