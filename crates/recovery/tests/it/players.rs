//! Tests of the players: each method's player gets the right frames, and players refuse wrong logs.

use std::sync::Arc;

use perdura_base::{CkptEpoch, Error, Gsn, PartitionSet, Result, StreamId};
use perdura_device::{Disk, ManualClock};
use perdura_recovery::Disks;
use perdura_recovery::player::PagePlayer;
use perdura_recovery::window::ExecutorWindow;
use perdura_recovery::{
    Level, Life, LogMemory, METHODS, Method, Player, RestartOptions, Schedule, flush_all, restart,
};
use perdura_wal::{Direction, FrameKind, Rung, Scheme, Wal};

const STREAMS: u8 = 2;

struct Machine {
    disk: Arc<dyn Disk>,
}

impl Machine {
    fn new() -> Machine {
        let disk = crate::made::database(STREAMS);
        Machine { disk }
    }

    fn options(&self, method: &Method, schedule: Schedule) -> RestartOptions {
        RestartOptions::of_records(
            Disks::on_one(Arc::clone(&self.disk), usize::from(STREAMS)),
            Arc::new(ManualClock::at(1)),
            schedule,
            method,
        )
    }

    /// Restarts the database and returns the log of its next life.
    fn open(&self, method: &Method) -> Result<Arc<Wal>> {
        let options = self.options(method, Schedule::inline(Level::Three, 0));
        let restarted = restart(&options)?.expect("it was made");
        let memory = LogMemory {
            block_bytes_max: 4096,
            queue_bytes_max: 1 << 20,
            lanes: 1,
            mirror: None,
        };
        Ok(Life::begin(
            restarted,
            &options,
            memory,
            Arc::new(ExecutorWindow::default()),
        )?
        .wal)
    }

    /// Runs a restart that changes nothing on the disk.
    fn try_out(&self, method: &Method, schedule: Schedule) -> Result<()> {
        let options = RestartOptions {
            mode: perdura_recovery::RestartMode::Dry,
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

#[test]
fn numbers_of_operations_go_on_above_those_of_the_lives_before() {
    let machine = Machine::new();
    let none = PartitionSet::empty();
    let mut last = Gsn(0);
    for life in 1..=4 {
        let wal = machine.open(&METHODS[0]).unwrap();
        assert!(wal.last_gsn() >= last && wal.eosl(Rung::Disk) == wal.last_gsn());
        // The third life assigns no number; its blocks still name the last number of the earlier lives.
        for count in [2, 3].into_iter().filter(|_| life != 3) {
            // The frame is of a kind that no player reads.
            let frame = (FrameKind::Beacon, count);
            let (_, first) =
                wal.append_numbered(StreamId(1), frame, (&none, CkptEpoch(0)), |_| Vec::new());
            assert!(first > last, "life {life}: {first} behind {last}");
            last = Gsn(first.0 + count - 1);
        }
        append_kind(&wal, 0, FrameKind::Beacon, &[]);
        flush_all(&wal).unwrap();
        assert_eq!(wal.eosl(Rung::Disk), wal.last_gsn());
    }
    assert_eq!(last, Gsn(15));
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
            player: Player::Pages(PagePlayer::Group(direction)),
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
            Player::Pages(PagePlayer::Group(_)) => FrameKind::Record,
            Player::Pages(_) => FrameKind::Group,
            // These players do nothing in a log without their frames. The suites `ordered` and `keyed` (in steal mode)
            // test them.
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

/// Returns a method with a player of `Record` frames, for a log of any scheme.
fn for_any_log(player: &Player) -> Method {
    Method {
        name: "any",
        schemes: &[Scheme::Differential],
        player: *player,
    }
}
