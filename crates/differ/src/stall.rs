//! The stall meter. One client sends PINGs while a second client runs a heavy command, on our server and on Redis.
//!
//! The slowest PING shows the effect of a command on other clients. PINGs are measured in wall time: on a busy machine
//! all PINGs take longer. The longest round of the server's loop is measured in processor time of its thread. This time
//! does not depend on other processes, so a test can limit it. Our server reports it as `loop_longest_round_cpu_us` of
//! INFO. Redis does not report it. So the meter reads the processor time of Redis's main thread before each PING and
//! after the reply. The largest difference counts as the longest round. It includes all work of the thread for a load,
//! not only the command itself.
//!
//! ```sh
//! scripts/bench-stalls.sh
//! ```

mod loads;
mod requests;

pub use loads::{LOADS, Load, MORE_LOADS, Run};

use crate::pair::{Pair, Side};
use crate::reply::{Body, Reply};
use crate::wire::Wire;
use anyhow::{Context, Result, bail};
use requests::{Requests, line};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// All expired keys must be removed within this time.
const EXPIRY: Duration = Duration::from_secs(120);

/// The effect of one load on a client that PINGs.
#[derive(Debug, Clone, Copy)]
pub struct Stall {
    /// The longest time of a PING.
    pub worst: Duration,
    /// The longest round of the server's loop, in processor time of its thread.
    pub round: Duration,
}

/// Runs one load of size `n` on one server.
///
/// # Errors
/// Errors of the sockets, and a refused load.
pub fn measure(pair: &Pair, side: Side, load: &Load, n: u64) -> Result<Stall> {
    let mut control = pair.connect(side)?;
    control.call(&["FLUSHALL"])?;
    pump(pair.connect(side)?, &(load.before)(n))?;
    let requests = match load.run {
        Run::Send(make) => make(n),
        Run::Ask(request) => line(&request.replace("{n}", &n.to_string())),
        Run::Restore => restore(&mut control)?,
        Run::Expire => Requests::default(),
    };
    let clock = match side {
        Side::Ours => None,
        Side::Theirs => {
            let pid = pair.redis_pid();
            Some(ThreadClock(
                format!("/proc/{pid}/task/{pid}/schedstat").into(),
            ))
        }
    };
    control.call(&["CONFIG", "RESETSTAT"])?;
    let requests = Arc::new(requests);
    let done = Arc::new(AtomicBool::new(false));
    let pinging = {
        let (mut wire, done) = (pair.connect(side)?, Arc::clone(&done));
        wire.call(&["PING"])?;
        std::thread::spawn(move || ping(&mut wire, clock.as_ref(), &done))
    };
    let clients: Vec<_> = (0..load.clients)
        .map(|_| -> Result<_> {
            let (wire, requests) = (pair.connect(side)?, Arc::clone(&requests));
            Ok(std::thread::spawn(move || pump(wire, &requests)))
        })
        .collect::<Result<_>>()?;
    let mut ended: Vec<Result<()>> = clients
        .into_iter()
        .map(|client| client.join().unwrap_or_else(|_| bail!("a client panicked")))
        .collect();
    if matches!(load.run, Run::Expire) {
        ended.push(await_expiry(&mut control));
    }
    done.store(true, Ordering::Relaxed);
    let mut stall = pinging
        .join()
        .unwrap_or_else(|_| bail!("the PINGs panicked"))?;
    ended.into_iter().collect::<Result<Vec<()>>>()?;
    if side == Side::Ours {
        let us = info(&mut control, "stats", "loop_longest_round_cpu_us")?;
        stall.round = Duration::from_micros(us.parse()?);
    }
    Ok(stall)
}

/// Sends PINGs until `done` is set. `cpu` reads the clock of the server's thread, to compute the longest round.
fn ping(wire: &mut Wire, cpu: Option<&ThreadClock>, done: &AtomicBool) -> Result<Stall> {
    let mut stall = Stall {
        worst: Duration::ZERO,
        round: Duration::ZERO,
    };
    let cpu = || cpu.map_or(Ok(Duration::ZERO), ThreadClock::read);
    while !done.load(Ordering::Relaxed) {
        let (begin, before) = (Instant::now(), cpu()?);
        wire.call(&["PING"])?;
        stall.worst = stall.worst.max(begin.elapsed());
        stall.round = stall.round.max(cpu()?.saturating_sub(before));
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(stall)
}

/// The processor time of a process's main thread.
struct ThreadClock(PathBuf);

impl ThreadClock {
    fn read(&self) -> Result<Duration> {
        let text = std::fs::read_to_string(&self.0)
            .with_context(|| format!("reading {}", self.0.display()))?;
        let ns = text.split(' ').next().unwrap_or_default();
        Ok(Duration::from_nanos(ns.parse()?))
    }
}

/// Returns the value of a field of INFO.
fn info(control: &mut Wire, section: &str, field: &str) -> Result<String> {
    let reply = control.call(&["INFO", section])?;
    let Body::Text(info) = &reply.body else {
        bail!("INFO answers {reply}");
    };
    let info = String::from_utf8_lossy(info);
    let found = info
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    found
        .map(str::to_owned)
        .with_context(|| format!("INFO tells of {field}"))
}

/// Makes the requests that RESTORE a DUMP of the key `c`.
fn restore(control: &mut Wire) -> Result<Requests> {
    let reply = control.call(&["DUMP", "c"])?;
    let Body::Text(payload) = reply.body else {
        bail!("DUMP answers {reply}");
    };
    Ok(requests::words("RESTORE e 0", [payload]))
}

fn await_expiry(control: &mut Wire) -> Result<()> {
    let begin = Instant::now();
    while control.call(&["DBSIZE"])?.int() != Some(0) {
        if begin.elapsed() > EXPIRY {
            bail!("keys that are due are there after {EXPIRY:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Sends requests while reading replies, as a pipelining client does. Fails if a reply is an error. Errors among the
/// items of an EXEC reply are ignored.
fn pump(wire: Wire, requests: &Requests) -> Result<()> {
    let (mut reading, mut writing) = wire.split()?;
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || -> Result<()> {
            for _ in 0..requests.count {
                let reply: Reply = reading.read()?;
                if reply.is_error() {
                    bail!("a load is refused: {reply}");
                }
            }
            Ok(())
        });
        let sent = writing.send(&requests.bytes);
        let read = reader
            .join()
            .unwrap_or_else(|_| bail!("the reader panicked"));
        read.and(sent)
    })
}
