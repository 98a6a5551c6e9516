//! A restored database, the parent database, and their common epochs.

use perdura_base::Epoch;
use perdura_restore::At;

use crate::lost_disk::{World, carry_out, values};

/// Restores the parent to an epoch, which makes a child database. Writes to the child, archives the child beside the
/// parent, and loses the child. Then restores the child to each epoch.
fn fork(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut parent = World::new(seed);
    parent.back_up();
    for round in 0..20 {
        parent.set_any(&mut rng);
        parent.flush();
        if round == 10 {
            parent.back_up();
        }
    }
    parent.archive();
    let last = parent.changes.last().expect("a change").epoch;
    let at = parent.changes[rng.usize(..10)].epoch;
    assert!(at < last);
    let plan = parent.plan(Some(At::Epoch(at))).expect("a moment");
    let (disks, report) = carry_out(&plan).expect("a restore");
    assert_eq!((report.parent, report.epoch), (parent.uuid, at));

    let archive = std::sync::Arc::clone(&parent.archive);
    let clock = std::sync::Arc::clone(&parent.clock);
    let mut child = World::over((disks.data, disks.log, archive), clock, seed);
    let named = child.core().anchor().get().parent.expect("a parent");
    assert_eq!((named.uuid, named.epoch), (parent.uuid, at));
    child.back_up();
    let begin = child.core().anchor().get().epoch_floor;
    assert!(
        begin >= at,
        "no epoch that the child has of it is used again"
    );
    for _ in 0..12 {
        child.set_any(&mut rng);
        child.flush();
    }
    child.crash(rng.u64(..));
    child.set_any(&mut rng);
    child.flush();
    child.archive();
    let named = child.core().anchor().get().parent;
    assert_eq!(named.map(|parent| parent.epoch), Some(at), "over lives");
    let store = child.store().expect("an archive");
    let manifest = store.manifest();
    assert_eq!(manifest.parent, named, "each manifest names it");
    assert_ne!(child.uuid, parent.uuid);

    let moments = child.changes.iter().map(|change| change.epoch);
    for target in moments.chain([Epoch(begin.0), at]) {
        let plan = child.plan(Some(At::Epoch(target))).expect("a moment");
        let (disks, report) = carry_out(&plan).expect("a restore");
        assert_eq!(report.parent, child.uuid);
        let core = disks.open().expect("it opens");
        let expected = child.state(target);
        assert_eq!(values(&core), expected, "seed {seed}, epoch {target}");
        if target <= begin {
            assert_eq!(expected, parent.state(at), "what the child began with");
        }
        let anchor = core.anchor().get();
        let named = anchor.parent.map(|parent| (parent.uuid, parent.epoch));
        assert_eq!(named, Some((child.uuid, target)));
        assert_eq!(anchor.uuid, report.uuid);
    }
    // The simulator found a bug: a restore to the moment before the child began was accepted. It restored the child's
    // first moment instead.
    let before = child.plan(Some(At::Epoch(Epoch(at.0 - 1)))).map(drop);
    let refused = before.expect_err("it is the parent's moment").to_string();
    assert!(refused.contains("cannot be restored"), "{refused}");
    // The parent still has the epochs after the fork.
    let (disks, _) = carry_out(&parent.plan(None).expect("its end")).expect("a restore");
    assert_eq!(values(&disks.open().expect("it opens")), parent.state(last));
}

#[test]
fn a_child_names_its_parent_and_has_none_of_the_epochs_behind_the_fork() {
    (0..8).for_each(fork);
}
