//! Tests of KEYS that runs in steps.

use super::{Bed, ELEMENTS, READER, WRITER, sorted};

#[test]
fn keys_replies_the_keys_of_one_moment_whatever_comes_and_goes_between_its_steps() {
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut bed = Bed::new();
        for i in 0..ELEMENTS {
            bed.ask(WRITER, &format!("SET k{i} v"));
        }
        bed.send(READER, "KEYS k*");
        let steps = bed.finish(|bed| {
            for _ in 0..rng.usize(..3) {
                let (from, to) = (rng.usize(..2 * ELEMENTS), rng.usize(..2 * ELEMENTS));
                let line = match rng.u8(..8) {
                    0 => format!("RENAME k{from} k{to}"),
                    1 => format!("SET k{to} v PX 1"),
                    2 => format!("SET k{to} v PX {}", rng.u8(1..10)),
                    3 => format!("SADD k{to} a"),
                    4 => format!("MOVE k{from} 1"),
                    5 => format!("COPY k{from} k{to} REPLACE"),
                    6 => format!("SET k{to} v"),
                    _ => format!("DEL k{from}"),
                };
                bed.ask(WRITER, &line);
            }
        });
        let expected = bed.at_once("KEYS k*");
        assert!(steps > ELEMENTS / 8, "{steps}");
        let reply = bed.replies(READER);
        let (mut found, mut there) = (sorted(&reply), sorted(&expected));
        // Keys that expire between the two replies are not compared.
        let lasts = |bed: &mut Bed, key: &&str| {
            !key.starts_with('k') || bed.ask(WRITER, &format!("PTTL {key}")) == ":-1\r\n"
        };
        for list in [&mut found, &mut there] {
            list.retain(|key| !key.starts_with(['$', '*']) && lasts(&mut bed, key));
        }
        assert_eq!(found, there, "seed {seed}");
        let head = format!("*{}\r\n", reply.matches('$').count());
        assert!(reply.starts_with(&head), "seed {seed}");
    }
}

#[test]
fn a_database_that_is_emptied_or_swapped_while_its_keys_are_listed_is_listed_anew() {
    for (change, expected) in [("FLUSHDB", "*0\r\n"), ("SWAPDB 0 1", "*1\r\n$3\r\none\r\n")] {
        let mut bed = Bed::new();
        for i in 0..ELEMENTS {
            bed.ask(WRITER, &format!("SET k{i} v"));
        }
        bed.ask(WRITER, "SELECT 1");
        bed.ask(WRITER, "SET one v");
        bed.ask(WRITER, "SELECT 0");
        bed.send(READER, "KEYS *");
        bed.state.step_job();
        bed.ask(WRITER, change);
        bed.finish(|_| {});
        assert_eq!(bed.replies(READER), expected, "{change}");
    }
}

#[test]
fn keys_does_not_begin_again_because_many_of_its_keys_are_removed_or_expire() {
    for change in ["DEL", "PEXPIRE"] {
        let mut bed = Bed::new();
        for i in 0..3 * ELEMENTS {
            bed.ask(WRITER, &format!("SET k{i} v PX 3600000"));
        }
        bed.send(READER, "KEYS k*");
        let mut steps = 0;
        let whole = bed.finish(|bed| {
            steps += 1;
            let begun = bed
                .state
                .jobs
                .queue
                .front()
                .map_or(0, |job| job.begun.vainly);
            assert_eq!(begun, 0, "{change}: it began again");
            for i in (0..3 * ELEMENTS).filter(|_| steps == 60) {
                match change {
                    "DEL" => bed.ask(WRITER, &format!("DEL k{i}")),
                    _ => bed.ask(WRITER, &format!("PEXPIRE k{i} 1")),
                };
            }
        });
        assert!(whole >= 60, "{change}: it ended before the change, {whole}");
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert_eq!(bed.at_once("KEYS k*"), "*0\r\n");
    }
    let mut bed = Bed::new();
    for i in 0..ELEMENTS {
        bed.ask(WRITER, &format!("SET k{i} v PX 2000"));
    }
    bed.send(READER, "KEYS k*");
    let mut steps = 0;
    bed.finish(|_| {
        steps += 1;
        if steps == ELEMENTS / 8 {
            std::thread::sleep(std::time::Duration::from_millis(2001));
        }
    });
    assert_eq!(bed.replies(READER), "*0\r\n");
}

#[test]
fn what_keys_notes_of_changed_keys_is_on_its_clients_account() {
    let mut bed = Bed::new();
    for i in 0..ELEMENTS {
        bed.ask(WRITER, &format!("SET k{i} v"));
    }
    bed.send(READER, "KEYS none*");
    bed.state.step_job();
    let gathered = |bed: &Bed| {
        bed.state
            .connections
            .get(READER)
            .expect("a client")
            .gathered
    };
    let before = gathered(&bed);
    let long = "x".repeat(50_000);
    for i in 0..10 {
        bed.ask(WRITER, &format!("SET {long}{i} v"));
    }
    bed.state.step_job();
    assert!(gathered(&bed) >= before + 500_000, "{}", gathered(&bed));
}

#[test]
fn keys_of_a_database_that_was_swapped_away_and_back_are_listed_anew() {
    let mut bed = Bed::new();
    for i in 0..ELEMENTS {
        bed.ask(WRITER, &format!("SET k{i} v"));
    }
    bed.send(READER, "KEYS *");
    let mut turn = 0;
    bed.finish(|bed| {
        turn += 1;
        if turn == 30 {
            bed.ask(
                WRITER,
                "MULTI\r\nSWAPDB 0 1\r\nSELECT 1\r\nDEL k1 k2 k3 k4 k5\r\nSET x 1\r\nSET y 1\r\n\
                 SWAPDB 0 1\r\nSELECT 0\r\nEXEC",
            );
        }
    });
    let reply = bed.replies(READER);
    assert_eq!(sorted(&reply), sorted(&bed.at_once("KEYS *")));
}
