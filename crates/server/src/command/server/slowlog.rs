//! SLOWLOG and LATENCY: the commands that took long.

use crate::command::Cx;
use crate::command::flag::{ADMIN, APART, LOADING};
use crate::command::spec::{Command, family};
use crate::latency::Figures;
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::session::Session;
use crate::settings::Setting;
use crate::settings::kind::Kind;
use crate::slowlog::{Entry, shortened};
use crate::spikes::Spike;
use crate::state::{State, unix_seconds};
use std::time::Duration;

const SLOWLOG_WORDS: &[(&str, i8)] = &[("get", -2), ("help", 2), ("len", 2), ("reset", 2)];
const LATENCY_WORDS: &[(&str, i8)] = &[
    ("doctor", 2),
    ("graph", 3),
    ("help", 2),
    ("histogram", -2),
    ("history", 3),
    ("latest", 2),
    ("reset", -2),
];

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    family(
        "latency",
        -2,
        LOADING | ADMIN | APART,
        LATENCY_WORDS,
        latency,
    ),
    family(
        "slowlog",
        -2,
        LOADING | ADMIN | APART,
        SLOWLOG_WORDS,
        slowlog,
    ),
];

fn length(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

impl State {
    /// Returns whether a command with this duration must be noted for SLOWLOG or LATENCY.
    #[inline]
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        let us = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
        let (slower_than, threshold) = (
            self.options.slowlog_slower_than_us,
            self.options.latency_threshold_ms,
        );
        let spike = threshold > 0 && took >= Duration::from_millis(threshold);
        spike || (slower_than >= 0 && us >= slower_than)
    }
}

/// Notes a command for SLOWLOG and LATENCY if it took long.
pub(crate) fn note(
    state: &mut State,
    session: &Session,
    command: &Command,
    args: &Args<'_>,
    took: Duration,
) {
    let us = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
    let slower_than = state.options.slowlog_slower_than_us;
    let secret = matches!(command.name, "auth" | "hello" | "exec");
    if slower_than >= 0 && us >= slower_than && !secret {
        let entry = Entry {
            id: 0,
            at_seconds: unix_seconds(),
            took,
            args: shortened(args, |at| is_secret(command, args, at)),
            peer: session.peer.clone(),
            name: session.name.clone(),
        };
        state
            .common
            .slowlog
            .lock()
            .note(state.options.slowlog_len_max, entry);
    }
    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let threshold = state.options.latency_threshold_ms;
    if threshold > 0 && ms >= threshold {
        let kind = if command.has(crate::command::flag::FAST) {
            "fast-command"
        } else {
            "command"
        };
        state.common.spikes.lock().note(kind, unix_seconds(), ms);
    }
}

/// Returns whether an argument may hold a password. Such arguments are the rules of ACL SETUSER,
/// and the value of a secret setting in CONFIG SET.
fn is_secret(command: &Command, args: &Args<'_>, at: usize) -> bool {
    let word = |word: &[u8]| args.len() > 1 && args.at(1).eq_ignore_ascii_case(word);
    match command.name {
        "acl" => at > 1 && word(b"setuser"),
        // Names and values alternate from the third argument on.
        "config" => at > 2 && at % 2 == 1 && word(b"set") && hides(args.at(at - 1)),
        _ => false,
    }
}

/// Returns whether the value of a setting must be hidden because it is a secret.
fn hides(name: &[u8]) -> bool {
    const OF_REDIS: [&str; 4] = [
        "masterauth",
        "masteruser",
        "tls-client-key-file-pass",
        "tls-key-file-pass",
    ];
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let ours = Setting::find(&name).is_some_and(|row| row.kind == Kind::Secret);
    ours || OF_REDIS.contains(&name.as_str())
}

/// `SLOWLOG word …`
fn slowlog(cx: &mut Cx<'_>, args: &Args<'_>) {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"get" => get(cx, args),
        b"len" => cx.out.count(length(cx.state.common.slowlog.lock().len())),
        b"reset" => {
            cx.state.common.slowlog.lock().clear();
            cx.out.ok();
        }
        _ => cx.out.help(&[
            "SLOWLOG <subcommand> [<arg> ...]. Subcommands are:",
            "GET [<count>]: the newest slow commands (10 of them; -1 for all), each with its id, \
             time, microseconds, arguments, and its client's address and name.",
            "LEN, RESET: how many there are; forget them.",
        ]),
    }
}

fn get(cx: &mut Cx<'_>, args: &Args<'_>) {
    if args.len() > 3 {
        let word = String::from_utf8_lossy(args.at(1)).into_owned();
        return cx.out.error(&format!(
            "ERR unknown subcommand or wrong number of arguments for '{word}'. Try SLOWLOG HELP."
        ));
    }
    let wanted = if args.len() == 3 {
        parse_i64(args.at(2))
    } else {
        Some(10)
    };
    let Some(wanted) = wanted.filter(|n| *n >= -1) else {
        let text = "ERR count should be greater than or equal to -1";
        return cx.out.error(text);
    };
    let log = cx.state.common.slowlog.lock();
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    let out = &mut cx.out;
    out.array(log.len().min(wanted));
    for entry in log.iter().take(wanted) {
        out.array(6);
        out.count(entry.id);
        out.count(entry.at_seconds);
        out.count(u64::try_from(entry.took.as_micros()).unwrap_or(u64::MAX));
        out.array(entry.args.len());
        entry.args.iter().for_each(|arg| out.bulk(arg));
        out.bulk(entry.peer.as_bytes());
        out.bulk(&entry.name);
    }
}

/// `LATENCY word …`
fn latency(cx: &mut Cx<'_>, args: &Args<'_>) {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"latest" => latest(cx),
        b"history" => history(cx, args.at(2)),
        b"graph" => graph(cx, args.at(2)),
        b"reset" => {
            let count = match args.len() {
                2 => cx.state.common.spikes.lock().clear(),
                _ => {
                    let mut spikes = cx.state.common.spikes.lock();
                    args.from(2).filter(|kind| spikes.forget(kind)).count()
                }
            };
            cx.out.count(length(count));
        }
        b"histogram" => histogram(cx, args),
        b"doctor" => doctor(cx),
        _ => cx.out.help(&[
            "LATENCY <subcommand> [<arg> ...]. Subcommands are:",
            "DOCTOR: a summary in words.",
            "GRAPH <event>, HISTORY <event>: the spikes of an event.",
            "HISTOGRAM [<command> ...]: how many calls took how long.",
            "LATEST, RESET [<event> ...]: the newest spike of each event; forget them.",
        ]),
    }
}

fn latest(cx: &mut Cx<'_>) {
    let held = cx.state.common.spikes.lock();
    let spikes: Vec<(&str, &Spike)> = held.iter().collect();
    cx.out.array(spikes.len());
    for (kind, spike) in spikes {
        let (at, ms) = spike.samples.back().copied().unwrap_or_default();
        cx.out.array(4);
        cx.out.bulk(kind.as_bytes());
        cx.out.count(at);
        cx.out.count(ms);
        cx.out.count(spike.max_ms);
    }
}

fn history(cx: &mut Cx<'_>, kind: &[u8]) {
    let held = cx.state.common.spikes.lock();
    let spike = held.find(kind);
    let samples = || spike.into_iter().flat_map(|s| s.samples.iter());
    cx.out.array(samples().count());
    for (at, ms) in samples() {
        cx.out.array(2);
        cx.out.count(*at);
        cx.out.count(*ms);
    }
}

fn graph(cx: &mut Cx<'_>, kind: &[u8]) {
    let name = String::from_utf8_lossy(kind);
    let held = cx.state.common.spikes.lock();
    let Some(spike) = held.find(kind) else {
        return cx
            .out
            .error(&format!("ERR No samples available for event '{name}'"));
    };
    let mut text = format!("{name}: the longest took {} ms\n", spike.max_ms);
    for (at, ms) in &spike.samples {
        let width = (ms * 60).checked_div(spike.max_ms).unwrap_or(0);
        let bar = "#".repeat(usize::try_from(width).unwrap_or(0));
        text += &format!("{at} {ms:>6} ms {bar}\n");
    }
    cx.out.text(&text);
}

fn doctor(cx: &mut Cx<'_>) {
    let threshold = cx.state.options.latency_threshold_ms;
    if threshold == 0 {
        return cx.out.text(
            "Spikes are not noted: set latency-monitor-threshold to the milliseconds above which \
             a command is one.\n",
        );
    }
    let mut text = String::new();
    for (kind, spike) in cx.state.common.spikes.lock().iter() {
        let count = spike.samples.len();
        text += &format!(
            "{kind}: {count} spikes above {threshold} ms, the longest {} ms. SLOWLOG GET names \
             commands.\n",
            spike.max_ms
        );
    }
    if text.is_empty() {
        text = format!("No command took {threshold} ms or longer.\n");
    }
    cx.out.text(&text);
}

/// `LATENCY HISTOGRAM [command …]`
fn histogram(cx: &mut Cx<'_>, args: &Args<'_>) {
    let figures = cx.state.figures();
    let named = figures.stats.by_command.named(&cx.state.lookup);
    let wanted = |name: &str| {
        let asked = |arg: &[u8]| {
            let arg = String::from_utf8_lossy(arg).to_ascii_lowercase();
            name == arg || name.split('|').next() == Some(arg.as_str())
        };
        args.len() == 2 || args.from(2).any(asked)
    };
    let list: Vec<(&String, &Figures)> = named
        .iter()
        .filter(|(name, figures)| figures.times.is_some() && wanted(name))
        .map(|(name, figures)| (name, *figures))
        .collect();
    let out = &mut cx.out;
    out.map(list.len());
    for (name, figures) in list {
        let bounds = figures.times.as_ref().map(|times| times.cumulative_us());
        let bounds = bounds.unwrap_or_default();
        out.bulk(name.as_bytes());
        out.map(2);
        out.bulk(b"calls");
        out.count(figures.calls);
        out.bulk(b"histogram_usec");
        out.map(bounds.len());
        for (us, count) in bounds {
            out.count(us);
            out.count(count);
        }
    }
}
