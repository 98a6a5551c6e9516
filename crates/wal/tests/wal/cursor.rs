//! A cursor returns all durable frames, whatever happens to the log.

use std::sync::Arc;

use perdura_base::{Epoch, Error, Pos, StreamId};
use perdura_device::{Access, CrashProfile, Disk, SimDisk};
use perdura_wal::frame::for_each_frame;
use perdura_wal::segment::{LOG_DIR, SegmentId};
use perdura_wal::{ChainLink, Direction, FrameKind, History, LogCursor, Rung, Wal};

use crate::setup::{anchor, append, flush, next_life, open, scan};

const STREAMS: u8 = 2;

/// A reader of one stream that keeps what it has read, as an archiver does.
struct Reader {
    cursor: LogCursor,
    /// The bytes read after the last whole frame. They are the beginning of the next frame.
    bytes: Vec<u8>,
    groups: Vec<(Epoch, Vec<u8>)>,
}

impl Reader {
    fn new(disk: &Arc<SimDisk>, history: &History, stream: u8, at: Pos) -> Reader {
        let disk: Arc<dyn Disk> = disk.life();
        Reader {
            cursor: LogCursor::open(disk, history, StreamId(stream), at).unwrap(),
            bytes: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// Reads at most `blocks` blocks. Returns whether the reader has read everything that is durable.
    fn read(&mut self, wal: &Wal, blocks: usize) -> Result<bool, Error> {
        let durable = wal.durable_end(Rung::Disk);
        for _ in 0..blocks {
            let before = self.cursor.at();
            let Some(block) = self.cursor.read(&durable)? else {
                return Ok(true);
            };
            assert!(block.header.epoch <= durable.epoch);
            assert_eq!(block.header.pos, before);
            let (epoch, whole) = (block.header.epoch, &mut self.bytes);
            whole.extend_from_slice(block.body());
            let groups = &mut self.groups;
            let end = for_each_frame(whole, Direction::Forward, |frame| {
                if frame.kind == FrameKind::Group {
                    groups.push((epoch, frame.payload.to_vec()));
                }
                Ok::<_, Error>(())
            });
            whole.drain(..end?);
        }
        Ok(false)
    }
}

/// The log, the frames appended to it, and a reader of every stream.
struct World {
    rng: fastrand::Rng,
    disk: Arc<SimDisk>,
    history: History,
    wal: Wal,
    /// For each stream, the appended groups that are not void. The reader must return these groups.
    appended: Vec<Vec<(Epoch, Vec<u8>)>>,
    readers: Vec<Reader>,
    truncated: usize,
    lives: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let disk = SimDisk::new(seed);
        let history = anchor(STREAMS);
        let wal = open(&disk, &history, 1);
        World {
            readers: (0..STREAMS)
                .map(|stream| Reader::new(&disk, &history, stream, Pos(0)))
                .collect(),
            rng: fastrand::Rng::with_seed(seed),
            disk,
            history,
            wal,
            appended: vec![Vec::new(); usize::from(STREAMS)],
            truncated: 0,
            lives: 1,
        }
    }

    fn append(&mut self) {
        let stream = self.rng.u8(0..STREAMS);
        let payload = vec![self.rng.u8(..); self.rng.usize(0..20_000)];
        let epoch = append(&self.wal, stream, &payload);
        self.appended[usize::from(stream)].push((epoch, payload));
    }

    fn flush_some(&mut self) {
        self.wal.close_epoch();
        for _ in 0..self.rng.usize(1..12) {
            let stream = StreamId(self.rng.u8(0..STREAMS));
            self.wal.flush_step(stream).unwrap();
        }
    }

    fn read(&mut self, blocks: usize) {
        for stream in 0..STREAMS {
            let s = usize::from(stream);
            let done = self.readers[s].read(&self.wal, blocks);
            match done {
                Ok(all) => self.check(s, all),
                Err(Error::Truncated { wanted, .. }) => {
                    assert_eq!(wanted, self.readers[s].cursor.at());
                    self.restart_reader(stream);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Checks that the groups read are a prefix of the groups appended. If `all` is set, all durable groups must have
    /// been read.
    fn check(&self, s: usize, all: bool) {
        let read = &self.readers[s].groups;
        assert!(self.appended[s].starts_with(read), "stream {s}");
        if all {
            let durable = self.wal.durable(Rung::Disk);
            let is_durable = |(epoch, _): &&(Epoch, Vec<u8>)| *epoch <= durable;
            assert_eq!(
                read.len(),
                self.appended[s].iter().filter(is_durable).count()
            );
        }
    }

    /// Replaces a reader at a truncated position with a new reader at the durable end.
    fn restart_reader(&mut self, stream: u8) {
        let s = usize::from(stream);
        let durable = self.wal.durable_end(Rung::Disk);
        let at = self.readers[s].cursor.at();
        assert!(
            !self.is_held(stream, at),
            "stream {stream} still holds {at}"
        );
        self.readers[s] = Reader::new(&self.disk, &self.history, stream, durable.ends[s]);
        self.appended[s].retain(|(epoch, _)| *epoch > durable.epoch);
        self.truncated += 1;
    }

    /// Returns whether the position is in an existing segment of a life that the history names.
    fn is_held(&self, stream: u8, at: Pos) -> bool {
        let s = usize::from(stream);
        let lives = self.history.lives();
        let names = self.disk.life().list(LOG_DIR).unwrap();
        let ids = names.iter().filter_map(|name| SegmentId::parse(name));
        ids.filter(|id| id.stream.0 == stream).any(|id| {
            let Some(start) = lives.start_of(id.incarnation, id.stream) else {
                return false;
            };
            let mut closed = lives.closed.iter();
            let link = closed.find(|link| link.incarnation == id.incarnation);
            let cut = link.map_or(Pos(u64::MAX), |link| link.cut[s]);
            let span = self.history.segments.span_at(start, id.start);
            span.start <= at && at < span.end().min(cut)
        })
    }

    /// Truncates each stream at its reader's position or at a random later position, but always before the durable end.
    /// The anchor vouches for everything durable.
    fn truncate(&mut self) {
        self.history.vouched = self.wal.durable_end(Rung::Disk);
        let ends = &self.history.vouched.ends;
        let floor: Vec<Pos> = (0..usize::from(STREAMS))
            .map(|s| {
                let at = self.readers[s].cursor.at();
                let floor = match self.rng.u8(0..4) {
                    0 => self.rng.u64(at.0..=ends[s].0),
                    _ => at.0,
                };
                Pos(floor.min(ends[s].0.saturating_sub(1)))
            })
            .collect();
        self.wal.truncate(&floor).unwrap();
        let (newest, older) = match self.history.chain.split_last() {
            None => return,
            Some((newest, older)) => (newest.clone(), older),
        };
        let is_needed = |link: &&ChainLink| link.cut.iter().zip(&floor).any(|(cut, f)| cut > f);
        self.history.chain = older.iter().filter(is_needed).cloned().collect();
        self.history.chain.push(newest);
    }

    fn restart(&mut self) {
        let profiles = [
            CrashProfile::Nothing,
            CrashProfile::Worst,
            CrashProfile::Ordered,
            CrashProfile::Everything,
        ];
        let durable = self.wal.durable(Rung::Disk);
        let profile = profiles[self.rng.usize(0..profiles.len())];
        self.disk.crash(profile, self.rng.u64(..));
        let cut = self.decide();
        assert!(cut.durable >= durable, "{profile:?}");
        let epoch = next_life(&mut self.history, &cut);
        self.wal = open(&self.disk, &self.history, epoch);
        for stream in 0..STREAMS {
            let s = usize::from(stream);
            self.appended[s].retain(|(epoch, _)| *epoch <= cut.durable);
            let saved = self.readers[s].cursor.at();
            let cursor = Reader::new(&self.disk, &self.history, stream, saved).cursor;
            self.readers[s].cursor = cursor;
        }
        self.lives += 1;
    }

    /// Decides the cut as a restart does. The scan reads only the newest life, because older lives may be truncated.
    fn decide(&self) -> perdura_wal::Cut {
        let life = self.disk.life();
        let scans: Vec<_> = (0..STREAMS)
            .map(|stream| {
                let from = self.history.open_start()[usize::from(stream)];
                let from = from.max(self.oldest_of_newest_life(stream));
                let (disk, lives) = (life.as_ref(), self.history.lives());
                let check = perdura_wal::Check::All;
                perdura_wal::scan_stream(disk, &lives, StreamId(stream), from, check).unwrap()
            })
            .collect();
        perdura_wal::decide_cut(&self.history, &scans, None, false).unwrap()
    }

    fn oldest_of_newest_life(&self, stream: u8) -> Pos {
        let names = self.disk.life().list(LOG_DIR).unwrap();
        let ids = names.iter().filter_map(|name| SegmentId::parse(name));
        let newest =
            ids.filter(|id| id.stream.0 == stream && id.incarnation == self.history.incarnation);
        newest.map(|id| id.start).min().unwrap_or(Pos(0))
    }
}

#[test]
fn a_cursor_returns_what_was_appended_and_is_durable_over_segments_truncations_and_lives() {
    let (mut truncated, mut lives, mut groups) = (0, 0, 0);
    for seed in 0..60 {
        let mut world = World::new(seed);
        for _ in 0..250 {
            match world.rng.u8(0..20) {
                0..8 => world.append(),
                8..14 => world.flush_some(),
                14..18 => {
                    let blocks = world.rng.usize(0..6);
                    world.read(blocks);
                }
                18 => world.truncate(),
                _ if world.rng.bool() => world.restart(),
                _ => flush(&world.wal),
            }
        }
        flush(&world.wal);
        world.read(usize::MAX);
        truncated += world.truncated;
        lives += world.lives;
        groups += world
            .readers
            .iter()
            .map(|reader| reader.groups.len())
            .sum::<usize>();
    }
    assert!(
        truncated > 10 && lives > 200 && groups > 2000,
        "{truncated} {lives} {groups}"
    );
}

#[test]
fn a_cursor_whose_open_segment_is_used_again_says_that_its_blocks_were_truncated() {
    let disk = SimDisk::new(1);
    let history = anchor(1);
    let wal = open(&disk, &history, 1);
    let write = |rounds: std::ops::Range<u8>| {
        for round in rounds {
            append(&wal, 0, &[round; 4000]);
            flush(&wal);
        }
    };
    write(0..1);
    let mut reader = Reader::new(&disk, &history, 0, Pos(0));
    assert!(reader.read(&wal, 9).unwrap());
    let first = segment(&history, 0);
    write(1..20);
    let floor = wal.durable_end(Rung::Disk).ends;
    assert_eq!(wal.truncate(&floor).unwrap(), 2);
    // The file that the cursor has open gets another name, and other blocks at the same offsets.
    write(20..60);
    assert!(!disk.files().iter().any(|(path, _)| *path == first));
    let at = reader.cursor.at();
    for _ in 0..2 {
        let error = reader.read(&wal, 1).unwrap_err();
        assert!(
            matches!(error, Error::Truncated { wanted, .. } if wanted == at),
            "{error}"
        );
        assert!(
            error.to_string().contains("no longer contains position"),
            "{error}"
        );
    }
}

fn segment(history: &History, start: u64) -> String {
    let id = SegmentId {
        stream: StreamId(0),
        start: Pos(start),
        incarnation: history.incarnation,
    };
    id.path()
}

#[test]
fn a_damaged_block_below_d_is_an_error_with_its_place_and_the_cursor_stays() {
    let disk = SimDisk::new(1);
    let history = anchor(1);
    let wal = open(&disk, &history, 1);
    append(&wal, 0, &[1; 3000]);
    flush(&wal);
    append(&wal, 0, &[2; 3000]);
    flush(&wal);
    let path = segment(&history, 0);
    let file = disk.life().open(&path, Access::Buffered).unwrap();
    file.write_at(4096 + 4096 + 300, b"damage").unwrap();
    let mut reader = Reader::new(&disk, &history, 0, Pos(0));
    assert!(!reader.read(&wal, 1).unwrap());
    for _ in 0..2 {
        let error = reader.read(&wal, 1).unwrap_err();
        assert!(
            matches!(&error, Error::Corrupt(at) if at.file == path && at.offset == 8192),
            "{error}"
        );
        assert_eq!(reader.cursor.at(), Pos(4096));
    }
    let nowhere = LogCursor::open(disk.life(), &history, StreamId(0), Pos(4097));
    assert!(matches!(nowhere.err(), Some(Error::Usage(_))));
}

#[test]
fn a_cursor_that_is_ahead_of_what_is_durable_is_at_another_log() {
    let disk = SimDisk::new(1);
    let history = anchor(1);
    let wal = open(&disk, &history, 1);
    let mut reader = Reader::new(&disk, &history, 0, Pos(8192));
    assert!(matches!(reader.read(&wal, 1), Err(Error::Corrupt(_))));
    assert!(scan(&disk, &history).is_ok());
}
