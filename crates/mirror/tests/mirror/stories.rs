//! Bugs of the past, reproduced step by step.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use perdura_base::{Epoch, Pos, StreamId};
use perdura_mirror::sim::Way;
use perdura_mirror::{Log, Managed, Mode, RingName};

use crate::world::{ModelLog, Rig};

/// The view became Solo while the disk lacked some acknowledged bytes. The writer crashed before it copied these bytes.
/// In Solo a takeover reads only the disk, so the next life began without these bytes.
#[test]
fn a_group_leaves_mirror_only_when_what_was_acknowledged_is_on_disk() {
    let mut rig = Rig::new(1, 1);
    rig.settle();
    assert!(rig.view().groups[0].is_mirror());
    rig.ship(0, 3);
    rig.settle();
    assert_eq!((rig.raised(0), rig.log.synced(StreamId(0))), (192, Pos(0)));
    rig.net.kill("node-0-1");
    rig.pass_ms(1000);
    assert!(
        rig.view().groups[0].is_mirror(),
        "the disk lacks what was acknowledged"
    );
    rig.sync(0, 192);
    rig.pass_ms(10);
    assert!(
        matches!(rig.view().groups[0], Mode::Solo(_)),
        "{:?}",
        rig.view()
    );
}

/// A stream's group had lost its two nodes, and the stream moved to the other group, a mirror. A node of this mirror
/// had rebooted. After the reboot the node held the stream's bytes, but the view still named the node's earlier
/// incarnation, which did not hold them.
#[test]
fn a_stream_moves_to_the_members_of_a_mirror_and_not_to_who_answers_at_their_addresses() {
    let mut rig = Rig::new(2, 2);
    rig.settle();
    assert!(rig.view().groups.iter().all(Mode::is_mirror));
    rig.ship(0, 2);
    rig.settle();
    assert_eq!(rig.raised(0), 128);
    for address in ["node-1-0", "node-1-1"] {
        rig.net.kill(address);
    }
    rig.net.kill("node-0-1");
    rig.net.start("node-0-1");
    rig.pass_ms(1000);
    let view = rig.view();
    assert!(
        view.groups[0].is_mirror() && view.groups[1] == Mode::Disk,
        "{view:?}"
    );
    assert_eq!(
        view.homes,
        [0, 1],
        "no member of group 0 but one holds stream 1"
    );
    rig.sync(0, 128);
    rig.pass_ms(1000);
    let view = rig.view();
    assert!(
        view.groups[0].is_mirror() && view.homes == [0, 0],
        "{view:?}"
    );
    rig.ship(1, 1);
    rig.settle();
    assert_eq!(rig.raised(1), 64);
}

/// Nodes on one machine fail together. They do not form a mirror unless the operator allows it.
#[test]
fn two_nodes_on_one_machine_are_no_mirror() {
    for one_machine in [false, true] {
        let mut rig = Rig::on_one_machine(one_machine);
        rig.pass_ms(1000);
        assert_eq!(rig.view().groups[0].is_mirror(), one_machine);
    }
}

/// While the arbiter is unreachable, a mirror continues. A change of the view waits, and so do the acknowledgements
/// that need the new view.
#[test]
fn without_an_arbiter_a_mirror_goes_on_and_changes_wait() {
    use perdura_mirror::sim::Mood;
    let mut rig = Rig::new(1, 1);
    rig.settle();
    rig.register.set_mood(Mood::Fails);
    rig.ship(0, 1);
    rig.pass_ms(1000);
    assert_eq!(rig.raised(0), 64);
    rig.net.kill("node-0-0");
    rig.ship(0, 1);
    rig.sync(0, 128);
    rig.pass_ms(1000);
    assert_eq!(rig.raised(0), 64, "the view says that both nodes hold it");
    rig.register.set_mood(Mood::Answers);
    rig.pass_ms(1000);
    assert_eq!(rig.raised(0), 128);
    assert!(matches!(rig.view().groups[0], Mode::Solo(_)));
}

/// A stream had moved from its first group to a second one. When the second group lost a node, the stream returned. A
/// node of the first group had just reconnected and lacked the stream's last bytes, so an assertion of the writer
/// failed. All bytes were on disk, but the members of a mirror must hold them too.
#[test]
fn a_stream_goes_home_to_a_mirror_when_its_members_hold_it() {
    let mut rig = Rig::new(2, 2);
    rig.settle();
    for address in ["node-0-0", "node-0-1"] {
        rig.net.kill(address);
    }
    rig.pass_ms(1000);
    assert_eq!(rig.view().homes, [1, 1]);
    for address in ["node-0-0", "node-0-1"] {
        rig.net.start(address);
    }
    rig.step_until(|rig| rig.view().groups[0].is_mirror());
    rig.net.break_connections(1, "node-0-1");
    rig.ship(0, 2);
    rig.step_until(|rig| rig.raised(0) == 128);
    rig.net.kill("node-1-1");
    rig.sync(0, 128);
    rig.step_until(|rig| rig.is_ready(0, 1));
    rig.net.cut(1, "node-0-1", Way::Down);
    rig.pass_ms(100);
    let view = rig.view();
    assert!(matches!(view.groups[1], Mode::Solo(_)), "{view:?}");
    assert!(
        view.groups[0].is_mirror() && view.homes == [1, 1],
        "{view:?}"
    );
    rig.net.heal();
    rig.pass_ms(100);
    assert_eq!(rig.view().homes[0], 0, "it holds the stream now");
}

/// A mirror begins with an update of the anchor, which permits acknowledgements by nodes. A full disk refused the
/// update, but the update's record was kept for the next update. The writer ended cleanly before any mirror began, and
/// left this permission in the kept record. A later update then stored the record, and the database refused to start
/// without its nodes. The simulator found this bug in one of a million runs: seed 30712169.
#[test]
fn a_clean_end_takes_back_what_a_failed_update_of_the_anchor_may_have_left() {
    let mut rig = Rig::new(1, 1);
    rig.log.anchor_failures.store(1, Ordering::SeqCst);
    rig.step_until(|rig| rig.log.is_anchored());
    assert!(!rig.view().is_mirrored(), "the update has failed");
    rig.mirror.begin_stop();
    let (mirror, log) = (&rig.mirror, rig.log.as_ref());
    let ended = (0..100).find(|_| mirror.manage(log, rig.now_ns).unwrap() == Managed::Stopped);
    assert!(ended.is_some() && !rig.log.is_anchored());
}

/// While a disk is full, updates of the anchor may fail again and again. A writer did not check the first update, and
/// acknowledged bytes that only two nodes held. A restart from the writer's disk alone would not have noticed the
/// missing bytes.
#[test]
fn no_mirror_begins_before_an_update_of_the_anchor_is_done() {
    let mut rig = Rig::new(1, 1);
    rig.log.anchor_failures.store(3, Ordering::SeqCst);
    rig.step_until(|rig| {
        let left = rig.log.anchor_failures.load(Ordering::SeqCst);
        assert!(left == 0 || !rig.view().is_mirrored(), "{left} are to fail");
        left == 0
    });
    assert!(!rig.view().is_mirrored(), "the third one failed, too");
    rig.step_until(|rig| rig.view().is_mirrored());
}

/// A log that runs a given action once, while the mirror raises an acknowledgement. At that time the pumping thread has
/// locked the mirror's state.
struct Meanwhile<'a>(&'a ModelLog, Mutex<Option<Box<dyn FnOnce() + Send + 'a>>>);

impl Log for Meanwhile<'_> {
    fn synced(&self, stream: StreamId) -> Pos {
        self.0.synced(stream)
    }

    fn raise(&self, stream: StreamId, end: Pos) {
        self.0.raise(stream, end);
        let act = self.1.lock().unwrap().take();
        if let Some(act) = act {
            act();
        }
    }

    fn follow_disk(&self, follows: bool) {
        self.0.follow_disk(follows);
    }

    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn want_copy(&self) {
        self.0.want_copy();
    }

    fn durable(&self) -> Epoch {
        self.0.durable()
    }

    fn fence(&self, why: &str) {
        self.0.fence(why);
    }

    fn anchor(&self, mirrored: bool) -> perdura_base::Result<()> {
        self.0.anchor(mirrored)
    }
}

/// A thread shipped a block after the pumping thread had looked at the tails, but before the pumping thread unlocked
/// the state. The block waited up to a millisecond, until the mirror's thread pumped.
#[test]
fn a_block_that_was_shipped_while_another_thread_had_the_nodes_goes_out_when_it_lets_go() {
    let mut rig = Rig::new(1, 1);
    rig.settle();
    rig.ship(0, 1);
    let (mirror, now_ns) = (&rig.mirror, rig.now_ns);
    let deliver_all = || {
        while let Some(first) = rig.net.moves().first() {
            rig.net.deliver(*first);
        }
    };
    mirror.pump(rig.log.as_ref(), now_ns);
    deliver_all();
    let log = rig.log.as_ref();
    let act = move || {
        Rig::ship_at(mirror, 0, 64);
        assert_eq!(mirror.pump_soon(log, now_ns), None, "the nodes are taken");
    };
    let meanwhile = Meanwhile(log, Mutex::new(Some(Box::new(act))));
    assert_eq!(mirror.try_pump(&meanwhile, now_ns), Some(true));
    assert!(
        meanwhile.1.lock().unwrap().is_none(),
        "the first was acknowledged"
    );
    assert!(!mirror.is_missed());
    deliver_all();
    mirror.pump(log, now_ns);
    assert_eq!(rig.raised(0), 128, "both nodes have the second one");
}

/// Regression: a link had stopped using the shared memory of a node on its machine. It then used TCP until the node was
/// started again.
#[test]
fn a_link_goes_back_to_the_memory_of_a_node_that_it_has_left() {
    let mut rig = Rig::new(1, 1);
    rig.come_home();
    rig.settle();
    assert_eq!([0, 1].map(|node| rig.is_mapped(0, node)), [true, false]);
    rig.net.break_connections(1, "node-0-0");
    rig.pass_ms(500);
    assert!(rig.is_ready(0, 0) && !rig.is_mapped(0, 0), "not at once");
    rig.ship(0, 2);
    rig.pass_ms(2500);
    assert!(rig.is_mapped(0, 0));
    rig.ship(0, 2);
    rig.settle();
    assert_eq!(rig.raised(0), 256);
    assert!(rig.view().groups[0].is_mirror(), "{:?}", rig.view());
    // If the connection breaks again and again, the pauses between attempts grow.
    let mut left = 0;
    for _ in 0..400 {
        rig.pass_ms(100);
        if rig.is_mapped(0, 0) {
            left += 1;
            rig.net.break_connections(1, "node-0-0");
        }
    }
    assert!((3..=6).contains(&left), "in 40 s {left} times");
}

/// Flips a bit of the first node's first block, and makes the writer ask the node again for the ring's bytes.
fn flip(rig: &Rig) {
    let memory = rig.net.memories("node-0-0").pop().expect("it is mapped");
    let mut byte = [0];
    memory.read(8192, &mut byte);
    assert_eq!(byte, [7], "the first byte of the ring");
    memory.write(8192, &[6]);
    rig.net.break_connections(1, "node-0-0");
}

/// Checks that the first node is reported as damaged and is known to hold no bytes.
fn assert_is_out(rig: &Rig, lag_bytes: u64) {
    let status = rig.mirror.status(rig.now_ns);
    let node = &status.groups[0].nodes[0];
    let trouble = node.trouble.as_deref().unwrap_or_default();
    assert!(trouble.contains("differs from what was sent"), "{trouble}");
    assert_eq!(node.lag_bytes, lag_bytes);
}

/// Returns the bytes that the first node holds, or the position of the damage.
fn held_of_first(rig: &Rig) -> Option<Result<(Pos, Vec<u8>), Pos>> {
    let inc = rig.net.inc("node-0-0")?;
    let ring = RingName {
        uuid: rig.view().uuid,
        generation: rig.view().generation,
        stream: StreamId(0),
    };
    rig.net.held("node-0-0", inc, ring)
}

/// Returns whether the first node still has the damaged ring.
fn holds_damage(rig: &Rig) -> bool {
    matches!(held_of_first(rig), Some(Err(_)))
}

/// One bit of a mapped ring changed by itself. The node refused the ring, and the writer repeated the request until the
/// next takeover. Now the writer treats the node like a rebooted node. While a view may have the node as a member, the
/// node gets no new ring: a takeover would mistake the new ring for one with all acknowledged bytes.
#[test]
fn a_node_with_a_damaged_ring_leaves_the_view_and_returns_empty() {
    let mut rig = Rig::new(1, 1);
    rig.come_home();
    rig.settle();
    rig.ship(0, 3);
    rig.settle();
    assert_eq!((rig.raised(0), rig.is_mapped(0, 0)), (192, true));
    let before = rig.view();
    flip(&rig);
    rig.pass_ms(1000);
    assert_is_out(&rig, 192);
    rig.ship(0, 1);
    rig.pass_ms(1000);
    assert_eq!(rig.raised(0), 192, "one node has the fourth");
    assert_eq!(rig.view(), before, "the disk lacks what was acknowledged");
    assert!(holds_damage(&rig), "it is not made anew yet");
    rig.sync(0, 192);
    rig.step_until(|rig| matches!(rig.view().groups[0], Mode::Solo(_)));
    rig.step_until(|rig| rig.view().groups[0].is_mirror());
    assert!(rig.view().v >= before.v + 2, "{:?}", rig.view());
    let (low, bytes) = held_of_first(&rig).unwrap().unwrap();
    assert_eq!((low, bytes), (Pos(192), vec![7; 64]), "what the disk lacks");
    rig.pass_ms(5000);
    rig.ship(0, 1);
    rig.settle();
    assert_eq!((rig.raised(0), rig.is_mapped(0, 0)), (320, true));
}

/// The memory of a mapped ring was damaged, and the damage shortened the ring. The node cannot detect that the ring had
/// more bytes. The writer must treat the node like a rebooted node.
#[test]
fn a_node_that_holds_less_than_it_has_said_leaves_the_view_too() {
    let mut rig = Rig::new(1, 1);
    rig.come_home();
    rig.settle();
    rig.ship(0, 3);
    rig.settle();
    let before = rig.view();
    let memory = rig.net.memories("node-0-0").pop().expect("it is mapped");
    assert_eq!(memory.load(192), 3, "appends");
    memory.store(192, 1);
    rig.net.break_connections(1, "node-0-0");
    rig.pass_ms(500);
    assert_is_out(&rig, 192);
    assert_eq!(rig.view(), before, "the disk lacks what was acknowledged");
    rig.sync(0, 192);
    rig.step_until(|rig| matches!(rig.view().groups[0], Mode::Solo(_)));
    rig.step_until(|rig| rig.view().groups[0].is_mirror());
    rig.ship(0, 1);
    rig.settle();
    assert_eq!(rig.raised(0), 256);
}

/// A node's ring is damaged while the arbiter is unreachable. It is unknown whether a view has the node as a member, so
/// the writer does not use the node.
#[test]
fn a_damaged_ring_is_not_made_anew_while_a_view_may_count_it() {
    use perdura_mirror::sim::Mood;
    let mut rig = Rig::new(1, 1);
    rig.come_home();
    rig.settle();
    rig.ship(0, 3);
    rig.settle();
    rig.register.set_mood(Mood::Fails);
    rig.sync(0, 192);
    flip(&rig);
    rig.pass_ms(2000);
    assert!(holds_damage(&rig), "it is not made anew yet");
    rig.register.set_mood(Mood::Answers);
    rig.pass_ms(100);
    assert!(rig.view().groups[0].is_mirror(), "{:?}", rig.view());
    rig.ship(0, 1);
    rig.settle();
    assert_eq!(rig.raised(0), 256);
}
