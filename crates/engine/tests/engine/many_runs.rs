//! An archive with more runs than a restore reads at once.

use perdura_base::Epoch;
use perdura_device::Disk;
use perdura_restore::{At, Scratch, Sources};

use crate::lost_disk::{KEYS, Restored, World, carry_out_onto, values};

const ROUNDS: usize = 500;
const BOUND: usize = 16;

/// Returns a world. The archive has one run for each round, and a backup in the middle.
fn archived() -> World {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut world = World::new(5);
    world.back_up();
    for round in 0..ROUNDS {
        let value = vec![rng.u8(..); rng.usize(1..3000)];
        world.set(rng.usize(..KEYS), Some(value));
        world.flush();
        world.archive();
        if round == 450 {
            world.back_up();
        }
    }
    world
}

#[test]
fn of_too_many_runs_the_smallest_neighbours_are_merged_first_and_every_moment_stays() {
    let world = archived();
    let store = world.store().expect("an archive");
    let manifest = store.manifest();
    assert!(manifest.runs().count() >= ROUNDS);
    let last = manifest.held().0;
    let newest = manifest.backups().last().expect("a backup");
    let moments = [
        last.0,
        last.0 - 1,
        newest.end.0,
        newest.end.0 - 1,
        last.0 / 2,
        30,
    ];
    let mut merged = 0;
    for target in moments.map(Epoch) {
        for bound in [2, 3, BOUND, ROUNDS] {
            let disks = Restored::new();
            let sources = Sources {
                scratch: Some(Scratch::begin(disks.data.life()).expect("a new disk")),
                runs_max: bound,
                ..Sources::archive(&store)
            };
            let target = At::Epoch(target)
                .resolve(&store, &[], 0)
                .expect("an epoch")
                .epoch;
            let plan = sources.plan(Some(target), |_, _| {}).expect("a moment");
            assert!(plan.runs() <= bound, "{} runs", plan.runs());
            merged += plan.runs_merged();
            let report = carry_out_onto(&disks, &plan).expect("a restore");
            assert_eq!(report.epoch, target);
            let core = disks.open().expect("it opens");
            assert_eq!(
                values(&core),
                world.state(target),
                "{target} with {bound} runs"
            );
            let left = disks.data.files();
            assert!(
                left.iter().all(|(name, _)| !name.contains("run-")),
                "{left:?}"
            );
            assert!(disks.data.life().list("image-b").is_ok());
        }
    }
    assert!(merged > 1000, "{merged} runs were merged");
    // Without scratch space for merged runs, the restore reads all runs at the same time.
    let all = Sources::archive(&store)
        .plan(None, |_, _| {})
        .expect("the end");
    assert!(all.runs() > BOUND && all.runs_merged() == 0);
}
