//! LZF, the compression of strings in dumps.
//!
//! A control byte `n` below 32 is followed by `n + 1` literal bytes. A control byte of 32 or more repeats bytes that
//! are already unpacked. Its top three bits are the number of these bytes minus two. If the three bits are 7, the next
//! byte is added to the number. The control byte's lower five bits and one more byte are the distance minus one. The
//! distance is from the first repeated byte to the end of the unpacked bytes.

use perdura_base::cursor::Reader;

use crate::PREALLOCATED_MAX;

/// The maximum ratio of unpacked to packed bytes: three packed bytes unpack to at most 7 + 255 + 2 bytes.
pub const RATIO_MAX: usize = 88;

/// Unpacks a string of exactly `full` bytes.
pub fn unpack(packed: &[u8], full: u64) -> Result<Vec<u8>, &'static str> {
    let wrong_size = "a compressed string has another length than it says";
    let full = usize::try_from(full).map_err(|_| wrong_size)?;
    // No string of this packed length unpacks to more. A wrong length is found here before memory is spent on it.
    if full > packed.len().saturating_mul(RATIO_MAX) {
        return Err(wrong_size);
    }
    let mut out = Vec::with_capacity(full.min(PREALLOCATED_MAX));
    let mut input = Reader::new(packed);
    while instruction(&mut input, &mut out)? {
        if out.len() > full {
            return Err(wrong_size);
        }
    }
    if out.len() == full {
        Ok(out)
    } else {
        Err(wrong_size)
    }
}

/// Reads the next control byte, and appends to `out` the literal bytes or the repeated bytes. Returns false at the end
/// of the input.
fn instruction(input: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<bool, &'static str> {
    let cut = "a compressed string is cut off";
    let Some(control) = input.u8() else {
        return Ok(false);
    };
    let high = usize::from(control >> 5);
    if high == 0 {
        let run = usize::from(control) + 1;
        out.extend_from_slice(input.bytes(run).ok_or(cut)?);
    } else {
        let more = if high == 7 {
            usize::from(input.u8().ok_or(cut)?)
        } else {
            0
        };
        let low = input.u8().ok_or(cut)?;
        let back = usize::from(u16::from_be_bytes([control & 0x1f, low])) + 1;
        let from = out
            .len()
            .checked_sub(back)
            .ok_or("a compressed string refers to before its begin")?;
        debug_assert!(from < out.len(), "a copy begins in what is there");
        // The copy may read bytes that it has just written.
        for at in from..from + high + more + 2 {
            out.push(out[at]);
        }
    }
    Ok(true)
}

/// Unpacks at least the first `count` bytes of a string, or all bytes of a shorter string. `packed` needs only the
/// packed form of the first `count` bytes.
pub fn unpack_begin(packed: &[u8], count: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(count.min(PREALLOCATED_MAX));
    let mut input = Reader::new(packed);
    while out.len() < count && matches!(instruction(&mut input, &mut out), Ok(true)) {}
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_copies_are_unpacked_even_where_a_copy_overlaps_itself() {
        // "ab", then nine bytes that are copied from two bytes before.
        let packed = [1, b'a', b'b', 0xe0, 0, 1];
        assert_eq!(unpack(&packed, 11).unwrap(), b"abababababa");
        assert_eq!(unpack(&[0, b'x', 0x20, 0], 4).unwrap(), b"xxxx");
    }

    #[test]
    fn lies_about_lengths_are_errors_before_memory_is_spent() {
        assert!(unpack(&[0, b'x'], u64::MAX).is_err());
        assert!(unpack(&[0, b'x'], 1 << 40).is_err());
        assert!(unpack(&[0, b'x'], 2).is_err());
        assert!(unpack(&[0, b'x'], 0).is_err());
        assert!(unpack(&[0x20, 5], 3).is_err(), "before the begin");
        assert!(unpack(&[4, b'x'], 5).is_err(), "cut off");
        assert!(unpack(&[0, b'x', 0xe0], 9).is_err(), "cut off in a copy");
    }
}
