//! Seeded bugs of the flusher that need more code than a condition; see [`perdura_base::flaw`].

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Result};
use perdura_device::{AlignedBuf, Part};

use crate::block;
use crate::failure::Failure;
use crate::flusher::FlushState;

impl FlushState {
    /// Writes a refused block late. The block was already counted as durable.
    pub(super) fn write_late(&mut self) -> Result<()> {
        match self.late.take() {
            Some((file, at, bytes)) => file.write_at(at, &bytes),
            None => Ok(()),
        }
    }
}

/// Seeded bug: when a block is written, seals the block again with the current D.
pub(super) fn seal_anew(parts: &mut [Part], durable: Epoch) {
    if let Some(part) = parts.last_mut()
        && armed(Flaw::SealedAnew)
        && let Some((mut header, _)) = block::decode_header(part.bytes())
    {
        header.durable = durable;
        block::seal(&header, &mut part.buf[..part.len]);
    }
}

/// Seeded bug: counts a refused write as durable, and writes it only with the next step.
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
