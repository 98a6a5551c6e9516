//! Distances, and the cells that cover an area.
//!
//! The earth is taken to be a ball. A search takes cells of about the area's size: the cell with the centre, and the
//! eight cells around this cell. It leaves out the cells that the area does not reach.

use std::ops::Range;

use super::cell::{Cell, Place, STEPS_MAX, Way};

/// The radius of the earth, metres.
const EARTH_RADIUS: f64 = 6_372_797.560_856;
/// Half of the map's width at the equator, metres.
const MAP_RADIUS: f64 = 20_037_726.37;
/// One degree, radians.
const DEGREE: f64 = std::f64::consts::PI / 180.0;

fn radians(degrees: f64) -> f64 {
    degrees * DEGREE
}

fn degrees(radians: f64) -> f64 {
    radians / DEGREE
}

/// Returns the distance between two places in metres. It is computed by the haversine formula.
#[must_use]
pub fn distance(a: Place, b: Place) -> f64 {
    let v = ((radians(b.longitude) - radians(a.longitude)) / 2.0).sin();
    if v == 0.0 {
        return distance_of_latitudes(a.latitude, b.latitude);
    }
    let (from, to) = (radians(a.latitude), radians(b.latitude));
    let u = ((to - from) / 2.0).sin();
    let h = u * u + from.cos() * to.cos() * v * v;
    2.0 * EARTH_RADIUS * h.sqrt().asin()
}

fn distance_of_latitudes(a: f64, b: f64) -> f64 {
    EARTH_RADIUS * (radians(b) - radians(a)).abs()
}

/// The form and the size of an area. Lengths are in the unit of the search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Form {
    /// All places at most `radius` from the centre.
    Circle {
        /// The radius.
        radius: f64,
    },
    /// A box around the centre, along meridians and parallels.
    Box {
        /// The length from west to east.
        width: f64,
        /// The length from south to north.
        height: f64,
    },
}

/// An area to be searched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// The centre of the area.
    pub centre: Place,
    /// The form of the area, with lengths in units.
    pub form: Form,
    /// The length of a unit, metres.
    pub unit: f64,
}

impl Search {
    /// Returns the distance of a place from the centre, metres; `None` if the place is not in the area.
    #[must_use]
    pub fn distance_to(&self, place: Place) -> Option<f64> {
        let centre = self.centre;
        match self.form {
            Form::Circle { radius } => {
                let distance = distance(centre, place);
                // If a place is half way around the earth, rounding can make the distance NaN. The place then counts as
                // inside.
                let outside = distance > radius * self.unit;
                (!outside).then_some(distance)
            }
            Form::Box { width, height } => {
                let north = distance_of_latitudes(place.latitude, centre.latitude);
                if north > height * self.unit / 2.0 {
                    return None;
                }
                let below = Place {
                    longitude: centre.longitude,
                    latitude: place.latitude,
                };
                let outside = distance(place, below) > width * self.unit / 2.0;
                (!outside).then(|| distance(centre, place))
            }
        }
    }

    /// Returns the ranges of scores to search, in the order of the search.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<f64>> + use<> {
        let mut before = None;
        let cells = self.cells().into_iter().enumerate();
        let cells = cells.filter_map(move |(at, cell)| {
            let cell = cell?;
            // On a map of only four cells, several neighbours are the same cell. It is searched
            // once.
            if before == Some(cell) {
                return None;
            }
            before = (at > 0).then_some(cell);
            Some(cell)
        });
        cells.map(Cell::scores)
    }

    /// Returns half of the area's width and height, metres.
    fn half(&self) -> (f64, f64) {
        match self.form {
            Form::Circle { radius } => (self.unit * radius, self.unit * radius),
            Form::Box { width, height } => (self.unit * (width / 2.0), self.unit * (height / 2.0)),
        }
    }

    /// Returns the westernmost, southernmost, easternmost and northernmost coordinates of the area.
    /// The same width spans more degrees nearer to a pole.
    fn bounds(&self) -> [f64; 4] {
        let (wide, high) = self.half();
        let Place {
            longitude,
            latitude,
        } = self.centre;
        let up = degrees(high / EARTH_RADIUS);
        let nearer_pole = if latitude < 0.0 {
            latitude - up
        } else {
            latitude + up
        };
        let aside = degrees(wide / EARTH_RADIUS / radians(nearer_pole).cos());
        [
            longitude - aside,
            latitude - up,
            longitude + aside,
            latitude + up,
        ]
    }

    /// Returns the maximum number of halvings (*steps*) with which nine cells still cover the area.
    /// [`cells`](Self::cells) uses one step less if the cells do not reach the area's edges.
    fn steps(&self) -> u32 {
        let mut reach = match self.form {
            Form::Circle { radius } => radius,
            Form::Box { width, height } => {
                let (wide, high) = (width / 2.0, height / 2.0);
                (wide * wide + high * high).sqrt()
            }
        } * self.unit;
        if reach == 0.0 {
            return STEPS_MAX;
        }
        let mut steps: u32 = 1;
        while reach < MAP_RADIUS {
            reach *= 2.0;
            steps += 1;
        }
        let latitude = self.centre.latitude.abs();
        let fewer = 2 + u32::from(latitude > 66.0) + u32::from(latitude > 80.0);
        steps.saturating_sub(fewer).clamp(1, STEPS_MAX)
    }

    /// Returns the cell of the centre and the eight cells around it; `None` for a cell that the area does not reach.
    fn cells(&self) -> [Option<Cell>; 9] {
        let [west, south, east, north] = self.bounds();
        let mut steps = self.steps();
        let mut cell = Cell::of_place(self.centre, steps);
        let near_edge = cell.neighbour(Way::North).sides().latitude.max < north
            || cell.neighbour(Way::South).sides().latitude.min > south
            || cell.neighbour(Way::East).sides().longitude.max < east
            || cell.neighbour(Way::West).sides().longitude.min > west;
        if steps > 1 && near_edge {
            steps -= 1;
            cell = Cell::of_place(self.centre, steps);
        }
        let sides = cell.sides();
        let reaches = |way: Way| {
            let within = match way {
                Way::North => sides.latitude.max > north,
                Way::South => sides.latitude.min < south,
                Way::East => sides.longitude.max > east,
                Way::West => sides.longitude.min < west,
            };
            steps < 2 || !within
        };
        let beside = |ways: &[Way]| {
            let reached = ways.iter().all(|way| reaches(*way));
            reached.then(|| ways.iter().fold(cell, |cell, way| cell.neighbour(*way)))
        };
        [
            Some(cell),
            beside(&[Way::North]),
            beside(&[Way::South]),
            beside(&[Way::East]),
            beside(&[Way::West]),
            beside(&[Way::North, Way::East]),
            beside(&[Way::North, Way::West]),
            beside(&[Way::South, Way::East]),
            beside(&[Way::South, Way::West]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell::LATITUDE_MAX;
    use super::*;

    fn place(longitude: f64, latitude: f64) -> Place {
        Place::new(longitude, latitude).expect("on the map")
    }

    #[test]
    fn a_distance_is_the_same_both_ways_and_nothing_to_itself() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut any = || place(rng.f64() * 360.0 - 180.0, rng.f64() * 170.0 - 85.0);
        for _ in 0..10_000 {
            let (a, b) = (any(), any());
            assert_eq!(distance(a, a), 0.0);
            let (there, back) = (distance(a, b), distance(b, a));
            assert!((there - back).abs() < 1e-6, "{a:?} {b:?}");
        }
    }

    /// Every place in a circle is in one of the circle's ranges, unless it lies beyond the map's edge. The circle may
    /// be anywhere. Its size is at most a quarter of the earth.
    #[test]
    fn what_is_in_a_circle_is_in_a_range() {
        let mut rng = fastrand::Rng::with_seed(4);
        for round in 0..30_000 {
            let centre = place(rng.f64() * 300.0 - 150.0, rng.f64() * 120.0 - 60.0);
            let radius = 10f64.powf(rng.f64() * 6.0);
            let search = Search {
                centre,
                form: Form::Circle { radius },
                unit: 1.0,
            };
            let aside = degrees(radius / EARTH_RADIUS) / radians(centre.latitude).cos();
            let longitude = centre.longitude + (rng.f64() - 0.5) * 2.0 * aside;
            let latitude =
                centre.latitude + (rng.f64() - 0.5) * 2.0 * degrees(radius / EARTH_RADIUS);
            let Some(other) = Place::new(longitude, latitude) else {
                continue;
            };
            let other = Place::of_score(other.score());
            if search.distance_to(other).is_some() {
                let covered = search.ranges().any(|range| range.contains(&other.score()));
                assert!(covered, "round {round}: {search:?} {other:?}");
            }
        }
    }

    #[test]
    fn ranges_do_not_overlap_where_the_centre_is_not_on_the_edge() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..20_000 {
            let centre = place(rng.f64() * 359.0 - 179.5, rng.f64() * 170.0 - 85.0);
            let radius = 10f64.powf(rng.f64() * 9.0 - 1.0);
            let search = Search {
                centre,
                form: Form::Circle { radius },
                unit: 1.0,
            };
            let mut ranges: Vec<_> = search.ranges().collect();
            ranges.sort_by(|a, b| a.start.total_cmp(&b.start));
            let apart = ranges.windows(2).all(|pair| pair[0].end <= pair[1].start);
            assert!(apart, "{search:?}: {ranges:?}");
        }
    }

    #[test]
    fn no_size_and_no_centre_makes_a_search_fail() {
        let sizes = [0.0, 1e-300, 1.0, 1e7, 1e300, f64::INFINITY];
        for unit in [0.3048, 1.0, 1000.0, 1609.34] {
            for width in sizes {
                for height in sizes {
                    for centre in [
                        place(180.0, LATITUDE_MAX),
                        place(-180.0, -LATITUDE_MAX),
                        place(0.0, 0.0),
                        place(12.0, 81.0),
                    ] {
                        let form = Form::Box { width, height };
                        let search = Search { centre, form, unit };
                        assert!((1..=9).contains(&search.ranges().count()));
                        let form = Form::Circle { radius: width };
                        let search = Search { centre, form, unit };
                        assert!((1..=9).contains(&search.ranges().count()));
                        assert!(search.distance_to(centre).is_some());
                    }
                }
            }
        }
    }
}
