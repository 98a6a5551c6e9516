//! A long string, written some pages at a time. It is the result of SET, COPY, RENAME, MOVE or
//! BITOP, or a new string that SETRANGE or SETBIT makes by writing far from its start.
//!
//! The command runs until it is about to write, and then returns this work instead. The steps write the string as a
//! draft that no key refers to yet. The transaction of the last step runs the command again from its beginning. The
//! command then stores the draft under the key with [`Data::name_text`]. Because it runs again, the command sees all
//! changes made during the steps. It begins again with the steps only if a source of the string has changed.

use super::{Progress, Step, Work, text_cost};
use crate::command::data::Prepared;
use crate::command::{Data, Done, Stop};
use crate::engine::{Draft, Kind, Shape, TEXT_KEY_BYTES_MAX, TEXT_PAGE_BYTES, Text, ValueCursor};
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::{to_u64, to_usize};
use std::ops::Range;
use std::sync::Arc;

/// The cost of writing a page, in elements.
const WRITE_COST: u64 = 64;
/// The maximum number of pages written at once.
const PAGES_AT_ONCE: u64 = 4;
/// The number of bytes of room in the log that a step requests.
const STEP_LOG_BYTES: usize = 1 << 20;

/// The operation that combines several strings into one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fold {
    /// A single string stays as it is.
    Same,
    /// The bits of a single string are inverted.
    Not,
    /// A bit is set if it is set in all strings.
    And,
    /// A bit is set if it is set in at least one string.
    Or,
    /// A bit is set if it is set in an odd number of strings.
    Xor,
}

impl Fold {
    /// Combines `all` with the bytes of `other`. A shorter string counts as if zeros followed it.
    pub(crate) fn take(self, all: &mut [u8], other: &[u8]) {
        let (over, behind) = all.split_at_mut(other.len().min(all.len()));
        let pairs = over.iter_mut().zip(other);
        match self {
            Fold::Same | Fold::Not => {}
            Fold::And => {
                pairs.for_each(|(a, b)| *a &= b);
                behind.fill(0);
            }
            Fold::Or => pairs.for_each(|(a, b)| *a |= b),
            Fold::Xor => pairs.for_each(|(a, b)| *a ^= b),
        }
    }

    /// Completes the result when all strings have been combined.
    pub(crate) fn finish(self, all: &mut [u8]) {
        if self == Fold::Not {
            all.iter_mut().for_each(|byte| *byte = !*byte);
        }
    }
}

/// Bytes that a request writes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Given {
    /// An argument.
    Arg(usize),
    /// One byte computed from the arguments.
    Byte([u8; 1]),
}

impl Given {
    /// Returns the bytes.
    pub(crate) fn bytes<'a>(&'a self, args: &Args<'a>) -> &'a [u8] {
        match self {
            Given::Arg(at) => args.at(*at),
            Given::Byte(byte) => byte,
        }
    }
}

/// The source of the string.
#[derive(Debug)]
pub(crate) enum Origin {
    /// The string consists of this number of zero bytes, followed by bytes from the request.
    Given(usize, Given),
    /// The string is combined from the strings of several keys. The `usize` is the index of the argument with the first
    /// key. The vector has the lengths of the keys' strings, in the order of the arguments.
    Keys(Fold, usize, Vec<usize>),
}

impl Origin {
    fn bytes(&self, args: &Args<'_>) -> usize {
        match self {
            Origin::Given(zeros, given) => zeros + given.bytes(args).len(),
            Origin::Keys(_, _, lens) => lens.iter().copied().max().unwrap_or(0),
        }
    }
}

/// The progress of the work.
#[derive(Debug, Clone, Default)]
struct At {
    text: Option<Text>,
    cursors: Vec<Option<ValueCursor>>,
}

impl At {
    fn written(&self) -> usize {
        self.text.map_or(0, |text| text.len())
    }
}

/// The work of writing a long string.
#[derive(Debug)]
pub(crate) struct Writing {
    origin: Origin,
    bytes: usize,
    /// The database that the string is stored in. `key` is the index of the argument that names the string's key.
    database: u8,
    key: usize,
    draft: Option<Arc<Draft>>,
    /// The progress after the last committed step. `end` is the progress after the step that is running.
    begin: At,
    end: At,
    resp3: bool,
    reply: Vec<u8>,
}

/// Returns the cost of writing `bytes` bytes of a long string, in elements.
fn cost(bytes: usize) -> u64 {
    text_cost(bytes) / super::PAGE_COST * WRITE_COST
}

/// The key that gets a string.
#[derive(Clone, Copy)]
pub(crate) struct Destination {
    /// The database of the key.
    pub database: u8,
    /// The index of the argument that is the key.
    pub key: usize,
}

impl Writing {
    /// Makes the command continue in steps if it is about to write a long string. The command must
    /// not have written anything before.
    pub(crate) fn if_long(
        data: &Data<'_, '_>,
        args: &Args<'_>,
        destination: Destination,
        origin: Origin,
        resp3: bool,
    ) -> Done {
        let Destination { database, key } = destination;
        let bytes = origin.bytes(args);
        let is_long = bytes > TEXT_PAGE_BYTES && data.is_long(cost(bytes));
        if !is_long || args.at(key).len() > TEXT_KEY_BYTES_MAX {
            return Ok(());
        }
        Err(Stop::Long(Box::new(Writing {
            origin,
            bytes,
            database,
            key,
            draft: None,
            begin: At::default(),
            end: At::default(),
            resp3,
            reply: Vec::new(),
        })))
    }

    /// Returns the next bytes of the string, beginning at `at`; `None` if a source of the string has changed.
    fn read(
        &self,
        data: &Data<'_, '_>,
        args: &Args<'_>,
        at: &mut At,
        bytes: usize,
    ) -> Result<Option<Vec<u8>>, Stop> {
        let from = at.written();
        debug_assert!(from + bytes <= self.bytes, "a piece lies in the text");
        let mut piece = Vec::with_capacity(bytes);
        match &self.origin {
            Origin::Given(zeros, given) => {
                piece.resize(bytes.min(zeros.saturating_sub(from)), 0);
                let missing = bytes - piece.len();
                let begin = (from + piece.len()).saturating_sub(*zeros);
                piece.extend_from_slice(&given.bytes(args)[begin..begin + missing]);
            }
            Origin::Keys(fold, first, lens) => {
                at.cursors.resize(lens.len(), None);
                let mut other = Vec::new();
                for (n, (cursor, len)) in at.cursors.iter_mut().zip(lens).enumerate() {
                    let row = data.tx.get(data.table, args.at(first + n))?;
                    let row = row.filter(|row| row.kind() == Kind::String);
                    if row.map_or(0, |row| row.value_len()) != *len {
                        return Ok(None);
                    }
                    let into = if n == 0 { &mut piece } else { &mut other };
                    into.clear();
                    if let Some(row) = row {
                        let mut pieces = row.pieces(cursor.unwrap_or_else(|| row.cursor(0)));
                        if pieces.read(bytes, into) < bytes.min(len.saturating_sub(from)) {
                            return Ok(None);
                        }
                        *cursor = Some(pieces.cursor());
                    }
                    match n {
                        0 => piece.resize(bytes, 0),
                        _ => fold.take(&mut piece, &other),
                    }
                }
                fold.finish(&mut piece);
            }
        }
        debug_assert_eq!(piece.len(), bytes, "a piece is as long as is asked for");
        Ok(Some(piece))
    }
}

impl Work for Writing {
    fn sources(&self, args: &Args<'_>) -> Range<usize> {
        match &self.origin {
            Origin::Given(..) => args.len()..args.len(),
            Origin::Keys(_, first, lens) => *first..first + lens.len(),
        }
    }

    fn step(
        &mut self,
        data: &mut Data<'_, '_>,
        args: &Args<'_>,
        step: &mut Step,
    ) -> Result<Progress, Stop> {
        let table = data.table_of(self.database);
        let draft = match &self.draft {
            Some(draft) if draft.table() != table => return Ok(Progress::Changed),
            Some(draft) => Arc::clone(draft),
            None => {
                let begun = data.tx.begin_draft(table, args.at(self.key), Shape::List)?;
                Arc::clone(self.draft.insert(Arc::new(begun)))
            }
        };
        let mut at = self.begin.clone();
        let operands = match &self.origin {
            Origin::Given(..) => 1,
            Origin::Keys(_, _, lens) => to_u64(lens.len()),
        };
        while at.written() < self.bytes {
            let pages = (step.left() / WRITE_COST).clamp(1, PAGES_AT_ONCE);
            let bytes = (to_usize(pages) * TEXT_PAGE_BYTES).min(self.bytes - at.written());
            let Some(piece) = self.read(data, args, &mut at, bytes)? else {
                return Ok(Progress::Changed);
            };
            at.text = Some(data.tx.grow_text(&draft, at.text, &piece)?);
            if !step.spend(pages * (WRITE_COST + operands)) {
                break;
            }
        }
        self.end = at;
        Ok(match self.end.written() < self.bytes {
            true => Progress::More,
            false => Progress::Complete,
        })
    }

    fn committed(&mut self) {
        debug_assert!(
            self.begin.written() <= self.end.written(),
            "a text only grows"
        );
        self.begin = self.end.clone();
    }

    fn store(&mut self, data: &mut Data<'_, '_>, args: &Args<'_>) -> Done {
        self.reply.clear();
        let (Some(draft), Some(text)) = (&self.draft, self.end.text) else {
            return Ok(());
        };
        debug_assert_eq!(text.len(), self.bytes, "what is stored is whole");
        let draft = Arc::clone(draft);
        let mut out = Out::new(&mut self.reply, self.resp3);
        data.run_with_text(Prepared { draft, text }, args, &mut out)
    }

    fn reply(&mut self, out: &mut Out<'_>) {
        out.append(std::mem::take(&mut self.reply));
    }

    fn bytes(&self) -> usize {
        self.reply.capacity()
    }

    fn logged(&self) -> usize {
        STEP_LOG_BYTES
    }
}
