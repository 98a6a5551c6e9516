//! SORT: the sorted elements of a list, a set or a sorted set.
//!
//! `BY pattern` sorts by values of other keys, and `GET pattern` replies with values of other keys. The pattern names
//! one of these keys for each element: the element replaces the first `*`. The part after `->` is a field of a hash.

use crate::command::data::WRONG_TYPE;
use crate::command::event::Class;
use crate::command::flag::{DANGEROUS, DENY_OOM, READ, WRITE};
use crate::command::options::{Grammar, Role, Word, role, word};
use crate::command::spec::{Command, Keys, data};
use crate::command::steps::{Sorted, Walk, Wanted};
use crate::command::{Data, Done, NOT_INTEGER, SYNTAX, Stop};
use crate::engine::types::{self, Source, Texts, list, score};
use crate::engine::{End, Kind, Shape};
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::{to_u64, to_usize};
use std::cmp::Ordering;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data(
        "sort",
        -2,
        WRITE | DENY_OOM | DANGEROUS,
        Keys::Sort(&STORING),
        sort,
    ),
    data(
        "sort_ro",
        -2,
        READ | DANGEROUS,
        Keys::Sort(&ANSWERING),
        sort_ro,
    ),
];

const WORDS: [Word; 7] = [
    word("ASC", 0),
    word("DESC", 0),
    word("ALPHA", 0),
    word("LIMIT", 2),
    role("BY", Role::Pattern),
    role("GET", Role::Pattern),
    role("STORE", Role::Target),
];
/// The options of SORT.
static STORING: Grammar = Grammar {
    from: 2,
    words: &WORDS,
};
/// The options of SORT_RO: all but STORE.
static ANSWERING: Grammar = Grammar {
    from: 2,
    words: WORDS.split_at(WORDS.len() - 1).0,
};

#[derive(Default)]
struct Options<'a> {
    by: Option<&'a [u8]>,
    /// True if the pattern of a BY option contains no `*`, so that the elements keep their order.
    unsorted: bool,
    gets: Vec<&'a [u8]>,
    limit: Option<(i64, i64)>,
    descending: bool,
    alpha: bool,
    /// The index of the argument after STORE.
    target: Option<usize>,
}

impl<'a> Options<'a> {
    fn parse(args: &Args<'a>, grammar: &Grammar) -> Result<Self, Stop> {
        let mut options = Options {
            target: grammar.last(args, Role::Target),
            ..Options::default()
        };
        for found in grammar.walk(args) {
            let number = |n: usize| parse_i64(args.at(found.at + n)).ok_or(NOT_INTEGER);
            match found.word.ok_or(SYNTAX)?.name {
                "ASC" => options.descending = false,
                "DESC" => options.descending = true,
                "ALPHA" => options.alpha = true,
                "LIMIT" => options.limit = Some((number(1)?, number(2)?)),
                "BY" => {
                    let pattern = args.at(found.at + 1);
                    options.unsorted |= !pattern.contains(&b'*');
                    options.by = Some(pattern);
                }
                "GET" => options.gets.push(args.at(found.at + 1)),
                // The option is STORE, and the grammar has already found its target.
                _ => debug_assert!(options.target.is_some()),
            }
        }
        Ok(options)
    }

    /// Returns the range that LIMIT selects from `count` elements.
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

/// Returns the string that a pattern names for an element. `None`: that string does not exist.
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
    // Access control allows patterns only to users who may read every key.
    let Some(row) = data.tx.get_found(data.table, &key)? else {
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

/// Returns the sortable collection of a key, and the collection's shape. Fails if the key's value cannot be
/// sorted.
fn source<'d>(data: &'d Data<'_, '_>, key: &[u8]) -> Result<Option<(Shape, Source<'d>)>, Stop> {
    let Some(row) = data.tx.get(data.table, key)? else {
        return Ok(None);
    };
    let shape = match row.kind().shape() {
        Some(shape @ (Shape::List | Shape::Set | Shape::Zset)) => shape,
        Some(Shape::Hash | Shape::Stream) | None => return Err(WRONG_TYPE.into()),
    };
    let source = types::open::source(data.tx, data.table, row, shape)?;
    Ok(Some((shape, source)))
}

/// Returns the elements of a sortable collection in the collection's own order, and the collection's shape.
fn elements(data: &Data<'_, '_>, key: &[u8]) -> Result<(Option<Shape>, Texts), Stop> {
    let mut texts = Texts::default();
    let Some((shape, source)) = source(data, key)? else {
        return Ok((None, texts));
    };
    for entry in source.iter() {
        match shape {
            Shape::List => texts.push(&entry.item()),
            Shape::Hash | Shape::Set | Shape::Zset | Shape::Stream => texts.push(&entry.key()),
        }
    }
    Ok((Some(shape), texts))
}

/// An element's place, and the number that the element is sorted by.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::command) struct Weighed {
    /// The element's place in the collection.
    pub at: usize,
    /// The number that the element is sorted by.
    pub number: f64,
}

/// Reads a weight as C does: skips leading blanks and stops at the first zero byte. An empty text is zero.
fn weight(text: &[u8]) -> Option<f64> {
    match text.split(|byte| *byte == 0).next() {
        None | Some(b"") => Some(0.0),
        Some(text) => score::parse(text.trim_ascii_start()),
    }
}

/// Reads the number that a text is sorted by.
pub(in crate::command) fn number(text: &[u8]) -> Result<f64, Stop> {
    weight(text).ok_or("ERR One or more scores can't be converted into double".into())
}

/// Elements to be put in order.
pub(in crate::command) struct Sorting<'a> {
    elements: &'a Texts,
    alpha: bool,
    descending: bool,
    /// The string that BY names for each element. `None`: the elements are not compared by such strings.
    texts: Option<Vec<Option<Vec<u8>>>>,
}

impl<'a> Sorting<'a> {
    /// Returns a sorting of `elements` by their own values.
    pub(in crate::command) fn plain(elements: &'a Texts, wanted: &Wanted) -> Sorting<'a> {
        Sorting {
            elements,
            alpha: wanted.alpha,
            descending: wanted.descending,
            texts: None,
        }
    }

    /// Finds the number or the text that each element is sorted by. `by` is the pattern.
    fn weigh(&mut self, data: &Data<'_, '_>, by: Option<&[u8]>) -> Result<Vec<Weighed>, Stop> {
        let mut order = in_place(self.elements.len());
        let Some(pattern) = by else {
            if !self.alpha {
                for weighed in &mut order {
                    weighed.number = number(self.elements.get(weighed.at))?;
                }
            }
            return Ok(order);
        };
        let mut texts = Vec::new();
        for weighed in &mut order {
            let text = follow(data, pattern, self.elements.get(weighed.at))?;
            if self.alpha {
                texts.push(text);
            } else if let Some(text) = text {
                weighed.number = number(&text)?;
            }
        }
        self.texts = self.alpha.then_some(texts);
        Ok(order)
    }

    /// Compares two elements. Equal elements keep their order.
    pub(in crate::command) fn compare(&self, a: &Weighed, b: &Weighed) -> Ordering {
        let element = |weighed: &Weighed| self.elements.get(weighed.at);
        let order = match &self.texts {
            Some(texts) => texts[a.at].cmp(&texts[b.at]),
            None if self.alpha => element(a).cmp(element(b)),
            None => {
                // Zeros are equal, whatever their signs.
                let by_number = (a.number + 0.0).total_cmp(&(b.number + 0.0));
                by_number.then_with(|| element(a).cmp(element(b)))
            }
        };
        let order = if self.descending {
            order.reverse()
        } else {
            order
        };
        order.then(a.at.cmp(&b.at))
    }

    /// Sorts only the elements that belong in the range `piece`: they get their final places. All other elements are
    /// in no particular order.
    fn sort(&self, order: &mut [Weighed], piece: &std::ops::Range<usize>) {
        let mut wanted = order;
        if piece.end < wanted.len() {
            wanted.select_nth_unstable_by(piece.end, |a, b| self.compare(a, b));
            wanted = &mut wanted[..piece.end];
        }
        if (1..wanted.len()).contains(&piece.start) {
            wanted.select_nth_unstable_by(piece.start, |a, b| self.compare(a, b));
            wanted = &mut wanted[piece.start..];
        }
        wanted.sort_unstable_by(|a, b| self.compare(a, b));
    }
}

/// Returns the places from 0 to `count - 1` in order, each with the number zero.
fn in_place(count: usize) -> Vec<Weighed> {
    (0..count).map(|at| Weighed { at, number: 0.0 }).collect()
}

/// `SORT key [BY pattern] [LIMIT offset count] [GET pattern …] [ASC|DESC] [ALPHA] [STORE key]`
fn sort(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    run(data, args, out, &STORING)
}

/// `SORT_RO key [BY pattern] [LIMIT offset count] [GET pattern …] [ASC|DESC] [ALPHA]`
fn sort_ro(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    run(data, args, out, &ANSWERING)
}

/// Returns the work that sorts a large collection in steps. `None`: the collection is small, or BY or GET is
/// given.
fn in_steps(
    data: &Data<'_, '_>,
    args: &Args<'_>,
    options: &Options<'_>,
) -> Result<Option<Sorted>, Stop> {
    if options.by.is_some() || !options.gets.is_empty() {
        return Ok(None);
    }
    let found = source(data, args.at(1))?;
    let long = found.filter(|(_, source)| data.is_long(source.len()));
    Ok(long.map(|(shape, source)| {
        let wanted = Wanted {
            alpha: options.alpha,
            descending: options.descending,
            piece: options.piece(to_usize(source.len())),
            target: options.target,
        };
        Sorted::new(Walk::all(shape, source.len()), wanted)
    }))
}

fn run(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, grammar: &Grammar) -> Done {
    let mut options = Options::parse(args, grammar)?;
    if let Some(work) = in_steps(data, args, &options)? {
        return Err(Stop::Long(Box::new(work)));
    }
    data.heavy_in(args.at(1), u64::MAX)?;
    let (shape, elements) = elements(data, args.at(1))?;
    let target = options.target.map(|at| args.at(at));
    let mut sorted = !options.unsorted;
    if !sorted && target.is_some() && shape == Some(Shape::Set) {
        // The elements of a set have no order that could be stored, so they are sorted as texts.
        (sorted, options.alpha, options.by) = (true, true, None);
    }
    let piece = options.piece(elements.len());
    let mut order;
    if sorted {
        let mut sorting = Sorting {
            elements: &elements,
            alpha: options.alpha,
            descending: options.descending,
            texts: None,
        };
        order = sorting.weigh(data, options.by)?;
        sorting.sort(&mut order, &piece);
    } else {
        order = in_place(elements.len());
        if options.descending && shape == Some(Shape::Zset) {
            order.reverse();
        }
    }
    let chosen = order[piece].iter().map(|weighed| elements.get(weighed.at));
    if options.gets.is_empty() {
        return answer(data, target, chosen.map(Some), out);
    }
    let mut answers = Vec::new();
    for element in chosen {
        for pattern in &options.gets {
            answers.push(follow(data, pattern, element)?);
        }
    }
    answer(data, target, answers.iter().map(Option::as_deref), out)
}

/// Stores the result under `target` if a target is given, and otherwise replies with it.
fn answer<'t>(
    data: &mut Data<'_, '_>,
    target: Option<&[u8]>,
    answers: impl ExactSizeIterator<Item = Option<&'t [u8]>>,
    out: &mut Out<'_>,
) -> Done {
    if let Some(target) = target {
        out.count(to_u64(answers.len()));
        return store(data, target, answers);
    }
    out.array(answers.len());
    for answer in answers {
        match answer {
            Some(bytes) => out.bulk(bytes),
            None => out.null(),
        }
    }
    Ok(())
}

/// Replaces the value of a key by a list. Without items the key is deleted.
pub(in crate::command) fn store<'t>(
    data: &mut Data<'_, '_>,
    target: &[u8],
    answers: impl ExactSizeIterator<Item = Option<&'t [u8]>>,
) -> Done {
    let count = answers.len();
    let was_there = data.tx.delete(data.table, target)?;
    if count > 0 {
        let items = answers.map(Option::unwrap_or_default);
        list::push(data.tx, data.table, target, End::Back, items, false)?;
        data.changed(Class::List, "sortstore", target);
    } else if was_there {
        data.changed(Class::Generic, "del", target);
    }
    Ok(())
}
