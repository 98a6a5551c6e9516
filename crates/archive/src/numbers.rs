//! The numbers of ordered frames across runs. In each partition, a run continues the numbers of the runs before it.

use std::collections::BTreeMap;

use perdura_base::{Error, PartitionId, Result};

use crate::reader::Run;

/// The last number of each partition in the runs so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NumberChain {
    last: BTreeMap<PartitionId, u64>,
}

impl NumberChain {
    /// Adds the run after the last one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the run does not continue the numbers of a partition. The error names the partition, the
    /// expected number, and the number that the run has.
    pub fn follow(&mut self, run: &Run) -> Result<()> {
        let Some(frames) = run.frames() else {
            return Ok(());
        };
        for (partition, numbers) in &frames.numbers {
            let last = self.last.insert(*partition, numbers.last());
            if let Some(last) = last
                && Some(numbers.first) != last.checked_add(1)
            {
                return Err(Error::corrupt(
                    run.id().name(),
                    0,
                    format!("the ordered frame after number {last} of partition {partition}"),
                    format!("the one with number {}", numbers.first),
                    "An ordered frame is missing, or is there twice. Restore an earlier moment, or from a later backup.",
                ));
            }
        }
        Ok(())
    }
}
