//! Tests of the second pass, which plays ordered frames. The logs are made by hand. The tests check the frames that the
//! pass plays, the order of the frames, and the refusal of wrong logs.

#[cfg(feature = "flaws")]
mod seeded;
mod support;

use perdura_base::num::to_u64;
use perdura_base::{Error, PartitionId, StreamId};
use perdura_recovery::{
    Families, Family, Level, METHODS, Method, Methods, RestartOptions, Schedule, check_methods,
    flush_all, read_anchor, restart,
};
use perdura_wal::{FrameKind, Rung};

use crate::ordered::support::*;

/// Writes transactions on random partitions to random streams, in several lives. Returns the frames that must be
/// played.
fn history(machine: &Machine, seed: u64) -> Vec<Played> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut numbers = [0; 8];
    let mut written = Vec::new();
    for _ in 0..rng.u32(1..4) {
        let life = machine.declared();
        for partition in 0..PARTITIONS {
            let number = numbers[usize::from(partition)];
            assert_eq!(life.heap.lock(PartitionId(partition)).pseq(), number);
        }
        for turn in 0..rng.usize(1..400) {
            let few = if rng.u8(0..5) == 0 { rng.u16(2..5) } else { 1 };
            let mut chosen: Vec<u16> = (0..few).map(|_| rng.u16(0..PARTITIONS)).collect();
            chosen.sort_unstable();
            chosen.dedup();
            let mut parts = Vec::new();
            for partition in chosen {
                numbers[usize::from(partition)] += 1;
                parts.push(part(partition, numbers[usize::from(partition)]));
            }
            let what = format!("{turn}{}", "x".repeat(rng.usize(0..300)));
            let stream = rng.u8(0..STREAMS);
            if rng.bool() {
                command(&life.wal, stream, &parts, &what);
            } else {
                effects(&life.wal, stream, &parts, &what);
            }
            written.push(Played { parts, what });
            if rng.u8(0..20) == 0 {
                life.wal.close_epoch();
            }
        }
        flush_all(&life.wal).unwrap();
    }
    written.sort();
    written
}

#[test]
fn every_frame_is_played_once_behind_all_that_its_partitions_had_before() {
    for seed in 0..12 {
        let machine = Machine::new();
        let written = history(&machine, seed);
        for schedule in schedules() {
            let (recorder, restarted) = machine.back(schedule).unwrap();
            assert_eq!(recorder.all(), written, "seed {seed}, {schedule:?}");
            let report = restarted.report.ordered.expect("families are declared");
            assert_eq!(report.played, to_u64(written.len()));
            assert_eq!((report.frames, report.reflected), (report.played, 0));
            assert!(report.bytes > 0);
            let newest = |partition| {
                let numbers = written.iter().flat_map(|played| &played.parts);
                let own = numbers.filter(|(p, _)| *p == partition);
                own.map(|(_, pseq)| *pseq).max().unwrap_or(0)
            };
            for partition in (0..PARTITIONS).map(PartitionId) {
                assert_eq!(restarted.heap.lock(partition).pseq(), newest(partition));
            }
        }
    }
}

#[test]
fn with_a_seed_the_order_is_one_of_many_and_always_the_same() {
    let machine = Machine::new();
    history(&machine, 5);
    let order = |seed| {
        let (recorder, _) = machine.back(Schedule::inline(Level::Four, seed)).unwrap();
        let played = recorder.played.lock();
        played.clone()
    };
    let orders: Vec<_> = (0..4).map(order).collect();
    assert!(orders.iter().any(|one| *one != orders[0]));
    for (seed, one) in (0..).zip(&orders) {
        assert_eq!(*one, order(seed));
    }
}

#[test]
fn without_a_seed_one_thread_plays_in_the_order_of_the_log() {
    let machine = Machine::new();
    let life = machine.declared();
    for number in 1..=5 {
        for partition in 0..3 {
            let args = format!("{number}.{partition}");
            command(&life.wal, 0, &[part(partition, number)], &args);
        }
    }
    flush_all(&life.wal).unwrap();
    drop(life);
    let (recorder, _) = machine.back(Schedule::inline(Level::Four, 0)).unwrap();
    let played = recorder.played.lock();
    let args: Vec<_> = played.iter().map(|played| played.what.clone()).collect();
    let log = (1..=5).flat_map(|n| (0..3).map(move |p| format!("{n}.{p}")));
    assert_eq!(args, log.collect::<Vec<_>>());
}

#[test]
fn a_gap_and_a_number_given_twice_are_refused_with_place_partition_and_numbers() {
    for (numbers, expected, found) in [
        (
            [1, 3],
            "expected transaction 2 of partition 4",
            "found its transaction 3",
        ),
        (
            [2, 3],
            "expected transaction 1 of partition 4",
            "found its transaction 2",
        ),
        (
            [1, 1],
            "expected transaction 2 of partition 4",
            "found its transaction 1",
        ),
    ] {
        for together in [false, true] {
            let machine = Machine::new();
            let life = machine.declared();
            command(&life.wal, 0, &[part(4, numbers[0])], "first");
            if !together {
                flush_all(&life.wal).unwrap();
            }
            effects(&life.wal, 1, &[part(4, numbers[1])], "second");
            flush_all(&life.wal).unwrap();
            drop(life);
            let before = read_anchor(machine.disk.as_ref()).unwrap();
            let why = machine.refused();
            assert!(why.contains(expected) && why.contains(found), "{why}");
            assert!(why.contains("log stream"), "{why}");
            assert_eq!(read_anchor(machine.disk.as_ref()).unwrap(), before);
        }
    }
}

#[test]
fn transactions_that_wait_for_each_other_are_refused_and_nothing_hangs() {
    let machine = Machine::new();
    let life = machine.declared();
    command(&life.wal, 0, &[part(0, 1), part(1, 2)], "one");
    command(&life.wal, 1, &[part(0, 2), part(1, 1)], "other");
    flush_all(&life.wal).unwrap();
    drop(life);
    for schedule in schedules() {
        let error = machine.back(schedule).map(drop).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
        assert!(
            error.to_string().contains("waits for a transaction"),
            "{error}"
        );
    }
}

#[test]
fn an_error_of_the_player_ends_the_restart_and_so_does_a_panic() {
    for args in ["fails", "panics"] {
        let machine = Machine::new();
        let life = machine.declared();
        for number in 1..200 {
            let args = if number == 100 { args } else { "fine" };
            for partition in 0..PARTITIONS {
                command(&life.wal, 0, &[part(partition, number)], args);
            }
        }
        flush_all(&life.wal).unwrap();
        drop(life);
        for schedule in schedules() {
            let back = || machine.back(schedule).map(drop);
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(back));
            match ended {
                Ok(result) => {
                    let why = result.unwrap_err().to_string();
                    assert!(args == "fails" && why.contains("it fails at"), "{why}");
                }
                Err(_) => assert_eq!(args, "panics"),
            }
        }
    }
}

#[test]
fn without_a_player_a_frame_to_play_is_an_error_that_names_the_first_procedure() {
    let machine = Machine::new();
    let life = machine.declared();
    let without = |machine: &Machine| restart(&machine.options(None)).map(Option::unwrap);
    assert_eq!(without(&machine).unwrap().report.ordered.unwrap().frames, 0);
    command(&life.wal, 0, &[part(0, 1)], "args");
    flush_all(&life.wal).unwrap();
    drop(life);
    let error = without(&machine).map(drop).unwrap_err();
    assert!(matches!(error, Error::Usage(_)), "{error}");
    assert!(
        error.to_string().contains("calls of procedure 77"),
        "{error}"
    );

    let machine = Machine::new();
    let life = machine.declared();
    effects(&life.wal, 0, &[part(0, 1)], "key");
    flush_all(&life.wal).unwrap();
    drop(life);
    let error = without(&machine).map(drop).unwrap_err();
    assert!(matches!(error, Error::Usage(_)), "{error}");
    assert!(
        error.to_string().contains("key-addressed tables"),
        "{error}"
    );
}

/// Found in a test run: a thread failed, and released the queues before it had ended the pass. Another thread then saw
/// that frames waited although no thread read or played, and reported a contradiction in the log. Sometimes the caller
/// got this wrong error.
#[test]
fn threads_that_find_nothing_to_do_after_an_error_do_not_report_another_one() {
    let machine = Machine::new();
    let life = machine.declared();
    command(&life.wal, 0, &[part(0, 1)], "fails");
    flush_all(&life.wal).unwrap();
    drop(life);
    for round in 0..1000 {
        let schedule = Schedule::new(Level::Four, 2 + round % 3);
        let why = machine.back(schedule).map(drop).unwrap_err().to_string();
        assert!(why.contains("it fails at"), "round {round}: {why}");
        let without = RestartOptions {
            schedule,
            ..machine.options(None)
        };
        let why = restart(&without).map(drop).unwrap_err().to_string();
        assert!(
            why.contains("calls of procedure 77"),
            "round {round}: {why}"
        );
    }
}

#[test]
fn what_cannot_be_read_or_is_not_declared_is_refused() {
    let refused = |declare: &[Family], kind, payload: &[u8]| {
        let machine = Machine::new();
        let life = machine.open();
        for family in declare {
            life.anchor.declare(&life.wal, *family).unwrap();
        }
        append(&life.wal, 2, kind, payload, &[]);
        flush_all(&life.wal).unwrap();
        drop(life);
        machine.refused()
    };
    let whole = [0, 1, 0, 1, 7, 0];
    for declare in [&[][..], &[Family::Effects]] {
        let why = refused(declare, FrameKind::Command, &whole);
        assert!(why.contains("a frame of kind 8"), "{why}");
    }
    let both = Family::ALL;
    let why = refused(&both, FrameKind::Command, &[0, 1]);
    assert!(
        why.contains("log stream 2") && why.contains("a frame of commands"),
        "{why}"
    );
    let why = refused(&both, FrameKind::Effects, &[0, 1, 200, 1, 1]);
    assert!(why.contains("partitions below 8"), "{why}");
}

#[test]
fn a_declaration_is_durable_idempotent_and_says_which_methods_are_legal() {
    let machine = Machine::new();
    let life = machine.open();
    let legal = |machine: &Machine| -> Vec<&str> {
        let anchor = read_anchor(machine.disk.as_ref()).unwrap().unwrap();
        let is_legal = |method: &&'static Method| {
            check_methods(&Methods::from(*method), &anchor, Level::Four).is_ok()
        };
        METHODS.iter().filter(is_legal).map(|m| m.name).collect()
    };
    assert_eq!(legal(&machine), ["differential"]);
    life.anchor.declare(&life.wal, Family::Effects).unwrap();
    assert_eq!(legal(&machine), ["differential", "value"]);
    let seq = life.anchor.get().seq;
    life.anchor.declare(&life.wal, Family::Effects).unwrap();
    assert_eq!(life.anchor.get().seq, seq, "nothing was written again");
    life.anchor.declare(&life.wal, Family::Commands).unwrap();
    assert_eq!(legal(&machine), ["differential", "command"]);
    drop(life);
    let both = Families::default()
        .with(Family::Effects)
        .with(Family::Commands);
    for _ in 0..2 {
        let life = machine.open();
        assert_eq!(life.anchor.get().families, both, "a restart keeps it");
    }
    let of_name = |name| Methods::by_names(name).unwrap();
    let options = RestartOptions {
        methods: of_name("value"),
        ..machine.options(None)
    };
    let error = restart(&options).map(drop).unwrap_err();
    assert!(
        error.to_string().contains("cannot apply commands"),
        "{error}"
    );
    let options = RestartOptions {
        methods: of_name("command"),
        ..machine.options(None)
    };
    let report = restart(&options).unwrap().unwrap().report;
    assert_eq!(
        (&*report.method, report.scheme),
        ("command", "differential")
    );
}

#[test]
fn a_unit_with_nothing_for_a_pass_is_not_read_by_it() {
    let machine = Machine::new();
    let life = machine.declared();
    flush_all(&life.wal).unwrap();
    let blob = "x".repeat(4000);
    for number in 1..=300 {
        command(&life.wal, 1, &[part(0, number)], &blob);
    }
    flush_all(&life.wal).unwrap();
    drop(life);
    let (recorder, restarted) = machine.back(Schedule::new(Level::Four, 2)).unwrap();
    assert_eq!(recorder.all().len(), 300);
    let report = restarted.report;
    assert!(report.ordered.unwrap().bytes > 1_200_000);
    assert!(report.bytes.log < 1000, "{} bytes", report.bytes.log);
}

#[test]
fn an_epoch_that_is_not_whole_in_all_streams_is_not_played() {
    let machine = Machine::new();
    let life = machine.declared();
    command(&life.wal, 0, &[part(0, 1)], "durable");
    flush_all(&life.wal).unwrap();
    let durable = life.wal.durable(Rung::Disk);
    command(&life.wal, 0, &[part(0, 2)], "reached the disk");
    command(&life.wal, 1, &[part(1, 1)], "did not");
    life.wal.close_epoch();
    while life.wal.flush_step(StreamId(0)).unwrap() != perdura_wal::FlushProgress::Idle {}
    drop(life);
    let (recorder, restarted) = machine.back(Schedule::inline(Level::Four, 0)).unwrap();
    assert_eq!(restarted.report.durable_epoch, durable.0);
    assert!(restarted.report.void_blocks > 0);
    assert_eq!(recorder.all().len(), 1);
    // No later restart plays the frame: the next life gives the frame's number to another transaction.
    let life = machine.open();
    command(&life.wal, 2, &[part(0, 2)], "another");
    flush_all(&life.wal).unwrap();
    drop(life);
    let (recorder, _) = machine.back(Schedule::inline(Level::Four, 0)).unwrap();
    let all = recorder.all();
    let said: Vec<_> = all.iter().map(|played| played.what.as_str()).collect();
    assert_eq!(said, ["durable", "another"]);
}
