//! Combinations of several sorted sets: ZUNION, ZINTER, ZDIFF, and the commands that store or count combinations.

use crate::command::flag::{DENY_OOM, READ, WRITE};
use crate::command::lists::integer;
use crate::command::spec::{Command, data};
use crate::command::zsets::ranges::store;
use crate::command::zsets::reply_scored;
use crate::command::{Data, Done, Keys, SYNTAX, Stop};
use crate::engine::types::number::parse_i64;
use crate::engine::types::score;
use crate::engine::types::zset::{self, Aggregate, Operation};
use crate::resp::parse::Args;
use crate::resp::reply::Out;

const COUNTED: Keys = Keys::Counted { at: 1, dest: false };
const STORED: Keys = Keys::Counted { at: 2, dest: true };
const STORES: u32 = WRITE | DENY_OOM;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("zdiff", -3, READ, COUNTED, zdiff),
    data("zdiffstore", -4, STORES, STORED, zdiffstore),
    data("zinter", -3, READ, COUNTED, zinter),
    data("zintercard", -3, READ, COUNTED, zintercard),
    data("zinterstore", -4, STORES, STORED, zinterstore),
    data("zunion", -3, READ, COUNTED, zunion),
    data("zunionstore", -4, STORES, STORED, zunionstore),
];

/// The use of the resulting members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    Counted,
    Stored,
}

/// The differences between the commands of this module.
#[derive(Clone, Copy)]
struct Summing {
    name: &'static str,
    operation: Operation,
    fate: Fate,
}

impl Summing {
    const fn new(name: &'static str, operation: Operation, fate: Fate) -> Summing {
        Summing {
            name,
            operation,
            fate,
        }
    }
}

/// The options after the keys.
struct Options {
    weights: Vec<f64>,
    aggregate: Aggregate,
    scores: bool,
    limit: u64,
}

fn options(
    args: &Args<'_>,
    mut at: usize,
    keys: usize,
    operation: Operation,
    fate: Fate,
) -> Result<Options, Stop> {
    let mut options = Options {
        weights: vec![1.0; keys],
        aggregate: Aggregate::Sum,
        scores: false,
        limit: u64::MAX,
    };
    let sums = operation != Operation::Difference && fate != Fate::Counted;
    while at < args.len() {
        let (word, left) = (args.at(at), args.len() - at);
        at += 1;
        if sums && left > keys && word.eq_ignore_ascii_case(b"WEIGHTS") {
            for weight in &mut options.weights {
                let read = score::parse(args.at(at));
                *weight = read.ok_or("ERR weight value is not a float")?;
                at += 1;
            }
        } else if sums && left >= 2 && word.eq_ignore_ascii_case(b"AGGREGATE") {
            let word = args.at(at);
            at += 1;
            options.aggregate = if word.eq_ignore_ascii_case(b"SUM") {
                Aggregate::Sum
            } else if word.eq_ignore_ascii_case(b"MIN") {
                Aggregate::Min
            } else if word.eq_ignore_ascii_case(b"MAX") {
                Aggregate::Max
            } else {
                return Err(SYNTAX.into());
            };
        } else if fate == Fate::Answered && word.eq_ignore_ascii_case(b"WITHSCORES") {
            options.scores = true;
        } else if fate == Fate::Counted && left >= 2 && word.eq_ignore_ascii_case(b"LIMIT") {
            let limit = parse_i64(args.at(at)).and_then(|limit| u64::try_from(limit).ok());
            options.limit = limit.ok_or("ERR LIMIT can't be negative")?;
            at += 1;
        } else {
            return Err(SYNTAX.into());
        }
    }
    if options.limit == 0 {
        options.limit = u64::MAX;
    }
    Ok(options)
}

fn combine(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, summing: Summing) -> Done {
    let Summing {
        name,
        operation,
        fate,
    } = summing;
    let numkeys = match fate {
        Fate::Stored => 2,
        Fate::Answered | Fate::Counted => 1,
    };
    let keys = integer(args.at(numkeys))?;
    if keys < 1 {
        let text = format!("ERR at least 1 input key is needed for '{name}' command");
        return Err(text.into());
    }
    let first = numkeys + 1;
    let keys = usize::try_from(keys).unwrap_or(usize::MAX);
    if keys > args.len() - first {
        return Err(SYNTAX.into());
    }
    let mut inputs = Vec::with_capacity(keys);
    for key in args.from(first).take(keys) {
        inputs.push(zset::input(data.tx, data.table, key)?);
    }
    let options = options(args, first + keys, keys, operation, fate)?;
    for (input, weight) in inputs.iter_mut().zip(&options.weights) {
        if let Some(input) = input {
            input.weight = *weight;
        }
    }
    data.heavy(zset::looked_at(&inputs, operation))?;
    let found = zset::combine(&inputs, operation, options.aggregate, options.limit);
    let there = inputs.iter().flatten().count();
    drop(inputs);
    let count = perdura_base::num::to_u64(found.len());
    match fate {
        Fate::Counted => out.count(count),
        Fate::Stored => {
            store(data, args.at(1), name, &found)?;
            out.count(count);
            return Ok(());
        }
        Fate::Answered if options.scores => {
            reply_scored(out, found.iter().map(|(member, score)| (member, *score)));
        }
        Fate::Answered => {
            out.array(found.len());
            found.iter().for_each(|(member, _)| out.bulk(member));
        }
    }
    (0..keys).for_each(|at| data.looked_up(at < there));
    Ok(())
}

/// `ZUNION numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]`
fn zunion(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let summing = Summing::new("zunion", Operation::Union, Fate::Answered);
    combine(data, args, out, summing)
}

/// `ZINTER numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]`
fn zinter(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let summing = Summing::new("zinter", Operation::Intersection, Fate::Answered);
    combine(data, args, out, summing)
}

/// `ZDIFF numkeys key [key …] [WITHSCORES]`
fn zdiff(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let summing = Summing::new("zdiff", Operation::Difference, Fate::Answered);
    combine(data, args, out, summing)
}

/// `ZINTERCARD numkeys key [key …] [LIMIT limit]`
fn zintercard(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let summing = Summing::new("zintercard", Operation::Intersection, Fate::Counted);
    combine(data, args, out, summing)
}

/// `ZUNIONSTORE destination numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM|MIN|MAX]`
fn zunionstore(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let summing = Summing::new("zunionstore", Operation::Union, Fate::Stored);
    combine(data, args, out, summing)
}

/// `ZINTERSTORE destination numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM|MIN|MAX]`
fn zinterstore(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let summing = Summing::new("zinterstore", Operation::Intersection, Fate::Stored);
    combine(data, args, out, summing)
}

/// `ZDIFFSTORE destination numkeys key [key …]`
fn zdiffstore(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let summing = Summing::new("zdiffstore", Operation::Difference, Fate::Stored);
    combine(data, args, out, summing)
}
