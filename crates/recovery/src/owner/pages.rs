//! The owner of page records: loads an image, plays the log into its pages, and builds the indexes.
//!
//! # Source
//! *Differential Logging* (000), algorithm 3.

use std::collections::BTreeSet;

use perdura_base::num::to_u64;
use perdura_base::{Error, Pos, Result};
use perdura_heap::{MemoryAccount, decode_group};
use perdura_page::{TxnRecord, decode_txn_record};
use perdura_wal::{Frame, FrameKind, Guard};

use super::{FrameCounts, Owner, RestartRun, claims};
use crate::anchor::Anchor;
use crate::close::ckpt_floor;
use crate::dump::{self, FrameDump};
use crate::indexing::Indexing;
use crate::level::Level;
use crate::method::{Method, Methods};
use crate::options::{RestartMode, RestartOptions};
use crate::plan::{BadPage, ImagePlan, plan_image};
use crate::player::FrameOwner;
use crate::recover::{Means, State, recover};
use crate::report::{Records, RestartReport};
use crate::streams::{Decided, Streams};

/// The minimum memory of a process that serves an empty database, bytes.
const PROCESS_BYTES: u64 = 8 << 20;

/// The owner of page records.
pub(super) struct Pages;

impl Owner for Pages {
    fn name(&self) -> &'static str {
        "pages"
    }

    fn method<'a>(&self, methods: &'a Methods, anchor: &Anchor) -> Option<&'a Method> {
        let given = methods.given(FrameOwner::Pages);
        Some(given.unwrap_or(Method::of(anchor.scheme)))
    }

    fn fits(&self, methods: &Methods, anchor: &Anchor, level: Level) -> Result<(), String> {
        let method = self.method(methods, anchor);
        method.map_or(Ok(()), |method| method.check(anchor.scheme, level))
    }

    fn parses(&self, frame: Frame<'_>, counts: &mut FrameCounts) -> Option<bool> {
        match frame.kind {
            FrameKind::Group => Some(decode_group(frame.payload).is_some_and(|group| {
                counts.groups += 1;
                counts.records += group.records;
                true
            })),
            FrameKind::Record => Some(decode_txn_record(frame.payload).is_some_and(|record| {
                match record {
                    TxnRecord::Begin { .. } => counts.groups += 1,
                    TxnRecord::Update(_) => counts.records += 1,
                    TxnRecord::Commit { .. } | TxnRecord::Abort { .. } => {}
                }
                true
            })),
            _ => None,
        }
    }

    fn dump(&self, frame: Frame<'_>) -> Option<FrameDump> {
        match frame.kind {
            FrameKind::Group => Some(dump::group(frame.payload)),
            FrameKind::Record => Some(FrameDump::line(dump::txn_record(frame.payload))),
            _ => None,
        }
    }

    fn redo(&self, restart: &mut RestartRun<'_>) -> Result<()> {
        restart.options.progress.enter(1);
        let loaded = load(restart.options, restart.anchor)?;
        restart.note_pages(loaded);
        Ok(())
    }
}

/// The result of loading: the image's plan, the log, and the pages in memory after the log's page records were played.
pub(crate) struct Loaded {
    pub image: ImagePlan,
    pub log: Decided,
    pub state: State,
}

/// Fails if the pages of an image take more memory than the process may use. Without this check the kernel would kill
/// the process at each start, during the loading of the pages.
pub(crate) fn check_ceiling(memory: &MemoryAccount, bytes: u64) -> Result<()> {
    // The least memory in all: the pages, the indexes and the process itself.
    let least = bytes.saturating_add(bytes / 16 + PROCESS_BYTES);
    match memory.ceiling() {
        Some(ceiling) if bytes > 0 && ceiling.bytes < least => Err(Error::Usage(format!(
            "the database has {bytes} bytes of pages, but the kernel kills this process at {} \
             bytes ({}). Nothing was loaded or changed. Raise that limit to at least {} bytes",
            ceiling.bytes,
            ceiling.set_by,
            least.saturating_add(least / 2)
        ))),
        _ => Ok(()),
    }
}

/// Returns the bytes of the pages that a plan loads.
pub(crate) fn page_bytes(image: &ImagePlan) -> u64 {
    image.pages * to_u64(perdura_base::limits::PAGE_BYTES)
}

/// Recovers the pages from the database's images and streams. If pages of the newer image turn out to be damaged,
/// starts over and takes these pages from the older image.
pub(crate) fn load(options: &RestartOptions, anchor: &Anchor) -> Result<Loaded> {
    let salvages = options.mode == RestartMode::Salvage;
    let geometry = anchor.geometry;
    let (mut bad, mut lost) = (BTreeSet::<BadPage>::new(), BTreeSet::new());
    loop {
        let (data, images) = (options.disks.data.as_ref(), &options.disks.images);
        let image = match plan_image(&geometry, data, images, anchor, &bad, &lost) {
            Err(_) if salvages && !bad.is_empty() => {
                lost.extend(std::mem::take(&mut bad).into_iter().map(|(_, page)| page));
                continue;
            }
            planned => planned?,
        };
        let image_bytes = page_bytes(&image);
        check_ceiling(&options.memory, image_bytes)?;
        let progress = options.progress.as_ref();
        progress.expect(image_bytes + likely_log_bytes(anchor, &image.begin));
        progress.add_total(image_bytes);
        let log = Streams::new(&options.disks.logs, anchor, &image.begin)
            .accepting_loss(options.tail.may_lack(anchor))
            .leaving(claims(anchor));
        let means = Means {
            geometry,
            memory: &options.memory,
            records: options.methods.records(anchor.scheme),
            later: claims(anchor),
            schedule: &options.schedule,
            clock: options.clock.as_ref(),
            progress: &options.progress,
            indexing: Some(indexing(options, anchor, &image)),
        };
        let state = recover(&image, &log, &means)?;
        let log = log.into_decided()?;
        let damaged = image.take_bad();
        assert!(
            damaged.is_disjoint(&bad),
            "a page that is known to be damaged was loaded again"
        );
        assert_eq!(
            damaged.is_empty(),
            state.damaged == 0,
            "a state is void exactly if pages of its image are damaged"
        );
        if damaged.is_empty() {
            return Ok(Loaded { image, log, state });
        }
        // These pages are damaged in the newer image, so they were taken from the older image. They are damaged there
        // too, and there is no third image.
        let stood_in = damaged.iter().filter(|(slot, _)| Some(*slot) != image.slot);
        let hopeless: BTreeSet<_> = stood_in.map(|(_, page)| *page).collect();
        lost.extend(&hopeless);
        if !hopeless.is_empty() && !salvages {
            let why = "the same page of the other image is damaged too";
            return Err(image.give_up(&hopeless, why));
        }
        bad.extend(damaged);
    }
}

/// Returns the inputs for building the indexes. Sidecars are not used if pages are lost, because a sidecar may name
/// rows of the lost pages. Sidecars are also not used if the log has no page records. A sidecar is written after the
/// image's instant. Only page records could show which rows moved between the two moments. After a salvage no slot is
/// trusted, because the disks of the new database have none of the loaded pages.
pub(crate) fn indexing<'a>(
    options: &'a RestartOptions,
    anchor: &Anchor,
    image: &'a ImagePlan,
) -> Indexing<'a> {
    Indexing {
        scheme: anchor.scheme,
        k: image.k,
        rows: anchor.rows_as_of(image.k),
        slot: match options.mode {
            RestartMode::Real | RestartMode::OnDemand | RestartMode::Dry => image.trusted_slot(),
            RestartMode::Salvage => None,
        },
        ckpt_floor: ckpt_floor(anchor, image),
        sidecars: if image.lost.is_empty() && anchor.scheme.guard() != Guard::NoRecords {
            &image.sidecars
        } else {
            &[]
        },
        pseq: image.pseq(),
        catalog: options.catalog.as_ref(),
    }
}

/// Estimates how many bytes of the log a restart reads. Assumes that each pass reads the bytes that the anchor vouches
/// for.
fn likely_log_bytes(anchor: &Anchor, begin: &[Pos]) -> u64 {
    let ends = anchor.vouched.ends.iter().zip(begin);
    let bytes: u64 = ends.map(|(end, from)| end.0.saturating_sub(from.0)).sum();
    match claims(anchor).is_empty() {
        true => bytes,
        false => bytes.saturating_mul(2),
    }
}

/// Notes in the report what was loaded and played.
pub(super) fn report(report: &mut RestartReport, loaded: &Loaded) {
    let Loaded { image, log, state } = loaded;
    let (seconds, busy) = (&mut report.seconds, &state.busy);
    seconds.backup_read = busy.backup_read;
    seconds.backup_play = busy.backup_play;
    seconds.log_read = busy.log_read;
    seconds.log_play = busy.log_play;
    seconds.backup_span = busy.backup_span;
    seconds.log_span = busy.log_span + state.undo_seconds;
    seconds.undo = state.undo_seconds;
    seconds.index = busy.index_span;
    report.rows = state.tables.rows;
    report.rows_from_sidecar = state.tables.rows_from_sidecar;
    report.void_blocks = log.void_blocks;
    report.durable_epoch = log.cut.durable.0;
    report.cut = log.cut.cut.iter().map(|pos| pos.0).collect();
    report.image = image.slot.map_or("none".into(), |slot| slot.to_string());
    report.checkpoint = image.k.0;
    let stats = &state.stats;
    report.transactions = stats.groups;
    report.records = Records {
        seen: stats.seen,
        applied: stats.applied,
        skipped: stats.skipped.clone(),
        undone: stats.undone,
    };
    report.bytes.log = stats.bytes;
    report.bytes.backup = image.bytes;
    report.pages_fetched = image.pages;
    report.pages_rebuilt = to_u64(image.rebuilt.len());
}

#[cfg(test)]
mod tests {
    use perdura_heap::Ceiling;

    use super::*;

    #[test]
    fn more_pages_than_the_process_may_use_are_refused_with_both_sizes() {
        let of = |bytes| {
            MemoryAccount::new(u64::MAX).with_ceiling(Some(Ceiling {
                bytes,
                set_by: "/sys/fs/cgroup/a/memory.max".into(),
            }))
        };
        let pages = 64 << 20;
        assert!(check_ceiling(&MemoryAccount::new(1), pages).is_ok());
        assert!(check_ceiling(&of(1), 0).is_ok(), "nothing is loaded");
        assert!(check_ceiling(&of(pages + (pages / 16) + PROCESS_BYTES), pages).is_ok());
        let why = check_ceiling(&of(pages), pages).unwrap_err().to_string();
        for part in [
            "67108864 bytes of pages",
            "at 67108864 bytes",
            "a/memory.max",
            "Nothing was",
        ] {
            assert!(why.contains(part), "{why}");
        }
    }
}
