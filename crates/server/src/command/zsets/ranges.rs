//! Ranges of sorted sets, by rank, score or member. Commands reply with, store, count or remove a range.

use crate::command::event::Class;
use crate::command::flag::{DENY_OOM, FAST, READ, WRITE};
use crate::command::lists::{integer, shrunk};
use crate::command::spec::{Command, ONE, TWO, data};
use crate::command::steps::{Copying, Parts, Purpose, Walk, Whole, are_rows};
use crate::command::{Data, Done, SYNTAX, Stop};
use crate::engine::Shape;
use crate::engine::types::zset::{self, LexBound, LexRange, ScoreRange};
use crate::engine::types::{Source, list, score};
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("zcount", 4, READ | FAST, ONE, zcount),
    data("zlexcount", 4, READ | FAST, ONE, zlexcount),
    data("zrange", -4, READ, ONE, zrange),
    data("zrangebylex", -4, READ, ONE, zrangebylex),
    data("zrangebyscore", -4, READ, ONE, zrangebyscore),
    data("zrangestore", -5, WRITE | DENY_OOM, TWO, zrangestore),
    data("zremrangebylex", 4, WRITE, ONE, zremrangebylex),
    data("zremrangebyrank", 4, WRITE, ONE, zremrangebyrank),
    data("zremrangebyscore", 4, WRITE, ONE, zremrangebyscore),
    data("zrevrange", -4, READ, ONE, zrevrange),
    data("zrevrangebylex", -4, READ, ONE, zrevrangebylex),
    data("zrevrangebyscore", -4, READ, ONE, zrevrangebyscore),
];

/// The kind of a range's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// A range with bounds, as parsed.
#[derive(Debug)]
enum Range<'a> {
    Rank(i64, i64),
    Score(ScoreRange),
    Member(LexRange<'a>),
}

impl<'a> Range<'a> {
    fn parse(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Range<'a>, Stop> {
        Ok(match by {
            By::Rank => Range::Rank(integer(min)?, integer(max)?),
            By::Score => {
                let bound = |arg: &[u8]| {
                    let (arg, open) = arg
                        .strip_prefix(b"(")
                        .map_or((arg, false), |arg| (arg, true));
                    let number = score::parse_bound(arg).map(|number| (number, open));
                    number.ok_or(Stop::from("ERR min or max is not a float"))
                };
                let ((min, min_open), (max, max_open)) = (bound(min)?, bound(max)?);
                Range::Score(ScoreRange {
                    min,
                    min_open,
                    max,
                    max_open,
                })
            }
            By::Member => {
                let bound = |arg: &'a [u8]| match arg {
                    b"-" => Ok(LexBound::First),
                    b"+" => Ok(LexBound::Last),
                    [b'[', member @ ..] => Ok(LexBound::Closed(member)),
                    [b'(', member @ ..] => Ok(LexBound::Open(member)),
                    _ => Err(Stop::from("ERR min or max not valid string range item")),
                };
                let (min, max) = (bound(min)?, bound(max)?);
                Range::Member(LexRange { min, max })
            }
        })
    }

    /// Returns the ranks of the range, counted from the front.
    fn ranks(&self, set: &Source<'_>, reverse: bool) -> (u64, u64) {
        match self {
            Range::Rank(from, to) => {
                let len = set.len();
                let (from, to) = list::stretch(*from, *to, len);
                if reverse && from < to {
                    (len - to, len - from)
                } else {
                    (from, to)
                }
            }
            Range::Score(range) => range.ranks(set),
            Range::Member(range) => range.ranks(set, reverse),
        }
    }
}

/// The parsed request of a command of the ZRANGE family.
#[derive(Debug)]
struct Query<'a> {
    range: Range<'a>,
    reverse: bool,
    scores: bool,
    /// The number of members to skip, and the greatest number of wanted members. A negative second number means
    /// all members.
    limit: (i64, i64),
}

/// The part of a request that the name of a command determines. `None`: options determine it.
#[derive(Debug, Clone, Copy)]
struct Named {
    by: Option<By>,
    reverse: Option<bool>,
    store: bool,
}

impl<'a> Query<'a> {
    /// Reads the bounds, which begin at argument `at`, and the options after the bounds.
    fn parse(args: &Args<'a>, at: usize, named: Named) -> Result<Query<'a>, Stop> {
        let (mut by, mut reverse) = (named.by, named.reverse);
        let (mut scores, mut limit) = (false, (0, -1));
        let mut option = at + 2;
        while option < args.len() {
            let word = args.at(option);
            let left = args.len() - option - 1;
            if word.eq_ignore_ascii_case(b"WITHSCORES") && !named.store {
                scores = true;
            } else if word.eq_ignore_ascii_case(b"LIMIT") && left >= 2 {
                limit = (integer(args.at(option + 1))?, integer(args.at(option + 2))?);
                option += 2;
            } else if word.eq_ignore_ascii_case(b"REV")
                && named.reverse.is_none()
                && reverse.is_none()
            {
                reverse = Some(true);
            } else if word.eq_ignore_ascii_case(b"BYLEX") && by.is_none() {
                by = Some(By::Member);
            } else if word.eq_ignore_ascii_case(b"BYSCORE") && by.is_none() {
                by = Some(By::Score);
            } else {
                return Err(SYNTAX.into());
            }
            option += 1;
        }
        let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
        if limit.1 != -1 && by == By::Rank {
            return Err(
                "ERR syntax error, LIMIT is only supported in combination with either \
                        BYSCORE or BYLEX"
                    .into(),
            );
        }
        if scores && by == By::Member {
            return Err(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX".into(),
            );
        }
        let (mut min, mut max) = (args.at(at), args.at(at + 1));
        if reverse && by != By::Rank {
            std::mem::swap(&mut min, &mut max);
        }
        Ok(Query {
            range: Range::parse(by, min, max)?,
            reverse,
            scores,
            limit: if by == By::Rank { (0, -1) } else { limit },
        })
    }

    /// Returns the range of ranks of the members in the answer. Ranks are counted from the front of the set.
    fn ranks(&self, set: &Source<'_>) -> (u64, u64) {
        let (from, to) = self.range.ranks(set, self.reverse);
        let Ok(skipped) = u64::try_from(self.limit.0) else {
            return (0, 0);
        };
        let len = (to - from).saturating_sub(skipped);
        let len = u64::try_from(self.limit.1).map_or(len, |limit| limit.min(len));
        if self.reverse {
            let to = to.saturating_sub(skipped).max(from);
            (to - len, to)
        } else {
            let from = from.saturating_add(skipped).min(to);
            (from, from + len)
        }
    }
}

/// Members with their scores, in the order of the reply.
type Members<'s> = Box<dyn Iterator<Item = (crate::engine::types::Text<'s>, f64)> + 's>;

fn members<'s>(set: &'s Source<'_>, query: &Query<'_>) -> (usize, Members<'s>) {
    let (from, to) = query.ranks(set);
    let members = zset::members(set, from, to);
    let len = perdura_base::num::to_usize(to - from);
    if query.reverse {
        (len, Box::new(members.rev()))
    } else {
        (len, members)
    }
}

fn answer(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, named: Named) -> Done {
    let query = Query::parse(args, 2, named)?;
    let (start, max) = (out.buf.len(), data.reply_bytes_max);
    let Some(set) = data.collection(args.at(1), Shape::Zset)? else {
        out.array(0);
        return Ok(());
    };
    let (from, to) = query.ranks(&set);
    if data.is_long(to - from) {
        let walk = Walk::ranks(Shape::Zset, from..to, query.reverse);
        let parts = Parts::Ranked {
            scores: query.scores,
        };
        return Err(Stop::Long(Box::new(Whole::new(walk, parts, out.resp3))));
    }
    let (len, members) = members(&set, &query);
    let pairs = query.scores && out.resp3;
    out.array(if query.scores && !pairs { len * 2 } else { len });
    for (member, score) in members {
        if pairs {
            out.array(2);
        }
        out.bulk(&member);
        if query.scores {
            out.double(score);
        }
        if out.buf.len() - start > max {
            break;
        }
    }
    Ok(data.check_reply(out.buf.len() - start)?)
}

/// `ZRANGE key min max [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]`
fn zrange(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let named = Named {
        by: None,
        reverse: None,
        store: false,
    };
    answer(data, args, out, named)
}

fn old(by: By, reverse: bool) -> Named {
    Named {
        by: Some(by),
        reverse: Some(reverse),
        store: false,
    }
}

/// `ZREVRANGE key start stop [WITHSCORES]`
fn zrevrange(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    answer(data, args, out, old(By::Rank, true))
}

/// `ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]`
fn zrangebyscore(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    answer(data, args, out, old(By::Score, false))
}

/// `ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]`
fn zrevrangebyscore(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    answer(data, args, out, old(By::Score, true))
}

/// `ZRANGEBYLEX key min max [LIMIT offset count]`
fn zrangebylex(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    answer(data, args, out, old(By::Member, false))
}

/// `ZREVRANGEBYLEX key max min [LIMIT offset count]`
fn zrevrangebylex(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    answer(data, args, out, old(By::Member, true))
}

/// `ZRANGESTORE destination source min max [BYSCORE|BYLEX] [REV] [LIMIT offset count]`
fn zrangestore(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let named = Named {
        by: None,
        reverse: None,
        store: true,
    };
    let query = Query::parse(args, 3, named)?;
    let set = data.collection(args.at(2), Shape::Zset)?;
    if let Some(set) = &set {
        let (from, to) = query.ranks(set);
        if data.is_long(to - from) && are_rows(data.tx.packing(), Shape::Zset, to - from) {
            let walk = Walk::ranks(Shape::Zset, from..to, false);
            let work = Copying::new(Purpose::Stretch, walk, data.database);
            return Err(Stop::Long(Box::new(work)));
        }
    }
    let found = set.map(|set| {
        let members = members(&set, &query).1;
        members
            .map(|(member, score)| (member.to_vec(), score))
            .collect::<Vec<_>>()
    });
    let found = found.unwrap_or_default();
    store(data, args.at(1), "zrangestore", &found)?;
    out.count(perdura_base::num::to_u64(found.len()));
    Ok(())
}

/// Replaces the value of a key by a sorted set. If there are no members, the key is deleted.
pub(crate) fn store(
    data: &mut Data<'_, '_>,
    key: &[u8],
    event: &'static str,
    members: &[(Vec<u8>, f64)],
) -> Done {
    let was_there = zset::store(data.tx, data.table, key, members)?;
    if !members.is_empty() {
        data.changed(Class::SortedSet, event, key);
    } else if was_there {
        data.changed(Class::Generic, "del", key);
    }
    Ok(())
}

fn count(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, by: By) -> Done {
    let range = Range::parse(by, args.at(2), args.at(3))?;
    let set = data.collection(args.at(1), Shape::Zset)?;
    out.count(set.map_or(0, |set| {
        let (from, to) = range.ranks(&set, false);
        to - from
    }));
    Ok(())
}

/// `ZCOUNT key min max`
fn zcount(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    count(data, args, out, By::Score)
}

/// `ZLEXCOUNT key min max`
fn zlexcount(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    count(data, args, out, By::Member)
}

fn remove(
    data: &mut Data<'_, '_>,
    args: &Args<'_>,
    out: &mut Out<'_>,
    by: By,
    event: &'static str,
) -> Done {
    let key = args.at(1);
    let range = Range::parse(by, args.at(2), args.at(3))?;
    let ranks = zset::source(data.tx, data.table, key)?.map(|set| range.ranks(&set, false));
    let Some((from, to)) = ranks.filter(|(from, to)| from < to) else {
        out.integer(0);
        return Ok(());
    };
    data.heavy(to - from)?;
    let (removed, left) = zset::remove_ranks(data.tx, data.table, key, from, to)?;
    shrunk(data, Class::SortedSet, event, key, left);
    out.count(removed);
    Ok(())
}

/// `ZREMRANGEBYRANK key start stop`
fn zremrangebyrank(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    remove(data, args, out, By::Rank, "zremrangebyrank")
}

/// `ZREMRANGEBYSCORE key min max`
fn zremrangebyscore(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    remove(data, args, out, By::Score, "zremrangebyscore")
}

/// `ZREMRANGEBYLEX key min max`
fn zremrangebylex(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    remove(data, args, out, By::Member, "zremrangebylex")
}
