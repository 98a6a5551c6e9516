//! The work that scripts postpone until after their transaction's commit: commands to be counted and shown to
//! monitors, denials, messages, lines of the log. An attempt that is undone or repeated leaves no work.

use crate::command::Command;
use crate::command::server::monitor::quote;
use crate::denial::Denied;
use crate::engine::Epoch;
use crate::resp::parse::Args;
use crate::state::State;
use crate::stats::Counted;
use crate::tell::Message;
use std::time::Duration;

/// A command that a script has run.
#[derive(Debug)]
struct Counting {
    counted: Counted,
    took: Duration,
    /// The reply, if it was an error.
    failed: Vec<u8>,
}

/// The work that the scripts of one transaction postpone until after the commit.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The number of scripts that have run.
    pub scripts: u32,
    /// The newest epoch of those changes outside of the transaction that the replies depend on.
    pub rests_on: Epoch,
    counting: Vec<Counting>,
    /// The lines for monitors, one list for each script.
    shown: Vec<Vec<String>>,
    /// Messages to channels.
    pub messages: Vec<Message>,
    /// The commands that access control has denied to the caller, to be logged.
    pub denied: Vec<Denied>,
    /// The lines for the server's log.
    pub lines: Vec<String>,
}

impl Default for Ran {
    fn default() -> Self {
        Ran {
            scripts: 0,
            rests_on: Epoch(0),
            counting: Vec::new(),
            shown: Vec::new(),
            messages: Vec::new(),
            denied: Vec::new(),
            lines: Vec::new(),
        }
    }
}

impl Ran {
    /// Notes that a script begins.
    pub(super) fn begin(&mut self) {
        self.scripts += 1;
        self.shown.push(Vec::new());
    }

    /// Notes a command that has run.
    pub(super) fn note(&mut self, counted: Counted, took: Duration, reply: &[u8]) {
        let failed = if reply.first() == Some(&b'-') {
            reply
        } else {
            b""
        };
        self.counting.push(Counting {
            counted,
            took,
            failed: failed.to_vec(),
        });
    }

    /// Notes a command's line, which monitors are to be shown.
    pub(super) fn show(&mut self, database: u8, command: &Command, args: &Args<'_>) {
        debug_assert!(!command.name.is_empty());
        let mut line = format!("[{database} lua]");
        for arg in args.from(0) {
            line.push(' ');
            quote(arg, &mut line);
        }
        if let Some(lines) = self.shown.last_mut() {
            lines.push(line);
        }
    }

    /// Does the noted work after the transaction has committed. The messages have been sent already.
    pub(crate) fn settle(self, state: &mut State) {
        debug_assert!(self.messages.is_empty(), "messages are sent at the commit");
        let times = state.options.latency_tracking;
        for one in self.counting {
            state.stats.commands += 1;
            let reply = if one.failed.is_empty() {
                b"+"
            } else {
                &*one.failed
            };
            state
                .stats
                .by_command
                .ran(one.counted, one.took, reply, times);
        }
        state.scripts.shown.extend(self.shown);
        for denied in self.denied {
            crate::acl::note_of_script(state, denied);
        }
        for line in self.lines {
            tracing::info!("{line}");
        }
    }
}
