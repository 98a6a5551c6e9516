//! The counters of a loop, and those of each command: its runs, refusals, failures and durations. A separate counter counts the error
//! replies with each code.
//!
//! A command's counters are found by the command's slot in the lookup. If the command has a second word, they are
//! found by the slot and the word.

use crate::command::Command;
use crate::command::lookup::{Lookup, SLOTS};
use crate::latency::Figures;
use crate::resp::parse::Args;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Counters since the start or CONFIG RESETSTAT.
#[derive(Debug, Default, Clone)]
pub(crate) struct Stats {
    /// Requests with a command.
    pub commands: u64,
    /// Error replies.
    pub errors: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused because of `maxclients` or `protected-mode`.
    pub rejected: u64,
    /// Connections closed because the client did not speak RESP.
    pub foreign: u64,
    /// Bytes read.
    pub input_bytes: u64,
    /// Bytes written.
    pub output_bytes: u64,
    /// Keys found.
    pub hits: u64,
    /// Keys looked up and not found.
    pub misses: u64,
    /// The counters of each command.
    pub by_command: CommandStats,
    /// Clients disconnected because the buffers of all clients took too much memory.
    pub evicted_clients: u64,
    /// Clients disconnected because they did not read.
    pub output_limit_disconnections: u64,
    /// Clients disconnected because their waiting requests took too much memory.
    pub query_limit_disconnections: u64,
    /// Reads from clients that returned bytes.
    pub reads: u64,
    /// Writes to clients.
    pub writes: u64,
    /// The number of keys that expiry had removed before the counters were last reset.
    pub expired_before: u64,
    /// Commands, bytes read and bytes written per second, measured over the last second.
    pub per_second: [u64; 3],
}

impl Stats {
    /// Adds the counters of another loop.
    pub(crate) fn add(&mut self, other: &Stats) {
        let Stats {
            commands,
            errors,
            accepted,
            rejected,
            foreign,
            input_bytes,
            output_bytes,
            hits,
            misses,
            by_command,
            evicted_clients,
            output_limit_disconnections,
            query_limit_disconnections,
            reads,
            writes,
            expired_before,
            per_second,
        } = other;
        for (sum, part) in [
            (&mut self.commands, commands),
            (&mut self.errors, errors),
            (&mut self.accepted, accepted),
            (&mut self.rejected, rejected),
            (&mut self.foreign, foreign),
            (&mut self.input_bytes, input_bytes),
            (&mut self.output_bytes, output_bytes),
            (&mut self.hits, hits),
            (&mut self.misses, misses),
            (&mut self.evicted_clients, evicted_clients),
            (
                &mut self.output_limit_disconnections,
                output_limit_disconnections,
            ),
            (
                &mut self.query_limit_disconnections,
                query_limit_disconnections,
            ),
            (&mut self.reads, reads),
            (&mut self.writes, writes),
        ] {
            *sum += part;
        }
        // All loops count from one moment.
        self.expired_before = self.expired_before.max(*expired_before);
        let rates = self.per_second.iter_mut().zip(per_second);
        rates.for_each(|(sum, part)| *sum += part);
        self.by_command.add(by_command);
    }
}

/// The figures of all commands.
#[derive(Debug, Clone)]
pub(crate) struct CommandStats {
    plain: Vec<Figures>,
    words: HashMap<(usize, usize), Figures>,
    errors: BTreeMap<String, u64>,
}

impl Default for CommandStats {
    fn default() -> Self {
        let plain = (0..SLOTS).map(|_| Figures::default()).collect();
        CommandStats {
            plain,
            words: HashMap::new(),
            errors: BTreeMap::new(),
        }
    }
}

/// The place of a command's counters: the command's slot, and a second word if the command has one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    slot: usize,
    word: Option<usize>,
}

impl Counted {
    /// Returns the counter for a command that was found in a slot of the lookup and has these arguments.
    pub(crate) fn new(slot: usize, command: &Command, args: &Args<'_>) -> Self {
        let word = command.word_at(args);
        debug_assert!(slot < SLOTS, "a command has a slot");
        debug_assert!(
            word.is_none_or(|word| word < command.words.len()),
            "a second word is one of the command's"
        );
        Counted { slot, word }
    }
}

impl CommandStats {
    #[inline]
    fn figures(&mut self, counted: Counted) -> &mut Figures {
        match counted.word {
            None => &mut self.plain[counted.slot],
            Some(word) => self.words.entry((counted.slot, word)).or_default(),
        }
    }

    /// Adds the figures of another loop.
    fn add(&mut self, other: &CommandStats) {
        let plain = self.plain.iter_mut().zip(&other.plain);
        plain.for_each(|(sum, part)| sum.add(part));
        for (place, part) in &other.words {
            self.words.entry(*place).or_default().add(part);
        }
        for (code, count) in &other.errors {
            *self.errors.entry(code.clone()).or_default() += count;
        }
    }

    /// Counts a run of a command, and counts an error if the reply is an error. `reply` need only be the reply's
    /// beginning.
    pub(crate) fn ran(&mut self, counted: Counted, took: Duration, reply: &[u8], times: bool) {
        let figures = self.figures(counted);
        figures.ran(took, times);
        if reply.first() == Some(&b'-') {
            figures.failed += 1;
            self.replied(reply);
        }
    }

    /// Counts a command that was refused with `reply`.
    pub(crate) fn refused(&mut self, counted: Option<Counted>, reply: &[u8]) {
        if let Some(counted) = counted {
            self.figures(counted).rejected += 1;
        }
        self.replied(reply);
    }

    fn replied(&mut self, reply: &[u8]) {
        debug_assert_eq!(reply.first(), Some(&b'-'), "only errors have a code");
        let code = reply.iter().skip(1).take_while(|b| b.is_ascii_uppercase());
        let code: String = code.map(|b| char::from(*b)).collect();
        *self.errors.entry(code).or_default() += 1;
    }

    /// Returns the figures of the commands that have any, with their names, in the order of the names.
    pub(crate) fn named(&self, lookup: &Lookup) -> BTreeMap<String, &Figures> {
        let plain = self
            .plain
            .iter()
            .enumerate()
            .filter_map(|(slot, figures)| Some((String::from(lookup.at(slot)?.name), figures)));
        let words = self.words.iter().filter_map(|((slot, word), figures)| {
            let command = lookup.at(*slot)?;
            let (second, _) = command.words.get(*word)?;
            Some((format!("{}|{second}", command.name), figures))
        });
        plain.chain(words).filter(|(_, f)| f.used()).collect()
    }

    /// Returns the codes of error replies, each with the count of error replies.
    pub(crate) fn errors(&self) -> impl Iterator<Item = (&str, u64)> {
        self.errors
            .iter()
            .map(|(code, count)| (code.as_str(), *count))
    }
}
