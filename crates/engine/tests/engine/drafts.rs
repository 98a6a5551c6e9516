//! Collections that are built in many transactions before a key names them.

use perdura::core::Core;
use perdura::{Draft, End, Error, Shape, TableId, Tx};
use perdura_base::num::to_u64;
use perdura_base::{PartitionId, PartitionSet};
use perdura_device::{CrashProfile, SimDisk};

use crate::collections::{orphan_rows, purge_all};
use crate::core_steps::open;

fn done<R>(core: &Core, f: impl FnMut(&mut Tx<'_>) -> Result<R, Error>) -> R {
    core.transact(&PartitionSet::empty(), f)
        .expect("it commits")
        .0
}

/// Returns a list item. One item in fifty is too long for a page. The rest are short.
fn item(at: usize) -> Vec<u8> {
    let len = if at.is_multiple_of(50) { 40_000 } else { 8 };
    vec![at.to_le_bytes()[0]; len]
}

fn begin(core: &Core, key: &[u8]) -> Draft {
    done(core, |tx| {
        tx.begin_draft(core.database(0), key, Shape::List)
    })
}

fn push(core: &Core, draft: &Draft, items: std::ops::Range<usize>) {
    let items: Vec<Vec<u8>> = items.map(item).collect();
    let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
    done(core, |tx| {
        tx.list_push(draft.table(), draft.home(), End::Back, &items)
    });
}

fn items_of(core: &Core, table: TableId, key: &[u8]) -> Option<Vec<Vec<u8>>> {
    done(core, |tx| {
        let Some(home) = tx.get(table, key)?.and_then(|row| row.home()) else {
            return Ok(None);
        };
        let elements = tx.elements(table, home)?;
        let item = |row: perdura::RowRef<'_>| row.value().into_owned();
        Ok(Some(elements.items(0, elements.len()).map(item).collect()))
    })
}

fn draft_rows(core: &Core) -> u64 {
    let ids = (0..core.heap().geometry().partitions).map(PartitionId);
    ids.map(|id| core.heap().lock(id).draft_rows(core.database(0)))
        .sum()
}

fn slots_taken(core: &Core) -> u64 {
    let ids = (0..core.heap().geometry().partitions).map(PartitionId);
    ids.map(|id| core.heap().lock(id).slots_taken(core.database(0)))
        .sum()
}

#[test]
fn a_draft_is_seen_by_nobody_until_a_key_names_it_and_then_whole() {
    let disk = SimDisk::new(1);
    let core = open(&disk, 2);
    done(&core, |tx| tx.put(core.database(0), b"k", b"before", None));
    let digest = core.digest().expect("a digest");
    let draft = begin(&core, b"k");
    for step in 0..6 {
        push(&core, &draft, step * 40..(step + 1) * 40);
        assert_eq!(core.digest().expect("a digest"), digest);
        assert_eq!(
            (draft_rows(&core), orphan_rows(&core)),
            (to_u64(40 * (step + 1)), 0)
        );
        core.checkpoint_now().expect("a checkpoint");
    }
    assert_eq!(done(&core, |tx| tx.len(core.database(0))), 1);
    // A key that was not given to `begin` may name the draft, even a key in another partition.
    for key in [&b"k"[..], b"other"] {
        let undone = core.transact(&PartitionSet::empty(), |tx| {
            tx.name_draft(&draft, key, None)?;
            Err::<(), _>(Error::Usage("undone".into()))
        });
        assert!(undone.is_err());
        assert_eq!(core.digest().expect("a digest"), digest);
    }
    done(&core, |tx| tx.name_draft(&draft, b"k", Some(u64::MAX)));
    let again = core.transact(&PartitionSet::empty(), |tx| {
        tx.name_draft(&draft, b"other", None)
    });
    assert!(matches!(again, Err(Error::Usage(_))), "it has a key");
    drop(draft);
    let all: Vec<_> = (0..240).map(item).collect();
    assert_eq!(items_of(&core, core.database(0), b"k"), Some(all.clone()));
    core.flush_all().expect("a flush");
    drop(core);
    disk.crash(CrashProfile::Nothing, 1);
    let core = open(&disk, 2);
    assert_eq!(items_of(&core, core.database(0), b"k"), Some(all));
    assert_eq!((draft_rows(&core), orphan_rows(&core)), (0, 0));
}

#[test]
fn a_crash_while_a_draft_is_built_leaves_rows_that_the_purge_removes() {
    let disk = SimDisk::new(2);
    let core = open(&disk, 1);
    let draft = begin(&core, b"k");
    push(&core, &draft, 0..300);
    core.flush_all().expect("a flush");
    drop((draft, core));
    disk.crash(CrashProfile::Nothing, 1);
    let core = open(&disk, 1);
    assert_eq!(orphan_rows(&core), 300);
    purge_all(&core);
    assert_eq!(slots_taken(&core), 0);
}

#[test]
fn a_draft_that_is_dropped_goes_away_whatever_its_state() {
    let disk = SimDisk::new(3);
    let core = open(&disk, 1);
    let settle = |core: &Core| {
        core.heap().settle_drafts();
        assert_eq!(draft_rows(core), 0);
        purge_all(core);
        assert_eq!(slots_taken(core), 0);
    };
    drop(begin(&core, b"empty"));
    settle(&core);
    let draft = begin(&core, b"k");
    push(&core, &draft, 0..200);
    drop(draft);
    assert_eq!(orphan_rows(&core), 200);
    settle(&core);
    // The draft is dropped within the transaction that names it, and that transaction is undone.
    let mut draft = Some(begin(&core, b"k"));
    push(&core, draft.as_ref().expect("begun"), 0..200);
    let undone = core.transact(&PartitionSet::empty(), |tx| {
        if let Some(draft) = &draft {
            tx.name_draft(draft, b"k", None)?;
        }
        drop(draft.take());
        Err::<(), _>(Error::Usage("undone".into()))
    });
    assert!(undone.is_err());
    assert_eq!((draft_rows(&core), orphan_rows(&core)), (200, 0));
    settle(&core);
    // The draft is dropped after its table was flushed.
    let draft = begin(&core, b"k");
    push(&core, &draft, 0..200);
    let _flushed = core.flush_database(None).expect("a flush");
    let pushed = core.transact(&PartitionSet::empty(), |tx| {
        tx.list_push(draft.table(), draft.home(), End::Back, &[b"x"])
    });
    assert!(pushed.is_err());
    drop(draft);
    settle(&core);
    // The draft is begun, named and dropped in one transaction, which commits.
    done(&core, |tx| {
        let draft = tx.begin_draft(core.database(0), b"k", Shape::List)?;
        tx.list_push(draft.table(), draft.home(), End::Back, &[b"x"])?;
        tx.name_draft(&draft, b"k", None)
    });
    core.heap().settle_drafts();
    let held = items_of(&core, core.database(0), b"k");
    assert_eq!(held, Some(vec![b"x".to_vec()]));
    assert_eq!((draft_rows(&core), orphan_rows(&core)), (0, 0));
}

#[test]
fn a_key_is_not_given_a_draft_without_elements() {
    let disk = SimDisk::new(4);
    let core = open(&disk, 1);
    let draft = begin(&core, b"k");
    push(&core, &draft, 0..1);
    // A draft may become empty. A collection that has a key may not.
    done(&core, |tx| {
        tx.list_pop(draft.table(), draft.home(), End::Back, 1)
    });
    let named = core.transact(&PartitionSet::empty(), |tx| {
        tx.name_draft(&draft, b"k", None)
    });
    assert!(matches!(named, Err(Error::Usage(_))));
    push(&core, &draft, 1..2);
    done(&core, |tx| tx.name_draft(&draft, b"k", None));
    let held = items_of(&core, core.database(0), b"k");
    assert_eq!(held, Some(vec![item(1)]));
}

#[test]
fn who_writes_into_a_draft_pays_for_orphans() {
    let disk = SimDisk::new(5);
    let core = open(&disk, 1);
    for id in (0..4).map(PartitionId) {
        let limits = perdura::OrphanLimits {
            debt_rows: 10,
            ..perdura::OrphanLimits::default()
        };
        core.heap().lock(id).set_orphan_limits(limits);
    }
    let first = begin(&core, b"k");
    push(&core, &first, 0..200);
    drop(first);
    let second = begin(&core, b"k");
    push(&core, &second, 0..50);
    assert_eq!((draft_rows(&core), orphan_rows(&core)), (50, 100));
}
