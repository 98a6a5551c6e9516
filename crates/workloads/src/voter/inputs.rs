//! Phone calls, each a vote for a contestant.
//!
//! A phone number is a real area code and seven random digits. Half of the calls from an area vote for the area's
//! favourite. One call in a hundred names a contestant that does not exist.
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), section V-A. The paper took the workload from VoltDB's Voter
//! application.

use fastrand::Rng;
use perdura_base::checksum::mix64;

use super::areas::{AREA_CODES, area_codes};

/// The number of phone numbers of an area code.
pub const NUMBERS_OF_AREA: u64 = 10_000_000;
/// The number of a contestant that does not exist.
pub const NO_CONTESTANT: u8 = 255;
/// The names of the contestants that an election may have. The paper has six.
pub const CONTESTANTS: [&str; 12] = [
    "Ada Birch",
    "Bruno Cedar",
    "Clara Dogwood",
    "David Elm",
    "Edith Fir",
    "Felix Gum",
    "Greta Hazel",
    "Hugo Ivy",
    "Irene Juniper",
    "Jonas Kapok",
    "Karin Larch",
    "Louis Maple",
];

/// The settings of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Election {
    /// The number of contestants, 6 in the paper. They are numbered from 1.
    pub contestants: u8,
    /// The number of votes that a phone number has. The paper says 2.
    pub votes_per_phone: u8,
}

impl Default for Election {
    fn default() -> Election {
        Election {
            contestants: 6,
            votes_per_phone: 2,
        }
    }
}

impl Election {
    /// Fails if a number is out of its range.
    ///
    /// # Errors
    /// The reason, in words.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=CONTESTANTS.len()).contains(&usize::from(self.contestants)) {
            return Err(format!("there are 1 to {} contestants", CONTESTANTS.len()));
        }
        if self.votes_per_phone == 0 {
            return Err("a phone number has at least one vote".into());
        }
        Ok(())
    }
}

/// A phone call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The phone number: area code and seven digits.
    pub phone: u64,
    /// The number of the contestant that the call votes for.
    pub contestant: u8,
}

/// The sequence of one worker's calls.
#[derive(Debug, Clone)]
pub struct Calls {
    rng: Rng,
    contestants: u8,
    areas: Vec<Area>,
}

#[derive(Debug, Clone, Copy)]
struct Area {
    code: u16,
    favourite: u8,
}

impl Calls {
    /// Returns the calls that a worker takes.
    #[must_use]
    pub fn new(election: Election, seed: u64, worker: usize) -> Calls {
        assert!(election.contestants > 0, "somebody stands for election");
        let worker = u64::try_from(worker).expect("a number of a thread");
        // The favourites depend only on the seed, so all workers have the same favourites.
        let mut taste = Rng::with_seed(mix64(seed));
        let areas = area_codes().map(|(code, _)| Area {
            code,
            favourite: taste.u8(1..=election.contestants),
        });
        Calls {
            areas: areas.collect(),
            rng: Rng::with_seed(mix64(seed) ^ mix64(!worker)),
            contestants: election.contestants,
        }
    }

    /// Returns the next call.
    pub fn next_call(&mut self) -> Call {
        debug_assert_eq!(self.areas.len(), AREA_CODES, "all areas call");
        let area = self.areas[self.rng.usize(..self.areas.len())];
        let phone = u64::from(area.code) * NUMBERS_OF_AREA + self.rng.u64(..NUMBERS_OF_AREA);
        let contestant = match self.rng.u8(..200) {
            0 | 1 => NO_CONTESTANT,
            drawn if drawn < 100 => area.favourite,
            _ => self.rng.u8(1..=self.contestants),
        };
        Call { phone, contestant }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn calls_come_from_all_areas_and_one_in_a_hundred_is_for_nobody() {
        let mut calls = Calls::new(Election::default(), 1, 0);
        let states: BTreeMap<u16, [u8; 2]> = area_codes().collect();
        let mut by_area = BTreeMap::new();
        let mut invalid = 0;
        for _ in 0..50_000 {
            let call = calls.next_call();
            let area = u16::try_from(call.phone / NUMBERS_OF_AREA).unwrap();
            assert!(states.contains_key(&area));
            if call.contestant == NO_CONTESTANT {
                invalid += 1;
            } else {
                assert!((1..=6).contains(&call.contestant));
                by_area.entry(area).or_insert([0u32; 6])[usize::from(call.contestant) - 1] += 1;
            }
        }
        assert_eq!(by_area.len(), AREA_CODES);
        assert!((400..=600).contains(&invalid), "{invalid}");
        // Favourites get half of the calls, and a sixth of the other half.
        let favourites: u32 = by_area.values().flat_map(|votes| votes.iter().max()).sum();
        assert!((26_000..=33_000).contains(&favourites), "{favourites}");
    }

    #[test]
    fn one_seed_gives_one_sequence_and_workers_differ() {
        let of = |seed, worker| {
            let mut calls = Calls::new(Election::default(), seed, worker);
            (0..20).map(|_| calls.next_call()).collect::<Vec<_>>()
        };
        assert_eq!(of(1, 0), of(1, 0));
        assert_ne!(of(1, 0), of(1, 1));
        assert_ne!(of(1, 0), of(2, 0));
    }

    #[test]
    fn elections_out_of_range_are_refused() {
        assert_eq!(Election::default().check(), Ok(()));
        let of = |contestants, votes_per_phone| Election {
            contestants,
            votes_per_phone,
        };
        assert!(of(0, 1).check().is_err() && of(13, 1).check().is_err());
        assert!(of(6, 0).check().is_err());
    }
}
