//! A cell: one text or one integer. Each value has exactly one packed form.

use std::ops::Deref;

use super::CELL_BYTES_MAX;
use crate::number::{parse_i64, push_digits};

/// The lowest lead (first byte of a cell) that encodes a small integer by itself, without further bytes.
const INLINE: u8 = 73;
/// The greatest lead that is the length of a text. The text follows the lead.
const TEXT_MAX: u8 = 64;

/// The contents of a cell. An integer can be read as text, too: its digits are made when the cell
/// is read.
#[derive(Debug, Clone, Copy)]
pub enum Cell<'a> {
    /// A text, borrowed from the packed bytes.
    Text(&'a [u8]),
    /// An integer, an array with the integer's digits at the array's end, and the index of the first digit.
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

    /// Returns the integer; `None` if the cell has a text.
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
            #[allow(clippy::cast_precision_loss)] // an integer of at most 2^53
            Cell::Integer(value, ..) => *value as f64,
            Cell::Text(bytes) => {
                let mut raw = [0; 8];
                raw.copy_from_slice(bytes);
                f64::from_le_bytes(raw)
            }
        }
    }

    /// Returns the cell at an offset, and the offset after the cell.
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

/// The length of a cell for each lead.
const CELL_BYTES: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut lead: u8 = 0;
    loop {
        bytes[lead as usize] = match lead {
            0..=TEXT_MAX => lead + 1,
            65..INLINE => lead - 63,
            INLINE.. => 1,
        };
        if lead == u8::MAX {
            break bytes;
        }
        lead += 1;
    }
};

/// Returns the length of a cell that begins with `lead`, bytes. The length includes the lead. Finding an item walks over
/// all cells before it, so the length is read from a table.
#[inline]
pub(super) fn cell_bytes(lead: u8) -> usize {
    usize::from(CELL_BYTES[usize::from(lead)])
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
    // One bit more than the value needs, for its sign.
    let bits = 65 - (value ^ (value >> 63)).leading_zeros();
    let bytes = usize::try_from(bits.div_ceil(8)).unwrap_or(8).min(8);
    out.push(TEXT_MAX + u8::try_from(bytes).unwrap_or(8));
    out.extend_from_slice(&value.to_le_bytes()[..bytes]);
}

/// A text in packed form, for comparison with packed cells.
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
            // Only a text that begins with `-` or a digit can be an integer.
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
