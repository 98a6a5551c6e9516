//! Writes the error messages of a database that refuses to start: what is missing, where, and since when.

use perdura_base::moment::moment;
use perdura_base::{Epoch, Error, Pos};

use super::Elsewhere;
use super::evidence::Known;
use crate::scan::{COPIED, StreamScan};

impl Known<'_> {
    /// Returns the error for a log that ends before the vouched epoch.
    pub(super) fn short_of_vouched(&self, elsewhere: Option<Elsewhere>) -> Error {
        let (vouched, durable) = (&self.anchor.vouched, self.log.epoch);
        let mut scans = self.scans.iter();
        let short = scans
            .find(|scan| scan.valid_end < vouched.ends[usize::from(scan.stream.0)])
            .expect("a stream that ends too early was found");
        let end = vouched.ends[usize::from(short.stream.0)];
        let written = |scan: &StreamScan| {
            let whole = scan.blocks.iter().rev().find(|b| b.epoch <= durable);
            whole.map_or(0, |block| block.wall_us)
        };
        let since = self.scans.iter().map(written).max().unwrap_or(0);
        let (durable, since) = match elsewhere {
            Some(held) if held.epoch > durable => (held.epoch, held.wall_us),
            _ => (durable, since),
        };
        let lost_from = vouched.epoch.min(Epoch(durable.0 + 1));
        at_the_end(
            short,
            format!(
                "a valid block: the anchor says that this log was durable up to position {end}, \
                 epoch {}, at {}",
                vouched.epoch,
                moment(vouched.wall_us)
            ),
            format!(
                "Acknowledged transactions of epochs {} to {} at least, written after {}, are \
                 damaged or missing. Everything up to epoch {durable} is intact. Restore the \
                 log's files from a backup. If this is a copy of a running database, the log was \
                 copied before the anchor. Copy the data directory first, then the log \
                 directories.",
                lost_from,
                vouched.epoch,
                moment(since)
            ),
        )
    }

    /// Returns the error for a missing durable epoch. A block of the log proves that the epoch was durable.
    pub(super) fn proven_missing(&self) -> Error {
        let proof = self
            .proof
            .expect("a block proves that something is missing");
        let (durable, _) = self.candidate();
        let (proven, witness) = (proof.epoch, proof.witness);
        let mut ends = self
            .scans
            .iter()
            .map(|scan| scan.evidence.ends.get(&proven));
        let ends: Option<&Vec<Pos>> = ends.find_map(|ends| ends);
        let find =
            |is_short: &dyn Fn(&StreamScan) -> bool| self.scans.iter().find(|scan| is_short(scan));
        let short = find(&|scan| {
            let end = ends.and_then(|ends| ends.get(usize::from(scan.stream.0)));
            end.is_some_and(|end| scan.valid_end < *end)
        });
        let short = short.or_else(|| find(&|scan| scan.torn.is_some()));
        at_the_end(
            short.unwrap_or(&self.scans[witness]),
            format!(
                "a valid block: stream {witness} proves at position {} that epoch {proven} was durable",
                proof.pos
            ),
            format!(
                "Acknowledged transactions of epochs {} to {proven} are damaged or missing. \
                 Everything up to epoch {durable} is intact. Restore the file from a backup. \
                 {COPIED}",
                durable.0 + 1
            ),
        )
    }

    /// Returns the error for a stream that lacks synced bytes.
    pub(super) fn synced_missing(&self) -> Error {
        let (scan, pos) = self.out_of_reach().expect("a block beyond reach was found");
        let (durable, _) = self.candidate();
        at_the_end(
            scan,
            format!(
                "a valid block, which was synced before the block at position {pos} was \
                     written"
            ),
            format!(
                "Acknowledged transactions after epoch {durable} are damaged or missing. Restore \
                 the file from a backup. {COPIED}"
            ),
        )
    }

    /// Returns the error for a missing acknowledged epoch. A block of the log names the epoch, but the log on disk
    /// does not reach it.
    pub(super) fn acked_missing(&self) -> Error {
        let proof = self.acked_beyond().expect("a block names what is missing");
        let scan = &self.scans[proof.witness];
        let (durable, _) = self.candidate();
        at_the_end(
            scan,
            format!(
                "a valid block: the block at position {} says that epoch {} was acknowledged, \
                 but the log on disk ends with epoch {durable}",
                proof.pos, proof.epoch
            ),
            format!(
                "Acknowledged transactions of epochs {} to {} at least are not on this disk. The \
                 nodes of the mirror have them: start again while one of the nodes runs. If all \
                 nodes are lost, accept the loss of these epochs (accept-loss). Everything up to \
                 epoch {durable} is intact. Nothing was changed.",
                durable.0 + 1,
                proof.epoch
            ),
        )
    }

    /// Returns the error for a block that lies before the cut, although the block's epoch is above the candidate.
    pub(super) fn contradiction(&self) -> Error {
        let (scan, block) = self.stray().expect("a stray block was found");
        let (durable, _) = self.candidate();
        Error::corrupt(
            format!("log stream {}", scan.stream),
            block.pos.0,
            format!("an epoch up to {durable}"),
            format!("epoch {}", block.epoch),
            "The log contradicts itself. Copy the files and report the bug.",
        )
    }
}

/// Returns the error for a stream that ends too early. `expected` is missing at the end of the stream's valid blocks.
fn at_the_end(scan: &StreamScan, expected: String, lost: String) -> Error {
    Error::corrupt(
        format!("log stream {}", scan.stream),
        scan.valid_end.0,
        expected,
        scan.torn.clone().unwrap_or_else(|| "no block".into()),
        lost,
    )
}
