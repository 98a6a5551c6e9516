//! The moments of an archive as ranges, for display. Each range has a grain.

use perdura_base::{Epoch, Result};

use crate::store::Store;

/// A range of epochs from neighbouring runs without combined records, or from one run with combined records. In the
/// first case each epoch is a moment. In the second case only the epochs that the run lists are moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first epoch.
    pub first: Epoch,
    /// The last epoch.
    pub last: Epoch,
    /// The wall clocks of the first and the last listed moment, microseconds since 1970.
    pub wall_us: (u64, u64),
    /// The number of listed moments. `None`: each epoch is a moment.
    pub moments: Option<usize>,
}

impl Range {
    /// Returns the mean time between two moments, microseconds. 0: each epoch is a moment.
    #[must_use]
    pub fn grain_us(&self) -> u64 {
        let Some(moments) = self.moments else {
            return 0;
        };
        let gaps = u64::try_from(moments.saturating_sub(1)).unwrap_or(u64::MAX);
        let (from, to) = self.wall_us;
        debug_assert!(from <= to, "wall clocks of moments do not fall");
        (to - from).checked_div(gaps).unwrap_or(to - from)
    }
}

/// Returns the ranges of an archive's moments. Neighbouring runs without combined records form one range. Each run with
/// combined records forms a separate range.
///
/// # Errors
/// Those of opening a run.
pub fn ranges(store: &Store) -> Result<Vec<Range>> {
    let mut ranges: Vec<Range> = Vec::new();
    for id in store.manifest().runs() {
        let run = store.open_run(id)?;
        let list = run.moments().list();
        let wall = |moment: Option<&crate::run::Moment>| moment.map(|m| m.wall_us);
        let before = ranges.last().map_or(0, |range| range.wall_us.1);
        let is_combined = run.header().only_listed_moments;
        let own = Range {
            first: id.epochs.begin,
            last: id.epochs.last(),
            wall_us: (
                wall(list.first()).unwrap_or(before),
                wall(list.last()).unwrap_or(before),
            ),
            moments: is_combined.then_some(list.len()),
        };
        match ranges.last_mut() {
            Some(range) if range.moments.is_none() && own.moments.is_none() => {
                range.last = own.last;
                range.wall_us.1 = own.wall_us.1;
            }
            _ => ranges.push(own),
        }
    }
    Ok(ranges)
}
