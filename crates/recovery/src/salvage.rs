//! Salvages a database that a restart refuses. Reads the remaining data into memory, and makes a new database from it.
//!
//! The damaged directory is only read. Salvage looks for the newest intact state: a readable image, and the longest
//! complete log of all streams after the image. It accepts this state even if the anchor or later blocks prove that
//! there was more. If the log does not reach the end of any image, salvage plays the log without an image. This
//! requires that the log is complete from the database's beginning. Otherwise salvage takes an image without any log.
//! Pages without an intact copy are left empty, and their records are skipped. Salvage lists all missing parts, and the
//! operator decides whether the loss is acceptable.
//!
//! The log is cut at the end of an epoch, and all frames of a transaction are in one epoch. So ordered frames have no
//! gap before the cut, and are played up to the cut. They cannot be played if pages of the image are lost, because rows
//! depend on earlier rows. In that case salvage takes the second image, or an image without any log.

use std::sync::Arc;

use perdura_base::moment::moment;
use perdura_base::{
    CkptEpoch, Epoch, Error, ImageSlot, Incarnation, PartitionId, Pos, Result, StreamId, Uuid,
};
use perdura_device::Disk;
use perdura_heap::Heap;
use perdura_wal::{ChainLink, Check, Cut, Lives, Role, StreamScan, Vouched, WalStart, scan_stream};
use serde::Serialize;

use crate::anchor::{Anchor, open_anchor};
use crate::anchor_cell::AnchorCell;
use crate::close::{ckpt_floor, first_epoch};
use crate::disks::Disks;
use crate::footing::Footing;
use crate::found::open_versioned_anchor;
use crate::image::{Directory, Places, pages_path};
use crate::life::{Life, LogMemory};
use crate::mended::MendedLog;
use crate::options::RestartMode;
use crate::ordered::OrderedPlayer;
use crate::owner::{Loaded, OWNERS, RestartRun, claims};
use crate::report::RestartReport;
use crate::restart::{Catalog, NewDatabase, RestartOptions, Restarted, create, restart};
use crate::window::ExecutorWindow;

/// The condition of a database: it opens without salvage, or salvage can recover a part of it.
pub enum Condition {
    /// The database opens without salvage. The function [`whole`] can read it to make a copy.
    Whole,
    /// A restart refuses the database. The value is the part that can be recovered.
    Salvaged(Box<Salvaged>),
}

/// The part of a damaged database that can be recovered.
pub struct Salvaged {
    /// A description of everything that is missing.
    pub missing: Missing,
    /// The tables that were recovered.
    pub catalog: Catalog,
    heap: Arc<Heap>,
    anchor: Anchor,
    cut: Cut,
}

/// A description of everything that a damaged database lacks.
#[derive(Debug, Clone, Serialize)]
pub struct Missing {
    /// The error of a restart that refuses the database.
    pub refused: String,
    /// The last epoch of the recovered state. Everything up to it is present, except the rows of lost `pages`.
    pub intact_epoch: u64,
    /// The time of the last block of `intact_epoch`.
    pub intact_at: String,
    /// The image of the recovered state.
    pub image: String,
    /// True if the image is used without a log. If such an image is not consistent, transactions that ran during its
    /// sweep may be present only in part.
    pub image_alone: bool,
    /// True if all pages of the image show the database at the same instant.
    pub consistent: bool,
    /// For each partition, the sequence number of the last recovered transaction on typed tables. All transactions
    /// with higher numbers are lost. Empty if the database cannot have ordered frames.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<u64>,
    /// The missing part of the log, stream by stream; empty if the log is whole.
    pub log: Vec<MissingLog>,
    /// Pages without an intact copy in the images. The rows of these pages are lost.
    pub pages: Vec<MissingPage>,
    /// The number of rows that were recovered.
    pub rows: u64,
}

/// The missing part of a stream.
#[derive(Debug, Clone, Serialize)]
pub struct MissingLog {
    /// The stream.
    pub stream: u8,
    /// The end of the used part of the stream.
    pub used_to: u64,
    /// The end of the stream's intact blocks.
    pub whole_to: u64,
    /// The first lost epoch.
    pub from_epoch: u64,
    /// The last known epoch.
    pub to_epoch: u64,
    /// The time of the last used block.
    pub from: String,
    /// The latest time found in any stream's blocks or in the anchor.
    pub to: String,
}

/// A page without an intact copy in the images.
#[derive(Debug, Clone, Serialize)]
pub struct MissingPage {
    /// The page's id.
    pub page: u32,
    /// The pages file that should have the page.
    pub file: String,
    /// The page's offset in the file, bytes.
    pub offset: u64,
}

/// Checks a database by a restart in memory. If the restart refuses the database, looks for a recoverable state with a
/// catalog that passes `is_usable`. A player of ordered frames can begin only once. So `players` makes a new player for
/// each attempt.
///
/// # Errors
/// An error if there is no database, if the anchor is unreadable, or if no state can be rebuilt. [`Error::Usage`] if
/// the log calls a procedure that the player does not have.
pub fn salvage(
    options: &RestartOptions,
    is_usable: &dyn Fn(&Catalog) -> bool,
    players: &dyn Fn() -> Option<Arc<dyn OrderedPlayer>>,
) -> Result<Condition> {
    assert!(!options.mode.changes_disks(), "salvage changes nothing");
    let refused = match restart(options) {
        Ok(Some(_)) => return Ok(Condition::Whole),
        Ok(None) => {
            let dir = options.disks.data.name();
            return Err(Error::Usage(format!("there is no database in {dir}")));
        }
        Err(error) => error,
    };
    let Some((_, anchor, _)) = open_versioned_anchor(options.disks.data.as_ref())? else {
        return Err(refused);
    };
    if !anchor.scheme.has_tables() {
        return Err(refused);
    }
    let logs = (0u8..).map(StreamId).zip(&options.disks.logs);
    let logs = logs.map(|(stream, disk)| MendedLog::open(disk, &anchor, stream));
    let mut mended = salvaging(options, logs.collect::<Result<_>>()?);
    for plan in plans(&mended.disks.logs, &anchor)? {
        mended.ordered = players();
        match carry_out(&mended, &anchor, plan, &refused.to_string()) {
            Ok(salvaged) if is_usable(&salvaged.catalog) => {
                return Ok(Condition::Salvaged(Box::new(salvaged)));
            }
            // The next plan may succeed, because it needs less of the image or the log.
            Ok(_) | Err(Error::Corrupt(_) | Error::Foreign { .. }) => {}
            Err(error)
                if error.is_not_found() || error.is_of_another_kind() || error.is_unreadable() => {}
            Err(error) => return Err(error),
        }
    }
    Err(refused)
}

/// Reads a database that opens without salvage. [`build`] can then make a new database with these rows. The player of
/// ordered frames in `options` must not have begun.
///
/// # Errors
/// The errors of a restart; [`Error::Usage`] without a database or without tables.
pub fn whole(options: &RestartOptions) -> Result<Salvaged> {
    assert!(!options.mode.changes_disks(), "salvage changes nothing");
    let anchor = match open_versioned_anchor(options.disks.data.as_ref())? {
        Some((_, anchor, _)) if anchor.scheme.has_tables() => anchor,
        Some(_) | None => {
            let dir = options.disks.data.name();
            return Err(Error::Usage(format!("{dir} has no tables to copy")));
        }
    };
    let plan = Plan {
        anchor: anchor.clone(),
        image_alone: false,
        log: Vec::new(),
        intact_us: anchor.vouched.wall_us,
    };
    let options = salvaging(options, options.disks.logs.clone());
    let salvaged = carry_out(&options, &anchor, plan, "no")?;
    assert!(
        salvaged.missing.pages.is_empty(),
        "a database that opens has all its pages"
    );
    Ok(salvaged)
}

/// Returns the options of a salvage that reads these logs.
fn salvaging(options: &RestartOptions, logs: Vec<Arc<dyn Disk>>) -> RestartOptions {
    RestartOptions {
        mode: RestartMode::Salvage,
        archived: options.archived.clone(),
        disks: Disks {
            logs,
            ..options.disks.clone()
        },
        clock: Arc::clone(&options.clock),
        memory: Arc::clone(&options.memory),
        progress: Arc::clone(&options.progress),
        ordered: options.ordered.clone(),
        catalog: Arc::clone(&options.catalog),
        methods: options.methods.clone(),
        ..*options
    }
}

/// A plan for recovering one state. `anchor` is written as if the database's log had ended at this state.
struct Plan {
    anchor: Anchor,
    image_alone: bool,
    log: Vec<MissingLog>,
    intact_us: u64,
}

/// Returns all plans, the best plan first.
fn plans(logs: &[Arc<dyn Disk>], anchor: &Anchor) -> Result<Vec<Plan>> {
    let mut slots: Vec<ImageSlot> = ImageSlot::ALL
        .into_iter()
        .filter(|slot| anchor.image(*slot).is_complete())
        .collect();
    slots.sort_by_key(|slot| std::cmp::Reverse(anchor.image(*slot).k));
    let mut plans = Vec::new();
    if slots.is_empty() {
        plans.extend(with_log(logs, anchor, &[])?);
    }
    for at in 0..slots.len() {
        // The first plan may take pages from the older image, and the second plan uses one image alone.
        for used in [&slots[at..], &slots[at..=at]] {
            plans.extend(with_log(logs, anchor, used)?);
        }
    }
    if !slots.is_empty() {
        plans.extend(with_log(logs, anchor, &[])?);
    }
    for slot in &slots {
        plans.push(image_alone(anchor, *slot));
    }
    Ok(plans)
}

/// Returns the plan that keeps as much of the log after these images as possible. The images are given newest first.
/// Without images, the plan keeps the log from the database's beginning. `None`: the log does not reach the end of the
/// newest image, or the beginning of the needed log is gone.
fn with_log(logs: &[Arc<dyn Disk>], anchor: &Anchor, slots: &[ImageSlot]) -> Result<Option<Plan>> {
    let streams = usize::from(anchor.streams);
    let from = slots.last().map_or_else(
        || vec![Pos(0); streams],
        |slot| anchor.image(*slot).cover.begin.clone(),
    );
    let needs = slots
        .first()
        .map_or(Epoch(0), |slot| anchor.image(*slot).cover.end_epoch);
    let oldest = anchor.lives_until(0);
    let is_there_from_the_start = oldest.open_start.iter().all(|start| *start == Pos(0));
    if slots.is_empty() && !is_there_from_the_start {
        return Ok(None);
    }
    for place in (0..=anchor.chain.len()).rev() {
        let lives = anchor.lives_until(place);
        let bound = anchor.chain.get(place).map(|link| link.durable);
        let scan = |(stream, disk): (u8, &Arc<dyn Disk>)| {
            let begin = from[usize::from(stream)];
            scan_stream(
                disk.as_ref(),
                &lives,
                StreamId(stream),
                begin,
                Check::Salvage,
            )
        };
        let scans: Vec<StreamScan> = match (0u8..).zip(logs).map(scan).collect() {
            Ok(scans) => scans,
            Err(Error::Corrupt(_)) => continue,
            Err(error) => return Err(error),
        };
        let (durable, cut) = longest(anchor, &lives, bound, &scans);
        if durable < needs {
            return Ok(None);
        }
        return Ok(Some(cut_off(anchor, &lives, slots, &scans, (durable, cut))));
    }
    Ok(None)
}

/// Returns the highest epoch that all streams hold in full, and where it ends in each stream.
fn longest(
    anchor: &Anchor,
    lives: &Lives<'_>,
    bound: Option<Epoch>,
    scans: &[StreamScan],
) -> (Epoch, Vec<Pos>) {
    let base = lives.closed.last().map_or(Epoch(0), |link| link.durable);
    let mut best = (base, lives.open_start.clone());
    let vouched = (anchor.vouched.epoch, &anchor.vouched.ends);
    let named = scans.iter().flat_map(|scan| &scan.evidence.ends);
    for (epoch, ends) in named.map(|(epoch, ends)| (*epoch, ends)).chain([vouched]) {
        let held = scans
            .iter()
            .zip(ends)
            .all(|(scan, end)| scan.valid_end >= *end);
        if epoch > best.0 && bound.is_none_or(|bound| epoch <= bound) && held {
            best = (epoch, ends.clone());
        }
    }
    best
}

/// Returns the plan that cuts the log at the end of epoch `durable`.
fn cut_off(
    anchor: &Anchor,
    lives: &Lives<'_>,
    slots: &[ImageSlot],
    scans: &[StreamScan],
    (durable, cut): (Epoch, Vec<Pos>),
) -> Plan {
    let last_used = |scan: &StreamScan| {
        let used = scan
            .blocks
            .iter()
            .rev()
            .find(|block| block.epoch <= durable);
        used.map_or(0, |block| block.wall_us)
    };
    let images_us = slots.iter().map(|slot| anchor.image(*slot).wall_us);
    let intact_us = scans
        .iter()
        .map(last_used)
        .chain(images_us)
        .max()
        .unwrap_or(0);
    let evidence = scans.iter().map(|scan| &scan.evidence);
    let named = evidence
        .clone()
        .filter_map(|e| e.durable.map(|(epoch, _)| epoch));
    let seen = evidence.clone().map(|e| e.epoch_max);
    let to_epoch = named.chain(seen).chain([anchor.vouched.epoch]).max();
    let to_epoch = to_epoch.unwrap_or_default().max(durable);
    let to_us = evidence
        .map(|e| e.wall_us)
        .chain([anchor.vouched.wall_us, intact_us])
        .max();
    let log = if to_epoch > durable {
        let of = |scan: &StreamScan| MissingLog {
            stream: scan.stream.0,
            used_to: cut[usize::from(scan.stream.0)].0,
            whole_to: scan.valid_end.0,
            from_epoch: durable.0 + 1,
            to_epoch: to_epoch.0,
            from: moment(last_used(scan)),
            to: moment(to_us.unwrap_or(0)),
        };
        scans.iter().map(of).collect()
    } else {
        Vec::new()
    };
    let mut ended = anchor.clone();
    ended.chain = lives.closed.to_vec();
    ended.chain.push(ChainLink {
        incarnation: lives.open,
        durable,
        start: lives.open_start.clone(),
        cut: cut.clone(),
    });
    Plan {
        anchor: as_new_life(ended, anchor, slots, durable, cut),
        image_alone: false,
        log,
        intact_us,
    }
}

/// Returns the plan that takes an image without any log.
fn image_alone(anchor: &Anchor, slot: ImageSlot) -> Plan {
    let image = anchor.image(slot);
    let (durable, begin) = (image.cover.end_epoch, image.cover.begin.clone());
    let mut ended = anchor.clone();
    ended.chain = vec![ChainLink {
        incarnation: anchor.incarnation,
        durable,
        start: begin.clone(),
        cut: begin.clone(),
    }];
    let to = anchor.vouched.epoch.max(durable);
    let of = |(stream, pos): (u8, &Pos)| MissingLog {
        stream,
        used_to: pos.0,
        whole_to: pos.0,
        from_epoch: durable.0 + 1,
        to_epoch: to.0,
        from: moment(image.wall_us),
        to: moment(anchor.vouched.wall_us.max(image.wall_us)),
    };
    Plan {
        image_alone: true,
        log: (0u8..).zip(&begin).map(of).collect(),
        intact_us: image.wall_us,
        anchor: as_new_life(ended, anchor, &[slot], durable, begin),
    }
}

fn as_new_life(
    mut ended: Anchor,
    anchor: &Anchor,
    slots: &[ImageSlot],
    durable: Epoch,
    ends: Vec<Pos>,
) -> Anchor {
    ended.incarnation = Incarnation(anchor.incarnation.0.saturating_add(1));
    ended.vouched = Vouched {
        epoch: durable,
        wall_us: 0,
        ends,
    };
    for slot in ImageSlot::ALL {
        if !slots.contains(&slot) {
            ended.image_mut(slot).discard();
        }
    }
    ended
}

fn carry_out(
    options: &RestartOptions,
    anchor: &Anchor,
    plan: Plan,
    refused: &str,
) -> Result<Salvaged> {
    let without_log;
    let options = if plan.image_alone {
        let logs = options.disks.logs.iter().map(MendedLog::empty);
        without_log = salvaging(options, logs.collect());
        &without_log
    } else {
        options
    };
    let mut redo = RestartRun::new(options, &plan.anchor, RestartReport::default());
    redo.check()?;
    OWNERS.iter().try_for_each(|owner| redo.redo(*owner))?;
    let loaded = redo.loaded.expect("the pages were loaded");
    let Loaded { image, log, state } = loaded;
    let (heap, tables) = (state.heap, state.tables);
    let cut = log.cut;
    // The plan's anchor does not list the images that the plan gives up. But their checkpoint epochs must not be used
    // again.
    heap.set_ckpt_epoch(heap.ckpt_epoch().max(ckpt_floor(anchor, &image)));
    let slot = image.slot.unwrap_or(ImageSlot::A);
    let places = Places::of(&plan.anchor);
    let of_page = |page: &perdura_base::PageId| MissingPage {
        page: page.0,
        file: pages_path(slot),
        offset: places.place(*page).offset(),
    };
    Ok(Salvaged {
        missing: Missing {
            refused: refused.to_owned(),
            intact_epoch: cut.durable.0,
            intact_at: moment(plan.intact_us),
            image: image.slot.map_or("none".into(), |slot| slot.to_string()),
            image_alone: plan.image_alone,
            consistent: image.slot.is_some_and(|slot| anchor.image(slot).consistent),
            numbers: match claims(anchor).has_some(Role::Ordered) {
                false => Vec::new(),
                true => {
                    let partitions = (0..heap.geometry().partitions).map(PartitionId);
                    partitions.map(|id| heap.lock(id).pseq()).collect()
                }
            },
            log: plan.log,
            pages: image.lost.iter().map(of_page).collect(),
            rows: tables.rows,
        },
        catalog: tables.catalog,
        heap,
        anchor: anchor.clone(),
        cut,
    })
}

/// Makes a new database from the salvaged state, on disks without a database, and closes it cleanly. The new database
/// has one image and a new log.
///
/// # Errors
/// Errors of the disks. [`Error::Foreign`] if a directory is not empty.
pub fn build(
    salvaged: Salvaged,
    options: &RestartOptions,
    uuid: Uuid,
    memory: LogMemory,
) -> Result<()> {
    let Salvaged {
        heap,
        anchor,
        cut,
        catalog,
        ..
    } = salvaged;
    let new = NewDatabase {
        uuid,
        geometry: *heap.geometry(),
        streams: anchor.streams,
        segments: anchor.segments,
        scheme: anchor.scheme,
    };
    let clock = options.clock.as_ref();
    create(&options.disks, clock, &new, None)?;
    let opened = open_anchor(options.disks.data.as_ref())?;
    let (file, made, _) = opened.expect("the anchor was written just now");
    let cell = AnchorCell::new(file, made);
    let first = FirstLife {
        heap,
        anchor,
        cut,
        catalog,
    };
    let restarted = first.begin(cell)?;
    let window = ExecutorWindow {
        cuts: claims(&restarted.record).has_some(Role::Ordered),
    };
    let life = Life::begin(restarted, options, memory, Arc::new(window))?;
    life.flush_all()?;
    life.checkpoint_now()?;
    let marked = life.anchor.update(|record| record.clean = true);
    marked.map(drop).map_err(Error::from)
}

/// The first life of a new database that begins with a salvaged state.
struct FirstLife {
    heap: Arc<Heap>,
    anchor: Anchor,
    cut: Cut,
    catalog: Catalog,
}

impl FirstLife {
    /// Names the new life in the anchor. Returns the value that a restart of the new database would return.
    fn begin(self, cell: AnchorCell) -> Result<Restarted> {
        let FirstLife {
            heap,
            anchor,
            cut,
            catalog,
        } = self;
        let zeros = vec![Pos(0); usize::from(anchor.streams)];
        let record = cell.update(|record| {
            record.incarnation = Incarnation(1);
            record.epoch_floor = cut.epoch_max.max(cut.durable);
            record.ckpt_max = cut.ckpt_max.max(CkptEpoch(0));
            record.clean = false;
            record.families = anchor.families;
        });
        let record = record.map_err(Error::from)?;
        let wal_start = WalStart {
            uuid: record.uuid,
            incarnation: record.incarnation,
            start: zeros.clone(),
            epoch: first_epoch(&cut),
            durable: cut.durable,
            wall_us: cut.wall_us,
            gsn: cut.gsn_max,
            lives: record.lineage.clone(),
        };
        let report = RestartReport {
            durable_epoch: cut.durable.0,
            cut: zeros.iter().map(|pos| pos.0).collect(),
            ..RestartReport::default()
        };
        let partitions = record.geometry.partitions;
        Ok(Restarted {
            heap,
            anchor: Some(cell),
            record: Anchor::clone(&record),
            directories: [Directory::empty(partitions), Directory::empty(partitions)],
            wal_start,
            catalog,
            tree: None,
            footing: Footing::default(),
            loading: None,
            report,
        })
    }
}
