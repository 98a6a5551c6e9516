//! A database with the newest log in the memory of nodes, on a simulated disk and network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perdura::mirror::sim::{SimNet, SimRegister, Way};
use perdura::mirror::{Key, Machine, MirrorOptions, Mode, Patience, Register};
use perdura::{Core, Disks, Env, Error, Nodes, Options, Progress, Rung, Ticket};
use perdura_base::Epoch;
use perdura_device::{Clock, CrashProfile, ManualClock, SimDisk};
use perdura_recovery::log_end::log_end;
use perdura_recovery::{Family, Level, Method, RestartOptions, Schedule};
use perdura_wal::Scheme;

use crate::core_steps::{get, small};

/// A disk, two nodes, an arbiter and a manual clock. The arbiter stores which process may write.
pub struct World {
    pub disk: Arc<SimDisk>,
    net: SimNet,
    pub register: SimRegister,
    pub clock: Arc<ManualClock>,
    random: Arc<AtomicU64>,
    clients: AtomicU64,
}

pub fn deliver(net: &SimNet) {
    while let Some(first) = net.moves().first() {
        net.deliver(*first);
    }
}

impl World {
    pub fn new() -> World {
        let net = SimNet::new();
        for (number, address) in (0u8..).zip(["a", "b"]) {
            net.add(address, Machine([number + 1; 16]), 2 << 20, Key::none());
        }
        World {
            disk: SimDisk::new(1),
            net,
            register: SimRegister::new(),
            clock: Arc::new(ManualClock::at(1_000_000)),
            random: Arc::new(AtomicU64::new(1)),
            clients: AtomicU64::new(1),
        }
    }

    pub fn nodes(&self) -> Nodes {
        let options = MirrorOptions {
            tail_bytes_max: 1 << 20,
            ..MirrorOptions::new(vec![["a".into(), "b".into()]], Key::none())
        };
        let client = u32::try_from(self.clients.fetch_add(1, Ordering::SeqCst)).unwrap();
        let (register, random) = (self.register.clone(), Arc::clone(&self.random));
        let (net, clock) = (self.net.clone(), Arc::clone(&self.clock));
        Nodes {
            options,
            net: self.net.client(client),
            register: Arc::new(move |_| Ok(Box::new(register.clone()) as Box<dyn Register>)),
            random: Arc::new(move || random.fetch_add(1, Ordering::SeqCst)),
            patience: Patience::default(),
            pass: Arc::new(move || {
                deliver(&net);
                clock.advance_us(10_000);
            }),
        }
    }

    pub fn try_open(&self, nodes: Option<Nodes>, accept_loss: bool) -> Result<Core, Error> {
        let env = Env {
            disks: Disks::on_one(self.disk.life(), 2),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            seed: 7,
            nodes,
            accept_loss,
        };
        Core::open(env, small(), Arc::new(Progress::default()))
    }

    pub fn open(&self) -> Core {
        self.try_open(Some(self.nodes()), false).expect("it opens")
    }

    /// Lets network, mirror and arbiter work until nothing is left to do.
    pub fn settle(&self, core: &Core) {
        let nodes = core.nodes().expect("it has nodes");
        for _ in 0..200 {
            self.clock.advance_us(1000);
            deliver(&self.net);
            nodes.pump(self.clock.mono_ns());
            let _may_be_fenced = nodes.manage(self.clock.mono_ns());
        }
    }

    pub fn mirrored(&self) -> Core {
        let core = self.open();
        self.settle(&core);
        assert!(core.nodes().unwrap().is_mirrored());
        core
    }

    /// Writes a row that nodes hold and the disk does not.
    pub fn put_in_memory(&self, core: &Core, key: &str, value: &[u8]) -> Epoch {
        // An epoch ends only when the nodes have answered for the previous epoch.
        self.settle(core);
        let epoch = put(core, key, value).epoch;
        core.ship().unwrap();
        self.settle(core);
        assert!(
            core.wal().durable(Rung::Mirror) >= epoch,
            "{:?}",
            core.nodes().unwrap().status(self.clock.mono_ns())
        );
        assert!(core.wal().durable(Rung::Disk) < epoch);
        epoch
    }

    pub fn power_cut(&self, core: Core) {
        drop(core);
        self.disk.crash(CrashProfile::Nothing, 1);
    }
}

fn put(core: &Core, key: &str, value: &[u8]) -> Ticket {
    let parts = [core.partition_of(key.as_bytes())].into_iter().collect();
    let done = core.transact(&parts, |tx| {
        tx.put(core.database(0), key.as_bytes(), value, None)
    });
    done.expect("a put").1
}

#[test]
fn what_nodes_acknowledged_survives_the_writers_power_cut() {
    let world = World::new();
    let core = world.mirrored();
    let mut value = vec![0; 3000];
    for round in 0..40_u8 {
        value.fill(round);
        world.put_in_memory(&core, &format!("key {round}"), &value);
    }
    world.power_cut(core);
    let core = world.open();
    for round in 0..40_u8 {
        assert_eq!(get(&core, &format!("key {round}")), Some(vec![round; 3000]));
    }
    let told = core.report().notes.join("\n");
    assert!(told.contains("came from nodes"), "{told}");
    // Repeat this in the next life, whose nodes have new memory.
    world.settle(&core);
    world.put_in_memory(&core, "second", b"life");
    world.power_cut(core);
    assert_eq!(get(&world.open(), "second").as_deref(), Some(&b"life"[..]));
}

#[test]
fn one_node_that_is_left_returns_the_tail() {
    for lost in ["a", "b"] {
        let world = World::new();
        let core = world.mirrored();
        world.put_in_memory(&core, "key", b"value");
        world.power_cut(core);
        world.net.kill(lost);
        world.net.start(lost);
        assert_eq!(
            get(&world.open(), "key").as_deref(),
            Some(&b"value"[..]),
            "{lost}"
        );
    }
}

#[test]
fn a_database_whose_tail_may_be_in_nodes_never_starts_from_its_disks_alone() {
    let world = World::new();
    let core = world.mirrored();
    let kept = world.put_in_memory(&core, "kept", b"1");
    core.flush_all().unwrap();
    let lost = world.put_in_memory(&core, "lost", b"2");
    let life = core.anchor().get().incarnation;
    world.power_cut(core);

    let why = world
        .try_open(None, false)
        .err()
        .expect("no nodes")
        .to_string();
    assert!(
        why.contains("--log-nodes") && why.contains("--accept-loss"),
        "{why}"
    );

    // `perdura receipt` calls `log_end`, which also refuses the disks without the nodes.
    let disks = Disks::on_one(world.disk.life(), 2);
    let anchor = perdura_recovery::read_anchor(disks.data.as_ref())
        .unwrap()
        .unwrap();
    let options = RestartOptions::of_records(
        disks,
        Arc::clone(&world.clock) as Arc<dyn Clock>,
        Schedule::inline(Level::Four, 0),
        Method::of(Scheme::Differential),
    );
    let why = log_end(&options, &anchor).unwrap_err().to_string();
    assert!(why.contains("--log-nodes"), "{why}");

    for address in ["a", "b"] {
        world.net.kill(address);
        world.net.start(address);
    }
    let why = world
        .try_open(Some(world.nodes()), false)
        .err()
        .expect("empty nodes")
        .to_string();
    assert!(
        why.contains("it was restarted and its memory is empty") && why.contains("--accept-loss"),
        "{why}"
    );

    let core = world
        .try_open(Some(world.nodes()), true)
        .expect("the loss is accepted");
    assert_eq!(get(&core, "kept").as_deref(), Some(&b"1"[..]));
    assert_eq!(get(&core, "lost"), None);
    let anchor = core.anchor().get();
    let losses: Vec<_> = anchor
        .losses
        .iter()
        .map(|loss| (loss.incarnation, loss.durable))
        .collect();
    assert_eq!(
        losses,
        [(life, kept)],
        "every receipt of the life behind that epoch is lost"
    );
    assert!(lost > kept);
    assert!(anchor.mirrored.is_none());
    drop(core);
    let why = world
        .try_open(Some(world.nodes()), true)
        .err()
        .expect("nothing is lost")
        .to_string();
    assert!(why.contains("nothing is lost"), "{why}");
    world.open();
}

/// Found by the simulator, seeds 58 and 190. The anchor vouches for the log up to a position. The takeover began to
/// read the log there, but checkpoints had already removed that part. So the takeover refused a log that was whole on
/// disk.
#[test]
fn a_takeover_behind_checkpoints_begins_where_they_have_cut_the_log() {
    let world = World::new();
    let core = world.mirrored();
    for round in 0..8_u8 {
        for key in 0..30 {
            let _flushed_by_the_checkpoint = put(&core, &format!("key {key}"), &[round; 3000]);
        }
        core.flush_all().unwrap();
        world.settle(&core);
        core.checkpoint_now().unwrap();
    }
    let anchor = core.anchor().get();
    let floor = perdura_recovery::truncate::truncation_floor(&anchor);
    assert!(
        anchor.vouched.ends[0].0 + small().segment_bytes < floor[0].0,
        "the segment of what is vouched for was cut"
    );
    world.put_in_memory(&core, "newest", b"value");
    world.power_cut(core);
    let core = world.open();
    assert_eq!(get(&core, "newest").as_deref(), Some(&b"value"[..]));
    assert_eq!(get(&core, "key 29"), Some(vec![7; 3000]));
}

#[test]
fn a_clean_end_leaves_all_on_disk_and_needs_no_node() {
    let world = World::new();
    let core = world.mirrored();
    world.put_in_memory(&core, "key", b"value");
    let nodes = core.nodes().unwrap();
    nodes.begin_stop();
    world.settle(&core);
    assert!(!nodes.has_stopped(), "the tail is not on disk");
    assert!(core.anchor().get().mirrored.is_some());
    core.flush_all().unwrap();
    world.settle(&core);
    assert!(nodes.has_stopped());
    let view = world.register.view().unwrap();
    assert!(view.groups.iter().all(|mode| *mode == Mode::Disk));
    world.power_cut(core);
    let core = world.try_open(None, false).expect("the disk has all");
    assert_eq!(get(&core, "key").as_deref(), Some(&b"value"[..]));
}

/// Another process has claimed the database. The writer acknowledges writes when they are on disk, and continues until
/// the lease ends. The takeover waits for the end of the lease, and then reads everything that the writer has written,
/// including the anchor. After its lease the writer acknowledges nothing.
#[test]
fn a_takeover_waits_for_the_lease_of_the_last_writer_and_reads_what_it_did_meanwhile() {
    let world = World::new();
    for node in ["a", "b"] {
        world.net.kill(node);
    }
    let leased = |world: &World| {
        let mut nodes = world.nodes();
        nodes.options.lease_ns = 400_000_000;
        nodes
    };
    let old = world.try_open(Some(leased(&world)), false).unwrap();
    world.settle(&old);
    let old = Arc::new(old);
    let mut nodes = leased(&world);
    let (pass, meanwhile) = (Arc::clone(&nodes.pass), Arc::clone(&old));
    let (clock, passed) = (Arc::clone(&world.clock), AtomicU64::new(0));
    nodes.pass = Arc::new(move || {
        pass();
        if passed.fetch_add(1, Ordering::SeqCst) == 0 {
            let core = &meanwhile;
            core.anchor().declare(core.wal(), Family::Effects).unwrap();
            let put = put(core, "key", b"value");
            core.flush_all().unwrap();
            core.nodes().unwrap().pump(clock.mono_ns());
            assert!(core.wal().reached().at(Rung::Disk) >= put.epoch);
        }
    });
    let new = world.try_open(Some(nodes), false).unwrap();
    assert_eq!(get(&new, "key").as_deref(), Some(&b"value"[..]));
    assert!(new.anchor().get().families.has(Family::Effects));
    let late = put(&old, "key", b"late");
    old.flush_all().expect("its disk takes it");
    old.nodes().unwrap().pump(world.clock.mono_ns());
    assert!(old.wal().durable(Rung::Disk) >= late.epoch);
    assert!(old.wal().reached().at(Rung::Disk) < late.epoch);
}

/// Returns a world with two writers. The old writer slept while the new writer, a second process, took over the
/// database. The new writer has everything that the old writer had acknowledged.
fn replaced() -> (World, Core, Core) {
    let world = World::new();
    let old = world.mirrored();
    world.put_in_memory(&old, "key", b"old");
    let new = world.open();
    assert_eq!(get(&new, "key").as_deref(), Some(&b"old"[..]));
    (world, old, new)
}

#[test]
fn a_writer_that_was_replaced_acknowledges_nothing_and_stops() {
    let (world, old, _new) = replaced();
    let late = put(&old, "key", b"late");
    old.ship().unwrap();
    world.settle(&old);
    assert!(old.wal().durable(Rung::Mirror) < late.epoch);
    let why = old.wal().check().unwrap_err();
    assert!(why.is_fenced(), "{why}");
}

/// There was a bug. A writer slept while a second process took over. The writer woke up and synced the old segments,
/// which no process reads any more. Then it acknowledged writes that were only on its disk. Mode `Mirror` forbids that.
/// The test `mirrored_input` found this with real processes.
#[test]
fn in_mirror_the_disk_alone_acknowledges_nothing() {
    let (world, old, _new) = replaced();
    let late = put(&old, "key", b"late");
    old.flush_all().expect("its disk takes it");
    assert!(old.wal().durable(Rung::Disk) >= late.epoch);
    assert!(old.wal().durable(Rung::Mirror) < late.epoch);
    // A reply with durability `disk` waits for the nodes too.
    assert!(old.wal().reached().at(Rung::Disk) < late.epoch);
    world.settle(&old);
    assert!(old.wal().durable(Rung::Mirror) < late.epoch);
    assert!(old.wal().check().unwrap_err().is_fenced());
    // If no group has a node, a write is acknowledged as soon as it is on disk.
    let world = World::new();
    let core = world.mirrored();
    for address in ["a", "b"] {
        world.net.kill(address);
    }
    world.settle(&core);
    core.flush_all().unwrap();
    world.settle(&core);
    assert_eq!(world.register.view().unwrap().groups[0], Mode::Disk);
    let ticket = put(&core, "key", b"on disk");
    core.flush_all().unwrap();
    assert!(core.wal().durable(Rung::Mirror) >= ticket.epoch);
}

#[test]
fn an_older_copy_of_the_data_is_refused() {
    let world = World::new();
    drop(world.open());
    let copy = world.disk.snapshot();
    drop(world.open());
    drop(world.open());
    world.disk.restore(&copy);
    let why = world
        .try_open(Some(world.nodes()), false)
        .err()
        .expect("an older copy")
        .to_string();
    assert!(why.contains("an older copy"), "{why}");
}

#[test]
fn an_arbiter_of_another_history_is_refused() {
    let mut world = World::new();
    let core = world.mirrored();
    world.put_in_memory(&core, "key", b"value");
    world.power_cut(core);
    let right = std::mem::take(&mut world.register);
    let why = world
        .try_open(Some(world.nodes()), false)
        .err()
        .expect("an empty arbiter")
        .to_string();
    assert!(why.contains("another directory"), "{why}");
    world.register = right;
    assert_eq!(get(&world.open(), "key").as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_partition_of_one_node_stops_acknowledgements_until_the_view_changes() {
    let world = World::new();
    let core = world.mirrored();
    world.net.cut(1, "b", Way::Down);
    let ticket = put(&core, "key", b"value");
    core.ship().unwrap();
    world.settle(&core);
    assert!(
        core.wal().durable(Rung::Mirror) < ticket.epoch,
        "one of two nodes, and no disk"
    );
    core.flush_all().unwrap();
    world.settle(&core);
    assert!(core.wal().durable(Rung::Mirror) >= ticket.epoch);
    assert!(matches!(
        world.register.view().unwrap().groups[0],
        Mode::Solo(_)
    ));
    world.net.heal();
    world.settle(&core);
    assert!(world.register.view().unwrap().is_mirrored(), "it came back");
}

#[test]
fn options_that_are_no_mirror_are_refused() {
    let world = World::new();
    let with = |change: fn(&mut MirrorOptions)| {
        let mut nodes = world.nodes();
        change(&mut nodes.options);
        let mut options = Options::new("nowhere");
        options.nodes = Some(nodes);
        options.core().map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(with(|_| {}), Ok(()));
    assert!(
        with(|mirror| mirror.groups.clear())
            .unwrap_err()
            .contains("1 to 16 groups")
    );
    let twice = with(|mirror| mirror.groups[0][1] = "a".into()).unwrap_err();
    assert!(twice.contains("given twice"), "{twice}");
    assert!(
        with(|mirror| mirror.tail_bytes_max = 4096)
            .unwrap_err()
            .contains("at least two blocks")
    );
}
