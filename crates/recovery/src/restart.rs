//! Runs the phases of a restart in order. Nothing durable changes before the last phase, except pages of trees. So
//! after a crash during a restart, the next start repeats the restart.
//!
//! # Source
//! *Differential Logging* (000), algorithm 3, in its order-free form: load the image, decide the durable epoch from
//! block headers, and test every record of every stream against the rule. Then, from *Rethinking Main Memory OLTP
//! Recovery* (001), play the ordered frames. Then, from *Implementing Performance Competitive Logical Recovery* (002),
//! redo the operations on a tree. This may write pages of trees, the only durable data that changes before the last
//! phase. If a crash follows, only some of these writes may have reached the disk. The next restart can redo from the
//! pages in any such state.
//!
//! # Deviations
//! The paper's algorithm ends when the pages are correct. A restart must also prepare the next restart. A restart marks
//! all pages as dirty for the unloaded image slot, because this slot may hold an incomplete checkpoint. For the loaded
//! slot, the restart marks as dirty the pages that the log changed. It never reuses an epoch or an incarnation number
//! that it has seen anywhere. Before the database accepts work, the anchor records that everything beyond the cut is
//! void for good.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Error, Incarnation, Result};
use perdura_device::Clock;
use perdura_heap::Heap;
use perdura_wal::WalStart;
use perdura_wal::anchor::AnchorFile;

use crate::anchor::Anchor;
use crate::anchor_cell::AnchorCell;
use crate::archived::check_archive;
use crate::close::{
    assert_believed_is_durable, close_incarnation, durable_end, first_epoch, last_number,
    make_durable, name_life,
};
use crate::component::Data;
use crate::demand::{self, Awaited, Loading};
use crate::footing::Footing;
use crate::found::find;
use crate::given::check_given;
use crate::image::Directory;
use crate::mirrored::{check_tail, give_up, undrained};
use crate::owner::{Loaded, OWNERS, RestartRun, method_names};
use crate::plan::ImagePlan;
use crate::report::RestartReport;
use crate::tree::RestartedTree;
use crate::tree::contents::ALL_STABLE;

pub use crate::create::{NewDatabase, NewTree, create, create_or_resume};

pub use crate::options::{RestartOptions, Tail};
pub use crate::tables::Catalog;

/// A restarted database.
pub struct Restarted {
    /// The pages in memory, with their indexes built.
    pub heap: Arc<Heap>,
    /// The anchor, which names the new life. `None`: the restart was a dry run.
    pub anchor: Option<AnchorCell>,
    /// The contents of the anchor. After a dry run, the contents that a real restart would have written.
    pub record: Anchor,
    /// The directories of the images. A directory is empty unless all pages were loaded from its image.
    pub directories: [Directory; 2],
    /// The point from which the new life continues the log.
    pub wal_start: WalStart,
    /// The tables.
    pub catalog: Catalog,
    /// The tree, and the transactions to be undone in it. If the restart changed nothing on the disks, these
    /// transactions were already undone, in memory. `None`: the database has no tree.
    pub tree: Option<RestartedTree>,
    /// The report.
    pub report: RestartReport,
    /// The partitions that wait to be loaded. `None`: everything is loaded.
    pub loading: Option<Arc<Loading>>,
    /// The files and directories that were found when the restart began.
    pub(crate) footing: Footing,
}

impl Restarted {
    /// Returns the pages. Must be called only after a restart that changes nothing on the disks.
    #[must_use]
    pub fn data(&self) -> Data<'_> {
        assert!(self.anchor.is_none(), "what pages wait for is the log's");
        Data {
            heap: &self.heap,
            trees: self.tree.iter().map(|back| &*back.tree).collect(),
            eosl: ALL_STABLE,
        }
    }
}

/// Restarts a database. `Ok(None)`: these disks have no database.
///
/// # Errors
/// [`Error::Corrupt`] for acknowledged data that is missing or damaged beyond repair; [`Error::LostLog`] if an archive
/// proves that a part of the log is lost. [`Error::Stopped`] if the log or the anchor cannot be written at the end of
/// the restart; the caller may restart again. [`Error::Usage`] if the method, the level or the players cannot play this
/// log. Then nothing was changed.
pub fn restart(options: &RestartOptions) -> Result<Option<Restarted>> {
    let clock = options.clock.as_ref();
    let (begin, faults) = (clock.mono_ns(), clock.page_faults());
    let footing = Footing::of(&options.disks);
    let Some((file, anchor, notes)) = find(options.disks.data.as_ref(), &options.disks.logs)?
    else {
        return Ok(None);
    };
    check_given(options, &anchor)?;
    check_tail(options, &anchor)?;
    let report = begin_report(options, &anchor, notes);
    let mut redo = RestartRun::new(options, &anchor, report);
    redo.check()?;
    let awaited = demand::begin(&mut redo)?;
    match &awaited {
        Some(_) => finish_log(&redo, &mut false)?,
        None => play(&mut redo)?,
    }
    let RestartRun {
        loaded,
        tree,
        report,
        ..
    } = redo;
    let played = Played {
        loaded: loaded.expect("the pages were loaded"),
        tree,
        report,
        awaited,
    };
    let mut restarted = begin_life(options, file, &anchor, played)?;
    restarted.footing = footing;
    if !options.mode.changes_disks() {
        settle_in_memory(&mut restarted, clock)?;
    }
    let report = &mut restarted.report;
    report.seconds.total = seconds_since(clock, begin);
    report.page_faults = clock.page_faults().saturating_sub(faults);
    options.progress.enter(4);
    Ok(Some(restarted))
}

/// Makes every owner undo, in memory only, the transactions that were open at the log's end.
fn settle_in_memory(restarted: &mut Restarted, clock: &dyn Clock) -> Result<()> {
    let (begin, last) = (clock.mono_ns(), restarted.wal_start.gsn);
    let mut undone = 0;
    for owner in OWNERS {
        undone += owner.settle_in_memory(&mut restarted.tree, last)?;
    }
    let ns = clock.mono_ns().saturating_sub(begin);
    restarted.report.took_back(undone, ns);
    Ok(())
}

/// Makes every owner play its frames. Makes the log durable before the first owner that writes pages in place. If no
/// owner writes pages in place, makes the log durable after all owners have played.
fn play(redo: &mut RestartRun<'_>) -> Result<()> {
    let late = armed(Flaw::TreeLogBelievedUnwritten);
    let mut is_durable = !redo.options.mode.changes_disks();
    for owner in OWNERS {
        if owner.writes_in_place(redo.anchor) && !late {
            finish_log(redo, &mut is_durable)?;
        }
        redo.redo(owner)?;
    }
    finish_log(redo, &mut is_durable)
}

/// Checks the log's end against the archive, and makes the log durable unless `is_durable` is true. Sets
/// `is_durable` to true.
fn finish_log(redo: &RestartRun<'_>, is_durable: &mut bool) -> Result<()> {
    let log = &redo.loaded().log;
    let archived = redo.options.archived.as_ref();
    check_archive(redo.anchor, archived, &durable_end(&log.cut))?;
    if !std::mem::replace(is_durable, true) {
        make_durable(redo.options, redo.anchor, &log.scans)?;
    }
    Ok(())
}

/// The state after all owners have played.
struct Played {
    loaded: Loaded,
    tree: Option<RestartedTree>,
    report: RestartReport,
    awaited: Option<Awaited>,
}

/// Names the new life in the anchor's record and writes the anchor. If nothing may change on the disks, only makes the
/// record.
fn begin_life(
    options: &RestartOptions,
    file: AnchorFile,
    anchor: &Anchor,
    played: Played,
) -> Result<Restarted> {
    let Played {
        loaded,
        tree,
        mut report,
        awaited,
    } = played;
    let Loaded {
        mut image,
        log,
        state,
    } = loaded;
    let (mut scans, cut) = (log.scans, log.cut);
    for scan in &mut scans {
        report.notes.append(&mut scan.notes);
    }
    let mut record = anchor.clone();
    close_incarnation(&mut record, &cut, &image.damaged)?;
    name_life(&mut record, anchor.incarnation, &cut, options.life);
    if options.tail == Tail::LookedAt {
        report.notes.extend(undrained(anchor, Some(&cut)));
    }
    if options.tail == Tail::GivenUp {
        let given_up = give_up(&mut record, anchor, &cut, options.clock.as_ref())?;
        report.notes.extend(given_up);
    }
    let anchor_cell = match options.mode.changes_disks() {
        false => None,
        true => {
            assert_believed_is_durable(anchor, &record, &scans);
            Some(publish(file, anchor.clone(), &record)?)
        }
    };
    report.incarnation = record.incarnation.0;
    let directories = trusted_directories(&mut image, &record);
    report.notes.append(&mut image.notes);
    let loading = awaited.map(|awaited| awaited.load(&state.heap, image, options, record.scheme));
    Ok(Restarted {
        heap: state.heap,
        anchor: anchor_cell,
        directories,
        wal_start: WalStart {
            uuid: record.uuid,
            incarnation: record.incarnation,
            start: cut.cut.clone(),
            epoch: first_epoch(&cut),
            durable: cut.durable,
            wall_us: cut.wall_us,
            gsn: last_number(&cut),
            lives: record.lineage.clone(),
        },
        record,
        catalog: state.tables.catalog,
        tree,
        report,
        loading,
        footing: Footing::default(),
    })
}

/// Returns the directories of the images. A directory is empty unless all pages were loaded from its image.
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

/// Writes the restart's decisions from `record` into the anchor. By invariant I8, this is the restart's first update of
/// the anchor.
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

fn seconds_since(clock: &dyn Clock, since_ns: u64) -> f64 {
    let ns = clock.mono_ns().saturating_sub(since_ns);
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

fn begin_report(options: &RestartOptions, anchor: &Anchor, notes: Vec<String>) -> RestartReport {
    RestartReport {
        method: method_names(&options.methods, anchor),
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
