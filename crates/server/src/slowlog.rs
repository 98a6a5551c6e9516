//! The log of slow commands: the newest commands that took longer than the setting allows, each with its
//! arguments cut short.

use crate::resp::parse::Args;
use std::collections::VecDeque;
use std::time::Duration;

/// The maximum number of arguments in an entry. If a command has more, the last argument of the entry says
/// how many are left out.
const ARGS_MAX: usize = 32;
/// The maximum number of bytes of an argument in an entry.
const ARG_BYTES_MAX: usize = 128;

/// A slow command.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The entry's number, counted from 0. SLOWLOG RESET does not reset the count.
    pub id: u64,
    /// The start of the command, seconds since 1970.
    pub at_seconds: u64,
    /// The command's duration.
    pub took: Duration,
    /// The command's arguments.
    pub args: Vec<Vec<u8>>,
    /// The client's address.
    pub peer: String,
    /// The client's name.
    pub name: Vec<u8>,
}

/// The log.
#[derive(Debug, Default)]
pub(crate) struct SlowLog {
    entries: VecDeque<Entry>,
    next: u64,
}

impl SlowLog {
    /// Notes a command. Drops the oldest entry if there are more than `len_max`.
    pub(crate) fn note(&mut self, len_max: usize, mut entry: Entry) {
        entry.id = self.next;
        self.next += 1;
        debug_assert!(
            self.entries
                .front()
                .is_none_or(|newest| newest.id < entry.id),
            "ids ascend"
        );
        self.entries.push_front(entry);
        self.entries.truncate(len_max);
        debug_assert!(
            self.entries.len() <= len_max,
            "no more entries are kept than may be"
        );
    }

    /// Returns the entries, the newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

/// Returns the arguments, shortened for the log. Secret arguments become `(redacted)`.
pub(crate) fn shortened(args: &Args<'_>, is_secret: impl Fn(usize) -> bool) -> Vec<Vec<u8>> {
    let count = args.len();
    let kept = if count > ARGS_MAX {
        ARGS_MAX - 1
    } else {
        count
    };
    let short = |arg: &[u8]| match arg.len().checked_sub(ARG_BYTES_MAX) {
        None | Some(0) => arg.to_vec(),
        Some(more) => {
            let tail = format!("... ({more} more bytes)");
            [&arg[..ARG_BYTES_MAX], tail.as_bytes()].concat()
        }
    };
    let shown = |(at, arg)| match is_secret(at) {
        true => b"(redacted)".to_vec(),
        false => short(arg),
    };
    let mut list: Vec<Vec<u8>> = args.from(0).take(kept).enumerate().map(shown).collect();
    if kept < count {
        list.push(format!("... ({} more arguments)", count - kept).into_bytes());
    }
    debug_assert!(list.len() <= ARGS_MAX, "a long request is cut");
    list
}
