//! Salvage of databases with typed tables. From a damaged log, all whole epochs before the damage are played, and
//! nothing after it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use perdura::typed::replay::Replayer;
use perdura::typed::{CatalogRows, TypedOptions};
use perdura::{Core, CoreOptions, Cx, LogForm, Progress};
use perdura_base::Uuid;
use perdura_base::limits::VALUE_BYTES_DEFAULT;
use perdura_device::{CrashProfile, SimDisk};
use perdura_heap::MemoryAccount;
use perdura_recovery::ordered::OrderedPlayer;
use perdura_recovery::salvage::{Condition, Missing, build, salvage};
use perdura_recovery::{LogMemory, Methods, RestartOptions};

use crate::core_steps::{env, pages_of, small};
use crate::typed::{Account, builder, transfer};

const STREAMS: usize = 2;
const ACCOUNTS: u64 = 16;
const CALLS: u64 = 40;
const CHECKPOINT_BEHIND: u64 = 12;

fn typed(log: LogForm) -> TypedOptions {
    let declared = builder(Path::new(""), log);
    declared.into_options().typed
}

fn open(disk: &Arc<SimDisk>, log: LogForm) -> Core {
    let options = CoreOptions {
        typed: typed(log),
        ..small()
    };
    Core::open(env(disk, STREAMS), options, Arc::new(Progress::default())).unwrap()
}

/// Makes a database and calls a procedure many times, with a checkpoint in the middle. Each call is made durable
/// before the next one. Returns a map. Each key is the database's digest after a call, and the value is the number of
/// that call. If several calls gave one digest, the map has the last of these calls.
fn crashed(disk: &Arc<SimDisk>, log: LogForm) -> BTreeMap<u64, u64> {
    let core = open(disk, log);
    let filled = core.transact(&core.all_partitions(), |tx| {
        let mut cx = Cx::new(tx, core.registry());
        (0..ACCOUNTS).try_for_each(|id| {
            cx.insert(&Account {
                id,
                owner: "o".repeat(200),
                balance: 1000,
            })
        })
    });
    let _durable_with_the_first_call = filled.unwrap();
    let mut states = BTreeMap::new();
    for call in 0..CALLS {
        let (from, to) = (call % ACCOUNTS, (call * 5 + 1) % ACCOUNTS);
        let _flushed_below = core.call::<transfer>(&(from, to, 3)).unwrap();
        core.flush_all().unwrap();
        if call == CHECKPOINT_BEHIND {
            core.checkpoint_now().unwrap();
        }
        states.insert(core.digest().unwrap(), call);
    }
    // The anchor vouches for all epochs, so that missing epochs are noticed.
    core.vouch().unwrap();
    drop(core);
    disk.crash(CrashProfile::Nothing, 1);
    states
}

/// Salvages a database onto a second disk. Returns the report of missing data and the salvaged database. `None` if the
/// database is whole.
fn salvaged(disk: &Arc<SimDisk>, log: LogForm) -> Option<(Missing, Core)> {
    let env_of = env(disk, STREAMS);
    let player = || {
        let player = Replayer::new(typed(log), VALUE_BYTES_DEFAULT);
        Some(Arc::new(player) as Arc<dyn OrderedPlayer>)
    };
    let options = RestartOptions {
        life: perdura_base::LifeId(0),
        disks: env_of.disks,
        clock: env_of.clock,
        schedule: small().schedule,
        methods: Methods::default(),
        tree: perdura_recovery::tree::TreeMeans::default(),
        ordered: player(),
        archived: None,
        mode: perdura_recovery::RestartMode::Dry,
        tail: Default::default(),
        memory: Arc::new(MemoryAccount::new(u64::MAX)),
        catalog: Arc::new(CatalogRows::default()),
        progress: Arc::new(Progress::default()),
    };
    let found = match salvage(&options, &|catalog| catalog.len() > 16, &player).unwrap() {
        Condition::Whole => return None,
        Condition::Salvaged(found) => *found,
    };
    let missing = found.missing.clone();
    let target = SimDisk::new(9);
    let into = RestartOptions {
        disks: env(&target, STREAMS).disks,
        clock: Arc::clone(&options.clock),
        ordered: None,
        mode: perdura_recovery::RestartMode::Real,
        memory: Arc::clone(&options.memory),
        catalog: Arc::clone(&options.catalog),
        progress: Arc::new(Progress::default()),
        ..options
    };
    let memory = LogMemory {
        block_bytes_max: small().block_bytes_max,
        queue_bytes_max: small().queue_bytes_max,
        lanes: 1,
        mirror: None,
    };
    build(found, &into, Uuid([7; 16]), memory).unwrap();
    Some((missing, open(&target, log)))
}

fn log_files(disk: &SimDisk) -> Vec<(String, u64)> {
    let files = disk.files().into_iter();
    files.filter(|(path, _)| path.starts_with("log")).collect()
}

#[test]
fn a_damaged_log_is_played_up_to_its_last_whole_epoch() {
    for log in [LogForm::Command, LogForm::Value] {
        let disk = SimDisk::new(3);
        let states = crashed(&disk, log);
        let whole = disk.snapshot();
        let (mut cut, mut met) = (0, BTreeMap::new());
        for (path, len) in log_files(&disk) {
            let used = disk.read_all(&path).unwrap();
            let used = used.iter().rposition(|byte| *byte != 0).unwrap_or(0);
            for at in (4096..len.min(u64::try_from(used).unwrap())).step_by(8 * 1024) {
                disk.restore(&whole);
                disk.flip(&path, at, 3);
                let Some((missing, core)) = salvaged(&disk, log) else {
                    continue;
                };
                let what = format!("{log:?} {path} {at}: {missing:?}");
                let found = states.get(&core.digest().unwrap());
                let found = *found.unwrap_or_else(|| panic!("no state of a prefix: {what}"));
                assert!(found >= CHECKPOINT_BEHIND, "{what}");
                assert_eq!(missing.numbers.len(), 4, "{what}");
                cut += usize::from(found < CALLS - 1);
                met.insert(found, what);
                // The salvaged database accepts calls, with the next sequence numbers.
                let _flushed_below = core.call::<transfer>(&(1, 2, 1)).unwrap();
                core.flush_all().unwrap();
            }
        }
        assert!(
            cut > 3 && met.len() > 3,
            "{log:?}: {cut} cuts, {:?}",
            met.keys()
        );
    }
}

#[test]
fn an_image_that_lacks_pages_is_no_ground_for_calls() {
    let disk = SimDisk::new(4);
    let states = crashed(&disk, LogForm::Command);
    let (path, len) = pages_of(&disk, "image-a");
    assert!(disk.flip(&path, len - 100, 1));
    // No image is whole, but the log reaches back to the beginning, so nothing is lost.
    let (missing, core) = salvaged(&disk, LogForm::Command).expect("no image is whole");
    assert_eq!(missing.image, "none", "{missing:?}");
    assert!(missing.log.is_empty() && missing.pages.is_empty());
    assert_eq!(states.get(&core.digest().unwrap()), Some(&(CALLS - 1)));

    // The log's beginning is damaged too. Only the image is left, without its last page, and no call is replayed on it.
    let (path, _) = log_files(&disk).remove(0);
    assert!(disk.flip(&path, 4096 + 100, 1));
    let (missing, core) = salvaged(&disk, LogForm::Command).expect("no image is whole");
    assert!(missing.image_alone && missing.consistent, "{missing:?}");
    assert_eq!(missing.pages.len(), 1, "{missing:?}");
    assert_eq!(missing.log.len(), STREAMS, "{missing:?}");
    let kept: u64 = missing.numbers.iter().sum();
    assert!(
        (CHECKPOINT_BEHIND..4 * CALLS).contains(&kept),
        "{missing:?}"
    );
    assert_eq!(core.report().ordered.map_or(0, |ordered| ordered.played), 0);
}
