//! The owner of ordered frames. It plays the changes of key-addressed tables after all page records were played.

use perdura_base::{Error, Result};
use perdura_formats::OrderedPayload;
use perdura_wal::{Frame, FrameKind};

use super::{FrameCounts, Owner, RestartRun};
use crate::anchor::Anchor;
use crate::claims::Claims;
use crate::dump::{DumpedOrdered, FrameDump};
use crate::families::Family;
use crate::level::Level;
use crate::method::{Method, Methods};
use crate::options::RestartMode;
use crate::ordered::{Second, second_pass, set_numbers};
use crate::player::FrameOwner;

/// The owner of ordered frames.
pub(super) struct Ordered;

impl Owner for Ordered {
    fn name(&self) -> &'static str {
        "ordered"
    }

    fn claims(&self, anchor: &Anchor) -> Claims {
        let kinds = anchor.families.iter().map(Family::kind);
        kinds.fold(Claims::default(), Claims::with)
    }

    fn method<'a>(&self, methods: &'a Methods, anchor: &Anchor) -> Option<&'a Method> {
        let newest = anchor.families.iter().last()?;
        let given = methods.given(FrameOwner::Ordered);
        Some(given.unwrap_or(Method::of(newest.scheme())))
    }

    /// Fails if the chosen method cannot play a family of frames that the log may hold. Also fails if none of these
    /// families has the method's first scheme.
    fn fits(&self, methods: &Methods, anchor: &Anchor, _: Level) -> Result<(), String> {
        let Some(given) = methods.given(FrameOwner::Ordered) else {
            return Ok(());
        };
        let (mut plays_others, mut is_newest) = (None, false);
        for family in anchor.families.iter() {
            if !given.schemes.contains(&family.scheme()) {
                plays_others = Some(family);
            }
            is_newest |= given.schemes.first() == Some(&family.scheme());
        }
        if let (Some(other), Some(default)) =
            (plays_others, self.method(&Methods::default(), anchor))
        {
            return Err(format!(
                "method {} cannot apply {}, which this log may contain. Use method {}",
                given.name,
                other.name(),
                default.name
            ));
        }
        if !is_newest {
            return Err(format!(
                "method {} reads logs with ordered frames of scheme {}, and this log has no \
                 ordered frames",
                given.name,
                given.schemes[0].name()
            ));
        }
        Ok(())
    }

    fn parses(&self, frame: Frame<'_>, counts: &mut FrameCounts) -> Option<bool> {
        let payload = match frame.kind {
            FrameKind::Effects | FrameKind::Command => OrderedPayload::decode(frame.payload),
            _ => return None,
        };
        counts.ordered += 1;
        Some(payload.is_ok_and(|payload| match frame.kind {
            FrameKind::Effects => payload.effects().all(|effect| effect.is_ok()),
            _ => payload.command().is_ok(),
        }))
    }

    fn dump(&self, frame: Frame<'_>) -> Option<FrameDump> {
        Family::of(frame.kind)?;
        let ordered = DumpedOrdered::of(&frame);
        Some(FrameDump {
            detail: Some(ordered.line()),
            records: Vec::new(),
            ordered: Some(ordered),
        })
    }

    fn redo(&self, restart: &mut RestartRun<'_>) -> Result<()> {
        let options = restart.options;
        let loaded = restart.loaded.as_mut().expect("pages come first");
        let pseq = loaded.image.pseq().to_vec();
        let declared = self.claims(restart.anchor);
        if declared.is_empty() {
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
                "all pages of the image that the log changes",
                format!("{lost} lost pages"),
                "The log's newest changes may be on these pages.",
            ));
        }
        let second = Second {
            options,
            declared,
            k: restart.anchor.rows_as_of(loaded.image.k),
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
                "{} record(s) differ from the log. A dry run changes nothing, so the next \
                 restart finds them again",
                report.divergences.count
            ));
        }
        Ok(())
    }
}
