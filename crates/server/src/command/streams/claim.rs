//! XCLAIM and XAUTOCLAIM: a consumer takes over entries that other consumers have not acknowledged.

use super::{Excerpt, Several, collect, consumer, no_group, reply_id, shown, start, strict_id};
use crate::command::event::Class;
use crate::command::flag::{FAST, WRITE};
use crate::command::spec::{Command, ONE, data};
use crate::command::{Data, Done, SYNTAX, Stop};
use crate::engine::types::number::parse_i64;
use crate::engine::types::stream::{Consumer, Group, Id, Pending, Writing};
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::to_u64;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("xautoclaim", -6, WRITE | FAST, ONE, xautoclaim),
    data("xclaim", -6, WRITE | FAST, ONE, xclaim),
];

/// XAUTOCLAIM reads at most COUNT times this number of pending entries.
const LOOKED_FOR_ONE: u64 = 10;

/// The conditions of a claim.
struct Claim {
    now_ms: u64,
    idle_min: u64,
    justid: bool,
    force: bool,
    delivered_ms: u64,
    deliveries: Option<u64>,
}

/// A stream, and a group of the stream with the entries to claim.
struct Claiming<'a> {
    writing: Writing,
    group: Group,
    /// The consumer, which is found or made when it claims its first entry. `None`: it has claimed
    /// nothing yet.
    consumer: Option<Consumer>,
    args: Args<'a>,
    claim: Claim,
    claimed: Several,
}

fn idle_min(text: &[u8], name: &str) -> Result<u64, Stop> {
    let idle = parse_i64(text);
    let idle = idle.ok_or_else(|| format!("ERR Invalid min-idle-time argument for {name}"))?;
    Ok(u64::try_from(idle).unwrap_or(0))
}

impl<'a> Claiming<'a> {
    /// Returns a new claim, which has changed nothing.
    fn new(
        args: &Args<'a>,
        writing: Writing,
        group: Group,
        claim: Claim,
        claimed: Several,
    ) -> Claiming<'a> {
        Claiming {
            writing,
            group,
            consumer: None,
            args: *args,
            claim,
            claimed,
        }
    }

    /// Returns whether the entry is in the stream.
    fn exists(&self, data: &Data<'_, '_>, id: Id) -> Result<bool, Stop> {
        Ok(self.writing.stream(data.tx)?.contains(id)?)
    }

    /// Removes a pending entry that is no longer in the stream.
    fn forget(&mut self, data: &mut Data<'_, '_>, id: Id) -> Done {
        let pending = self.writing.stream(data.tx)?.pending(&self.group, id)?;
        let Some(pending) = pending else {
            return Ok(());
        };
        self.save_consumer(data)?;
        let name = self.args.at(2);
        self.writing
            .acknowledge(data.tx, name, &mut self.group, &[id])?;
        if let Some(consumer) = &mut self.consumer
            && consumer.number == pending.consumer
        {
            consumer.pending -= 1;
        }
        Ok(())
    }

    /// Claims an entry that exists, if it was idle for long enough.
    fn take(&mut self, data: &mut Data<'_, '_>, id: Id, pending: Option<Pending>) -> Done {
        let claim = &self.claim;
        let deliveries = match pending {
            None if !claim.force => return Ok(()),
            Some(pending) => {
                let idle = self.claim.now_ms.saturating_sub(pending.delivered_ms);
                if claim.idle_min > 0 && idle < claim.idle_min {
                    return Ok(());
                }
                pending.deliveries
            }
            None => 1,
        };
        let counted = deliveries + u64::from(!claim.justid);
        let delivery = (id, claim.delivered_ms, claim.deliveries.unwrap_or(counted));
        let mut consumer = match self.consumer.take() {
            Some(consumer) => consumer,
            None => {
                let (key, name) = (self.args.at(1), self.args.at(3));
                consumer(data, &self.writing, &mut self.group, key, name)?
            }
        };
        consumer.seen_ms = self.claim.now_ms;
        self.writing
            .give(data.tx, &mut self.group, &mut consumer, delivery)?;
        self.consumer = Some(consumer);
        if self.claim.justid {
            self.claimed.add(|out| reply_id(out, id));
            return Ok(());
        }
        let stream = self.writing.stream(data.tx)?;
        collect(data, &stream, Excerpt::one(id), &mut self.claimed)
    }

    fn save_consumer(&self, data: &mut Data<'_, '_>) -> Done {
        if let Some(consumer) = &self.consumer {
            self.writing.put_consumer(data.tx, &self.group, consumer)?;
        }
        Ok(())
    }

    fn finish(self, data: &mut Data<'_, '_>) -> Result<Several, Stop> {
        self.save_consumer(data)?;
        self.writing
            .put_group(data.tx, self.args.at(2), &self.group)?;
        self.writing.finish(data.tx)?;
        data.changed(Class::Quiet, "", self.args.at(1));
        Ok(self.claimed)
    }
}

/// Opens a stream and finds one of its groups. The first argument is the stream's key, and the second is the group's
/// name.
fn find(data: &Data<'_, '_>, args: &Args<'_>) -> Result<(Writing, Group), Stop> {
    let found = Writing::open(data.tx, data.table, args.at(1))?;
    let group = match &found {
        Some(writing) => writing.stream(data.tx)?.group(args.at(2))?,
        None => None,
    };
    found
        .zip(group)
        .ok_or_else(|| no_group(args.at(1), args.at(2)))
}

/// `XCLAIM key group consumer min-idle-time id [id …] [IDLE ms] [TIME unix-ms] [RETRYCOUNT count] [FORCE] [JUSTID]
/// [LASTID id]`
fn xclaim(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let (writing, mut group) = find(data, args)?;
    let mut claim = Claim {
        now_ms: data.tx.now_ms(),
        idle_min: idle_min(args.at(4), "XCLAIM")?,
        justid: false,
        force: false,
        delivered_ms: 0,
        deliveries: None,
    };
    let ids: Vec<Id> = args
        .from(5)
        .map_while(|text| strict_id(text, 0).ok())
        .collect();
    let now = i64::try_from(data.tx.now_ms()).unwrap_or(i64::MAX);
    let (mut delivered, mut last, mut at) = (-1, Id::MIN, 5 + ids.len());
    while at < args.len() {
        let word = args.at(at);
        let is = |known: &[u8]| word.eq_ignore_ascii_case(known);
        let has_value = at + 1 < args.len();
        at += 1;
        if is(b"FORCE") {
            claim.force = true;
            continue;
        } else if is(b"JUSTID") {
            claim.justid = true;
            continue;
        }
        if is(b"IDLE") && has_value {
            delivered = now.wrapping_sub(value_at(args, at, "IDLE")?);
        } else if is(b"TIME") && has_value {
            delivered = value_at(args, at, "TIME")?;
        } else if is(b"RETRYCOUNT") && has_value {
            claim.deliveries = u64::try_from(value_at(args, at, "RETRYCOUNT")?).ok();
        } else if is(b"LASTID") && has_value {
            last = strict_id(args.at(at), 0)?;
        } else {
            let word = shown(word);
            return Err(format!("ERR Unrecognized XCLAIM option '{word}'").into());
        }
        at += 1;
    }
    data.heavy(to_u64(ids.len()))?;
    group.last = group.last.max(last);
    let delivered = if (0..=now).contains(&delivered) {
        delivered
    } else {
        now
    };
    claim.delivered_ms = u64::try_from(delivered).unwrap_or(0);
    let mut claiming = Claiming::new(args, writing, group, claim, Several::new(out));
    for id in ids {
        if claiming.exists(data, id)? {
            let stream = claiming.writing.stream(data.tx)?;
            let pending = stream.pending(&claiming.group, id)?;
            claiming.take(data, id, pending)?;
        } else {
            claiming.forget(data, id)?;
        }
    }
    claiming.finish(data)?.reply(out);
    Ok(())
}

/// Reads the value of an option of XCLAIM.
fn value_at(args: &Args<'_>, at: usize, option: &str) -> Result<i64, Stop> {
    let text = || format!("ERR Invalid {option} option argument for XCLAIM").into();
    parse_i64(args.at(at)).ok_or_else(text)
}

/// `XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]`
fn xautoclaim(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    const COUNT_MAX: i64 = i64::MAX / 16;
    let mut claim = Claim {
        now_ms: data.tx.now_ms(),
        idle_min: idle_min(args.at(4), "XAUTOCLAIM")?,
        justid: false,
        force: false,
        delivered_ms: data.tx.now_ms(),
        deliveries: None,
    };
    let from = start(args.at(5))?;
    let (mut count, mut at) = (100, 6);
    while at < args.len() {
        if args.at(at).eq_ignore_ascii_case(b"COUNT") && at + 1 < args.len() {
            at += 1;
            let asked = parse_i64(args.at(at)).filter(|asked| (1..=COUNT_MAX).contains(asked));
            count = asked.ok_or("ERR COUNT must be > 0")?.unsigned_abs();
        } else if args.at(at).eq_ignore_ascii_case(b"JUSTID") {
            claim.justid = true;
        } else {
            return Err(SYNTAX.into());
        }
        at += 1;
    }
    let (writing, group) = find(data, args)?;
    data.heavy(count.saturating_mul(LOOKED_FOR_ONE).min(group.pending))?;
    let mut claiming = Claiming::new(args, writing, group, claim, Several::new(out));
    let mut left = count.saturating_mul(LOOKED_FOR_ONE);
    let (mut next, mut deleted) = (Some(from), Several::new(out));
    let mut cursor = Id::MIN;
    while let Some(from) = next {
        let mut found = None;
        let stream = claiming.writing.stream(data.tx)?;
        stream.each_pending(&claiming.group, from..=Id::MAX, false, |id, pending| {
            found = Some((id, pending));
            Ok(false)
        })?;
        let Some((id, pending)) = found else {
            break;
        };
        if left == 0 || count == 0 {
            cursor = id;
            break;
        }
        left -= 1;
        next = id.next();
        if claiming.exists(data, id)? {
            let before = claiming.claimed.count;
            claiming.take(data, id, Some(pending))?;
            count -= u64::from(claiming.claimed.count > before);
        } else {
            claiming.forget(data, id)?;
            deleted.add(|out| reply_id(out, id));
            count -= 1;
        }
    }
    out.array(3);
    reply_id(out, cursor);
    claiming.finish(data)?.reply(out);
    deleted.reply(out);
    Ok(())
}
