//! The search for a time among moments, which come in the order of their epochs.
//!
//! A clock that is set back shows the same times twice. So the moments are read in *parts*: a new part begins where the
//! clock went back by more than [`TOLERANCE_US`]. Within a part the highest time so far counts, so small corrections of
//! the clock make no difference. A time is ambiguous if a later part has earlier times.
//!
//! ```text
//!  epochs   1 ... 99      100        101 ... 5000
//!  clock    12:00 14:00   14:00+1d   14:01   18:00
//!           └──── part 1 ────────┘   └── part 2 ─┘     15:00 is in both: epoch 99 or an epoch of part 2
//! ```
//!
//! A run that cannot be read is a *hole*. A time next to a hole is not known.

use perdura_archive::manifest::clock::TOLERANCE_US;
use perdura_archive::{Moment, RunId};
use perdura_base::moment::moment;
use perdura_base::{Error, Result};

/// A part of the line in which the clock was not set back.
#[derive(Debug)]
struct ClockPart {
    first: Moment,
    /// The last moment that is not later than the time.
    found: Option<Moment>,
    /// The highest time so far.
    max_us: u64,
    /// The hole between `found` and the next moment.
    hole: Option<RunId>,
}

/// The moments of an archive around one time.
#[derive(Debug)]
pub(crate) struct Timeline {
    time_us: u64,
    parts: Vec<ClockPart>,
    /// The hole after the last moment so far.
    hole: Option<RunId>,
    last: Option<Moment>,
}

impl Timeline {
    /// Returns an empty line for the search for a time.
    pub(crate) fn new(time_us: u64) -> Timeline {
        Timeline {
            time_us,
            parts: Vec::new(),
            hole: None,
            last: None,
        }
    }

    /// Visits the next moment.
    pub(crate) fn note(&mut self, moment: Moment) {
        debug_assert!(moment.wall_us > 0, "a moment without a time has no place");
        debug_assert!(
            self.last.is_none_or(|last| last.epoch < moment.epoch),
            "moments come in the order of their epochs"
        );
        self.last = Some(moment);
        let hole = self.hole.take();
        let is_set_back =
            |part: &ClockPart| moment.wall_us.saturating_add(TOLERANCE_US) < part.max_us;
        if self.parts.last().is_none_or(is_set_back) {
            self.parts.push(ClockPart {
                first: moment,
                found: None,
                max_us: moment.wall_us,
                hole: None,
            });
        }
        let Some(part) = self.parts.last_mut() else {
            unreachable!("a part was added");
        };
        assert!(part.first.epoch <= moment.epoch, "a part grows at its end");
        let was_passed = part.max_us > self.time_us;
        part.max_us = part.max_us.max(moment.wall_us);
        if part.max_us <= self.time_us {
            part.found = Some(Moment {
                wall_us: part.max_us,
                ..moment
            });
        } else if !was_passed && part.found.is_some() {
            part.hole = hole;
        }
    }

    /// Notes that the next moments are not known, because a run cannot be read.
    pub(crate) fn note_hole(&mut self, run: RunId) {
        self.hole.get_or_insert(run);
    }

    /// Notes that the state of the last moment was still current at a later time.
    pub(crate) fn vouch(&mut self, wall_us: u64) {
        let time_us = self.time_us;
        if let Some(part) = self.parts.last_mut() {
            if part.max_us <= time_us && part.found.is_some() {
                // The last state is in a run that cannot be read.
                part.hole = self.hole;
            }
            part.max_us = part.max_us.max(wall_us);
        }
    }

    /// Returns the last visited moment that is not later than the time. `asked` is for the error's text.
    ///
    /// # Errors
    /// [`Error::Usage`] for a time before the first moment, or after the last one and its vouched time. Also for an
    /// ambiguous time, and for one next to a hole.
    pub(crate) fn at(&self, asked: &str) -> Result<Moment> {
        let found = self.parts.iter().filter(|part| part.found.is_some());
        let found: Vec<&ClockPart> = found.collect();
        let is_there = found.iter().any(|part| self.time_us <= part.max_us);
        match found[..] {
            _ if !is_there => Err(Error::Usage(self.not_there(asked))),
            [part] => match (part.hole, part.found) {
                (None, Some(found)) => {
                    assert!(
                        found.wall_us <= self.time_us,
                        "what came later is not restored"
                    );
                    Ok(found)
                }
                (Some(run), _) => Err(Error::Usage(format!(
                    "the commits around {asked} are in {}, which cannot be read. Give an epoch, or a time outside of it",
                    run.name()
                ))),
                (None, None) => unreachable!("the part covers the time"),
            },
            _ => Err(Error::Usage(self.ambiguous(asked, &found))),
        }
    }

    fn ambiguous(&self, asked: &str, parts: &[&ClockPart]) -> String {
        debug_assert!(parts.len() > 1, "one part is not ambiguous");
        let epochs: Vec<String> = parts
            .iter()
            .filter_map(|part| part.found)
            .map(|found| format!("epoch {} ({})", found.epoch, moment(found.wall_us)))
            .collect();
        let set_back: Vec<String> = self.parts[1..]
            .iter()
            .map(|part| part.first.epoch.to_string())
            .collect();
        format!(
            "{asked} is ambiguous, because the clock was set back before epoch {}. Give one of its epochs: {}",
            set_back.join(" and before epoch "),
            epochs.join(", ")
        )
    }

    fn not_there(&self, asked: &str) -> String {
        let Some((first, last)) = self.parts.first().zip(self.last) else {
            return "the archive lists no moments, so it knows no times. Give an epoch".into();
        };
        let first = first.first;
        assert!(first.epoch <= last.epoch, "a line has a direction");
        let until = self.parts.last().map_or(last.wall_us, |part| part.max_us);
        let mut text = format!(
            "{asked} is not in the archive. Its moments are from {} (epoch {}) to {} (epoch {})",
            moment(first.wall_us),
            first.epoch,
            moment(last.wall_us),
            last.epoch
        );
        if until > last.wall_us {
            text += &format!(", which was still the last one at {}", moment(until));
        }
        if let Some(run) = self.hole {
            text += &format!(
                ". The commits after it are in {}, which cannot be read",
                run.name()
            );
        }
        text + ". Without --at the last moment is restored"
    }
}

#[cfg(test)]
mod tests {
    use perdura_archive::EpochRange;
    use perdura_base::Epoch;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn line(moments: &[(u64, u64)], time: u64) -> Timeline {
        let mut line = Timeline::new(time * SECOND);
        for (epoch, second) in moments {
            line.note(Moment {
                epoch: Epoch(*epoch),
                wall_us: second * SECOND,
            });
        }
        line
    }

    fn run() -> RunId {
        RunId {
            epochs: EpochRange::new(Epoch(6), Epoch(9)).unwrap(),
            level: 0,
            generation: 0,
        }
    }

    #[test]
    fn a_time_is_the_last_moment_that_is_not_behind_it() {
        let moments = [(3, 100), (5, 200), (9, 200), (12, 300)];
        for (time, epoch) in [(100, 3), (199, 3), (200, 9), (299, 9), (300, 12)] {
            let found = line(&moments, time).at("it").unwrap();
            assert_eq!(found.epoch, Epoch(epoch), "{time}");
        }
        for time in [0, 99, 301, 1 << 40] {
            let refused = line(&moments, time).at("it").unwrap_err().to_string();
            assert!(
                refused.contains("(epoch 3)") && refused.contains("(epoch 12)"),
                "{refused}"
            );
        }
        let none = line(&[], 5).at("it").unwrap_err();
        assert!(none.to_string().contains("lists no moments"), "{none}");
    }

    #[test]
    fn a_small_correction_of_the_clock_makes_no_difference() {
        let mut line = Timeline::new(500_500);
        for (epoch, wall_us) in [(3, 100_000), (5, 500_000), (9, 499_000), (12, 501_000)] {
            line.note(Moment {
                epoch: Epoch(epoch),
                wall_us,
            });
        }
        assert_eq!(line.at("it").unwrap().epoch, Epoch(9));
    }

    /// One commit while the clock was a day ahead made every later moment of that day unreachable: a restore returned
    /// the state before that commit, and said nothing.
    #[test]
    fn a_time_of_a_clock_that_was_set_back_names_its_candidates() {
        let day = 86_400;
        let moments = [
            (3, 100),
            (99, 200),
            (100, 200 + day),
            (101, 201),
            (5000, 600),
        ];
        let refused = line(&moments, 500).at("it").unwrap_err().to_string();
        assert!(
            refused.contains("epoch 99 (") && refused.contains("epoch 101 ("),
            "{refused}"
        );
        assert!(refused.contains("set back before epoch 101"), "{refused}");
        for time in [100, 150, 199] {
            assert_eq!(
                line(&moments, time).at("it").unwrap().epoch,
                Epoch(3),
                "{time}"
            );
        }
        // The clock showed this time only before it was set back. Later commits are there nevertheless.
        let refused = line(&moments, 700).at("it").unwrap_err().to_string();
        assert!(
            refused.contains("epoch 99 (") && refused.contains("epoch 5000 ("),
            "{refused}"
        );
    }

    #[test]
    fn a_time_next_to_a_run_that_cannot_be_read_names_the_run() {
        let with_hole = |time| {
            let mut all = line(&[(3, 100), (5, 200)], time);
            all.note_hole(run());
            all.note(Moment {
                epoch: Epoch(9),
                wall_us: 300 * SECOND,
            });
            all
        };
        for (time, epoch) in [(100, 3), (199, 3), (300, 9)] {
            assert_eq!(
                with_hole(time).at("it").unwrap().epoch,
                Epoch(epoch),
                "{time}"
            );
        }
        for time in [200, 250, 299] {
            let refused = with_hole(time).at("it").unwrap_err().to_string();
            assert!(refused.contains(&run().name()), "{time}: {refused}");
        }
        let mut at_the_end = line(&[(3, 100), (5, 200)], 250);
        at_the_end.note_hole(run());
        let refused = at_the_end.at("it").unwrap_err().to_string();
        assert!(refused.contains(&run().name()), "{refused}");
    }

    #[test]
    fn an_idle_hour_has_the_last_state_as_far_as_the_archive_vouches() {
        let vouched = |time| {
            let mut all = line(&[(3, 100), (5, 200)], time);
            all.vouch(900 * SECOND);
            all
        };
        for time in [200, 500, 900] {
            assert_eq!(vouched(time).at("it").unwrap().epoch, Epoch(5), "{time}");
        }
        // The run after it cannot be read. So the last state is not known, and an older one is no answer.
        for time in [200, 500, 900] {
            let mut all = line(&[(3, 100), (5, 200)], time);
            all.note_hole(run());
            all.vouch(900 * SECOND);
            let refused = all.at("it").unwrap_err().to_string();
            assert!(refused.contains(&run().name()), "{time}: {refused}");
        }
        let refused = vouched(901).at("it").unwrap_err().to_string();
        assert!(refused.contains("still the last one"), "{refused}");
    }
}
