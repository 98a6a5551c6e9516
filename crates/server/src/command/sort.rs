//! SORT: the elements of a list, a set or a sorted set in another order.
//!
//! `BY pattern` sorts by the values of other keys and `GET pattern` answers them: the first `*` of
//! a pattern is replaced by the element, and what follows `->` is a field of a hash.

use super::data::WRONG_TYPE;
use super::event::Class;
use super::flag::{DANGEROUS, DENY_OOM, READ, WRITE};
use super::spec::{Command, Keys, data};
use super::{Data, Done, Group, NOT_INTEGER, SYNTAX, Stop};
use crate::engine::types::{self, Source, list, score};
use crate::engine::{End, Kind, Shape};
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use std::cmp::Ordering;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("sort", -2, WRITE | DENY_OOM | DANGEROUS, Keys::Sort, sort).doc(
        Group::Generic,
        "1.0.0",
        "Answers or stores the elements of a key in order.",
    ),
    data("sort_ro", -2, READ | DANGEROUS, Keys::Sort, sort_ro).doc(
        Group::Generic,
        "7.0.0",
        "Answers the elements of a key in order.",
    ),
];

#[derive(Default)]
struct Options<'a> {
    by: Option<&'a [u8]>,
    gets: Vec<&'a [u8]>,
    limit: Option<(i64, i64)>,
    descending: bool,
    alpha: bool,
    store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(args: &Args<'a>, read_only: bool) -> Result<Self, Stop> {
        let mut options = Options::default();
        let mut at = 2;
        while at < args.len() {
            let (word, left) = (args.at(at), args.len() - at - 1);
            let number = |n: usize| parse_i64(args.at(at + n)).ok_or(NOT_INTEGER);
            match () {
                () if word.eq_ignore_ascii_case(b"ASC") => options.descending = false,
                () if word.eq_ignore_ascii_case(b"DESC") => options.descending = true,
                () if word.eq_ignore_ascii_case(b"ALPHA") => options.alpha = true,
                () if word.eq_ignore_ascii_case(b"LIMIT") && left >= 2 => {
                    options.limit = Some((number(1)?, number(2)?));
                    at += 2;
                }
                () if word.eq_ignore_ascii_case(b"STORE") && left >= 1 && !read_only => {
                    options.store = Some(args.at(at + 1));
                    at += 1;
                }
                () if word.eq_ignore_ascii_case(b"BY") && left >= 1 => {
                    options.by = Some(args.at(at + 1));
                    at += 1;
                }
                () if word.eq_ignore_ascii_case(b"GET") && left >= 1 => {
                    options.gets.push(args.at(at + 1));
                    at += 1;
                }
                () => return Err(SYNTAX.into()),
            }
            at += 1;
        }
        Ok(options)
    }

    /// The piece of `count` elements that is asked for.
    fn piece(&self, count: usize) -> std::ops::Range<usize> {
        let Some((offset, wanted)) = self.limit else {
            return 0..count;
        };
        let start = usize::try_from(offset.max(0))
            .unwrap_or(usize::MAX)
            .min(count);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        start..start.saturating_add(wanted).min(count)
    }
}

/// What a pattern leads to for an element; `None` if there is no such string.
fn follow(data: &Data<'_, '_>, pattern: &[u8], element: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
    if pattern == b"#" {
        return Ok(Some(element.to_vec()));
    }
    let Some(star) = pattern.iter().position(|byte| *byte == b'*') else {
        return Ok(None);
    };
    let behind = &pattern[star + 1..];
    let arrow = behind.windows(2).position(|pair| pair == b"->");
    let arrow = arrow.filter(|at| at + 2 < behind.len());
    let (suffix, field) = match arrow {
        Some(at) => (&behind[..at], Some(&behind[at + 2..])),
        None => (behind, None),
    };
    let key = [&pattern[..star], element, suffix].concat();
    let Some(row) = data.tx.get(data.table, &key)? else {
        return Ok(None);
    };
    match field {
        None => {
            let is_string = row.kind() == Kind::String;
            Ok(is_string.then(|| row.value().into_owned()))
        }
        Some(_) if row.kind().shape() != Some(Shape::Hash) => Ok(None),
        Some(field) => {
            let source = types::open::source(data.tx, data.table, row, Shape::Hash)?;
            Ok(source.find(field).map(|entry| entry.value().to_vec()))
        }
    }
}

/// The elements of what may be sorted, in their own order, and what they are in.
fn elements(data: &Data<'_, '_>, key: &[u8]) -> Result<(Option<Shape>, Vec<Vec<u8>>), Stop> {
    let Some(row) = data.tx.get(data.table, key)? else {
        return Ok((None, Vec::new()));
    };
    let shape = match row.kind().shape() {
        Some(shape @ (Shape::List | Shape::Set | Shape::Zset)) => shape,
        Some(Shape::Hash) | None => return Err(WRONG_TYPE.into()),
    };
    let source: Source<'_> = types::open::source(data.tx, data.table, row, shape)?;
    let texts = source.iter().map(|entry| match shape {
        Shape::List => entry.item().to_vec(),
        Shape::Hash | Shape::Set | Shape::Zset => entry.key().to_vec(),
    });
    Ok((Some(shape), texts.collect()))
}

/// An element with what it is sorted by.
struct Weighed {
    element: Vec<u8>,
    number: f64,
    text: Option<Vec<u8>>,
}

/// A weight as C reads it: up to a zero byte, blanks may come before it, nothing is zero.
fn weight(text: &[u8]) -> Option<f64> {
    match text.split(|byte| *byte == 0).next() {
        None | Some(b"") => Some(0.0),
        Some(text) => score::parse(text.trim_ascii_start()),
    }
}

fn weigh(
    data: &Data<'_, '_>,
    by: Option<&[u8]>,
    alpha: bool,
    element: Vec<u8>,
) -> Result<Weighed, Stop> {
    let text = match by {
        Some(pattern) => follow(data, pattern, &element)?,
        None => Some(element.clone()),
    };
    let number = match &text {
        Some(text) if !alpha => {
            weight(text).ok_or("ERR One or more scores can't be converted into double")?
        }
        _ => 0.0,
    };
    Ok(Weighed {
        element,
        number,
        text,
    })
}

fn compare(a: &Weighed, b: &Weighed, alpha: bool) -> Ordering {
    if alpha {
        a.text.cmp(&b.text)
    } else {
        a.number
            .total_cmp(&b.number)
            .then_with(|| a.element.cmp(&b.element))
    }
}

/// `SORT key [BY pattern] [LIMIT offset count] [GET pattern …] [ASC|DESC] [ALPHA] [STORE key]`
fn sort(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    run(data, args, out, false)
}

/// `SORT_RO key [BY pattern] [LIMIT offset count] [GET pattern …] [ASC|DESC] [ALPHA]`
fn sort_ro(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    run(data, args, out, true)
}

fn run(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, read_only: bool) -> Done {
    let mut options = Options::parse(args, read_only)?;
    let (shape, elements) = elements(data, args.at(1))?;
    let mut sorted = options.by.is_none_or(|pattern| pattern.contains(&b'*'));
    if !sorted && options.store.is_some() && shape == Some(Shape::Set) {
        // A set has no order of its own that could be stored.
        (sorted, options.alpha, options.by) = (true, true, None);
    }
    let mut weighed = Vec::with_capacity(elements.len());
    for element in elements {
        weighed.push(if sorted {
            weigh(data, options.by, options.alpha, element)?
        } else {
            Weighed {
                element,
                number: 0.0,
                text: None,
            }
        });
    }
    if sorted {
        weighed.sort_by(|a, b| {
            let order = compare(a, b, options.alpha);
            if options.descending {
                order.reverse()
            } else {
                order
            }
        });
    } else if options.descending && shape == Some(Shape::Zset) {
        weighed.reverse();
    }
    let piece = options.piece(weighed.len());
    let mut answers = Vec::new();
    for weighed in &weighed[piece] {
        if options.gets.is_empty() {
            answers.push(Some(weighed.element.clone()));
        }
        for pattern in &options.gets {
            answers.push(follow(data, pattern, &weighed.element)?);
        }
    }
    match options.store {
        Some(target) => store(data, target, &answers, out),
        None => {
            out.array(answers.len());
            for answer in &answers {
                match answer {
                    Some(bytes) => out.bulk(bytes),
                    None => out.null(),
                }
            }
            Ok(())
        }
    }
}

fn store(
    data: &mut Data<'_, '_>,
    target: &[u8],
    answers: &[Option<Vec<u8>>],
    out: &mut Out<'_>,
) -> Done {
    let was_there = data.tx.delete(data.table, target)?;
    if !answers.is_empty() {
        let items = answers.iter().map(|a| a.as_deref().unwrap_or_default());
        list::push(data.tx, data.table, target, End::Back, items, false)?;
        data.changed(Class::List, "sortstore", target);
    } else if was_there {
        data.changed(Class::Generic, "del", target);
    }
    out.count(u64::try_from(answers.len()).unwrap_or(u64::MAX));
    Ok(())
}
