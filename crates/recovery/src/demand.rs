//! The restart that answers before it has loaded the data.
//!
//! The restart first *decides*: it chooses the image, finds the end of the log and reads the catalog. It sorts the
//! records behind the image by partition, and keeps them in memory. Then a new life begins. Its partitions are
//! *absent*: their rows are neither in memory nor readable. [`Loading`] loads one partition after the other. It loads a
//! partition at once if a transaction asks for it.
//!
//! A partition is loaded from the same image, with the same records and the same rule, as by a restart that loads
//! everything first. So a crash during the loading leaves nothing to repair: the next restart begins with the same image
//! and reads the log of one more life.
//!
//! Some databases must be loaded whole. The report then says why.
//!
//! # Source
//! *Single-pass restore after a media failure* (004), section 5.3, and its outlook to incremental restarts: pages are
//! recovered when a transaction asks for them.
//! # Deviations
//! The unit is a partition, not a page or a segment. The indexes are in memory only, and a partition has one.

use std::collections::BTreeSet;
use std::sync::Arc;

use perdura_base::{CkptEpoch, Result};
use perdura_heap::Heap;
use perdura_wal::{Guard, Scheme};

use crate::anchor::Anchor;
use crate::base::Image;
use crate::close::is_chain_long;
use crate::indexing::Tables;
use crate::level::Busy;

use crate::options::{RestartMode, RestartOptions};
use crate::owner::pages::{Loaded, check_ceiling, indexing, page_bytes};
use crate::owner::{RestartRun, claims};
use crate::plan::{ImagePlan, plan_image};
use crate::player::PagePlayer;
use crate::recover::State;
use crate::route::Routes;
use crate::source::LogSource;
use crate::streams::Streams;
use crate::tables::{Addressing, Catalog};

mod building;
mod catalog;
mod loading;
mod tail;

pub use loading::Loading;

use building::Building;
use catalog::CatalogPages;
use tail::SortedTail;

/// The parts of the database that wait to be loaded after the restart has decided.
pub(crate) struct Awaited {
    /// The records behind the image.
    tail: SortedTail,
    /// The tag of new changes.
    tag: CkptEpoch,
    /// The checkpoint epoch of the image's key-addressed rows.
    rows: CkptEpoch,
    catalog: Catalog,
    /// A heap that has only the pages of the catalog.
    catalog_heap: Arc<Heap>,
}

impl Awaited {
    /// Begins the loading into a heap whose partitions are absent, from an image with these records behind it.
    pub fn load(
        self,
        heap: &Arc<Heap>,
        image: ImagePlan,
        options: &RestartOptions,
        scheme: Scheme,
    ) -> Arc<Loading> {
        let building = Building::new(heap, image, self, options, scheme);
        Arc::new(Loading::new(heap.geometry().partitions, building))
    }
}

/// The memory for the records behind the image, in units of the budget for records that were read and not yet played.
const TAIL_PILES: u64 = 4;

/// The outcome of [`decide`].
enum Decision {
    /// The database must be loaded before it answers, for this reason.
    Whole(String),
    OnDemand(Box<(Loaded, Awaited)>),
}

/// Decides what this restart would load, and loads only the catalog. Returns the parts that wait to be loaded. `None`:
/// the caller must load everything now. The report then says why, if partitions were to be loaded on demand.
///
/// # Errors
/// Those of the image and the log, as if everything was loaded.
pub(crate) fn begin(redo: &mut RestartRun<'_>) -> Result<Option<Awaited>> {
    if redo.options.mode != RestartMode::OnDemand {
        return Ok(None);
    }
    match decide(redo.options, redo.anchor)? {
        Decision::Whole(why) => {
            let note = format!("everything is loaded before the first answer: {why}");
            redo.report.notes.push(note);
            Ok(None)
        }
        Decision::OnDemand(begun) => {
            let (loaded, awaited) = *begun;
            let pages = loaded.image.pages;
            let note = format!("{pages} page(s) of the image are loaded on demand");
            redo.report.notes.push(note);
            redo.note_pages(loaded);
            Ok(Some(awaited))
        }
    }
}

/// Returns why a database with this anchor must be loaded whole, if nothing more is known of it.
fn obstacle(options: &RestartOptions, anchor: &Anchor) -> Option<&'static str> {
    let records = options.methods.records(anchor.scheme);
    if !matches!(records, PagePlayer::Group(_)) || !anchor.scheme.has_tables() {
        return Some("its transactions interleave, or it has no tables");
    }
    if anchor.scheme.guard() == Guard::NoRecords {
        return Some("its log has no records of pages");
    }
    if !claims(anchor).is_empty() {
        return Some("its log has ordered frames or operations on trees");
    }
    if is_chain_long(anchor, options) {
        return Some("it has had many restarts, and checkpoints shorten their list first");
    }
    None
}

fn decide(options: &RestartOptions, anchor: &Anchor) -> Result<Decision> {
    let whole = |why: &str| Ok(Decision::Whole(why.to_owned()));
    if let Some(why) = obstacle(options, anchor) {
        return whole(why);
    }
    let geometry = anchor.geometry;
    let (data, images) = (options.disks.data.as_ref(), &options.disks.images);
    let (bad, lost) = (BTreeSet::new(), BTreeSet::new());
    let image = plan_image(&geometry, data, images, anchor, &bad, &lost)?;
    if image.slot.is_some() && image.trusted_slot().is_none() {
        return whole("its newest image is damaged");
    }
    check_ceiling(&options.memory, page_bytes(&image))?;
    let log = Streams::new(&options.disks.logs, anchor, &image.begin)
        .accepting_loss(options.tail.may_lack(anchor));
    (0..log.parts()).try_for_each(|part| log.scan(part))?;
    let end = log.end()?;
    image.check_end(end.epoch)?;
    let tail_bytes_max = options.schedule.pile_bytes.saturating_mul(TAIL_PILES);
    if end.bytes > tail_bytes_max {
        return Ok(Decision::Whole(format!(
            "the log behind its image has {} bytes, and {tail_bytes_max} may be sorted in memory",
            end.bytes
        )));
    }
    let routes = Routes::new(options.methods.records(anchor.scheme), claims(anchor));
    let tail = SortedTail::sort(&image, &log, &end, &routes, &geometry)?;
    let Some(pages) = CatalogPages::find(&image, &tail, &geometry) else {
        return whole("its image lacks the sidecar of a partition");
    };
    let Some(catalog_heap) = pages.load(&image, &tail, geometry)? else {
        return whole("its catalog does not fit single pages, or is damaged");
    };
    let catalog = options.catalog.read_catalog(&catalog_heap)?;
    if catalog
        .values()
        .any(|kind| kind.addressing == Addressing::Key)
    {
        return whole("it has key-addressed tables");
    }
    let heap = Arc::new(Heap::new(geometry, Arc::clone(&options.memory)));
    let tag = indexing(options, anchor, &image).begin(&heap, end.ckpt_max);
    leave_absent(&heap);
    let awaited = Awaited {
        rows: anchor.rows_as_of(image.k),
        catalog: catalog.clone(),
        catalog_heap,
        tag,
        tail,
    };
    let state = State {
        heap,
        damaged: 0,
        tables: Tables {
            catalog,
            ..Tables::default()
        },
        stats: awaited.tail.stats.clone(),
        busy: Busy::default(),
        undo_seconds: 0.0,
    };
    let log = log.into_decided()?;
    let loaded = Loaded { image, log, state };
    Ok(Decision::OnDemand(Box::new((loaded, awaited))))
}

/// Marks all partitions of a new heap as absent.
fn leave_absent(heap: &Heap) {
    for id in heap.ids() {
        heap.set_absent(id, true);
    }
    assert!(
        heap.ids().all(|id| heap.is_absent(id)),
        "no partition can be read before it is loaded"
    );
}
