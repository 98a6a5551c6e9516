//! The conversion of a place into a number, and of a number into a place.
//!
//! The map is the area of square web maps: longitudes from -180 to 180 degrees, latitudes from -85.05112878 to
//! 85.05112878 degrees. Each coordinate is written as a fraction of its range, with one bit for each halving (*step*).
//! The bits of the two coordinates alternate. The lowest bit belongs to the latitude. A coordinate exactly on the upper
//! limit has one bit more than other coordinates. As in Redis, the number keeps this bit.

/// The greatest longitude, degrees; the least is its opposite.
pub const LONGITUDE_MAX: f64 = 180.0;
/// The greatest latitude, degrees; the least is its opposite.
pub const LATITUDE_MAX: f64 = 85.051_128_78;
/// The number of times that the range of a coordinate is halved to make a score.
pub(super) const STEPS_MAX: u32 = 26;

/// The bits of a cell's number that belong to the longitude.
const EAST_WEST: u64 = 0xaaaa_aaaa_aaaa_aaaa;
/// The bits of a cell's number that belong to the latitude.
const NORTH_SOUTH: u64 = !EAST_WEST;

/// A place on the map, degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// East is positive.
    pub longitude: f64,
    /// North is positive.
    pub latitude: f64,
}

impl Place {
    /// Returns the place at these coordinates, if it is on the map.
    #[must_use]
    pub fn new(longitude: f64, latitude: f64) -> Option<Place> {
        let on_map = longitude.abs() <= LONGITUDE_MAX && latitude.abs() <= LATITUDE_MAX;
        on_map.then_some(Place {
            longitude,
            latitude,
        })
    }

    /// Returns the score of a member at this place.
    #[must_use]
    pub fn score(self) -> f64 {
        Cell::of(self, &MAP, STEPS_MAX).scores().start
    }

    /// Returns the centre of the cell that a score names. If the centre lies outside the map, returns the nearest point
    /// of the map. Every score gives a place, even a score that names no cell.
    #[must_use]
    pub fn of_score(score: f64) -> Place {
        let cell = Cell {
            bits: bits_of(score),
            steps: STEPS_MAX,
        };
        let sides = cell.sides();
        let centre = |side: Span, max: f64| ((side.min + side.max) / 2.0).clamp(-max, max);
        Place {
            longitude: centre(sides.longitude, LONGITUDE_MAX),
            latitude: centre(sides.latitude, LATITUDE_MAX),
        }
    }

    /// Returns the geohash of the place, as geohash.org writes it. The map of geohashes reaches to
    /// the poles.
    #[must_use]
    pub fn geohash(self) -> [u8; 11] {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = Cell::of(self, &GLOBE, STEPS_MAX).bits;
        // The eleventh letter would need bits that a cell does not have.
        let mut text = [ALPHABET[0]; 11];
        for (at, letter) in (0u32..).zip(&mut text[..10]) {
            let digit = (bits >> (47 - 5 * at)) & 31;
            *letter = ALPHABET[perdura_base::num::to_usize(digit)];
        }
        text
    }
}

/// A range of coordinates, degrees.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Span {
    const fn around_zero(max: f64) -> Span {
        Span { min: -max, max }
    }

    /// Divides the range into `2^steps` equal parts and returns the index of the part that contains
    /// the coordinate.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 2^26
    fn part_of(self, coordinate: f64, steps: u32) -> u32 {
        let share = (coordinate - self.min) / (self.max - self.min);
        (share * f64::from(1u32 << steps)) as u32
    }

    /// Divides the range into `2^steps` equal parts and returns the part at `index`.
    fn part(self, index: u32, steps: u32) -> Span {
        let (parts, scale) = (f64::from(1u32 << steps), self.max - self.min);
        let edge = |index: u32| self.min + (f64::from(index) / parts) * scale;
        Span {
            min: edge(index),
            max: edge(index.wrapping_add(1)),
        }
    }
}

/// The ranges of coordinates that a cell spans.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sides {
    pub(super) longitude: Span,
    pub(super) latitude: Span,
}

/// The area that scores cover.
const MAP: Sides = Sides {
    longitude: Span::around_zero(LONGITUDE_MAX),
    latitude: Span::around_zero(LATITUDE_MAX),
};
/// The area that geohashes cover.
const GLOBE: Sides = Sides {
    longitude: Span::around_zero(180.0),
    latitude: Span::around_zero(90.0),
};

/// A rectangle of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    bits: u64,
    steps: u32,
}

/// The direction of a cell's neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    North,
    South,
    East,
    West,
}

impl Cell {
    /// Returns the cell of a place after `steps` halvings of each coordinate's range.
    pub(super) fn of_place(place: Place, steps: u32) -> Cell {
        Cell::of(place, &MAP, steps)
    }

    fn of(place: Place, within: &Sides, steps: u32) -> Cell {
        let longitude = within.longitude.part_of(place.longitude, steps);
        let latitude = within.latitude.part_of(place.latitude, steps);
        Cell {
            bits: spread(latitude) | (spread(longitude) << 1),
            steps,
        }
    }

    /// Returns the ranges of coordinates that the cell spans.
    pub(super) fn sides(self) -> Sides {
        Sides {
            longitude: MAP.longitude.part(gather(self.bits >> 1), self.steps),
            latitude: MAP.latitude.part(gather(self.bits), self.steps),
        }
    }

    /// Returns the neighbouring cell of equal size. The neighbour across an edge of the map is the cell at the opposite
    /// edge.
    pub(super) fn neighbour(self, way: Way) -> Cell {
        let lane = match way {
            Way::East | Way::West => EAST_WEST,
            Way::North | Way::South => NORTH_SOUTH,
        };
        // 1 is added to the bits of one coordinate or subtracted from them. The bits of the other coordinate, in the
        // gaps, pass the carry on.
        let inside = u64::MAX >> (64 - 2 * self.steps);
        let (own, gaps) = (self.bits & lane, !lane & inside);
        let moved = match way {
            Way::North | Way::East => own.wrapping_add(gaps + 1),
            Way::South | Way::West => (own | gaps).wrapping_sub(gaps + 1),
        };
        Cell {
            bits: (moved & lane & inside) | (self.bits & !lane),
            ..self
        }
    }

    /// Returns the range of the scores of all places in the cell.
    #[allow(clippy::cast_precision_loss)] // as C rounds a cell on the upper limit
    pub(super) fn scores(self) -> std::ops::Range<f64> {
        let score = |bits: u64| (bits << (2 * (STEPS_MAX - self.steps))) as f64;
        score(self.bits)..score(self.bits.wrapping_add(1))
    }
}

/// Converts a score to the number of its cell. A score that no cell has is converted as C does it
/// on x86.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn bits_of(score: f64) -> u64 {
    const TWO_63: f64 = 9_223_372_036_854_775_808.0;
    if score < TWO_63 {
        return (score as i64).cast_unsigned();
    }
    if score < 2.0 * TWO_63 {
        score as u64
    } else {
        0
    }
}

/// Moves the bits of `part` apart, so that one free bit follows each.
fn spread(part: u32) -> u64 {
    let mut bits = u64::from(part);
    for (shift, mask) in LANES.iter().rev() {
        bits = (bits | (bits << shift)) & mask;
    }
    bits
}

/// Undoes [`spread`]: takes every second bit of `bits` and moves these bits together.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & NORTH_SOUTH;
    for (shift, mask) in &GATHERED {
        bits = (bits | (bits >> shift)) & mask;
    }
    u32::try_from(bits).unwrap_or(u32::MAX)
}

/// The steps that move bits apart, in reverse order. Each has the distance of the move, and a mask of the positions
/// that bits have after the move.
const LANES: [(u32, u64); 5] = [
    (1, NORTH_SOUTH),
    (2, 0x3333_3333_3333_3333),
    (4, 0x0f0f_0f0f_0f0f_0f0f),
    (8, 0x00ff_00ff_00ff_00ff),
    (16, 0x0000_ffff_0000_ffff),
];

/// The steps that move bits together. Each has the distance of the move, and a mask of the positions that bits have
/// after the move.
const GATHERED: [(u32, u64); 5] = [
    (1, LANES[1].1),
    (2, LANES[2].1),
    (4, LANES[3].1),
    (8, LANES[4].1),
    (16, 0x0000_0000_ffff_ffff),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn place(longitude: f64, latitude: f64) -> Place {
        Place::new(longitude, latitude).expect("on the map")
    }

    #[test]
    fn scores_are_those_of_redis() {
        for (longitude, latitude, score) in [
            (13.361_389, 38.115_556, 3_479_099_956_230_698.0),
            (15.087_269, 37.502_669, 3_479_447_370_796_909.0),
            (-180.0, -LATITUDE_MAX, 0.0),
            (0.0, 0.0, 3_377_699_720_527_872.0),
            (180.0, LATITUDE_MAX, 13_510_798_882_111_488.0),
        ] {
            assert_eq!(place(longitude, latitude).score(), score, "{longitude}");
        }
    }

    #[test]
    fn a_place_comes_back_within_its_cell() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let longitude = (rng.f64() - 0.5) * 2.0 * LONGITUDE_MAX;
            let latitude = (rng.f64() - 0.5) * 2.0 * LATITUDE_MAX;
            let place = place(longitude, latitude);
            let back = Place::of_score(place.score());
            let (far, high) = (
                360.0 / f64::from(1 << 26),
                2.0 * LATITUDE_MAX / f64::from(1 << 26),
            );
            assert!((back.longitude - longitude).abs() <= far, "{place:?}");
            assert!((back.latitude - latitude).abs() <= high, "{place:?}");
            assert_eq!(back.score(), place.score(), "{place:?}");
        }
    }

    #[test]
    fn no_place_is_off_the_map() {
        for (longitude, latitude) in [
            (180.000_001, 0.0),
            (0.0, 85.051_128_8),
            (f64::NAN, 0.0),
            (0.0, f64::NEG_INFINITY),
        ] {
            assert_eq!(Place::new(longitude, latitude), None);
        }
    }

    #[test]
    fn every_score_has_a_place_on_the_map() {
        let mut rng = fastrand::Rng::with_seed(8);
        let odd = [f64::INFINITY, f64::NEG_INFINITY, -1.0, -0.0, 1e19, 2e19];
        let random = (0..20_000).map(|_| f64::from_bits(rng.u64(..)));
        for score in odd
            .into_iter()
            .chain(random.filter(|score| !score.is_nan()))
        {
            let place = Place::of_score(score);
            assert!(
                Place::new(place.longitude, place.latitude).is_some(),
                "{score:e}"
            );
            assert!(place.geohash().is_ascii());
        }
    }

    #[test]
    fn a_step_there_and_back_leads_to_the_same_cell() {
        let mut rng = fastrand::Rng::with_seed(9);
        let ways = [Way::North, Way::South, Way::East, Way::West];
        for _ in 0..20_000 {
            let steps = rng.u32(1..=STEPS_MAX);
            let bits = rng.u64(..) >> (64 - 2 * steps);
            let cell = Cell { bits, steps };
            for (way, back) in [(0, 1), (1, 0), (2, 3), (3, 2)] {
                let moved = cell.neighbour(ways[way]);
                assert_ne!(moved, cell);
                assert_eq!(moved.neighbour(ways[back]), cell, "{cell:?}");
            }
        }
    }

    #[test]
    fn geohashes_are_those_of_redis() {
        let place = place(13.361_389, 38.115_556);
        let place = Place::of_score(place.score());
        assert_eq!(&place.geohash(), b"sqc8b49rny0");
    }
}
