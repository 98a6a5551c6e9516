//! A cell: one text or one integer, packed in the only way it can be.

use std::ops::Deref;

use super::CELL_BYTES_MAX;
use crate::number::{parse_i64, push_digits};

/// The first lead of an integer that is in the lead itself.
const INLINE: u8 = 73;
/// Leads of texts are their lengths, up to this one.
const TEXT_MAX: u8 = 64;

/// The contents of a cell. It reads as text; an integer's digits are made when it is read.
#[derive(Debug, Clone, Copy)]
pub enum Cell<'a> {
    /// Text where it lies.
    Text(&'a [u8]),
    /// An integer, with its digits at the end of the array from an index on.
    Integer(i64, [u8; 20], usize),
}

impl Deref for Cell<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Cell::Text(text) => text,
            Cell::Integer(_, digits, from) => &digits[*from..],
        }
    }
}

impl<'a> Cell<'a> {
    /// The cell of an empty text.
    pub(super) const EMPTY: Cell<'static> = Cell::Text(&[]);

    /// Returns the integer, if it is one.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        match self {
            Cell::Integer(value, ..) => Some(*value),
            Cell::Text(_) => None,
        }
    }

    /// Returns the cell of an integer.
    pub(crate) fn of_integer(value: i64) -> Cell<'static> {
        let mut digits = [0; 20];
        let from = push_digits(&mut digits, value);
        Cell::Integer(value, digits, from)
    }

    /// Returns the score in a score cell.
    pub(super) fn score(&self) -> f64 {
        match self {
            #[allow(clippy::cast_precision_loss)] // whole numbers up to 2^53 only are packed so
            Cell::Integer(value, ..) => *value as f64,
            Cell::Text(bytes) => {
                let mut raw = [0; 8];
                raw.copy_from_slice(bytes);
                f64::from_le_bytes(raw)
            }
        }
    }

    /// Returns the cell at an offset and the offset behind it.
    pub(super) fn read(bytes: &'a [u8], at: usize) -> Option<(Cell<'a>, usize)> {
        let lead = *bytes.get(at)?;
        let end = at + cell_bytes(lead);
        let body = bytes.get(at + 1..end)?;
        if lead <= TEXT_MAX {
            return Some((Cell::Text(body), end));
        }
        let value = if lead >= INLINE {
            i64::from(lead - INLINE)
        } else {
            let negative = body.last().is_some_and(|top| top & 0x80 != 0);
            let mut raw = [if negative { 0xff } else { 0 }; 8];
            raw[..body.len()].copy_from_slice(body);
            i64::from_le_bytes(raw)
        };
        Some((Cell::of_integer(value), end))
    }
}

/// Returns the length of a cell that begins with `lead`, bytes, the lead included.
pub(super) fn cell_bytes(lead: u8) -> usize {
    usize::from(match lead {
        0..=TEXT_MAX => lead + 1,
        65..INLINE => lead - 63,
        INLINE.. => 1,
    })
}

/// Packs a text of at most [`CELL_BYTES_MAX`] bytes.
pub(super) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    match parse_i64(text) {
        Some(value) => put_integer(out, value),
        None => put_raw(out, text),
    }
}

/// Packs a score.
pub(super) fn put_score(out: &mut Vec<u8>, score: f64) {
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    let whole = score.fract() == 0.0 && score.abs() <= WHOLE_MAX;
    if whole && !(score == 0.0 && score.is_sign_negative()) {
        #[allow(clippy::cast_possible_truncation)] // whole, and small enough
        put_integer(out, score as i64);
    } else {
        put_raw(out, &score.to_le_bytes());
    }
}

fn put_raw(out: &mut Vec<u8>, text: &[u8]) {
    debug_assert!(text.len() <= CELL_BYTES_MAX, "refused by its caller");
    out.push(u8::try_from(text.len()).unwrap_or(TEXT_MAX));
    out.extend_from_slice(text);
}

fn put_integer(out: &mut Vec<u8>, value: i64) {
    if let Ok(inline) = u8::try_from(value)
        && let Some(lead) = inline.checked_add(INLINE)
    {
        return out.push(lead);
    }
    // The sign bit must survive, hence the bits of the value without its sign, and one more.
    let bits = 65 - (value ^ (value >> 63)).leading_zeros();
    let bytes = usize::try_from(bits.div_ceil(8)).unwrap_or(8).min(8);
    out.push(TEXT_MAX + u8::try_from(bytes).unwrap_or(8));
    out.extend_from_slice(&value.to_le_bytes()[..bytes]);
}

/// A text in its packed form, to be compared with.
pub(super) struct Needle {
    bytes: [u8; CELL_BYTES_MAX + 1],
    len: usize,
}

impl Needle {
    /// Packs a text; `None` if it is too long to be in any cell.
    pub(super) fn new(text: &[u8]) -> Option<Needle> {
        if text.len() > CELL_BYTES_MAX {
            return None;
        }
        let mut bytes = [0; CELL_BYTES_MAX + 1];
        let mut len = text.len() + 1;
        match text {
            // Only what begins like an integer can be one.
            [b'-' | b'0'..=b'9', ..] => {
                let mut packed = Vec::with_capacity(CELL_BYTES_MAX + 1);
                put_text(&mut packed, text);
                len = packed.len();
                bytes[..len].copy_from_slice(&packed);
            }
            _ => {
                bytes[0] = u8::try_from(text.len()).unwrap_or(TEXT_MAX);
                bytes[1..len].copy_from_slice(text);
            }
        }
        Some(Needle { bytes, len })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
