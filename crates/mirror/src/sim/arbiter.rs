//! A simulated arbiter: a register that stores the newest view.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::{Error, Result};

use crate::register::{Register, Swap};
use crate::view::View;

/// The treatment of operations by a simulated arbiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// The operation is done and reported as done.
    Answers,
    /// The operation is not done and fails.
    Fails,
    /// The operation is done and reported as failed.
    DoesAndFails,
    /// The operation fails, and is done later when the simulator calls [`SimRegister::land`].
    DoesLater,
}

#[derive(Default)]
struct Arbiter {
    view: Option<Vec<u8>>,
    mood: Option<Mood>,
    /// The views of swaps that were reported as failed. The arbiter may still carry out these swaps.
    late: VecDeque<View>,
    swaps: u64,
}

impl Arbiter {
    fn swap(&mut self, next: &View) -> Swap {
        let decode = |bytes: &Vec<u8>| View::decode(bytes).expect("what was stored");
        let before = self.view.as_ref().map_or(0, |bytes| decode(bytes).v);
        if before + 1 != next.v {
            return Swap::Lost;
        }
        self.view = Some(next.encode());
        self.swaps += 1;
        Swap::Done
    }
}

/// A simulated arbiter. A seed decides its answers.
#[derive(Clone, Default)]
pub struct SimRegister(Arc<Mutex<Arbiter>>);

impl SimRegister {
    /// Returns an arbiter without a view.
    #[must_use]
    pub fn new() -> SimRegister {
        SimRegister::default()
    }

    /// Sets the treatment of all later operations.
    pub fn set_mood(&self, mood: Mood) {
        self.0.lock().mood = Some(mood);
    }

    /// Returns the view in force.
    ///
    /// # Panics
    /// If the stored bytes are not a view.
    #[must_use]
    pub fn view(&self) -> Option<View> {
        let bytes = self.0.lock().view.clone();
        bytes.map(|bytes| View::decode(&bytes).expect("what was stored"))
    }

    /// Returns the number of swaps that were done.
    #[must_use]
    pub fn swaps(&self) -> u64 {
        self.0.lock().swaps
    }

    /// Carries out the oldest late swap if its view's number still directly follows the stored view's number.
    pub fn land(&self) {
        let mut arbiter = self.0.lock();
        if let Some(late) = arbiter.late.pop_front() {
            arbiter.swap(&late);
        }
    }

    fn timed_out() -> Error {
        Error::io("ask", "arbiter", std::io::ErrorKind::TimedOut.into())
    }
}

impl Register for SimRegister {
    fn read(&mut self) -> Result<Option<View>> {
        let mood = self.0.lock().mood;
        match mood {
            Some(Mood::Fails) => return Err(SimRegister::timed_out()),
            Some(Mood::Answers | Mood::DoesAndFails | Mood::DoesLater) | None => {}
        }
        Ok(self.view())
    }

    fn replace(&mut self, next: &View) -> Result<Swap> {
        let mut arbiter = self.0.lock();
        match arbiter.mood {
            None | Some(Mood::Answers) => return Ok(arbiter.swap(next)),
            Some(Mood::Fails) => {}
            Some(Mood::DoesAndFails) => {
                arbiter.swap(next);
            }
            Some(Mood::DoesLater) => arbiter.late.push_back(next.clone()),
        }
        Err(SimRegister::timed_out())
    }
}
