//! The backlog: runs that wait on the log's disk while the archive is away. The loss of any one disk never loses the
//! data of these runs.

use std::sync::Arc;

use perdura_archive::{Store, backlog};
use perdura_device::{CrashProfile, Disk};

use crate::lost_disk::{World, values};
use crate::surviving::restored;

/// Counts of the events in all histories.
#[derive(Default)]
struct Seen {
    waited: usize,
    drained: usize,
    lives_away: usize,
}

fn waiting(world: &World) -> Option<Arc<Store>> {
    let logs: Vec<Arc<dyn Disk>> = vec![world.log.life()];
    let store = backlog::find(&logs, &world.uuid).expect("a backlog, or none");
    store.filter(|store| store.manifest().runs().next().is_some())
}

/// Runs a random history, in which the archive is sometimes unreachable. At the end, the data disk is lost. Log and
/// archive together must then have all acknowledged writes.
fn lose_the_data_disk(seed: u64, seen: &mut Seen) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut world = World::new(seed);
    world.back_up();
    for _ in 0..rng.usize(5..60) {
        match rng.u8(..24) {
            0..10 => (0..rng.usize(1..4)).for_each(|_| world.set_any(&mut rng)),
            10..14 => world.flush(),
            14..17 => {
                world.archive();
                seen.waited += usize::from(waiting(&world).is_some());
            }
            17 => {
                for _ in 0..rng.usize(1..40) {
                    world.archive_step();
                }
            }
            18 => {
                let was_away = world.is_away;
                world.crash(rng.u64(..));
                if was_away && rng.bool() {
                    world.leave();
                    seen.lives_away += 1;
                }
            }
            19 => world.core().checkpoint_now().expect("an image"),
            20 | 21 if !world.is_away => world.leave(),
            22 if world.is_away => {
                let waits = waiting(&world).is_some();
                let profile = CrashProfile::ALL[rng.usize(..CrashProfile::ALL.len())];
                world.come_back(profile, rng.u64(..));
                if rng.bool() {
                    world.archive();
                    assert!(waiting(&world).is_none(), "it has been drained");
                    seen.drained += usize::from(waits);
                }
            }
            23 if !world.is_away && rng.bool() => world.back_up(),
            _ => world.flush(),
        }
    }
    if world.is_away {
        world.come_back(CrashProfile::Killed, 1);
    }
    world.end(&mut rng);
    let changes = world.changes.iter();
    let acknowledged = changes
        .filter(|change| change.wall_us < u64::MAX)
        .map(|change| change.epoch)
        .max()
        .unwrap_or_default();
    let what = |what: String| format!("seed {seed}: {what}");
    let before = world.log.files();
    let (disks, epoch) = restored(&world, &world.log).map_err(|error| what(error.to_string()))?;
    assert_eq!(world.log.files(), before, "log and backlog are only read");
    if epoch < acknowledged {
        return Err(what(format!(
            "epoch {epoch}, and {acknowledged} was acknowledged"
        )));
    }
    let core = disks.open().map_err(|error| what(error.to_string()))?;
    if values(&core) != world.state(epoch) {
        return Err(what(format!("other values at {epoch}")));
    }
    Ok(())
}

#[test]
fn everything_acknowledged_is_restored_whatever_waits_in_the_backlog() {
    let mut seen = Seen::default();
    for seed in 0..150 {
        lose_the_data_disk(seed, &mut seen).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    let Seen {
        waited,
        drained,
        lives_away,
    } = seen;
    assert!(waited > 50, "{waited} times runs waited");
    assert!(drained > 10, "{drained} times they were drained");
    assert!(
        lives_away > 10,
        "{lives_away} lives began without the archive"
    );
}

/// Checkpoints remove old epochs from the log, because the backlog has these epochs. A restore with the backlog gets
/// everything. A restore without the backlog fails, because epochs are missing.
#[test]
fn a_log_that_was_cut_behind_the_backlog_is_restored_with_it_and_not_without() {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut world = World::new(3);
    world.back_up();
    world.leave();
    for round in 0..160 {
        world.set_any(&mut rng);
        world.flush();
        if round % 40 == 39 {
            world.archive();
            world.core().checkpoint_now().expect("an image");
            world.core().checkpoint_now().expect("an image");
        }
    }
    let last = world.changes.last().expect("changes").epoch;
    world.kill();
    world.come_back(CrashProfile::Killed, 1);
    let (disks, epoch) = restored(&world, &world.log).expect("archive, backlog and log");
    assert!(epoch >= last, "{epoch}, and {last} was acknowledged");
    let core = disks.open().expect("it opens");
    assert_eq!(values(&core), world.state(epoch));
    let backlog = waiting(&world).expect("runs wait");
    let disk = backlog.disk();
    for run in backlog.manifest().runs() {
        disk.remove(&format!("{}/{}", backlog.runs_dir(), run.name()))
            .expect("a run");
    }
    let names = disk.list("").expect("its folder");
    for name in disk.list(&names[0]).expect("manifests") {
        if name.starts_with("manifest-") {
            disk.remove(&format!("{}/{name}", names[0]))
                .expect("a manifest");
        }
    }
    let refused = restored(&world, &world.log).map(drop);
    assert!(refused.is_err(), "the log was cut behind the backlog");
}

/// The opening of a backlog with a damaged manifest asserted that nothing is damaged, so the server stopped.
#[test]
fn a_flipped_bit_in_a_manifest_of_the_backlog_stops_nothing() {
    for nth in 0..3 {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut world = World::new(5);
        world.back_up();
        world.leave();
        for _ in 0..20 {
            world.set_any(&mut rng);
            world.flush();
            world.archive();
        }
        assert!(waiting(&world).is_some(), "runs wait");
        let last = world.changes.last().expect("changes").epoch;
        world.kill();
        let files = world.log.files().into_iter().map(|(path, _)| path);
        let mut manifests: Vec<String> = files
            .filter(|path| path.starts_with("backlog/") && path.contains("manifest-"))
            .collect();
        manifests.sort_unstable();
        let path = &manifests[manifests.len() - 1 - nth];
        assert!(world.log.flip(path, 40, 3), "{path}");
        world.reopen();
        world.archive();
        world.come_back(CrashProfile::Killed, 1);
        world.archive();
        assert!(waiting(&world).is_none(), "{path}: it has been drained");
        world.kill();
        let (_, epoch) = restored(&world, &world.log).expect(path);
        assert!(
            epoch >= last,
            "{path}: {epoch}, and {last} was acknowledged"
        );
    }
}
