//! Seeded bugs of the flusher that need code; see [`perdura_base::flaw`].

use std::sync::Arc;

use perdura_base::Result;
use perdura_base::flaw::{Flaw, armed};
use perdura_device::{AlignedBuf, File};

use crate::failure::Failure;
use crate::flusher::{FlushState, LateBlock};

impl FlushState {
    /// Writes the block that counts already.
    pub(super) fn write_late(&mut self) -> Result<()> {
        match self.late.take() {
            Some((file, at, bytes)) => file.write_at(at, &bytes),
            None => Ok(()),
        }
    }
}

/// The seeded bug of counting a block that the disk refused, and writing it with the next step.
pub(super) fn count_refused(
    late: &mut Option<LateBlock>,
    written: Result<(), Failure>,
    file: &Arc<dyn File>,
    at: u64,
    bytes: &[u8],
) -> Result<(), Failure> {
    match written {
        Err(Failure::Delay(_)) if armed(Flaw::RefusedBlockLate) => {
            let mut copy = AlignedBuf::zeroed(bytes.len());
            copy.copy_from_slice(bytes);
            *late = Some((Arc::clone(file), at, copy));
            Ok(())
        }
        other => other,
    }
}
