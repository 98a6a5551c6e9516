//! Commands that read large sources in steps, with other clients served in between.
//!
//! A command that meets a large source returns [`Work`] instead of a reply. The client then has a *job* (see
//! [`crate::jobs`]). Until the job ends, the client is blocked like a client of BLPOP, and its later requests wait. In
//! each round of the loop a job takes one step, in a transaction that commits at the step's end. The keys that the
//! command reads are watched, so that all steps see one state of the data. If a watched key has changed, the command
//! begins again. After three attempts the command runs in one transaction beside the loop ([`crate::beside`]), as it
//! does within MULTI. Beside the loop the same code runs as a single step without a limit.

mod building;
mod copying;
mod joining;
mod keys;
mod pushing;
mod reading;
mod restoring;
mod sorting;
mod walk;
mod whole;
mod writing;

use super::{Data, Done, Stop};
use crate::engine::types::Texts;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use crate::scans::Scan;
use perdura_base::num::to_u64;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use building::{Building, are_rows};
pub(crate) use copying::{Copying, Purpose};
pub(crate) use joining::{Joined, Joining};
pub(crate) use keys::Keys;
pub(crate) use pushing::Pushing;
pub(crate) use reading::Reading;
pub(crate) use restoring::Restoring;
pub(crate) use sorting::{Sorted, Wanted};
pub(crate) use walk::Walk;
pub(crate) use whole::{Parts, Whole};
pub(crate) use writing::{Destination, Fold, Given, Origin, Writing};

/// The duration of a step.
const STEP: Duration = Duration::from_millis(1);
/// The number of elements between two looks at the clock.
pub(crate) const STRIDE: u64 = 32;

/// The cost of a page of a long string, in elements.
pub(crate) const PAGE_COST: u64 = 16;
/// The approximate number of bytes of a long string that fit in one page.
const PAGE_BYTES: usize = 16 * 1024;

/// Returns the cost of reading `bytes` bytes of a long string, in elements.
pub(crate) fn text_cost(bytes: usize) -> u64 {
    to_u64(bytes.div_ceil(PAGE_BYTES)) * PAGE_COST
}

/// The number of bytes of room in the log that a transaction requests for each element in addition to its text.
const ADMITTED_BYTES: usize = 264;
/// The maximum number of bytes in the log that the results of one step need.
const FOUND_BYTES: usize = 4 << 20;

/// Returns the number of bytes that the log must have room for before these texts are stored.
fn admitted(texts: &Texts) -> usize {
    match texts.len() {
        0 => 0,
        count => texts.bytes() + count * ADMITTED_BYTES + FOUND_BYTES,
    }
}

/// The progress of a command after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is more to do.
    More,
    /// Everything has been read.
    Complete,
    /// A source has changed between two steps, so the command must begin again.
    Changed,
}

/// A command in progress, with partly read sources.
pub(crate) trait Work: Debug + Send {
    /// Returns the indexes of the arguments that name the command's sources: by default only argument 1.
    fn sources(&self, _: &Args<'_>) -> Range<usize> {
        1..2
    }

    /// Returns whether the command must begin again if one of its sources changes from now on.
    fn reads(&self) -> bool {
        true
    }

    /// Returns the walk that must hear of every change of the client's database between two steps. `None`: the command
    /// needs to hear only of changes of its sources.
    fn scan(&self) -> Option<&Arc<Scan>> {
        None
    }

    /// Continues until the step is over. The transaction may abort and call this method again. So an implementation
    /// opens all sources before it changes state. A writing implementation must begin each call with the state from the
    /// last call of [`committed`](Self::committed).
    fn step(
        &mut self,
        data: &mut Data<'_, '_>,
        args: &Args<'_>,
        step: &mut Step,
    ) -> Result<Progress, Stop>;

    /// Notes that the transaction of the last step has committed.
    fn committed(&mut self) {}

    /// Writes the result that the command stores, in the transaction of the last step.
    fn store(&mut self, _: &mut Data<'_, '_>, _: &Args<'_>) -> Done {
        Ok(())
    }

    /// Replies after the transaction has committed.
    fn reply(&mut self, out: &mut Out<'_>);

    /// Returns the memory of this work, bytes.
    fn bytes(&self) -> usize;

    /// Returns the number of bytes that the log must have room for before the result is stored. The job waits for this
    /// room. Without that wait the transaction might be retried again and again.
    fn logged(&self) -> usize {
        0
    }
}

/// The limits that decide whether a command runs in steps, and how long a step is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    /// A source with more elements than this is read in steps.
    pub long: u64,
    /// The greatest number of elements of a step.
    pub elements: u64,
}

impl Default for Steps {
    fn default() -> Self {
        Steps {
            long: 10_000,
            elements: u64::MAX,
        }
    }
}

/// One step, which ends after a time or a number of elements.
#[derive(Debug)]
pub(crate) struct Step {
    left: u64,
    until_look: u64,
    end: Option<Instant>,
}

impl Step {
    /// Returns a step of ordinary length.
    pub(crate) fn new(steps: Steps) -> Self {
        Step {
            left: steps.elements.max(1),
            until_look: STRIDE,
            end: Some(Instant::now() + STEP),
        }
    }

    /// Returns a step that ends when everything has been done.
    fn endless() -> Self {
        Step {
            left: u64::MAX,
            until_look: u64::MAX,
            end: None,
        }
    }

    /// Returns the number of elements that may still be read.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Returns a step of this number of elements, whatever time they take.
    fn of(elements: u64) -> Self {
        Step {
            left: elements,
            ..Step::endless()
        }
    }

    /// Returns whether the step ends only when everything has been done.
    pub(crate) fn is_endless(&self) -> bool {
        self.end.is_none()
    }

    /// Returns the progress after a step that wrote elements. `complete` means that all elements are written. The
    /// transaction that stores the result must not also write elements, because a transaction may be undone and run
    /// again. An endless step is a single transaction and may write elements and store the result.
    fn after_writing(&self, complete: bool) -> Progress {
        match complete && self.is_endless() {
            true => Progress::Complete,
            false => Progress::More,
        }
    }

    /// Returns the maximum number of elements to read before the next call of [`spend`](Self::spend).
    pub(crate) fn stride(&self) -> u64 {
        self.left.min(STRIDE)
    }

    /// Notes that `elements` elements were read. Returns `false` if the step is over.
    pub(crate) fn spend(&mut self, elements: u64) -> bool {
        self.left = self.left.saturating_sub(elements);
        if elements < self.until_look {
            self.until_look -= elements;
            return self.left > 0;
        }
        self.until_look = STRIDE;
        self.left > 0 && self.end.is_none_or(|end| Instant::now() < end)
    }
}

/// Runs work to its end at once.
pub(super) fn finish(
    work: &mut dyn Work,
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    out: &mut Out<'_>,
) -> Done {
    match work.step(data, args, &mut Step::endless())? {
        Progress::Complete => {}
        Progress::More | Progress::Changed => {
            return Err("ERR the value has not as many elements, or bytes, as it says".into());
        }
    }
    work.store(data, args)?;
    work.reply(out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_ends_after_its_elements_or_its_time() {
        let steps = Steps {
            long: 0,
            elements: 5,
        };
        let mut step = Step::new(steps);
        assert_eq!(step.stride(), 5);
        assert!(step.spend(4));
        assert_eq!(step.stride(), 1);
        assert!(!step.spend(1));
        let mut step = Step::new(Steps::default());
        std::thread::sleep(STEP);
        assert!(step.spend(1), "the clock is not read each time");
        assert!(!step.spend(STRIDE));
        assert!(Step::endless().spend(u64::MAX / 2));
    }
}
