//! A database with nodes. The operator makes a mistake, the clock jumps, or the disk is full.

use std::sync::Arc;

use perdura::{Disks, Rung, Ticket};
use perdura_base::{Epoch, StreamId};
use perdura_device::{Clock, FaultPlan};
use perdura_recovery::verify::{Verified, verify};
use perdura_recovery::{Level, Method, RestartOptions, Schedule, Tail};
use perdura_wal::{FlushProgress, Scheme};

use crate::core_steps::get;
use crate::mirrored::World;

/// There was a bug: `perdura verify` reported missing acknowledged transactions and a damaged log. In fact the writer
/// had failed during the copy to disk, when one stream had been copied further than another. The nodes had the rest.
#[test]
fn a_log_whose_end_is_in_nodes_is_checked_as_far_as_the_disks_have_it_and_is_not_damaged() {
    let world = World::new();
    let core = world.mirrored();
    core.flush_all().unwrap();
    let on_disk = core.wal().durable(Rung::Disk);
    let mut acked = Epoch(0);
    for round in 0..30_u8 {
        acked = world.put_in_memory(&core, &format!("key {round}"), &[round; 3000]);
    }
    // Only the second stream is copied to disk. Its blocks say that the epochs in the nodes are
    // acknowledged.
    while core.wal().flush_step(StreamId(1)).unwrap() != FlushProgress::Idle {}
    assert_eq!(core.wal().durable(Rung::Disk), on_disk);
    world.power_cut(core);

    let looked_at = |tail: Tail| {
        let options = RestartOptions {
            mode: perdura_recovery::RestartMode::Dry,
            tail,
            ..RestartOptions::of_records(
                Disks::on_one(world.disk.life(), 2),
                Arc::clone(&world.clock) as Arc<dyn Clock>,
                Schedule::inline(Level::Four, 0),
                Method::of(Scheme::Differential),
            )
        };
        let verified = verify(&options, &|_| Ok((0, String::new()))).unwrap();
        verified.expect("there is a database")
    };
    let Verified { found, refusal } = looked_at(Tail::LookedAt);
    assert!(refusal.is_none(), "{:?}", found.refused);
    assert!(found.problems.is_empty(), "{}", found.problems[0].what);
    assert_eq!(found.durable_epoch, Some(on_disk.0));
    let told = found.notes.join("\n");
    for words in [
        "in the memory of the log's nodes",
        "This is not damage",
        "--log-nodes",
        &format!("the log's disks end with epoch {on_disk}"),
        "at least were acknowledged",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    // A start without the nodes is still refused.
    let refused = looked_at(Tail::OnDisk).found.refused.expect("alone");
    assert!(refused.contains("--accept-loss"), "{refused}");

    let core = world.open();
    assert!(core.wal().durable(Rung::Disk) >= acked);
    assert_eq!(get(&core, "key 29"), Some(vec![29; 3000]));
    let whole = looked_at(Tail::LookedAt).found;
    assert!(whole.refused.is_none(), "{:?}", whole.refused);
}

#[test]
fn a_loss_is_accepted_only_where_there_is_one() {
    let world = World::new();
    for nodes in [None, Some(world.nodes())] {
        let why = world.try_open(nodes, true).err().expect("no database");
        let why = why.to_string();
        assert!(why.contains("has no database yet"), "{why}");
        let made = perdura_recovery::read_anchor(world.disk.life().as_ref()).unwrap();
        assert!(made.is_none(), "nothing was made");
    }
    let core = world.mirrored();
    world.put_in_memory(&core, "key", b"value");
    world.power_cut(core);
    // The nodes have everything that was acknowledged, so nothing is given up.
    let core = world.try_open(Some(world.nodes()), true).unwrap();
    assert_eq!(get(&core, "key").as_deref(), Some(&b"value"[..]));
    let told = core.report().notes.join("\n");
    assert!(told.contains("nothing was lost"), "{told}");
    assert!(core.anchor().get().losses.is_empty());
}

/// The writer's wall clock jumps a year back and forth. This changes nothing: views have ascending numbers instead of
/// times, and the monotonic clock measures timeouts.
#[test]
fn steps_of_the_wall_clock_change_neither_view_nor_generation() {
    let world = World::new();
    let core = world.mirrored();
    let year_us = 365 * 86_400_000_000;
    let now = 40 * year_us;
    for (number, wall_us) in [now, now - year_us, now + year_us, 0]
        .into_iter()
        .enumerate()
    {
        world.clock.set_wall_us(wall_us);
        world.put_in_memory(&core, &format!("key {number}"), b"value");
        assert!(world.register.view().unwrap().is_mirrored());
    }
    let before = world.register.view().unwrap();
    world.power_cut(core);
    for number in 0..4 {
        world.clock.set_wall_us(now - year_us);
        let core = world.open();
        assert_eq!(
            get(&core, &format!("key {number}")).as_deref(),
            Some(&b"value"[..])
        );
        world.settle(&core);
        let view = world.register.view().unwrap();
        assert!(view.is_mirrored() && view.generation > before.generation);
        world.clock.set_wall_us(now + year_us);
        world.power_cut(core);
    }
}

/// The log's disk is full during the copy. The nodes acknowledge until they hold the maximum number of bytes that are
/// not on disk. Then writes wait or are refused. When the disk has room again, all acknowledged writes must be there.
#[test]
fn a_disk_that_is_full_during_the_copy_loses_nothing() {
    let world = World::new();
    let core = world.mirrored();
    let used: u64 = world.disk.files().iter().map(|(_, bytes)| bytes).sum();
    world.disk.set_plan(FaultPlan {
        capacity_bytes: Some(used + (64 << 10)),
        ..FaultPlan::default()
    });
    let (mut acked, mut refused) = (Vec::new(), false);
    for key in 0..600 {
        let name = format!("key {key}");
        let parts = [core.partition_of(name.as_bytes())].into_iter().collect();
        let written = core.transact(&parts, |tx| {
            tx.put(core.database(0), name.as_bytes(), &[7; 3000], None)
        });
        let Ok((_, Ticket { epoch, .. })) = written else {
            refused = true;
            break;
        };
        // The copy fails here because the disk is full. It is tried again later.
        let _full = (core.ship(), core.flush_all());
        world.settle(&core);
        if core.wal().durable(Rung::Mirror) < epoch {
            break;
        }
        acked.push(name);
    }
    assert!(acked.len() > 10, "{} acknowledged", acked.len());
    assert!(refused || acked.len() < 600, "the disk was never full");
    world.power_cut(core);
    world.disk.set_plan(FaultPlan::default());
    let core = world.open();
    for name in acked {
        assert_eq!(get(&core, &name), Some(vec![7; 3000]), "{name}");
    }
}
