//! Seeded bugs of the flusher that need code; see [`perdura_base::flaw`].

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Result};
use perdura_device::{AlignedBuf, Part};

use crate::block;
use crate::failure::Failure;
use crate::flusher::FlushState;

impl FlushState {
    /// Writes the block that counts already.
    pub(super) fn write_late(&mut self) -> Result<()> {
        match self.late.take() {
            Some((file, at, bytes)) => file.write_at(at, &bytes),
            None => Ok(()),
        }
    }
}

/// Seals a block again when it is written, so that it names the D of that moment. This is the seeded bug.
pub(super) fn seal_anew(parts: &mut [Part], durable: Epoch) {
    if let Some(part) = parts.last_mut()
        && armed(Flaw::SealedAnew)
        && let Some((mut header, _)) = block::decode_header(part.bytes())
    {
        header.durable = durable;
        block::seal(&header, &mut part.buf[..part.len]);
    }
}

/// Counts a write that the disk refused, and writes it with the next step. This is the seeded bug.
pub(super) fn count_refused(
    state: &mut FlushState,
    result: Result<(), Failure>,
    token: u64,
    parts: &[Part],
) -> Result<(), Failure> {
    match result {
        Err(Failure::Delay(_)) if armed(Flaw::RefusedBlockLate) => {
            let bytes: usize = parts.iter().map(|part| part.len).sum();
            let mut copy = AlignedBuf::zeroed(bytes);
            let mut at = 0;
            for part in parts {
                copy[at..at + part.len].copy_from_slice(part.bytes());
                at += part.len;
            }
            let (file, offset) = state.flights.place(token);
            state.late = Some((file, offset, copy));
            Ok(())
        }
        other => other,
    }
}
