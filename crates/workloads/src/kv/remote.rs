//! Runs the workload on a server over the Redis protocol. The client is an event loop, so that it is faster than the
//! server.
//!
//! One thread drives many connections. Each connection sends a batch of `pipeline` requests in one write, and counts
//! the replies as they arrive. After the last reply, it sends the next batch. Requests are made in place from a
//! template, so that the client needs less CPU than the server.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token, event::Source};

use super::data::{fill_value, key_of, nth_key, random_bytes};
use super::reply::{Reply, parse};
use super::report::KvReport;
use super::{Durability, KvOptions};
use crate::latency::{histogram, micros, record};
use crate::process;

/// The longest wait for the replies to one batch.
const STALL: Duration = Duration::from_secs(60);
/// The number of requests in a batch of a fill or a check.
const FILL_PIPELINE: usize = 128;

trait Blocking: Read + Write + Send {}
impl Blocking for TcpStream {}
impl Blocking for UnixStream {}

trait Socket: Read + Write + Source + Send {}
impl Socket for mio::net::TcpStream {}
impl Socket for mio::net::UnixStream {}

/// The purpose of a connection's requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Sets the keys at the indexes `next..end` of the order that [`nth_key`] defines.
    Fill { next: u64, end: u64 },
    /// Sends random requests until the time is up or `left` requests have been sent.
    Measure { left: u64 },
    /// Reads `left` filled keys and compares their values.
    Check { left: u64 },
}

struct Connection {
    socket: Box<dyn Socket>,
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    parsed: usize,
    filled: usize,
    /// The number of replies to the present batch that have not arrived.
    awaited: usize,
    /// In a check, the numbers of the keys in the present batch.
    asked: Vec<u64>,
    since: Instant,
    work: Work,
    rng: fastrand::Rng,
}

struct Outcome {
    latencies: Histogram<u64>,
    aborts: u64,
    first_error: Option<String>,
    checked: u64,
}

impl Outcome {
    fn new() -> Outcome {
        Outcome {
            latencies: histogram(),
            aborts: 0,
            first_error: None,
            checked: 0,
        }
    }
}

pub(super) fn run(options: &KvOptions, address: &str) -> Result<KvReport> {
    let mut report = KvReport::of(options);
    let mut control = Control::connect(options, address)?;
    let info = control.info()?;
    let pid = info
        .get("process_id")
        .and_then(|pid| pid.parse::<u32>().ok());
    let pid = pid.filter(|_| is_local(address));
    report.target = match (info.get("perdura_version"), info.get("redis_version")) {
        (Some(version), _) => format!("perdura {version}"),
        (None, Some(version)) => format!("redis {version}"),
        (None, None) => "unknown".into(),
    };
    if info.contains_key("perdura_version") {
        report.scheme = Some("differential");
        report.streams = number(&info, "log_streams");
        report.partitions = number(&info, "partitions");
    }

    if options.fill > 0 {
        let begin = Instant::now();
        let end = options.fill;
        let outcome = phase(options, address, |client, clients| Work::Fill {
            next: end * client / clients,
            end: end * (client + 1) / clients,
        })?;
        if let Some(error) = outcome.first_error {
            bail!("the fill was refused: {error}");
        }
        report.filled = end;
        report.fill_seconds = begin.elapsed().as_secs_f64();
    }
    if !options.duration.is_zero() {
        measure(options, address, &mut control, pid, &mut report)?;
    }
    if options.check > 0 {
        let outcome = phase(options, address, |client, clients| Work::Check {
            left: options.check * (client + 1) / clients - options.check * client / clients,
        })?;
        if let Some(error) = outcome.first_error {
            bail!("the check was refused: {error}");
        }
        report.checked = outcome.checked;
    }
    report.peak_rss_bytes = pid.and_then(process::peak_rss_bytes);
    Ok(report)
}

fn number(info: &BTreeMap<String, String>, field: &str) -> Option<u64> {
    info.get(field).and_then(|value| value.parse().ok())
}

/// Runs the measured part, and reports the resources that the server used in it.
fn measure(
    options: &KvOptions,
    address: &str,
    control: &mut Control,
    pid: Option<u32>,
    report: &mut KvReport,
) -> Result<()> {
    let before = control.info()?;
    let cpu_before = pid.and_then(process::cpu_seconds);
    let begin = Instant::now();
    let outcome = phase(options, address, |client, clients| Work::Measure {
        left: options.txns_max.map_or(u64::MAX, |txns| {
            txns * (client + 1) / clients - txns * client / clients
        }),
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    let after = control.info()?;
    let grown = |field: &str| Some(number(&after, field)?.saturating_sub(number(&before, field)?));
    report.syncs = grown("log_syncs");
    report.log_bytes = grown("log_log_bytes");
    report.log_device_bytes = grown("log_log_device_bytes");
    report.cpu_seconds = pid
        .and_then(process::cpu_seconds)
        .zip(cpu_before)
        .map(|(after, before)| after - before);
    report.aborts = outcome.aborts;
    report.first_error = outcome.first_error;
    report.measured(&outcome.latencies, seconds);
    Ok(())
}

fn is_local(address: &str) -> bool {
    is_path(address)
        || ["127.", "localhost:", "[::1]"]
            .iter()
            .any(|p| address.starts_with(p))
}

fn is_path(address: &str) -> bool {
    address.starts_with('/') || address.starts_with("./")
}

/// A connection for one request at a time.
struct Control {
    socket: Box<dyn Blocking>,
}

impl Control {
    fn connect(options: &KvOptions, address: &str) -> Result<Control> {
        let context = || format!("connecting to {address}");
        let mut control = if is_path(address) {
            let socket = UnixStream::connect(address).with_context(context)?;
            socket.set_read_timeout(Some(STALL))?;
            Control {
                socket: Box::new(socket),
            }
        } else {
            let socket = tcp(address).with_context(context)?;
            socket.set_read_timeout(Some(STALL))?;
            Control {
                socket: Box::new(socket),
            }
        };
        if let Some(password) = &options.password {
            control.ask(&[b"AUTH", password.as_bytes()])?;
        }
        Ok(control)
    }

    /// Sends a request and returns the text of the reply.
    fn ask(&mut self, words: &[&[u8]]) -> Result<Vec<u8>> {
        let mut request = Vec::new();
        put_request(&mut request, words);
        self.socket.write_all(&request)?;
        let mut input = Vec::new();
        let mut piece = [0; 16 * 1024];
        loop {
            if let Some((reply, _)) = parse(&input)? {
                return match reply {
                    Reply::Line | Reply::Nil => Ok(Vec::new()),
                    Reply::Bulk(bytes) => Ok(bytes.to_vec()),
                    Reply::Error(text) => bail!("the server says: {}", text.escape_ascii()),
                };
            }
            let got = self.socket.read(&mut piece)?;
            if got == 0 {
                bail!("the server closed the connection");
            }
            input.extend_from_slice(&piece[..got]);
        }
    }

    fn info(&mut self) -> Result<BTreeMap<String, String>> {
        let text = self.ask(&[b"INFO"])?;
        let text = String::from_utf8_lossy(&text);
        let field = |line: &str| {
            let (name, value) = line.trim_end().split_once(':')?;
            Some((name.to_owned(), value.to_owned()))
        };
        Ok(text.lines().filter_map(field).collect())
    }
}

fn tcp(address: &str) -> Result<TcpStream> {
    let resolved = address
        .to_socket_addrs()?
        .next()
        .context("the name has no address")?;
    let socket = TcpStream::connect(resolved)?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

fn put_request(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Runs the fill, the measurement or the check over all connections, which are divided among the threads.
fn phase(options: &KvOptions, address: &str, work: impl Fn(u64, u64) -> Work) -> Result<Outcome> {
    let clients = u64::try_from(options.clients).unwrap_or(u64::MAX);
    let mut groups: Vec<Vec<Connection>> = (0..options.threads).map(|_| Vec::new()).collect();
    for client in 0..clients {
        let seed = options.seed.wrapping_mul(1009).wrapping_add(client + 1);
        let connection = open(options, address, work(client, clients), seed)?;
        let turn = usize::try_from(client).unwrap_or(0) % options.threads;
        groups[turn].push(connection);
    }
    let deadline = Instant::now() + options.duration;
    let outcomes: Vec<Result<Outcome>> = std::thread::scope(|scope| {
        let threads: Vec<_> = groups
            .into_iter()
            .map(|group| scope.spawn(move || drive(options, group, deadline)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Outcome>>| match thread.join()
        {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    });
    let mut all = Outcome::new();
    for outcome in outcomes {
        let outcome = outcome?;
        all.latencies
            .add(&outcome.latencies)
            .expect("the same bounds");
        all.aborts += outcome.aborts;
        all.checked += outcome.checked;
        all.first_error = all.first_error.or(outcome.first_error);
    }
    Ok(all)
}

fn open(options: &KvOptions, address: &str, work: Work, seed: u64) -> Result<Connection> {
    let socket: Box<dyn Socket> = if is_path(address) {
        let socket = UnixStream::connect(address)?;
        prepare(options, Box::new(socket.try_clone()?))?;
        socket.set_nonblocking(true)?;
        Box::new(mio::net::UnixStream::from_std(socket))
    } else {
        let socket = tcp(address)?;
        prepare(options, Box::new(socket.try_clone()?))?;
        socket.set_nonblocking(true)?;
        Box::new(mio::net::TcpStream::from_std(socket))
    };
    Ok(Connection {
        socket,
        out: Vec::new(),
        sent: 0,
        input: vec![0; 64 * 1024],
        parsed: 0,
        filled: 0,
        awaited: 0,
        asked: Vec::new(),
        since: Instant::now(),
        work,
        rng: fastrand::Rng::with_seed(seed),
    })
}

/// Prepares a connection for its first request: logs in and sets the durability.
fn prepare(options: &KvOptions, socket: Box<dyn Blocking>) -> Result<()> {
    let mut control = Control { socket };
    if let Some(password) = &options.password {
        control.ask(&[b"AUTH", password.as_bytes()])?;
    }
    if options.durability == Durability::Mem {
        control
            .ask(&[b"CLIENT", b"DURABILITY", b"mem"])
            .context("--durability mem needs a Perdura server")?;
    }
    Ok(())
}

/// Runs the event loop of one thread.
fn drive(options: &KvOptions, mut group: Vec<Connection>, deadline: Instant) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    let mut busy = 0;
    for (number, connection) in group.iter_mut().enumerate() {
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry()
            .register(&mut connection.socket, Token(number), interest)?;
        busy += usize::from(connection.next_batch(options, deadline));
        connection.send()?;
    }
    while busy > 0 {
        poll.poll(&mut events, Some(STALL))?;
        if events.is_empty() {
            bail!("the server has not answered for {} s", STALL.as_secs());
        }
        for event in &events {
            let connection = &mut group[event.token().0];
            if event.is_readable() {
                connection.receive(options, &mut outcome)?;
            }
            if connection.awaited == 0 && !connection.out.is_empty() {
                connection.out.clear();
                busy -= usize::from(!connection.next_batch(options, deadline));
            }
            connection.send()?;
        }
    }
    Ok(outcome)
}

impl Connection {
    /// Makes the next batch of requests. Returns false if there is no more work.
    fn next_batch(&mut self, options: &KvOptions, deadline: Instant) -> bool {
        self.since = Instant::now();
        self.sent = 0;
        self.asked.clear();
        let count = match &mut self.work {
            Work::Fill { next, end } => batch_of(*end - *next, FILL_PIPELINE),
            Work::Measure { .. } if self.since >= deadline => 0,
            Work::Measure { left } => batch_of(*left, options.pipeline),
            Work::Check { left } => batch_of(*left, FILL_PIPELINE),
        };
        for _ in 0..count {
            self.next_request(options);
        }
        self.awaited = count;
        count > 0
    }

    fn next_request(&mut self, options: &KvOptions) {
        match &mut self.work {
            Work::Fill { next, .. } => {
                let number = nth_key(*next, options.keys);
                *next += 1;
                let value = put_set(&mut self.out, number, options.value_bytes);
                fill_value(number, options.seed, value);
            }
            Work::Measure { left } => {
                *left -= 1;
                let number = self.rng.u64(..options.keys);
                if self.rng.u8(..100) < options.mix.set_percent() {
                    let value = put_set(&mut self.out, number, options.value_bytes);
                    random_bytes(&mut self.rng, value);
                } else {
                    put_get(&mut self.out, number);
                }
            }
            Work::Check { left } => {
                *left -= 1;
                let number = nth_key(self.rng.u64(..options.filled.max(1)), options.keys);
                self.asked.push(number);
                put_get(&mut self.out, number);
            }
        }
    }

    fn send(&mut self) -> Result<()> {
        while self.sent < self.out.len() {
            match self.socket.write(&self.out[self.sent..]) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(n) => self.sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("sending to the server"),
            }
        }
        Ok(())
    }

    fn receive(&mut self, options: &KvOptions, outcome: &mut Outcome) -> Result<()> {
        loop {
            if self.filled == self.input.len() {
                let longer = self.input.len() * 2;
                self.input.resize(longer, 0);
            }
            match self.socket.read(&mut self.input[self.filled..]) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(n) => self.filled += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("receiving from the server"),
            }
            // A read that did not fill the buffer has emptied the socket, so another read would find nothing.
            let emptied = self.filled < self.input.len();
            self.count(options, outcome)?;
            if emptied && self.awaited == 0 {
                return Ok(());
            }
        }
    }

    fn count(&mut self, options: &KvOptions, outcome: &mut Outcome) -> Result<()> {
        let (mut replies, mut refused) = (0, 0);
        while self.parsed < self.filled {
            let Some((reply, len)) = parse(&self.input[self.parsed..self.filled])? else {
                break;
            };
            match reply {
                Reply::Error(text) => {
                    refused += 1;
                    outcome
                        .first_error
                        .get_or_insert_with(|| text.escape_ascii().to_string());
                }
                Reply::Bulk(found) if !self.asked.is_empty() => {
                    let number = self.asked[self.asked.len() - self.awaited + replies];
                    let mut expected = vec![0; options.value_bytes];
                    fill_value(number, options.seed, &mut expected);
                    if found != expected {
                        wrong(number)?;
                    }
                    outcome.checked += 1;
                }
                Reply::Nil if !self.asked.is_empty() => {
                    wrong(self.asked[self.asked.len() - self.awaited + replies])?;
                }
                Reply::Line | Reply::Bulk(_) | Reply::Nil => {}
            }
            self.parsed += len;
            replies += 1;
        }
        if self.parsed == self.filled {
            (self.parsed, self.filled) = (0, 0);
        } else if self.parsed > 0 {
            self.input.copy_within(self.parsed..self.filled, 0);
            self.filled -= self.parsed;
            self.parsed = 0;
        }
        if replies > self.awaited {
            bail!("the server sent more replies than there were requests");
        }
        self.awaited -= replies;
        let as_count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        outcome.aborts += as_count(refused);
        if replies > refused && matches!(self.work, Work::Measure { .. }) {
            let count = as_count(replies - refused);
            record(&mut outcome.latencies, micros(self.since.elapsed()), count);
        }
        Ok(())
    }
}

fn wrong(number: u64) -> Result<()> {
    bail!(
        "{} does not hold the value it was filled with",
        key_of(number).escape_ascii()
    )
}

fn batch_of(left: u64, pipeline: usize) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(pipeline)
}

/// Appends a SET and returns the value's bytes. The caller must fill these bytes.
fn put_set(out: &mut Vec<u8>, number: u64, value_bytes: usize) -> &mut [u8] {
    out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$16\r\n");
    out.extend_from_slice(&key_of(number));
    out.extend_from_slice(b"\r\n$");
    put_decimal(out, value_bytes);
    out.extend_from_slice(b"\r\n");
    let start = out.len();
    out.resize(start + value_bytes + 2, b'\n');
    out[start + value_bytes] = b'\r';
    &mut out[start..start + value_bytes]
}

fn put_get(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$16\r\n");
    out.extend_from_slice(&key_of(number));
    out.extend_from_slice(b"\r\n");
}

fn put_decimal(out: &mut Vec<u8>, number: usize) {
    let start = out.len();
    let mut rest = number;
    loop {
        out.push(b'0' + u8::try_from(rest % 10).expect("a digit"));
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out[start..].reverse();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_protocols_form() {
        let mut out = Vec::new();
        put_set(&mut out, 7, 12).fill(b'v');
        put_get(&mut out, 8);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000007\r\n$12\r\nvvvvvvvvvvvv\r\n\
             *2\r\n$3\r\nGET\r\n$16\r\nkey:000000000008\r\n"
        );
    }
}
