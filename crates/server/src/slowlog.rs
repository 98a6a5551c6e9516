//! The log of slow commands: the newest ones that took longer than the setting says, each with
//! its arguments cut short.

use crate::resp::parse::Args;
use std::collections::VecDeque;
use std::time::Duration;

/// At most so many arguments are kept; the last of them says how many more there were.
const ARGS_MAX: usize = 32;
/// At most so many bytes of an argument are kept.
const ARG_BYTES_MAX: usize = 128;

/// A slow command.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Counted up from 0, not begun again by SLOWLOG RESET.
    pub id: u64,
    /// When it ran, seconds since 1970.
    pub at_seconds: u64,
    /// How long it took.
    pub took: Duration,
    /// Its arguments.
    pub args: Vec<Vec<u8>>,
    /// Its client's address.
    pub peer: String,
    /// Its client's name.
    pub name: Vec<u8>,
}

/// The log.
#[derive(Debug, Default)]
pub(crate) struct SlowLog {
    entries: VecDeque<Entry>,
    next: u64,
}

impl SlowLog {
    /// Notes a command; of more than `len_max` the oldest goes.
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

    /// The newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

/// Arguments as the log keeps them; of the secret ones only that they were there.
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
