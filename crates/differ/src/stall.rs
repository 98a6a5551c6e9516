//! The stall meter: one client PINGs while another runs each command that is known to be heavy, on
//! our server and on Redis.
//!
//! What a command does to others is the worst of those PINGs. That is wall time, which a busy machine
//! makes longer for both; the longest round of our loop by its thread's processor clock
//! (`loop_longest_round_cpu_us` of INFO) is not, and is what a gate can rest on.

use crate::pair::{Pair, Side};
use crate::reply::Body;
use crate::wire::{Wire, encode};
use anyhow::{Context, Result, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Requests that are sent in one piece, with how many replies they have.
pub struct Load {
    /// What it is.
    pub name: &'static str,
    /// Sent before, and not measured.
    pub before: fn(u64) -> Vec<Vec<Vec<u8>>>,
    /// The load itself, from so many connections.
    pub run: fn(u64) -> Vec<Vec<Vec<u8>>>,
    /// How many connections send it at once.
    pub clients: usize,
}

/// What one load did to another client.
#[derive(Debug, Clone, Copy)]
pub struct Stall {
    /// The worst PING.
    pub worst: Duration,
    /// The longest round of our loop by its processor clock.
    pub round: Option<Duration>,
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn nothing(_: u64) -> Vec<Vec<Vec<u8>>> {
    Vec::new()
}

fn increments(n: u64) -> Vec<Vec<Vec<u8>>> {
    (0..n).map(|_| words(&["INCR", "n"])).collect()
}

fn block(n: u64) -> Vec<Vec<Vec<u8>>> {
    let mut all = vec![words(&["MULTI"])];
    all.extend((0..n).map(|i| words(&["SET", &format!("key:{i}"), "value"])));
    all.push(words(&["EXEC"]));
    all
}

/// A block whose every command fails.
fn failing_block(n: u64) -> Vec<Vec<Vec<u8>>> {
    let mut all = vec![words(&["SET", "text", "x"]), words(&["MULTI"])];
    all.extend((0..n).map(|_| words(&["INCR", "text"])));
    all.push(words(&["EXEC"]));
    all
}

fn upload(n: u64) -> Vec<Vec<Vec<u8>>> {
    let bytes = usize::try_from(n * 59).unwrap_or(usize::MAX);
    vec![vec![b"SET".to_vec(), b"large".to_vec(), vec![b'v'; bytes]]]
}

fn swaps(n: u64) -> Vec<Vec<Vec<u8>>> {
    (0..n / 100).map(|_| words(&["SWAPDB", "0", "1"])).collect()
}

/// The loads of which the loop itself is in charge.
pub static LOADS: &[Load] = &[
    Load {
        name: "n pipelined INCR",
        before: nothing,
        run: increments,
        clients: 1,
    },
    Load {
        name: "n pipelined INCR of 8 clients",
        before: nothing,
        run: increments,
        clients: 8,
    },
    Load {
        name: "MULTI of n SET",
        before: nothing,
        run: block,
        clients: 1,
    },
    Load {
        name: "MULTI of n that fail",
        before: nothing,
        run: failing_block,
        clients: 1,
    },
    Load {
        name: "40 uploads of 59 n bytes",
        before: nothing,
        run: upload,
        clients: 40,
    },
    Load {
        name: "n/100 SWAPDB",
        before: nothing,
        run: swaps,
        clients: 1,
    },
];

/// Runs one load of size `n` on one side.
///
/// # Errors
/// The sockets', and a load that is refused.
pub fn measure(pair: &Pair, side: Side, load: &Load, n: u64) -> Result<Stall> {
    let mut control = pair.connect(side)?;
    control.call(&["FLUSHALL"])?;
    send_all(&mut control, &(load.before)(n))?;
    control.call(&["CONFIG", "RESETSTAT"])?;
    let requests = (load.run)(n);
    let bytes: Arc<Vec<u8>> = Arc::new(requests.iter().flat_map(|argv| encode(argv)).collect());
    let count = requests.len();
    drop(requests);
    let done = Arc::new(AtomicBool::new(false));
    let pinging = {
        let (mut wire, done) = (pair.connect(side)?, Arc::clone(&done));
        std::thread::spawn(move || -> Result<Duration> {
            let mut worst = Duration::ZERO;
            while !done.load(Ordering::Relaxed) {
                let begin = Instant::now();
                wire.call(&["PING"])?;
                worst = worst.max(begin.elapsed());
                std::thread::sleep(Duration::from_micros(500));
            }
            Ok(worst)
        })
    };
    let clients: Vec<_> = (0..load.clients)
        .map(|_| -> Result<_> {
            let (wire, bytes) = (pair.connect(side)?, Arc::clone(&bytes));
            Ok(std::thread::spawn(move || pump(wire, &bytes, count)))
        })
        .collect::<Result<_>>()?;
    let ended: Vec<Result<()>> = clients
        .into_iter()
        .map(|client| client.join().unwrap_or_else(|_| bail!("a client panicked")))
        .collect();
    done.store(true, Ordering::Relaxed);
    let worst = pinging
        .join()
        .unwrap_or_else(|_| bail!("the PINGs panicked"))?;
    ended.into_iter().collect::<Result<Vec<()>>>()?;
    let round = match side {
        Side::Theirs => None,
        Side::Ours => Some(longest_round(&mut control)?),
    };
    Ok(Stall { worst, round })
}

fn send_all(wire: &mut Wire, requests: &[Vec<Vec<u8>>]) -> Result<()> {
    for request in requests {
        wire.send(&encode(request))?;
        wire.read()?;
    }
    Ok(())
}

/// Sends and reads at once, as a pipelining client does.
fn pump(wire: Wire, bytes: &[u8], replies: usize) -> Result<()> {
    let (mut reading, mut writing) = wire.split()?;
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || -> Result<()> {
            for _ in 0..replies {
                reading.read()?;
            }
            Ok(())
        });
        let sent = writing.send(bytes);
        let read = reader
            .join()
            .unwrap_or_else(|_| bail!("the reader panicked"));
        sent.and(read)
    })
}

fn longest_round(control: &mut Wire) -> Result<Duration> {
    let reply = control.call(&["INFO", "stats"])?;
    let Body::Text(info) = &reply.body else {
        bail!("INFO answers {reply}");
    };
    let info = String::from_utf8_lossy(info);
    let at = info
        .find("loop_longest_round_cpu_us:")
        .context("INFO tells of the longest round")?;
    let digits: String = info[at..]
        .chars()
        .skip_while(|c| *c != ':')
        .skip(1)
        .take_while(char::is_ascii_digit)
        .collect();
    Ok(Duration::from_micros(digits.parse()?))
}
