//! Places on a map, as members of a sorted set.
//!
//! The score of a member is the number of the *cell* that contains its place. The map is halved 26 times in each
//! direction. Each halving gives one bit: the half that contains the place. The 52 bits form an integer, which a float
//! holds exactly. Neighbouring places share the first bits, so all places of a larger cell are one range of scores. A
//! search covers the area with at most nine ranges of scores. It measures the distance of each place in these ranges.
//!
//! | module | one idea |
//! |---|---|
//! | [`cell`] | a place as a number, and back |
//! | [`area`] | distances, and the cells that cover an area |
//! | [`order`] | the nearest or the farthest first |
//! | [`text`] | coordinates and distances in digits |
//!
//! # Source
//! Scores, distances and the order of results are equal to Redis 7.0's, bit by bit. For that, the cells, the earth's
//! radius, the order of neighbours and the partial sort (Bentley, McIlroy: "Engineering a Sort Function", 1993) are
//! taken from Redis. The sort decides the order of members at equal distance.

pub mod area;
pub mod cell;
pub mod order;
pub mod text;

pub use area::{Form, Search, distance};
pub use cell::Place;

use crate::open::{Entry, Source, Text};

/// A member within an area.
#[derive(Debug, Clone)]
pub struct Found<'s> {
    /// The member.
    pub member: Text<'s>,
    /// The score of the member.
    pub score: f64,
    /// The centre of the member's cell.
    pub place: Place,
    /// The distance of `place` from the centre of the area, metres.
    pub distance: f64,
}

/// Returns the members within an area, cell by cell. If `most` is given, the search ends when it
/// has found this number of members.
#[must_use]
pub fn find<'s>(source: &'s Source<'_>, search: &Search, most: Option<u64>) -> Vec<Found<'s>> {
    let most = most.map_or(usize::MAX, perdura_base::num::to_usize);
    let mut found = Vec::new();
    for scores in search.ranges() {
        if found.len() >= most {
            break;
        }
        match source {
            Source::Small(packed) => {
                let entries = packed.iter().map(Entry::Packed);
                let entries = entries.skip_while(|entry| entry.score() < scores.start);
                collect(entries, scores.end, search, most, &mut found);
            }
            Source::Rows(rows) => {
                let from = rows.score_point(|score| score < scores.start);
                let entries = rows.range(from, rows.len()).map(|(_, row)| Entry::Row(row));
                collect(entries, scores.end, search, most, &mut found);
            }
        }
    }
    found
}

/// Returns the number of distances that [`find`] would measure; 0 for a small sorted set.
#[must_use]
pub fn looked_at(source: &Source<'_>, search: &Search) -> u64 {
    let Source::Rows(rows) = source else {
        return 0;
    };
    let ranks = search.ranges().map(|scores| {
        let from = rows.score_point(|score| score < scores.start);
        let to = rows.score_point(|score| score < scores.end);
        to.saturating_sub(from)
    });
    ranks.sum()
}

fn collect<'s>(
    entries: impl Iterator<Item = Entry<'s>>,
    end: f64,
    search: &Search,
    most: usize,
    found: &mut Vec<Found<'s>>,
) {
    for entry in entries {
        let score = entry.score();
        if score >= end {
            break;
        }
        debug_assert!(!score.is_nan(), "a score is a number");
        let place = Place::of_score(score);
        if let Some(distance) = search.distance_to(place) {
            found.push(Found {
                member: entry.key(),
                score,
                place,
                distance,
            });
        }
        // The limit counts members in the order of the search, not by distance.
        if !found.is_empty() && found.len() >= most {
            break;
        }
    }
}
