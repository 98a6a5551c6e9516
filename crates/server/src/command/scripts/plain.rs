//! The commands that touch no data and are allowed in scripts. The engine may repeat these commands together with the
//! script. So they change only two things: the database that the transaction uses, and the
//! work that is postponed until after the commit.

use crate::command::{Command, Data};
use crate::number::parse_i64;
use crate::pubsub::Topic;
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The number of databases.
const DATABASES: u8 = 16;

/// Runs a command that touches no data, if scripts may run it. Returns whether scripts may run it.
pub(super) fn run(
    data: &mut Data<'_, '_>,
    command: &Command,
    args: &Args<'_>,
    out: &mut Out<'_>,
) -> bool {
    match command.name {
        "select" => select(data, args, out),
        "publish" => publish(data, args, out, Topic::Channel),
        "spublish" => publish(data, args, out, Topic::Shard),
        "ping" if args.len() > 2 => out.error("ERR wrong number of arguments for 'ping' command"),
        "ping" if args.len() == 2 => out.bulk(args.at(1)),
        "ping" => out.simple("PONG"),
        "echo" => out.bulk(args.at(1)),
        "time" => time(data, out),
        "lastsave" => {
            let state = data.state();
            let seconds = state
                .db()
                .map_or(0, |db| state.last_save(db.stats().checkpoint.last_end_us));
            out.count(seconds);
        }
        _ => return false,
    }
    true
}

/// `SELECT index`: the selection lasts until the script ends.
fn select(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) {
    let Some(index) = parse_i64(args.at(1)) else {
        return out.error("ERR value is not an integer or out of range");
    };
    match u8::try_from(index).ok().filter(|index| *index < DATABASES) {
        Some(index) => {
            data.select(index);
            out.ok();
        }
        None => out.error("ERR DB index is out of range"),
    }
}

/// `PUBLISH channel text`: the message leaves when the script's transaction has committed.
fn publish(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, topic: Topic) {
    let message = data.state().common.message(topic, args.at(1), args.at(2));
    let count = message.count();
    if count > 0 {
        data.ran().messages.push(message);
    }
    out.count(count);
}

/// `TIME`: the start time of the script. All reads of the script see this time.
fn time(data: &Data<'_, '_>, out: &mut Out<'_>) {
    let us = data.state().wall_us();
    out.array(2);
    out.bulk((us / 1_000_000).to_string().as_bytes());
    out.bulk((us % 1_000_000).to_string().as_bytes());
}
