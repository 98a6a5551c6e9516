//! Places: members of a sorted set with scores that encode coordinates.
//!
//! The arithmetic is in [`crate::engine::types::geo`]. This module parses the requests and writes
//! the replies.

pub(crate) mod search;

use super::flag::{DENY_OOM, READ, WRITE};
use super::spec::{Command, ONE, data};
use super::zsets::NOT_FLOAT;
use super::{Data, Done, SYNTAX, Stop};
use crate::command::event::Class;
use crate::engine::Shape;
use crate::engine::types::geo::{self, Place};
use crate::engine::types::zset::{self, Conditions};
use crate::engine::types::{Source, score};
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("geoadd", -5, WRITE | DENY_OOM, ONE, geoadd),
    data("geodist", -4, READ, ONE, geodist),
    data("geohash", -2, READ, ONE, geohash),
    data("geopos", -2, READ, ONE, geopos),
];

/// Reads a longitude, then a latitude.
fn place(args: &Args<'_>, at: usize) -> Result<Place, Stop> {
    let longitude = score::parse(args.at(at)).ok_or(NOT_FLOAT)?;
    let latitude = score::parse(args.at(at + 1)).ok_or(NOT_FLOAT)?;
    Place::new(longitude, latitude).ok_or_else(|| {
        format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}").into()
    })
}

/// Reads a unit of length. Returns the unit's length in metres.
fn unit(word: &[u8]) -> Result<f64, Stop> {
    const UNITS: [(&[u8], f64); 4] = [
        (b"m", 1.0),
        (b"km", 1000.0),
        (b"ft", 0.3048),
        (b"mi", 1609.34),
    ];
    // The word ends at its first zero byte, as a string of C does.
    let word = word.split(|byte| *byte == 0).next().unwrap_or(word);
    let known = UNITS
        .iter()
        .find(|(name, _)| word.eq_ignore_ascii_case(name));
    let known = known.map(|(_, metres)| *metres);
    Ok(known.ok_or("ERR unsupported unit provided. please use M, KM, FT, MI")?)
}

/// Returns the place of a member.
fn place_of(set: Option<&Source<'_>>, member: &[u8]) -> Option<Place> {
    let found = set?.find(member)?;
    Some(Place::of_score(found.score()))
}

fn reply_distance(out: &mut Out<'_>, distance: f64) {
    let mut text = Vec::with_capacity(24);
    geo::text::push_distance(&mut text, distance);
    out.bulk(&text);
}

fn reply_place(out: &mut Out<'_>, place: Place) {
    out.array(2);
    for degrees in [place.longitude, place.latitude] {
        let mut text = Vec::with_capacity(24);
        geo::text::push_coordinate(&mut text, degrees);
        out.number(&text);
    }
}

/// `GEOADD key [NX|XX] [CH] longitude latitude member [longitude latitude member …]`
fn geoadd(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (mut conditions, mut changed, mut first) = (Conditions::default(), false, 2);
    while first < args.len() {
        match () {
            () if args.at(first).eq_ignore_ascii_case(b"NX") => conditions.only_new = true,
            () if args.at(first).eq_ignore_ascii_case(b"XX") => conditions.only_old = true,
            () if args.at(first).eq_ignore_ascii_case(b"CH") => changed = true,
            () => break,
        }
        first += 1;
    }
    let count = args.len() - first;
    let both = conditions.only_new && conditions.only_old;
    if count == 0 || !count.is_multiple_of(3) || both {
        return Err(SYNTAX.into());
    }
    // Every place is read before anything is written.
    let mut members = Vec::with_capacity(count / 3);
    for at in (first..args.len()).step_by(3) {
        members.push((args.at(at + 2), place(args, at)?.score()));
    }
    let key = args.at(1);
    let added = zset::add(data.tx, data.table, key, conditions, members)?;
    if added.new + added.changed > 0 {
        data.changed(Class::SortedSet, "zadd", key);
    }
    out.count(added.new + if changed { added.changed } else { 0 });
    Ok(())
}

/// `GEODIST key member member [M|KM|FT|MI]`
fn geodist(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let unit = match args.len() {
        4 => 1.0,
        5 => unit(args.at(4))?,
        _ => return Err(SYNTAX.into()),
    };
    let set = data.collection(args.at(1), Shape::Zset)?;
    let [from, to] = [2, 3].map(|at| place_of(set.as_ref(), args.at(at)));
    match (from, to) {
        (Some(from), Some(to)) => reply_distance(out, geo::distance(from, to) / unit),
        _ => out.null(),
    }
    Ok(())
}

/// `GEOHASH key [member …]`
fn geohash(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let set = data.collection(args.at(1), Shape::Zset)?;
    out.array(args.len() - 2);
    for member in args.from(2) {
        match place_of(set.as_ref(), member) {
            Some(place) => out.bulk(&place.geohash()),
            None => out.null(),
        }
    }
    Ok(())
}

/// `GEOPOS key [member …]`
fn geopos(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let set = data.collection(args.at(1), Shape::Zset)?;
    out.array(args.len() - 2);
    for member in args.from(2) {
        match place_of(set.as_ref(), member) {
            Some(place) => reply_place(out, place),
            None => out.null_array(),
        }
    }
    Ok(())
}
