//! The owner of ordered frames: plays what changes key-addressed tables, behind all page records.

use perdura_base::{Error, Result};

use super::{Owner, RestartRun};
use crate::anchor::Anchor;
use crate::claims::Claims;
use crate::families::Family;
use crate::options::RestartMode;
use crate::ordered::{Second, second_pass, set_numbers};

/// The owner.
pub(super) struct Ordered;

impl Owner for Ordered {
    fn claims(&self, anchor: &Anchor) -> Claims {
        let kinds = anchor.families.iter().map(Family::kind);
        kinds.fold(Claims::default(), Claims::with)
    }

    fn writes_in_place(&self, _: &Anchor) -> bool {
        false
    }

    /// A frame without a player is refused when the pass meets one: the database may have none.
    fn check(&self, _: &RestartRun<'_>) -> Result<()> {
        Ok(())
    }

    fn redo(&self, restart: &mut RestartRun<'_>) -> Result<()> {
        let options = restart.options;
        let loaded = restart.loaded.as_mut().expect("pages come first");
        let pseq = loaded.image.pseq().to_vec();
        if self.claims(restart.anchor).is_empty() {
            set_numbers(&loaded.state.heap, &pseq);
            return Ok(());
        }
        let lost = loaded.image.lost.len();
        let holds_ordered = |scan: &perdura_wal::StreamScan| {
            let mut blocks = scan.blocks.iter();
            blocks.any(|block| block.holds.ordered)
        };
        if options.mode == RestartMode::Salvage
            && lost > 0
            && loaded.log.scans.iter().any(holds_ordered)
        {
            return Err(Error::corrupt(
                options.disks.data.name(),
                0,
                "all pages of the image under the ordered frames of the log",
                format!("{lost} pages lost"),
                "What the frames change may be in them.",
            ));
        }
        let second = Second {
            options,
            families: restart.anchor.families,
            k: loaded.image.k,
            pseq,
            heap: &loaded.state.heap,
            catalog: &loaded.state.tables.catalog,
            target: loaded.log.cut.durable,
        };
        let report = &mut restart.report;
        report.ordered = Some(second_pass(&second, &mut loaded.log)?);
        let Some(player) = &options.ordered else {
            return Ok(());
        };
        report.divergences = player.divergences();
        if options.mode == RestartMode::Dry && !report.divergences.is_empty() {
            report.notes.push(format!(
                "{} record(s) differ from what the log says. A dry run makes no checkpoint: the database is as it was, \
                 and its next restart meets them again",
                report.divergences.count
            ));
        }
        Ok(())
    }
}
