//! The steps with clients that block on keys or subscribe to channels.

use crate::divergence::Divergence;
use crate::pair::Side;
use crate::reply::{Body, Reply};
use crate::step::Argv;
use crate::wire::{Wire, encode};
use crate::wires::Wires;
use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// A server must have blocked or answered a client within this time.
const SETTLED: Duration = Duration::from_secs(5);

/// Sends each server a command that may block. Waits until the server has answered or blocked the client.
pub(crate) fn block(wires: &mut Wires, conn: usize, argv: &Argv) -> Result<()> {
    for side in [Side::Theirs, Side::Ours] {
        let before = blocked(wires.control(side))?;
        wires.wire(conn, side).id()?;
        wires.wire(conn, side).send(&encode(argv))?;
        let begun = Instant::now();
        while !wires.wire(conn, side).has_something()? && blocked(wires.control(side))? <= before {
            if begun.elapsed() > SETTLED {
                bail!("{side:?} neither answers nor blocks");
            }
        }
    }
    Ok(())
}

fn blocked(control: &mut Wire) -> Result<i64> {
    let info = control.call(&["INFO", "clients"])?;
    let text = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix("blocked_clients:"));
    match line.and_then(|number| number.trim().parse().ok()) {
        Some(number) => Ok(number),
        None => bail!("INFO clients has no blocked_clients: {text}"),
    }
}

/// Unblocks a client on each server, if the client still waits. `waited` is the command that blocked the client. The
/// servers' replies to this command are compared.
pub(crate) fn settle(
    wires: &mut Wires,
    conn: usize,
    error: bool,
    waited: &Argv,
) -> Result<Option<Divergence>> {
    let mut unblocked = Vec::new();
    // A wait with a short timeout is not ended early. Redis notices timeouts only ten times a second, so the replies
    // would differ.
    let short = |word: &Vec<u8>| word.starts_with(b"0.0");
    if waited.iter().any(short) {
        let ours = wires.wire(conn, Side::Ours).read()?;
        let theirs = wires.wire(conn, Side::Theirs).read()?;
        return Ok(Divergence::unless_same(waited, None, &ours, &theirs));
    }
    for side in [Side::Ours, Side::Theirs] {
        let id = wires.wire(conn, side).id_known()?.to_string();
        let how = if error { "ERROR" } else { "TIMEOUT" };
        let reply = wires.control(side).call(&["CLIENT", "UNBLOCK", &id, how])?;
        unblocked.push(reply);
    }
    let ours = wires.wire(conn, Side::Ours).read()?;
    let theirs = wires.wire(conn, Side::Theirs).read()?;
    if unblocked[0] != unblocked[1] {
        let note = format!(
            "still blocked: ours {}, Redis {}",
            unblocked[0], unblocked[1]
        );
        return Ok(Some(Divergence::new(waited, &ours, &theirs).at(&note)));
    }
    Ok(Divergence::unless_same(waited, None, &ours, &theirs))
}

/// Sends a command on a connection that also gets messages. Compares all replies and messages.
pub(crate) fn hear(wires: &mut Wires, conn: usize, argv: &Argv) -> Result<Option<Divergence>> {
    let token = wires.token();
    let mut heard = Vec::new();
    for side in [Side::Ours, Side::Theirs] {
        let wire = wires.wire(conn, side);
        if !argv.is_empty() {
            wire.send(&encode(argv))?;
        }
        let mut messages = wire.drain(&token)?;
        // Messages about expired keys are left out: the servers may remove an expired key at different times.
        let expired = |message: &Reply| {
            message
                .leaves()
                .iter()
                .any(|leaf| leaf.ends_with(b"expired"))
        };
        messages.retain(|message| !expired(message));
        heard.push(Reply {
            kind: b'*',
            body: Body::Items(in_order(argv, messages)),
        });
    }
    let differs = heard[0] != heard[1];
    Ok(differs.then(|| Divergence::new(argv, &heard[0], &heard[1])))
}

/// Sorts messages whose order Redis does not define, because it takes the order from a hash table. These are the
/// messages to several patterns for one event, and the replies to an UNSUBSCRIBE without channels.
fn in_order(argv: &Argv, mut messages: Vec<Reply>) -> Vec<Reply> {
    if argv.len() == 1 {
        let mut leaves: Vec<Reply> = messages
            .iter()
            .flat_map(|message| message.items().to_vec())
            .collect();
        leaves.sort_unstable();
        return leaves;
    }
    let last = |reply: &Reply| reply.items().last().cloned();
    let mut begin = 0;
    for i in 1..=messages.len() {
        if messages.get(i).and_then(last) != messages.get(begin).and_then(last) {
            messages[begin..i].sort_unstable();
            begin = i;
        }
    }
    messages
}
