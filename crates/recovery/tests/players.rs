//! What a row's player is called with, by a player from above and by logs that no player reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::{
    CkptEpoch, Error, Gsn, Incarnation, PartitionSet, Result, StreamId, TxnId, Uuid,
};
use perdura_device::{Disk, ManualClock, MemDisk};
use perdura_heap::{Geometry, Heap};
use perdura_page::txn_record::encode_commit;
use perdura_recovery::Disks;
use perdura_recovery::indexing::ReadCatalog;
use perdura_recovery::player::{IndexNeed, Mergers, Supplied};
use perdura_recovery::read_anchor;
use perdura_recovery::window::ExecutorWindow;
use perdura_recovery::{
    Catalog, Level, LogMemory, METHODS, Method, NewDatabase, Player, RestartOptions, Schedule,
    create, flush_all, restart, resume,
};
use perdura_wal::{Direction, Frame, FrameKind, Origin, Role, Rung, Scheme, SegmentSizes, Wal};

const STREAMS: u8 = 2;

struct Machine {
    disk: Arc<dyn Disk>,
}

impl Machine {
    fn new() -> Machine {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let new = NewDatabase {
            uuid: Uuid([3; 16]),
            geometry: Geometry {
                partitions: 2,
                chunk_pages: 2,
                hash_seed: 1,
            },
            streams: STREAMS,
            segments: SegmentSizes::fixed(64 << 10),
            scheme: Scheme::Differential,
        };
        let disks = Disks::on_one(Arc::clone(&disk), usize::from(STREAMS));
        create(&disks, &ManualClock::at(1), &new).unwrap();
        Machine { disk }
    }

    fn options<'a>(&self, method: &'a Method, schedule: Schedule) -> RestartOptions<'a> {
        RestartOptions::of_records(
            Disks::on_one(Arc::clone(&self.disk), usize::from(STREAMS)),
            Arc::new(ManualClock::at(1)),
            schedule,
            method,
        )
    }

    /// The log of the next life.
    fn open(&self, method: &Method) -> Result<Arc<Wal>> {
        self.open_beside(method, &[])
    }

    /// The same, by a method and players of other records.
    fn open_beside(&self, method: &Method, supplied: &[Arc<dyn Supplied>]) -> Result<Arc<Wal>> {
        let options = RestartOptions {
            supplied,
            ..self.options(method, Schedule::inline(Level::Three, 0))
        };
        let restarted = restart(&options)?.expect("it was made");
        let memory = LogMemory {
            block_bytes_max: 4096,
            queue_bytes_max: 1 << 20,
            mirror: None,
        };
        Ok(resume(
            restarted,
            &options,
            memory,
            Arc::new(ExecutorWindow::default()),
        )?
        .wal)
    }

    /// A restart that changes nothing.
    fn try_out(&self, method: &Method, schedule: Schedule) -> Result<()> {
        let options = RestartOptions {
            dry_run: true,
            ..self.options(method, schedule)
        };
        restart(&options).map(drop)
    }
}

fn append(wal: &Wal, stream: u8, payload: &[u8]) {
    append_kind(wal, stream, FrameKind::Group, payload);
}

fn append_kind(wal: &Wal, stream: u8, kind: FrameKind, payload: &[u8]) {
    let none = PartitionSet::empty();
    wal.append(StreamId(stream), kind, payload, &none, CkptEpoch(0));
}

/// Replays records that say `key=value` into a table that recovery knows nothing of.
#[derive(Debug, Default)]
struct Values {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Seen {
    begun: u32,
    table: BTreeMap<String, String>,
    ends_of_life: Vec<(StreamId, Incarnation)>,
    frames: u32,
    finished: u32,
}

impl Supplied for Values {
    fn name(&self) -> &'static str {
        "values"
    }

    fn plays(&self, kind: FrameKind) -> bool {
        kind == FrameKind::Group
    }

    fn begin(&self, _: &Arc<Heap>) {
        let mut seen = self.seen.lock();
        *seen = Seen {
            begun: seen.begun + 1,
            ..Seen::default()
        };
    }

    fn frame(&self, frame: Frame<'_>, origin: Origin) -> Result<()> {
        match frame.kind.role() {
            Role::Records => {}
            Role::BeginMark | Role::EndMark | Role::Log | Role::Ordered | Role::Numbered => {
                return Ok(());
            }
        }
        let text = std::str::from_utf8(frame.payload).ok();
        let Some((key, value)) = text.and_then(|text| text.split_once('=')) else {
            return Err(Error::Stopped(format!("no value at {}", origin.pos)));
        };
        let mut seen = self.seen.lock();
        assert_eq!(seen.finished, 0, "frames come before the log's end");
        assert!(
            !seen.ends_of_life.contains(&(origin.stream, origin.life)),
            "and before their life's"
        );
        seen.frames += 1;
        seen.table.insert(key.into(), value.into());
        Ok(())
    }

    fn end_of_life(&self, stream: StreamId, life: Incarnation) -> Result<()> {
        let mut seen = self.seen.lock();
        assert_eq!(seen.finished, 0);
        seen.ends_of_life.push((stream, life));
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        self.seen.lock().finished += 1;
        Ok(())
    }
}

fn value_method(values: &Arc<Values>) -> Method {
    Method {
        name: "value",
        schemes: &[Scheme::Differential],
        player: Player::Supplied(Arc::clone(values) as Arc<dyn Supplied>),
    }
}

#[test]
fn numbers_of_operations_go_on_above_those_of_the_lives_before() {
    let machine = Machine::new();
    let method = value_method(&Arc::new(Values::default()));
    let none = PartitionSet::empty();
    let mut last = Gsn(0);
    for life in 1..=4 {
        let wal = machine.open(&method).unwrap();
        assert!(wal.last_gsn() >= last && wal.eosl(Rung::Disk) == wal.last_gsn());
        // The third life numbers nothing, and its blocks say how far the others have got.
        for count in [2, 3].into_iter().filter(|_| life != 3) {
            let frame = (FrameKind::Group, count);
            let (_, first) =
                wal.append_numbered(StreamId(1), frame, (&none, CkptEpoch(0)), |first| {
                    format!("a={first}").into_bytes()
                });
            assert!(first > last, "life {life}: {first} behind {last}");
            last = Gsn(first.0 + count - 1);
        }
        append(&wal, 0, b"b=x");
        flush_all(&wal).unwrap();
        assert_eq!(wal.eosl(Rung::Disk), wal.last_gsn());
    }
    assert_eq!(last, Gsn(15));
}

#[test]
fn a_player_from_above_sees_each_stream_of_the_log_life_by_life_in_order_and_nothing_lost() {
    let machine = Machine::new();
    let values = Arc::new(Values::default());
    let method = value_method(&values);
    for life in 1..=3 {
        let wal = machine.open(&method).unwrap();
        for turn in 0..40 {
            append(&wal, 0, format!("a={life}.{turn}").as_bytes());
            append(&wal, 1, format!("b={life}.{turn}").as_bytes());
            if turn % 10 == 9 {
                flush_all(&wal).unwrap();
            }
        }
        append(&wal, 0, format!("only in {life}=x").as_bytes());
        flush_all(&wal).unwrap();
        append(&wal, 1, b"b=lost in the crash");
    }
    let mut of_all = None;
    for level in Level::ALL {
        let inline = (0..8).map(|order| Schedule::inline(level, order));
        for schedule in inline.chain([Schedule::new(level, 1), Schedule::new(level, 3)]) {
            values.seen.lock().begun = 0;
            machine.try_out(&method, schedule).unwrap();
            let mut seen = values.seen.lock().clone();
            for stream in [StreamId(0), StreamId(1)] {
                let lives = seen.ends_of_life.iter().filter(|end| end.0 == stream);
                let lives: Vec<u32> = lives.map(|end| end.1.0).collect();
                assert_eq!(lives, [1, 2, 3], "{level:?} {stream}");
            }
            seen.ends_of_life.sort_unstable();
            assert_eq!((seen.begun, seen.finished), (1, 1));
            assert_eq!(of_all.get_or_insert_with(|| seen.clone()), &seen);
        }
    }
    let table = of_all.unwrap().table;
    let held: Vec<(&str, &str)> = table
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    let expected = [
        ("a", "3.39"),
        ("b", "3.39"),
        ("only in 1", "x"),
        ("only in 2", "x"),
        ("only in 3", "x"),
    ];
    assert_eq!(held, expected);
}

#[test]
fn an_error_of_a_player_from_above_ends_the_restart_and_changes_nothing() {
    let machine = Machine::new();
    let values = Arc::new(Values::default());
    let method = value_method(&values);
    let wal = machine.open(&method).unwrap();
    append(&wal, 0, b"no value");
    flush_all(&wal).unwrap();
    drop(wal);
    let before = read_anchor(machine.disk.as_ref()).unwrap();
    let refused = machine.open(&method).map(drop).unwrap_err().to_string();
    assert!(refused.contains("no value at"), "{refused}");
    assert_eq!(values.seen.lock().finished, 0);
    assert_eq!(read_anchor(machine.disk.as_ref()).unwrap(), before);
}

#[test]
fn the_group_player_reads_the_log_in_the_direction_of_its_row() {
    let machine = Machine::new();
    let wal = machine.open(&METHODS[0]).unwrap();
    for _ in 0..2 {
        append(&wal, 1, b"no group of page records");
        flush_all(&wal).unwrap();
    }
    drop(wal);
    let offset = |direction| {
        let method = Method {
            player: Player::Group(direction),
            ..METHODS[0]
        };
        let refused = machine.try_out(&method, Schedule::inline(Level::One, 0));
        let Err(Error::Corrupt(corruption)) = refused else {
            panic!("it must refuse")
        };
        assert_eq!(corruption.expected, "a group of page records");
        corruption.offset
    };
    assert!(offset(Direction::Forward) < offset(Direction::Backward));
}

#[test]
fn a_record_of_another_scheme_is_refused_by_every_player_and_not_passed_over() {
    for method in METHODS {
        let other = match method.player {
            Player::Group(_) => FrameKind::Record,
            Player::Fate | Player::TwoPass | Player::Merge(_) | Player::Supplied(_) => {
                FrameKind::Group
            }
            // They have no place in a log without their frames; see `tests/ordered.rs` and, of steal mode, `tests/keyed`.
            Player::Ordered | Player::Tree(_) => continue,
        };
        let later = [
            FrameKind::Effects,
            FrameKind::Command,
            FrameKind::Operations,
            FrameKind::Tree,
        ];
        for kind in later.into_iter().chain([other]) {
            let machine = Machine::new();
            let wal = machine.open(&METHODS[0]).unwrap();
            append_kind(&wal, 1, kind, b"x");
            flush_all(&wal).unwrap();
            drop(wal);
            let of_this_log = for_any_log(&method.player);
            let refused = machine.try_out(&of_this_log, Schedule::inline(Level::One, 0));
            let why = refused.map_err(|error| error.to_string()).unwrap_err();
            assert!(why.contains("a frame of kind"), "{}: {why}", method.name);
        }
    }
}

/// A method whose player takes `Record` frames, for a log of any scheme.
fn for_any_log(player: &Player) -> Method {
    Method {
        name: "any",
        schemes: &[Scheme::Differential],
        player: player.clone(),
    }
}

#[test]
fn methods_that_need_an_order_play_beside_a_supplied_player_which_sees_each_frame_once() {
    let players = [
        Player::TwoPass,
        Player::Merge(Mergers::One),
        Player::Merge(Mergers::PerThread),
    ];
    for player in players {
        let machine = Machine::new();
        let values = Arc::new(Values::default());
        let supplied = [Arc::clone(&values) as Arc<dyn Supplied>];
        let method = for_any_log(&player);
        for life in 1..=3 {
            let wal = machine.open_beside(&method, &supplied).unwrap();
            for turn in 0..20u64 {
                for stream in 0..STREAMS {
                    let value = format!("{stream}={life}.{turn}");
                    append(&wal, stream, value.as_bytes());
                    let mut commit = Vec::new();
                    encode_commit(&mut commit, TxnId(turn));
                    append_kind(&wal, stream, FrameKind::Record, &commit);
                }
                flush_all(&wal).unwrap();
            }
        }
        for level in [Level::One, Level::Two, Level::Three] {
            let inline = (0..4).map(|order| Schedule::inline(level, order));
            for schedule in inline.chain([Schedule::new(level, 3)]) {
                let options = RestartOptions {
                    dry_run: true,
                    supplied: &supplied,
                    ..machine.options(&method, schedule)
                };
                let report = restart(&options).unwrap().unwrap().report;
                assert_eq!(report.transactions, 3 * 20 * u64::from(STREAMS));
                let seen = values.seen.lock();
                let table: Vec<&str> = seen.table.values().map(String::as_str).collect();
                assert_eq!(table, ["3.19", "3.19"], "{player:?}");
                assert_eq!((seen.frames, seen.finished), (120, 1), "each frame once");
                let mut ends = seen.ends_of_life.clone();
                ends.sort_unstable();
                let lives = [1, 2, 3].map(Incarnation);
                let expected = [0, 1].map(StreamId).into_iter();
                let mut expected = expected.flat_map(|s| lives.map(|life| (s, life)));
                assert!(ends.into_iter().eq(expected.by_ref()), "{player:?}");
            }
        }
    }
}

#[test]
fn players_that_one_pass_cannot_serve_are_refused_by_name_and_nothing_changes() {
    let machine = Machine::new();
    let values = Arc::new(Values::default());
    let supplied = [Arc::clone(&values) as Arc<dyn Supplied>];
    let before = read_anchor(machine.disk.as_ref()).unwrap();
    for (player, expected) in [
        (Player::Fate, "reads the log newest first"),
        (Player::Group(Direction::Forward), "claimed by two players"),
    ] {
        let refused = machine.open_beside(&for_any_log(&player), &supplied);
        let Err(Error::Usage(why)) = refused.map(drop) else {
            panic!("{player:?} must be refused")
        };
        assert!(why.contains(expected) && why.contains("values"), "{why}");
    }
    assert_eq!(values.seen.lock().begun, 0);
    assert_eq!(read_anchor(machine.disk.as_ref()).unwrap(), before);
}

/// A player that names rows by their keys: it notes when it is called, and when the catalog is read.
#[derive(Debug)]
struct ByKey {
    need: IndexNeed,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl Supplied for ByKey {
    fn name(&self) -> &'static str {
        "by key"
    }

    fn plays(&self, kind: FrameKind) -> bool {
        kind == FrameKind::Group
    }

    fn begin(&self, _: &Arc<Heap>) {
        self.calls.lock().clear();
    }

    fn indexes(&self) -> IndexNeed {
        self.need
    }

    fn frame(&self, _: Frame<'_>, _: Origin) -> Result<()> {
        self.calls.lock().push("frame");
        Ok(())
    }

    fn end_of_life(&self, _: StreamId, _: Incarnation) -> Result<()> {
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        self.calls.lock().push("finish");
        Ok(())
    }
}

impl ReadCatalog for ByKey {
    fn read_catalog(&self, heap: &Heap) -> Result<Catalog> {
        assert_eq!(heap.geometry().partitions, 2);
        self.calls.lock().push("catalog");
        Ok(Catalog::new())
    }
}

#[test]
fn a_player_from_above_has_its_indexes_before_the_log_or_after_it_as_it_says() {
    let machine = Machine::new();
    let wal = machine.open(&value_method(&Arc::default())).unwrap();
    append(&wal, 0, b"a=1");
    append(&wal, 1, b"b=2");
    flush_all(&wal).unwrap();
    drop(wal);
    for need in [IndexNeed::BeforeLog, IndexNeed::AfterLog] {
        for level in Level::ALL {
            for schedule in [
                Schedule::inline(level, 0),
                Schedule::inline(level, 9),
                Schedule::new(level, 2),
            ] {
                let calls = Arc::new(Mutex::new(Vec::new()));
                let by_key = || ByKey {
                    need,
                    calls: Arc::clone(&calls),
                };
                let method = Method {
                    name: "by key",
                    schemes: &[Scheme::Differential],
                    player: Player::Supplied(Arc::new(by_key())),
                };
                let options = RestartOptions {
                    dry_run: true,
                    catalog: Arc::new(by_key()),
                    ..machine.options(&method, schedule)
                };
                restart(&options).unwrap();
                let calls = calls.lock();
                let (first, last) = (calls.first().copied(), calls.last().copied());
                let frames = calls.iter().filter(|call| **call == "frame").count();
                assert_eq!(frames, 3, "two records and the frame of the restart");
                match need {
                    IndexNeed::BeforeLog => {
                        assert_eq!((first, last), (Some("catalog"), Some("finish")));
                    }
                    IndexNeed::AfterLog => {
                        assert_eq!((first, last), (Some("frame"), Some("catalog")));
                    }
                }
            }
        }
    }
}
