//! Commands that read a long string page by page. They reply with its bytes, count its set bits or search for a bit.

use super::{PAGE_COST, Progress, Step, Work, text_cost};
use crate::command::strings::ranges::Range as Bits;
use crate::command::{Data, Done, Stop};
use crate::engine::{RowRef, ValueCursor};
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_rdb::StringPayload;
use std::ops::Range;

/// The maximum number of bytes that a reply adds before and after its string.
const FRAME_BYTES: usize = 64;

/// The use of the bytes.
#[derive(Debug)]
enum Task {
    /// The bytes are the reply.
    Bytes(Vec<u8>),
    /// The bytes are put into a payload, which is the reply of DUMP.
    Dump(Vec<u8>, StringPayload),
    /// The set bits are counted.
    Ones(Bits, u64),
    /// The first bit with this value is searched for. `Ok` holds the offset of the bit that was found. `Err` holds the
    /// reply for the case that no bit has the value.
    First(Bits, bool, Result<u64, i64>),
}

/// The work of reading a piece of a string. The command's first argument is the string's key.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The length of the whole string, bytes.
    bytes: usize,
    /// The bytes that are still to be read.
    left: Range<usize>,
    /// The place of the next byte to be read.
    cursor: Option<ValueCursor>,
    task: Task,
    /// True if the command counts its lookup of the key.
    counted: bool,
}

impl Reading {
    fn new(row: &RowRef<'_>, left: Range<usize>, task: Task) -> Reading {
        Reading {
            bytes: row.value_len(),
            left,
            cursor: None,
            task,
            counted: false,
        }
    }

    /// Returns the work of replying with bytes of a string.
    pub(crate) fn bytes(row: &RowRef<'_>, piece: Range<usize>) -> Reading {
        let mut text = Vec::with_capacity(piece.len() + FRAME_BYTES);
        Out::new(&mut text, false).bulk_head(piece.len());
        Reading::new(row, piece, Task::Bytes(text))
    }

    /// Returns the work of replying with a string's payload.
    pub(crate) fn dump(row: &RowRef<'_>) -> Reading {
        let bytes = StringPayload::bytes(row.value_len());
        let mut text = Vec::with_capacity(bytes + FRAME_BYTES);
        Out::new(&mut text, false).bulk_head(bytes);
        let payload = StringPayload::begin(row.value_len(), &mut text);
        Reading::new(row, 0..row.value_len(), Task::Dump(text, payload))
    }

    /// Returns the work of counting the set bits of a range.
    pub(crate) fn ones(row: &RowRef<'_>, range: Bits) -> Reading {
        Reading::new(row, range.bytes(), Task::Ones(range, 0))
    }

    /// Returns the work of finding the first bit that has the value `wanted`, within a range. If no bit has the value,
    /// the reply is `none`.
    pub(crate) fn first(row: &RowRef<'_>, range: Bits, wanted: bool, none: i64) -> Reading {
        let task = Task::First(range, wanted, Err(none));
        Reading::new(row, range.bytes(), task)
    }

    /// Returns this work, changed so that the command counts its lookup of the key.
    pub(crate) fn counted(self) -> Reading {
        let counted = true;
        Reading { counted, ..self }
    }

    /// Replies at once, or lets the command continue in steps if the string is long.
    pub(crate) fn run(
        mut self,
        data: &mut Data<'_, '_>,
        args: &Args<'_>,
        out: &mut Out<'_>,
    ) -> Done {
        if data.is_long(text_cost(self.left.len())) {
            if self.counted {
                data.looked_up(true);
            }
            return Err(Stop::Long(Box::new(self)));
        }
        super::finish(&mut self, data, args, out)
    }

    fn go_on(&mut self, row: &RowRef<'_>, step: &mut Step) -> Progress {
        debug_assert!(
            self.left.end <= self.bytes || self.left.is_empty(),
            "what is read is in the value"
        );
        if row.value_len() != self.bytes {
            return Progress::Changed;
        }
        let cursor = self.cursor.unwrap_or_else(|| row.cursor(self.left.start));
        let mut pieces = row.pieces(cursor);
        while !self.left.is_empty() {
            let Some(piece) = pieces.next() else {
                return Progress::Changed;
            };
            let piece = &piece[..piece.len().min(self.left.len())];
            let ended = self.task.take(self.left.start, piece);
            self.left.start += piece.len();
            debug_assert!(
                self.left.start <= self.left.end,
                "no more is read than is left"
            );
            if ended {
                self.left.start = self.left.end;
            }
            if !step.spend(PAGE_COST) {
                break;
            }
        }
        self.cursor = Some(pieces.cursor());
        match self.left.is_empty() {
            true => Progress::Complete,
            false => Progress::More,
        }
    }
}

impl Task {
    /// Uses the bytes `piece`, which begin at `at` in the string. Returns whether no more bytes are needed.
    fn take(&mut self, at: usize, piece: &[u8]) -> bool {
        match self {
            Task::Bytes(text) => text.extend_from_slice(piece),
            Task::Dump(text, payload) => payload.put(piece, text),
            Task::Ones(range, ones) => *ones += range.ones(at, piece),
            Task::First(range, wanted, found) => {
                if let Some(bit) = range.first(at, piece, *wanted) {
                    *found = Ok(bit);
                    return true;
                }
            }
        }
        false
    }
}

impl Work for Reading {
    fn step(
        &mut self,
        data: &mut Data<'_, '_>,
        args: &Args<'_>,
        step: &mut Step,
    ) -> Result<Progress, Stop> {
        let Some(row) = data.string(args.at(1))? else {
            return Ok(Progress::Changed);
        };
        let progress = self.go_on(&row, step);
        if self.counted {
            data.looked_up(true);
        }
        Ok(progress)
    }

    fn reply(&mut self, out: &mut Out<'_>) {
        match &mut self.task {
            Task::Bytes(text) => {
                text.extend_from_slice(b"\r\n");
                out.append(std::mem::take(text));
            }
            Task::Dump(text, payload) => {
                payload.end(text);
                text.extend_from_slice(b"\r\n");
                out.append(std::mem::take(text));
            }
            Task::Ones(_, ones) => out.count(*ones),
            Task::First(_, _, Ok(bit)) => out.count(*bit),
            Task::First(_, _, Err(none)) => out.integer(*none),
        }
    }

    fn bytes(&self) -> usize {
        match &self.task {
            Task::Bytes(text) | Task::Dump(text, _) => text.capacity(),
            Task::Ones(..) | Task::First(..) => 0,
        }
    }
}
