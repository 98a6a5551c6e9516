//! Tests of the table of restart methods. Each method has a row. If a test alters a field of a row, a restart must give
//! another result.

use std::sync::Arc;

use perdura::{Core, CoreOptions, Env};
use perdura_recovery::player::{Mergers, PagePlayer};
use perdura_recovery::{Level, METHODS, Method, Methods, Player, Progress, Schedule};
use perdura_steal::Records;
use perdura_wal::{Direction, Scheme};

use crate::steal::harness::{Disks, options};
use crate::steal::levels::history;
use crate::steal::restarts::{dry_run, placed};

/// All values of [`PagePlayer`].
const PLAYERS: [PagePlayer; 6] = [
    PagePlayer::Group(Direction::Forward),
    PagePlayer::Group(Direction::Backward),
    PagePlayer::Fate,
    PagePlayer::TwoPass,
    PagePlayer::Merge(Mergers::One),
    PagePlayer::Merge(Mergers::PerThread),
];

/// The rows that a restart found, as a digest, and whether the restart made a second pass.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    placed: u64,
    undoes: bool,
}

fn back(disks: &Disks, method: &Method) -> Result<Seen, String> {
    let found = dry_run(disks, method, Schedule::inline(Level::Two, 0))?;
    assert_eq!(found.report.method, method.name);
    Ok(Seen {
        placed: found.placed,
        undoes: found.report.records.undone > 0,
    })
}

/// Makes a database with the ordinary engine instead of steal mode. Opens it twice, and overwrites and deletes rows.
fn product() -> (Disks, u64) {
    let mut disks = Disks::new(1, 1);
    disks.env.disks.images = vec![Arc::clone(&disks.env.disks.data)];
    let mut sum = 0;
    for life in 0..2u8 {
        let env = Env {
            disks: disks.env.disks.clone(),
            clock: Arc::clone(&disks.env.clock),
            seed: 7,
            nodes: None,
            accept_loss: false,
        };
        let small = CoreOptions {
            partitions: 2,
            chunk_pages: 2,
            ..CoreOptions::default()
        };
        let core = Core::open(env, small, Arc::new(Progress::default())).unwrap();
        for number in 0..60u8 {
            let key = [number % 20];
            let parts = [core.partition_of(&key)].into_iter().collect();
            let done = core.transact(&parts, |tx| {
                if number % 7 == 6 {
                    tx.delete(core.database(0), &key).map(drop)
                } else {
                    tx.put(core.database(0), &key, &[life, number, 1], None)
                }
            });
            let _durable_with_the_flush = done.unwrap();
        }
        core.flush_all().unwrap();
        sum = placed(core.heap());
    }
    (disks, sum)
}

/// Returns whether two players are of one kind. Players of one kind find the same rows, but may differ in direction and
/// in threads. These differences are tested by `each_row_says_how_it_reads_and_works` and, in recovery's tests, by
/// `the_group_player_reads_the_log_in_the_direction_of_its_row`.
fn is_same_kind(one: &Player, other: &Player) -> bool {
    match (one, other) {
        (Player::Pages(one), Player::Pages(other)) => {
            std::mem::discriminant(one) == std::mem::discriminant(other)
        }
        _ => false,
    }
}

#[test]
fn a_row_with_another_player_does_not_find_what_the_row_finds() {
    for row in METHODS {
        for scheme in row.schemes {
            let (disks, sum) = match scheme {
                Scheme::Differential => product(),
                Scheme::Dl1p | Scheme::Dl2p | Scheme::Pl2p => {
                    let disks = Disks::new(3, 2);
                    let (_, sum) = history(&disks, options(*scheme, Records::Full), 1);
                    (disks, sum)
                }
                // This test makes no records of these schemes.
                Scheme::Value
                | Scheme::Command
                | Scheme::Unlogged
                | Scheme::Logical
                | Scheme::Physiological => continue,
            };
            let found = back(&disks, row);
            let undoes = match row.player {
                Player::Pages(PagePlayer::TwoPass | PagePlayer::Merge(_)) => true,
                Player::Pages(_) | Player::Ordered | Player::Tree(_) => false,
            };
            let expected = Ok(Seen {
                placed: sum,
                undoes,
            });
            assert_eq!(found, expected, "{} {scheme:?}", row.name);
            for player in PLAYERS.map(Player::Pages) {
                let same = is_same_kind(&row.player, &player);
                let what = format!("{} {scheme:?} with {player:?}", row.name);
                let changed = Method {
                    player,
                    ..row.clone()
                };
                assert_eq!(back(&disks, &changed) == expected, same, "{what}");
            }
        }
    }
}

#[test]
fn a_row_without_one_of_its_schemes_refuses_that_log_and_its_default_is_the_first() {
    const ROWS: [(&str, &[Scheme]); 14] = [
        ("differential", &[Scheme::Differential]),
        ("dl1p", &[Scheme::Dl1p, Scheme::Dl2p]),
        ("dl2p", &[Scheme::Dl2p]),
        ("pl2p", &[Scheme::Pl2p]),
        ("pl2p-part", &[Scheme::Pl2p]),
        ("value", &[Scheme::Value]),
        ("command", &[Scheme::Command, Scheme::Value]),
        ("none", &[Scheme::Unlogged]),
        ("log2", &[Scheme::Logical]),
        ("log1", &[Scheme::Logical]),
        ("sql2", &[Scheme::Physiological, Scheme::Logical]),
        ("sql1", &[Scheme::Physiological, Scheme::Logical]),
        ("log0", &[Scheme::Logical, Scheme::Physiological]),
        ("aries", &[Scheme::Logical, Scheme::Physiological]),
    ];
    assert_eq!(METHODS.len(), ROWS.len());
    for (name, schemes) in ROWS {
        let row = Method::by_name(name).unwrap();
        assert_eq!(row.name, name);
        for scheme in Scheme::ALL {
            let is_read = row.check(scheme, Level::One).is_ok();
            assert_eq!(is_read, schemes.contains(&scheme), "{name} {scheme:?}");
        }
    }
    for (scheme, default) in [
        (Scheme::Differential, "differential"),
        (Scheme::Dl1p, "dl1p"),
        (Scheme::Dl2p, "dl2p"),
        (Scheme::Pl2p, "pl2p"),
        (Scheme::Value, "value"),
        (Scheme::Command, "command"),
        (Scheme::Unlogged, "none"),
        (Scheme::Logical, "log2"),
        (Scheme::Physiological, "sql2"),
    ] {
        assert_eq!(Method::of(scheme).name, default);
    }
    let disks = Disks::new(1, 1);
    history(&disks, options(Scheme::Dl2p, Records::Full), 1);
    let without = Method {
        schemes: &[Scheme::Dl1p],
        ..Method::of(Scheme::Dl1p).clone()
    };
    let why = back(&disks, &without).unwrap_err();
    assert!(why.contains("this log has scheme dl2p"), "{why}");
}

#[test]
fn each_row_says_how_it_reads_and_works() {
    let said = METHODS.iter().map(|row| {
        let records = Methods::from(row).records(row.schemes[0]);
        let forward = records.direction() == Direction::Forward;
        (row.name, forward, records.mergers(3))
    });
    let expected = [
        ("differential", true, 0),
        ("dl1p", false, 0),
        ("dl2p", true, 0),
        ("pl2p", true, 1),
        ("pl2p-part", true, 3),
        ("value", true, 0),
        ("command", true, 0),
        ("none", true, 0),
        ("log2", true, 0),
        ("log1", true, 0),
        ("sql2", true, 0),
        ("sql1", true, 0),
        ("log0", true, 0),
        ("aries", true, 0),
    ];
    assert!(said.eq(expected));
}
