//! Sketches that estimate a number of distinct elements: PFADD, PFCOUNT, PFMERGE, and the commands that inspect
//! a sketch.
//!
//! A sketch is a string, which every command on strings may read and write. So each command here
//! checks the string that it finds. The arithmetic is in [`crate::engine::types::hll`].

use super::event::Class;
use super::flag::{ADMIN, APART, DENY_OOM, FAST, READ, WRITE};
use super::spec::{Command, EACH, ONE, SECOND, data, plain};
use super::{Cx, Data, Done, Stop};
use crate::engine::types::hll::{self, Damaged, Form, GROUP_BYTES, Raised, Union};
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::to_u64;
use std::borrow::Cow;
use std::ops::Range;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("pfadd", -2, WRITE | DENY_OOM | FAST, ONE, pfadd),
    data("pfcount", -2, READ, EACH, pfcount),
    data("pfdebug", 3, WRITE | DENY_OOM | ADMIN, SECOND, pfdebug),
    data("pfmerge", -2, WRITE | DENY_OOM, EACH, pfmerge),
    plain("pfselftest", 1, ADMIN | APART, pfselftest),
];

const NO_SKETCH: &str = "WRONGTYPE Key is not a valid HyperLogLog string value.";
const DAMAGED: &str = "INVALIDOBJ Corrupted HLL object detected";

impl From<Damaged> for Stop {
    fn from(_: Damaged) -> Self {
        DAMAGED.into()
    }
}

/// Returns the sketch of a key with its form. Fails if the string is not a sketch.
fn sketch<'d>(data: &'d mut Data<'_, '_>, key: &[u8]) -> Result<Option<Sketch<'d>>, Stop> {
    let Some(row) = data.string(key)? else {
        return Ok(None);
    };
    let bytes = row.value();
    Ok(Some(Sketch {
        form: hll::form(&bytes).ok_or(NO_SKETCH)?,
        bytes,
        expiry: row.expiry_ms(),
    }))
}

struct Sketch<'d> {
    bytes: Cow<'d, [u8]>,
    form: Form,
    expiry: Option<u64>,
}

/// The part of a sketch that must be written.
enum Edit {
    /// These ranges of bytes. The sketch keeps its length.
    Pieces(Vec<Range<usize>>),
    /// The whole sketch.
    All,
}

/// Two changes are written as one range if fewer than this many unchanged bytes lie between them.
const GAP: usize = 32;

impl Edit {
    /// Returns the edit that turns `old` into `new`.
    fn between(old: &[u8], new: &[u8]) -> Edit {
        if old.len() != new.len() {
            return Edit::All;
        }
        let bytes = old.iter().zip(new).enumerate();
        let changed = bytes.filter(|(_, (old, new))| old != new);
        Edit::of(changed.map(|(at, _)| at..at + 1).collect())
    }

    /// Returns the edit of `pieces`, which may be in any order. Pieces that are close together become one piece.
    fn of(mut pieces: Vec<Range<usize>>) -> Edit {
        pieces.sort_unstable_by_key(|piece| piece.start);
        let mut joined: Vec<Range<usize>> = Vec::new();
        for piece in pieces {
            match joined.last_mut() {
                Some(last) if piece.start < last.end + GAP => last.end = last.end.max(piece.end),
                _ => joined.push(piece),
            }
        }
        Edit::Pieces(joined)
    }

    /// Writes the edit. `expiry` is the deadline of the key.
    fn write(self, data: &mut Data<'_, '_>, key: &[u8], new: &[u8], expiry: Option<u64>) -> Done {
        match self {
            Edit::Pieces(pieces) => {
                for piece in pieces {
                    let at = piece.start;
                    data.tx.write_at(data.table, key, at, &new[piece])?;
                }
            }
            Edit::All => data.tx.put(data.table, key, new, expiry)?,
        }
        Ok(())
    }
}

/// The cost of a sketch, in elements: work on one sketch takes the time of this many elements.
const SKETCH_COST: u64 = 128;

/// `PFADD key [element …]`
fn pfadd(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (key, sparse_max) = (args.at(1), data.sparse_sketch_bytes_max());
    let sketch = sketch(data, key)?;
    let expiry = sketch.as_ref().and_then(|sketch| sketch.expiry);
    let (old, mut new) = match &sketch {
        Some(sketch) => (Some(&*sketch.bytes), Cow::Borrowed(&*sketch.bytes)),
        None => (None, Cow::Owned(hll::empty())),
    };
    let (mut pieces, mut all) = (Vec::new(), false);
    for element in args.from(2) {
        match hll::add(&mut new, element, sparse_max)? {
            Raised::Not => {}
            Raised::At(at) => pieces.push(at..at + GROUP_BYTES),
            Raised::All => all = true,
        }
    }
    let changed = all || old.is_none() || !pieces.is_empty();
    if changed {
        pieces.extend(hll::outdate(&mut new));
        let edit = match old {
            None => Edit::All,
            Some(old) if all => Edit::between(old, &new),
            Some(_) => Edit::of(pieces),
        };
        let new = new.into_owned();
        edit.write(data, key, &new, expiry)?;
        data.changed(Class::String, "pfadd", key);
    }
    out.integer(i64::from(changed));
    Ok(())
}

/// `PFCOUNT key [key …]`
fn pfcount(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    if args.len() == 2 {
        return count_one(data, args.at(1), out);
    }
    data.heavy(to_u64(args.len()) * SKETCH_COST)?;
    let union = union(data, args)?.0;
    out.integer(union.count().cast_signed());
    Ok(())
}

/// Counts one sketch and stores the count in it. Storing the count is an ordinary write, but it is skipped when
/// the memory limit is reached.
fn count_one(data: &mut Data<'_, '_>, key: &[u8], out: &mut Out<'_>) -> Done {
    let Some(sketch) = sketch(data, key)? else {
        data.looked_up(false);
        out.integer(0);
        return Ok(());
    };
    let known = hll::known(&sketch.bytes);
    let count = match known {
        Some(count) => count,
        None => hll::count(&sketch.bytes)?,
    };
    data.looked_up(true);
    if known.is_none() && data.tx.may_grow() {
        let (at, bytes) = hll::remembered(count);
        data.tx.write_at(data.table, key, at, &bytes)?;
        data.changed(Class::Quiet, "", key);
    }
    out.integer(count.cast_signed());
    Ok(())
}

/// Returns the union of the sketches of all keys, and whether one of the sketches is dense.
fn union(data: &mut Data<'_, '_>, args: &Args<'_>) -> Result<(Union, bool), Stop> {
    let (mut union, mut dense) = (Union::default(), false);
    for key in args.from(1) {
        let sketch = sketch(data, key)?;
        let found = sketch.is_some();
        if let Some(sketch) = sketch {
            dense |= sketch.form == Form::Dense;
            union.add(&sketch.bytes)?;
        }
        data.looked_up(found);
    }
    Ok((union, dense))
}

/// `PFMERGE destination [source …]`
fn pfmerge(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (key, sparse_max) = (args.at(1), data.sparse_sketch_bytes_max());
    data.heavy(to_u64(args.len()) * SKETCH_COST)?;
    let (union, dense) = union(data, args)?;
    let sketch = sketch(data, key)?;
    let expiry = sketch.as_ref().and_then(|sketch| sketch.expiry);
    let mut new = match &sketch {
        Some(sketch) => Cow::Borrowed(&*sketch.bytes),
        None => Cow::Owned(hll::empty()),
    };
    if dense && hll::form(&new) == Some(Form::Sparse) {
        hll::to_dense(&mut new)?;
    }
    for (register, value) in union.values() {
        hll::raise(&mut new, register, value, sparse_max)?;
    }
    let _ = hll::outdate(&mut new);
    let edit = match &sketch {
        Some(sketch) => Edit::between(&sketch.bytes, &new),
        None => Edit::All,
    };
    let new = new.into_owned();
    edit.write(data, key, &new, expiry)?;
    data.changed(Class::String, "pfadd", key);
    out.ok();
    Ok(())
}

/// `PFDEBUG GETREG|DECODE|ENCODING|TODENSE key`
fn pfdebug(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (word, key) = (args.at(1), args.at(2));
    let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let sketch = sketch(data, key)?.ok_or("ERR The specified key does not exist")?;
    if is("DECODE") {
        return decode(&sketch, out);
    }
    if is("ENCODING") {
        out.simple(match sketch.form {
            Form::Dense => "dense",
            Form::Sparse => "sparse",
        });
        return Ok(());
    }
    let shows = is("GETREG");
    if !shows && !is("TODENSE") {
        let word = String::from_utf8_lossy(word);
        return Err(format!("ERR Unknown PFDEBUG subcommand '{word}'").into());
    }
    let registers = hll::registers(&sketch.bytes);
    let (expiry, sparse) = (sketch.expiry, sketch.form == Form::Sparse);
    if sparse {
        let mut new = sketch.bytes;
        hll::to_dense(&mut new)?;
        let new = new.into_owned();
        Edit::All.write(data, key, &new, expiry)?;
        data.changed(Class::Quiet, "", key);
    }
    if !shows {
        out.integer(i64::from(sparse));
        return Ok(());
    }
    let registers = registers?;
    out.array(registers.len());
    for value in registers {
        out.integer(i64::from(value));
    }
    Ok(())
}

/// Replies with the run-length codes of a sparse sketch as text.
fn decode(sketch: &Sketch<'_>, out: &mut Out<'_>) -> Done {
    if sketch.form == Form::Dense {
        return Err("ERR HLL encoding is not sparse".into());
    }
    let runs = hll::sparse::runs(&sketch.bytes).map(|run| match (run.value, run.wide) {
        (0, false) => format!("z:{}", run.len),
        (0, true) => format!("Z:{}", run.len),
        (value, _) => format!("v:{value},{}", run.len),
    });
    out.bulk(runs.collect::<Vec<_>>().join(" ").as_bytes());
    Ok(())
}

/// `PFSELFTEST`
fn pfselftest(cx: &mut Cx<'_>, _: &Args<'_>) {
    let sparse_max = cx.state.options.hll_sparse_bytes_max;
    match hll::self_test(fastrand::u64(..), sparse_max) {
        Ok(()) => cx.out.ok(),
        Err(wrong) => cx.out.error(&format!("ERR TESTFAILED {wrong}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_that_are_written_are_all_that_differs() {
        let mut rng = fastrand::Rng::with_seed(6);
        for _ in 0..500 {
            let old: Vec<u8> = (0..300).map(|_| rng.u8(..)).collect();
            let mut new = old.clone();
            for _ in 0..rng.usize(..6) {
                new[rng.usize(..300)] = rng.u8(..);
            }
            let Edit::Pieces(pieces) = Edit::between(&old, &new) else {
                panic!("the length is the same");
            };
            let mut made = old;
            for piece in &pieces {
                made[piece.clone()].copy_from_slice(&new[piece.clone()]);
            }
            assert_eq!(made, new);
            let apart = pieces
                .windows(2)
                .all(|pair| pair[0].end + GAP <= pair[1].start);
            assert!(apart && pieces.len() <= 6, "{pieces:?}");
        }
        assert!(matches!(Edit::between(b"a", b"ab"), Edit::All));
    }
}
