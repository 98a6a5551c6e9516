//! Runs the phases of a restart in order. Nothing durable changes before the last of them, so a crash
//! during a restart changes nothing, and the next start runs the same restart again.
//!
//! # Source
//! *Differential Logging* (000), algorithm 3, in its order-free form: load the image, decide the durable
//! epoch from block headers, test every record of every stream against the rule. Then, from *Rethinking Main Memory
//! OLTP Recovery* (001), play the ordered frames. Then, from *Implementing Performance Competitive Logical Recovery* (002),
//! redo the operations on a tree. Pages of a tree are the one durable thing that changes before the end: what a restart writes
//! there, the next one finds and does not need.
//!
//! # Deviations
//! The paper ends when the state is correct. A restart must also prepare the next one. It marks all pages
//! dirty for the other image, whose slot may hold half a checkpoint, and the pages that the log changed
//! dirty for this one. It never reuses an epoch or an incarnation number that it has seen anywhere. Before
//! it accepts new work, it records in the anchor that everything beyond the cut is void for good.

use std::collections::BTreeSet;
use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{Error, Incarnation, Pos, Result};
use perdura_device::Clock;
use perdura_heap::{Heap, MemoryAccount};
use perdura_wal::anchor::AnchorFile;
use perdura_wal::{Cut, Guard, WalStart};

use crate::anchor::Anchor;
use crate::anchor_cell::AnchorCell;
use crate::archived::check_archive;
use crate::close::{
    assert_believed_is_durable, ckpt_floor, close_incarnation, durable_end, first_epoch,
    last_number, make_durable,
};
use crate::found::find;
use crate::given::check_given;
use crate::image::Directory;
use crate::indexing::Indexing;
use crate::mirrored::{check_tail, give_up, undrained};
use crate::ordered::{Second, second_pass};
use crate::plan::{BadPage, ImagePlan, plan_image};
use crate::player::Player;
use crate::recover::{Means, State, Target, recover};
use crate::report::{Bytes, Records, RestartReport};
use crate::stats::ReplayStats;
use crate::streams::{Decided, Streams};
use crate::tree::play::TreePlay;
use crate::tree::section::TreeAnchor;
use crate::tree::{Part, RestartedTree, TreeMeans};

pub use crate::create::{NewDatabase, NewTree, create, create_with_tree};

pub use crate::options::{RestartOptions, Tail};
pub use crate::tables::Catalog;

/// The least memory of a process that serves an empty database, bytes.
const PROCESS_BYTES: u64 = 8 << 20;

/// A database that is back.
pub struct Restarted {
    /// The pages, indexed.
    pub heap: Arc<Heap>,
    /// The anchor, updated; `None` after a dry run.
    pub anchor: Option<AnchorCell>,
    /// The anchor's record as it is now, or would be.
    pub record: Anchor,
    /// What the images list.
    pub directories: [Directory; 2],
    /// Where the log goes on.
    pub wal_start: WalStart,
    /// The tables.
    pub catalog: Catalog,
    /// The tree, and what is to be taken back in it, if the database has one.
    pub tree: Option<RestartedTree>,
    /// What happened.
    pub report: RestartReport,
}

/// Brings a database back. `Ok(None)` if there is none on these disks.
///
/// # Errors
/// [`Error::Corrupt`] if anything acknowledged is missing or damaged beyond repair; [`Error::LostLog`] if an archive
/// proves that;
/// [`Error::Stopped`] if log or anchor cannot be written at its end, after which it is simply taken
/// again; [`Error::Usage`] if the method, the level or the players are not for this log: then nothing was
/// changed.
pub fn restart(options: &RestartOptions<'_>) -> Result<Option<Restarted>> {
    restart_with_tree(options, None)
}

/// As [`restart`], for a database that may have a tree.
///
/// # Errors
/// As there; [`Error::Usage`] if there is a tree and nothing to restart it with.
pub fn restart_with_tree(
    options: &RestartOptions<'_>,
    tree: Option<&TreeMeans>,
) -> Result<Option<Restarted>> {
    let clock = options.clock.as_ref();
    let progress = options.progress.as_ref();
    let (begin, faults) = (clock.mono_ns(), clock.page_faults());
    let Some((file, anchor, notes)) = find(options.disks.data.as_ref(), &options.disks.logs)?
    else {
        return Ok(None);
    };
    check_given(options, &anchor)?;
    check_tail(options, &anchor)?;
    let tree = anchor
        .tree
        .map(|named| part_of_tree(options, named, tree))
        .transpose()?;
    let mut report = begin_report(options, &anchor, notes);

    progress.enter(1);
    let Loaded {
        mut image,
        mut log,
        state,
    } = load(options, &anchor, Tolerance::None)?;
    let second = Second {
        options,
        families: anchor.families,
        k: image.k,
        pseq: image.pseq().to_vec(),
        heap: &state.heap,
        catalog: &state.tables.catalog,
        target: log.cut.durable,
    };
    report.ordered = second_pass(&second, &mut log)?;
    if let Some(player) = &options.ordered {
        report.divergences = player.divergences();
        if options.dry_run && !report.divergences.is_empty() {
            report.notes.push(format!(
                "{} record(s) differ from what the log says. A dry run makes no checkpoint: the database is as it was, \
                 and its next restart meets them again",
                report.divergences.count
            ));
        }
    }
    check_archive(&anchor, options.archived.as_ref(), &durable_end(&log.cut))?;
    let late = armed(Flaw::TreeLogBelievedUnwritten);
    if !options.dry_run && !late {
        make_durable(options, &anchor, &log.scans)?;
    }
    let mut restarted_tree = None;
    if let Some((named, means, play)) = tree {
        let part = Part {
            options,
            means,
            anchor: &anchor,
            tree: named,
            log: &log,
            play,
        };
        let (tree, did) = part.run()?;
        restarted_tree = Some(tree);
        report.tree = Some(did);
    }
    if !options.dry_run && late {
        make_durable(options, &anchor, &log.scans)?;
    }
    let Decided {
        mut scans,
        cut,
        void_blocks,
        ..
    } = log;
    for scan in &mut scans {
        report.notes.append(&mut scan.notes);
    }
    report.void_blocks = void_blocks;
    report_seconds(&mut report, &state);
    report.rows = state.tables.rows;
    report.rows_from_sidecar = state.tables.rows_from_sidecar;
    let (heap, catalog) = (state.heap, state.tables.catalog);

    let mut record = anchor.clone();
    close_incarnation(&mut record, &cut, &image.damaged)?;
    if options.tail == Tail::LookedAt {
        report.notes.extend(undrained(&anchor, Some(&cut)));
    }
    if options.tail == Tail::GivenUp {
        report
            .notes
            .extend(give_up(&mut record, &anchor, &cut, clock)?);
    }
    let anchor_cell = if options.dry_run {
        None
    } else {
        assert_believed_is_durable(&anchor, &record, &scans);
        Some(publish(file, anchor, &record)?)
    };
    let wal_start = WalStart {
        uuid: record.uuid,
        incarnation: record.incarnation,
        start: cut.cut.clone(),
        epoch: first_epoch(&cut),
        durable: cut.durable,
        wall_us: cut.wall_us,
        gsn: last_number(&cut),
    };
    fill_report(&mut report, &image, &cut, &state.stats, &record);
    let directories = trusted_directories(&mut image, &record);
    report.notes.extend(image.notes);
    report.seconds.total = seconds_since(clock, begin);
    report.page_faults = clock.page_faults().saturating_sub(faults);
    progress.enter(4);
    Ok(Some(Restarted {
        heap,
        anchor: anchor_cell,
        record,
        directories,
        wal_start,
        catalog,
        tree: restarted_tree,
        report,
    }))
}

/// What the tree's part of a restart works with, and what its table is made of.
fn part_of_tree<'a>(
    options: &RestartOptions<'_>,
    named: TreeAnchor,
    means: Option<&'a TreeMeans>,
) -> Result<(TreeAnchor, &'a TreeMeans, TreePlay)> {
    let means = means.ok_or_else(|| {
        Error::Usage(String::from(
            "the database has a tree, and this program gives it no pages in memory; `perdura restart` brings it back",
        ))
    })?;
    match options.method.player {
        Player::Tree(play) => Ok((named, means, play)),
        _ => Err(Error::Usage(format!(
            "method {} restarts no tree",
            options.method.name
        ))),
    }
}

/// What the images list, as far as memory was loaded from them.
fn trusted_directories(image: &mut ImagePlan, record: &Anchor) -> [Directory; 2] {
    let none = || Directory::empty(record.geometry.partitions);
    let mut directories = [none(), none()];
    if let Some(slot) = image.trusted_slot() {
        assert!(
            record.image(slot).is_complete() && record.image(slot).k == image.k,
            "the anchor gives up image {slot}, which memory was loaded from"
        );
        directories[slot.index()] = std::mem::replace(&mut image.directory, none());
    }
    directories
}

/// Makes the anchor say what the restart decided: from here on it is durable. I8: no other update of
/// the anchor came before.
fn publish(file: AnchorFile, anchor: Anchor, record: &Anchor) -> Result<AnchorCell> {
    let cell = AnchorCell::new(file, anchor);
    let updated = cell.update(|durable| {
        let seq = durable.seq;
        durable.clone_from(record);
        durable.seq = seq;
    });
    let stopped = |failure| Error::Stopped(format!("anchor: {}", Error::from(failure)));
    let updated = updated.map_err(stopped)?;
    assert_eq!(
        updated.seq,
        record.seq + 1,
        "the anchor changed while the restart ran"
    );
    Ok(cell)
}

/// What a restart does about pages that no image has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tolerance {
    /// It fails.
    None,
    /// It leaves them empty, skips their records, and lists them.
    LostPages,
}

/// Pages in memory, as the log leaves them.
pub(crate) struct Loaded {
    pub image: ImagePlan,
    pub log: Decided,
    pub state: State,
}

/// Fails if the pages of an image take more memory than the process may use: the kernel would end it while it loads them,
/// and at each start anew.
fn check_ceiling(memory: &MemoryAccount, bytes: u64) -> Result<()> {
    // Indexes and the process itself come on top: at least this.
    let least = bytes.saturating_add(bytes / 16 + PROCESS_BYTES);
    match memory.ceiling() {
        Some(ceiling) if bytes > 0 && ceiling.bytes < least => Err(Error::Usage(format!(
            "the database has {bytes} bytes of pages, and the kernel ends this process at {} bytes ({}). Nothing was \
             loaded or changed. Raise that limit to at least {} bytes",
            ceiling.bytes,
            ceiling.set_by,
            least.saturating_add(least / 2)
        ))),
        _ => Ok(()),
    }
}

/// Recovers from the database's images and streams. If pages of the image turn out to be damaged it
/// begins anew, with those taken from the older image.
pub(crate) fn load(
    options: &RestartOptions<'_>,
    anchor: &Anchor,
    tolerance: Tolerance,
) -> Result<Loaded> {
    let geometry = anchor.geometry;
    let (mut bad, mut lost) = (BTreeSet::<BadPage>::new(), BTreeSet::new());
    loop {
        let (data, images) = (options.disks.data.as_ref(), &options.disks.images);
        let image = match plan_image(&geometry, data, images, anchor, &bad, &lost) {
            Err(_) if tolerance == Tolerance::LostPages && !bad.is_empty() => {
                lost.extend(std::mem::take(&mut bad).into_iter().map(|(_, page)| page));
                continue;
            }
            planned => planned?,
        };
        let image_bytes = image.pages * to_u64(perdura_base::limits::PAGE_BYTES);
        check_ceiling(&options.memory, image_bytes)?;
        let progress = options.progress.as_ref();
        progress.expect(image_bytes + likely_log_bytes(anchor, &image.begin));
        progress.add_total(image_bytes);
        let log = Streams::new(&options.disks.logs, anchor, &image.begin)
            .accepting_loss(options.tail.may_lack(anchor));
        let means = Means {
            geometry,
            memory: &options.memory,
            method: options.method.first_pass(anchor.scheme),
            supplied: options.supplied,
            schedule: &options.schedule,
            clock: options.clock.as_ref(),
            progress: &options.progress,
            ordered: anchor.families,
            has_tree: anchor.tree.is_some(),
            indexing: Some(indexing(options, anchor, &image, tolerance)),
        };
        let state = recover(&image, &log, Target::End, &means)?;
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
        // What stood in for damaged pages is damaged too: a third image there is not.
        let stood_in = damaged.iter().filter(|(slot, _)| Some(*slot) != image.slot);
        let hopeless: BTreeSet<_> = stood_in.map(|(_, page)| *page).collect();
        lost.extend(&hopeless);
        if !hopeless.is_empty() && tolerance == Tolerance::None {
            let why = "the same page of the other image is damaged too";
            return Err(image.give_up(&hopeless, why));
        }
        bad.extend(damaged);
    }
}

/// What the indexes are built with. Of a database that lacks pages, no sidecar is true, and nothing
/// on the disks of the new database is what memory holds. Without records, nothing says which rows have moved between the
/// image's instant and its sidecar, which is written behind the last visit.
fn indexing<'a>(
    options: &'a RestartOptions<'_>,
    anchor: &Anchor,
    image: &'a ImagePlan,
    tolerance: Tolerance,
) -> Indexing<'a> {
    Indexing {
        scheme: anchor.scheme,
        k: image.k,
        slot: match tolerance {
            Tolerance::None => image.trusted_slot(),
            Tolerance::LostPages => None,
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

fn seconds_since(clock: &dyn Clock, since_ns: u64) -> f64 {
    let ns = clock.mono_ns().saturating_sub(since_ns);
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

/// Returns how many bytes of the log a restart is likely to read: those that the anchor vouches for, once for each pass.
fn likely_log_bytes(anchor: &Anchor, begin: &[Pos]) -> u64 {
    let ends = anchor.vouched.ends.iter().zip(begin);
    let bytes: u64 = ends.map(|(end, from)| end.0.saturating_sub(from.0)).sum();
    match anchor.families.is_empty() {
        true => bytes,
        false => bytes.saturating_mul(2),
    }
}

fn begin_report(
    options: &RestartOptions<'_>,
    anchor: &Anchor,
    notes: Vec<String>,
) -> RestartReport {
    RestartReport {
        method: options.method.name,
        scheme: anchor.scheme.name(),
        level: options.schedule.level.number(),
        threads: options.schedule.threads,
        clean: anchor.clean,
        vouched_epoch: anchor.vouched.epoch.0,
        vouched_us: anchor.vouched.wall_us,
        created: anchor.incarnation == Incarnation(0),
        notes,
        ..RestartReport::default()
    }
}

fn report_seconds(report: &mut RestartReport, state: &State) {
    let (seconds, busy) = (&mut report.seconds, &state.busy);
    seconds.backup_read = busy.backup_read;
    seconds.backup_play = busy.backup_play;
    seconds.log_read = busy.log_read;
    seconds.log_play = busy.log_play;
    seconds.backup_span = busy.backup_span;
    seconds.log_span = busy.log_span + state.undo_seconds;
    seconds.undo = state.undo_seconds;
    seconds.index = busy.index_span;
}

fn fill_report(
    report: &mut RestartReport,
    image: &ImagePlan,
    cut: &Cut,
    stats: &ReplayStats,
    record: &Anchor,
) {
    report.image = image.slot.map_or("none".into(), |slot| slot.to_string());
    report.checkpoint = image.k.0;
    report.durable_epoch = cut.durable.0;
    report.cut = cut.cut.iter().map(|pos| pos.0).collect();
    report.transactions = stats.groups;
    report.incarnation = record.incarnation.0;
    report.records = Records {
        seen: stats.seen,
        applied: stats.applied,
        skipped: stats.skipped.clone(),
        undone: stats.undone,
    };
    report.bytes = Bytes {
        log: stats.bytes,
        backup: image.bytes,
    };
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
