//! DUMP and RESTORE: a key's value in the binary form that Redis of any version understands.

use crate::command::event::Class;
use crate::command::flag::{DANGEROUS, DENY_OOM, READ, WRITE};
use crate::command::spec::{Command, ONE, data};
use crate::command::steps::{Reading, Restoring};
use crate::command::{Data, Done, NOT_INTEGER, SYNTAX, Stop, streams};
use crate::engine::types::{Fault, Part, hash, list, set, visit, zset};
use crate::engine::{End, Kind, Shape};
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::to_u64;
use perdura_rdb::{Error, Value, dump, parse_dump};

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    data("dump", 2, READ, ONE, dump_key),
    data("restore", -4, WRITE | DENY_OOM | DANGEROUS, ONE, restore),
    data(
        "restore-asking",
        -4,
        WRITE | DENY_OOM | DANGEROUS,
        ONE,
        restore,
    ),
];

/// `DUMP key`
fn dump_key(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    if let Some(row) = data.tx.get(data.table, args.at(1))?
        && row.kind() == Kind::String
    {
        return Reading::dump(&row).run(data, args, out);
    }
    if let Some(row) = data.tx.get(data.table, args.at(1))?
        && row.kind().shape() == Some(Shape::Stream)
    {
        data.heavy_in(args.at(1), u64::MAX)?;
        match streams::dump::taken(data, args.at(1))? {
            Some(stream) => out.bulk(&dump(&Value::Stream(stream))),
            None => out.null(),
        }
        return Ok(());
    }
    data.heavy_in(args.at(1), u64::MAX)?;
    let mut value = Value::String(Vec::new());
    let there = visit(data.tx, data.table, args.at(1), |part| {
        match (part, &mut value) {
            (Part::String(bytes), value) => *value = Value::String(bytes.to_vec()),
            (Part::Head(shape, _), value) => {
                *value = match shape {
                    Shape::Hash => Value::Hash(Vec::new()),
                    Shape::List => Value::List(Vec::new()),
                    Shape::Set => Value::Set(Vec::new()),
                    Shape::Zset => Value::Zset(Vec::new()),
                    Shape::Stream => return Err(Fault::WrongType),
                }
            }
            (Part::Field(field, value), Value::Hash(all)) => {
                all.push((field.to_vec(), value.to_vec()));
            }
            (Part::Item(item), Value::List(all)) => all.push(item.to_vec()),
            (Part::Member(member), Value::Set(all)) => all.push(member.to_vec()),
            (Part::Scored(member, score), Value::Zset(all)) => all.push((member.to_vec(), score)),
            _ => return Err(Fault::WrongType),
        }
        Ok(())
    })?;
    match there {
        Some(_) => out.bulk(&dump(&value)),
        None => out.null(),
    }
    Ok(())
}

/// The approximate number of bytes that an element takes in a payload.
const ELEMENT_BYTES: u64 = 8;
/// The approximate number of string bytes that cost as much time as one element. The server checks, copies and logs
/// these bytes.
const STRING_BYTES: u64 = 128;
/// The first bytes of a payload with a compressed string: the type, then the encoding.
const COMPRESSED_STRING: [u8; 2] = [0, 0xc3];
/// The greatest expansion by LZF: 3 compressed bytes become at most 264 bytes, so 1 byte becomes at most 88.
const LZF_RATIO_MAX: u64 = 88;

/// Returns the approximate cost of a payload's value, in elements.
fn weight(payload: &[u8]) -> u64 {
    let bytes = to_u64(payload.len());
    match payload.first() {
        Some(0) if payload.starts_with(&COMPRESSED_STRING) => bytes * LZF_RATIO_MAX / STRING_BYTES,
        Some(0) => bytes / STRING_BYTES,
        _ => bytes / ELEMENT_BYTES,
    }
}

/// The arguments of RESTORE besides the payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    ttl: u64,
    absolute: bool,
    replace: bool,
    /// Seconds since the key was used.
    idle: Option<u64>,
}

impl Terms {
    /// Returns whether an existing key is replaced.
    pub(crate) fn replaces(self) -> bool {
        self.replace
    }

    /// Returns the time when the key expires if it is made at the time `now`.
    pub(crate) fn expiry_ms(self, now: u64) -> Option<u64> {
        match (self.ttl, self.absolute) {
            (0, _) => None,
            (at, true) => Some(at),
            (ms, false) => Some(now.saturating_add(ms)),
        }
    }

    /// Returns whether the key would have expired already.
    pub(crate) fn is_over(self, now: u64) -> bool {
        self.expiry_ms(now).is_some_and(|at| at <= now)
    }

    /// Gives the new key the wanted idle time.
    pub(crate) fn age(self, data: &Data<'_, '_>, key: &[u8]) -> Done {
        if let Some(idle) = self.idle {
            data.tx.set_idle_seconds(data.table, key, idle)?;
        }
        Ok(())
    }
}

/// Returns the error for a refused payload.
pub(crate) fn refusal(error: &Error, payload: &[u8]) -> Stop {
    match error {
        Error::Version { .. } | Error::Checksum { .. } => WRONG_TAIL.into(),
        _ if payload.len() < 10 => WRONG_TAIL.into(),
        _ => "ERR Bad data format".into(),
    }
}

const WRONG_TAIL: &str = "ERR DUMP payload version or checksum are wrong";

#[derive(Default)]
struct Options {
    replace: bool,
    absolute: bool,
    /// Seconds since the key was used.
    idle: Option<u64>,
    /// True if FREQ was given. FREQ excludes IDLETIME, and its value is not kept.
    freq: bool,
}

fn options(args: &Args<'_>) -> Result<Options, Stop> {
    let mut options = Options::default();
    let mut at = 4;
    while at < args.len() {
        let word = args.at(at);
        let value = |text: &'static str| {
            let number = parse_i64(args.at(at + 1)).ok_or(NOT_INTEGER)?;
            if number < 0 { Err(text) } else { Ok(number) }
        };
        match () {
            () if word.eq_ignore_ascii_case(b"REPLACE") => options.replace = true,
            () if word.eq_ignore_ascii_case(b"ABSTTL") => options.absolute = true,
            () if word.eq_ignore_ascii_case(b"IDLETIME")
                && at + 1 < args.len()
                && !options.freq =>
            {
                let idle = value("ERR Invalid IDLETIME value, must be >= 0")?;
                options.idle = u64::try_from(idle).ok();
                at += 1;
            }
            () if word.eq_ignore_ascii_case(b"FREQ")
                && at + 1 < args.len()
                && options.idle.is_none() =>
            {
                options.freq = true;
                let text = "ERR Invalid FREQ value, must be >= 0 and <= 255";
                if value(text)? > 255 {
                    return Err(text.into());
                }
                at += 1;
            }
            () => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    Ok(options)
}

/// `RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME s] [FREQ n]`
fn restore(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    let key = args.at(1);
    let options = options(args)?;
    if !options.replace && data.tx.get(data.table, key)?.is_some() {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let ttl = parse_i64(args.at(2)).ok_or(NOT_INTEGER)?;
    let ttl = u64::try_from(ttl).map_err(|_| "ERR Invalid TTL value, must be >= 0")?;
    let terms = Terms {
        ttl,
        absolute: options.absolute,
        replace: options.replace,
        idle: options.idle,
    };
    if let Some(work) = Restoring::new(data, args, terms)? {
        return Err(Stop::Long(Box::new(work)));
    }
    let payload = args.at(3);
    data.heavy(weight(payload))?;
    let value = parse_dump(payload).map_err(|error| refusal(&error, payload))?;
    let now = data.tx.now_ms();
    let expiry = terms.expiry_ms(now);
    let gone = data.tx.delete(data.table, key)?;
    if terms.is_over(now) {
        if gone {
            data.changed(Class::Generic, "del", key);
        }
        out.ok();
        return Ok(());
    }
    write(data, key, &value)?;
    if expiry.is_some() {
        data.tx.set_expiry(data.table, key, expiry)?;
    }
    terms.age(data, key)?;
    data.changed(Class::Generic, "restore", key);
    out.ok();
    Ok(())
}

/// Writes a whole value under a key that does not exist. The value may contain an element twice.
fn write(data: &mut Data<'_, '_>, key: &[u8], value: &Value) -> Done {
    let (tx, table) = (&mut *data.tx, data.table);
    match value {
        Value::String(bytes) => tx.put(table, key, bytes, None)?,
        Value::Hash(all) => {
            let pairs = all.iter().map(|(field, value)| (&field[..], &value[..]));
            hash::set(tx, table, key, pairs)?;
        }
        Value::List(all) => {
            list::push(tx, table, key, End::Back, all.iter().map(|i| &i[..]), false)?;
        }
        Value::Set(all) => {
            set::store(tx, table, key, all.iter().map(Vec::as_slice))?;
        }
        Value::Zset(all) => {
            zset::store(tx, table, key, all)?;
        }
        Value::Stream(stream) => streams::dump::made(data, key, stream)?,
    }
    Ok(())
}
