//! Determines the lives and the end of a log without an anchor.
//!
//! The loss of the data disk is also the loss of the anchor. Only the anchor names the lives of the log, their cuts and
//! the vouched position. But the log's disks have nearly all of these facts. An archive names one epoch, the *known
//! epoch*, and the end of this epoch in each stream. From the log and the known epoch, the module determines how the
//! log continues.
//!
//! A life begins with a *restart frame* in stream 0. The frame says where the preceding life was cut, and which durable
//! epoch was kept. The frame is in the life's first epoch. So a life without a whole restart frame has no durable
//! epoch, and the end of its predecessor is decided anew. The module scans the log like a restart, and uses a restart's
//! rules ([`decide_cut`](crate::decide_cut)). These rules also decide the end of the newest life. The known epoch
//! vouches for the log in place of the anchor.
//!
//! # Invariants
//! * Nothing is written.
//! * The returned history begins at the known epoch and has no hole. A log that begins after this epoch is refused.
//! * If a block proves the loss of a durable block, the module returns an error, as a restart does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::to_usize;
use perdura_base::{Epoch, Error, Incarnation, LifeId, Pos, Result, StreamId, Uuid};
use perdura_device::{Access, Disk, File};

use crate::anchor::{ChainLink, History, Vouched};
use crate::block::{BlockHeader, HEADER_BYTES};
use crate::cut::decide_cut;
use crate::drain::DrainLife;
use crate::ends::EpochEnds;
use crate::frame::{Direction, FrameKind, RestartRecord, for_each_frame};
use crate::lineage::Lineage;
use crate::lookup::block_at;
use crate::scan::{Check, StreamScan, scan_stream};
use crate::scheme::Scheme;
use crate::segment::{
    LOG_DIR, SEGMENT_HEADER_BYTES, SegmentId, check_header, is_foreign, lives_in,
};
use crate::sizes::SegmentSizes;

/// A log without an anchor.
#[derive(Debug, Clone)]
pub struct Survivor {
    /// The lives of the log from the known epoch on.
    pub history: History,
    /// The last durable epoch of the log.
    pub durable: Vouched,
    /// The highest acknowledged epoch, if the log lacks it and its loss is accepted.
    pub lost_to: Option<Epoch>,
}

/// A segment that exists.
struct Segment {
    id: SegmentId,
    bytes: u64,
    /// The lives that the header names. Unknown if the header is faulty.
    lives: Lineage,
    file: Arc<dyn File>,
}

impl Segment {
    fn block_at(&self, uuid: &Uuid, pos: Pos) -> Result<Option<(BlockHeader, Vec<u8>)>> {
        block_at(self.file.as_ref(), self.id, self.bytes, uuid, pos)
    }
}

/// A log whose anchor is lost.
#[derive(Clone, Copy)]
pub struct LogOf<'a> {
    /// The disk of each stream.
    pub disks: &'a [Arc<dyn Disk>],
    /// The uuid of the database.
    pub uuid: Uuid,
    /// The logging scheme.
    pub scheme: Scheme,
    /// The sizes of segments.
    pub sizes: SegmentSizes,
    /// True if a stream may have no file, because only blocks of nodes are on these disks.
    pub is_partial: bool,
    /// True if the log may lack acknowledged epochs that only the memories of nodes had.
    pub accept_loss: bool,
}

/// The segments of all streams.
struct Survey<'a> {
    disks: &'a [Arc<dyn Disk>],
    uuid: Uuid,
    sizes: SegmentSizes,
    scheme: Scheme,
    accept_loss: bool,
    from: &'a EpochEnds,
    /// The segments of each stream, in the order of their names.
    streams: Vec<Vec<Segment>>,
}

/// Determines how a log continues after the epoch `from`.
///
/// # Errors
/// [`Error::Foreign`] for a log of another database. [`Error::Corrupt`] for a stream without a log, and for a log that
/// does not reach back to `from` or contradicts itself. [`Error::Corrupt`] also for a block that proves the loss of
/// durable blocks. The disks' errors.
pub fn survive(log: &LogOf<'_>, from: &EpochEnds) -> Result<Survivor> {
    Survey::of(log, from)?.run()
}

/// Returns the facts for a drain of each stream of the log's newest life. The drain begins at `from` or at the life's
/// start, whichever is later. `lives` are the log's lives.
///
/// # Errors
/// As [`survive`], except for lost blocks, which the drain may bring back.
pub fn lives_to_drain(
    log: &LogOf<'_>,
    lives: &Lineage,
    from: &EpochEnds,
) -> Result<Vec<DrainLife>> {
    let survey = Survey::of(log, from)?;
    let all = survey.streams.iter().flatten();
    let newest = all.map(|segment| segment.id.incarnation).max();
    let incarnation = newest.expect("each stream has a segment");
    let mut records = survey.restart_records(&BTreeSet::from([incarnation]))?;
    let start = match records.remove(&incarnation) {
        Some(record) => record.cut,
        None => survey.starts(incarnation)?,
    };
    assert_eq!(start.len(), from.ends.len(), "a start in each stream");
    let streams = (0u8..).map(StreamId).zip(&start).zip(&from.ends);
    let life = |((stream, start), end): ((StreamId, &Pos), &Pos)| DrainLife {
        uuid: log.uuid,
        incarnation,
        stream,
        streams: u8::try_from(log.disks.len()).unwrap_or(u8::MAX),
        sizes: log.sizes,
        start: *start,
        vouched: *start.max(end),
        lives: lives.bounded(),
    };
    Ok(streams.map(life).collect())
}

/// Returns the lives of a log, by their random numbers. The newest segment names them. They are unknown in a log of an older build, and if no header of the newest
/// life can be read.
///
/// # Errors
/// Fails as [`survive`] for a stream without a log and for a log of another database. The disks' errors.
pub fn lives_of(log: &LogOf<'_>) -> Result<Lineage> {
    let mut newest: Option<Segment> = None;
    for (stream, disk) in (0u8..).map(StreamId).zip(log.disks) {
        let of_stream = segments(disk.as_ref(), stream, log)?;
        let all = newest.into_iter().chain(of_stream);
        newest = all.max_by_key(|segment| (segment.id.incarnation, segment.lives.id != LifeId(0)));
    }
    Ok(newest.map_or_else(Lineage::default, |segment| segment.lives))
}

fn segments(disk: &dyn Disk, stream: StreamId, log: &LogOf<'_>) -> Result<Vec<Segment>> {
    let uuid = &log.uuid;
    let none = |found: String| {
        let expected = format!("the log of stream {stream} of database {uuid}");
        let hint =
            "Give the directory that has it. Without --log-dir the archive alone is restored.";
        Error::corrupt(
            format!("{}/{LOG_DIR}", disk.name()),
            0,
            expected,
            found,
            hint,
        )
    };
    let names = match disk.list(LOG_DIR) {
        Err(error) if error.is_not_found() && log.is_partial => Vec::new(),
        Err(error) if error.is_not_found() => return Err(none("no such directory".into())),
        names => names?,
    };
    let mut ids: Vec<SegmentId> = names
        .iter()
        .filter_map(|name| SegmentId::parse(name))
        .collect();
    ids.retain(|id| id.stream == stream);
    ids.sort_unstable();
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let file = disk.open(&id.path(), Access::Buffered)?;
        let mut header = vec![0; SECTOR_BYTES];
        let got = file.read_at(0, &mut header)?;
        // Any other fault of the header loses nothing, because each block names its owner.
        let lives = match check_header(id, uuid, &header[..got]) {
            Ok(_) => lives_in(&header),
            Err(fault) if is_foreign(&fault) => {
                return Err(Error::Foreign {
                    file: format!("{}/{}", disk.name(), id.path()),
                    why: format!("{fault}, and the archive belongs to {uuid}. Nothing was changed"),
                });
            }
            Err(_) => Lineage::default(),
        };
        let bytes = file.len()?;
        found.push(Segment {
            id,
            bytes,
            lives,
            file,
        });
    }
    match found.is_empty() && !log.is_partial {
        true => Err(none("no segment".into())),
        false => Ok(found),
    }
}

/// A life, with the life's start in each stream.
struct Life {
    incarnation: Incarnation,
    start: Vec<Pos>,
    /// The last durable epoch of the preceding life; 0 if it is unknown.
    before: Epoch,
}

impl<'a> Survey<'a> {
    fn of(log: &LogOf<'a>, from: &'a EpochEnds) -> Result<Survey<'a>> {
        let disks = log.disks;
        if disks.len() != from.ends.len() {
            return Err(Error::Usage(format!(
                "the log has {} stream(s), but {} log directories were given. Give one for each \
                 stream in their order, or one that has them all",
                from.ends.len(),
                disks.len()
            )));
        }
        let streams = (0u8..).map(StreamId).zip(disks);
        let streams = streams.map(|(stream, disk)| segments(disk.as_ref(), stream, log));
        Ok(Survey {
            disks,
            uuid: log.uuid,
            sizes: log.sizes,
            scheme: log.scheme,
            accept_loss: log.accept_loss,
            from,
            streams: streams.collect::<Result<_>>()?,
        })
    }

    fn run(&self) -> Result<Survivor> {
        let lives = self
            .streams
            .iter()
            .flatten()
            .map(|segment| segment.id.incarnation);
        let lives: BTreeSet<Incarnation> = lives.collect();
        let records = self.restart_records(&lives)?;
        assert_eq!(
            self.streams.len(),
            self.disks.len(),
            "each disk holds a stream"
        );
        let (mut before, mut after) = (None, Vec::new());
        for record in records.into_values() {
            match self.is_at_or_before(&record)? {
                true => before = Some(record),
                false => after.push(record),
            }
        }
        let next = after.first().map(|record| record.incarnation);
        let life = match before {
            Some(record) => Some(Life {
                incarnation: record.incarnation,
                start: record.cut,
                before: record.durable,
            }),
            None => self.life_at_end(&lives, next)?,
        };
        let Some(life) = life else {
            return self.nothing_behind(after.first());
        };
        self.check_reach(&life)?;
        let newest = match armed(Flaw::LaterLivesIgnored) {
            true => life.incarnation,
            false => lives.last().copied().unwrap_or(life.incarnation),
        };
        let mut history = self.begin(&life);
        for record in after
            .into_iter()
            .take_while(|record| record.incarnation <= newest)
        {
            self.end_life(&mut history, record.durable, &record.cut);
            history.incarnation = record.incarnation;
        }
        let (mut durable, mut lost_to) = self.decide(&history)?;
        // These lives have no whole restart frame, so they have kept nothing unless their blocks prove otherwise.
        for incarnation in lives.range((
            std::ops::Bound::Excluded(history.incarnation),
            std::ops::Bound::Included(newest),
        )) {
            self.check_start(*incarnation, &durable)?;
            self.end_life(&mut history, durable.epoch, &durable.ends);
            history.incarnation = *incarnation;
            let (next, also_lost) = self.decide(&history)?;
            (durable, lost_to) = (next, lost_to.max(also_lost));
        }
        history.vouched = durable.clone();
        Ok(Survivor {
            history,
            durable,
            lost_to,
        })
    }

    /// Finds the lives that begin with a whole restart frame. Returns the restart record of each of these lives.
    fn restart_records(
        &self,
        lives: &BTreeSet<Incarnation>,
    ) -> Result<BTreeMap<Incarnation, RestartRecord>> {
        let mut records = BTreeMap::new();
        for incarnation in lives {
            let mut own = self.streams[0].iter();
            let Some(first) = own.find(|segment| segment.id.incarnation == *incarnation) else {
                continue;
            };
            let Some((header, bytes)) = first.block_at(&self.uuid, first.id.start)? else {
                continue;
            };
            let body = &bytes[HEADER_BYTES..][..to_usize(u64::from(header.body_len))];
            let mut record = None;
            for_each_frame(body, Direction::Forward, |frame| {
                if frame.kind == FrameKind::Restart && record.is_none() {
                    record = RestartRecord::decode(frame.payload);
                }
                Ok::<_, Error>(())
            })?;
            let is_first = |record: &RestartRecord| {
                record.incarnation == *incarnation
                    && record.cut.len() == self.streams.len()
                    && record.cut[0] == first.id.start
            };
            if let Some(record) = record.filter(is_first) {
                records.insert(*incarnation, record);
            }
        }
        Ok(records)
    }

    /// Returns true if a life starts at or before the archive's end in all streams. Returns false if the life starts at
    /// or after that end in all streams. Fails in all other cases.
    fn is_at_or_before(&self, record: &RestartRecord) -> Result<bool> {
        let ends = &self.from.ends;
        let pairs = || record.cut.iter().zip(ends);
        if pairs().all(|(cut, end)| cut <= end) {
            return Ok(true);
        }
        if record.durable >= self.from.epoch && pairs().all(|(cut, end)| cut >= end) {
            return Ok(false);
        }
        Err(Error::corrupt(
            format!("the log of life {}", record.incarnation),
            0,
            format!(
                "a beginning before or after epoch {}, which ends at {ends:?}",
                self.from.epoch
            ),
            format!("one at {:?}, after epoch {}", record.cut, record.durable),
            "Log and archive belong to different histories of the database. Nothing was changed. \
             Restore without --log-dir.",
        ))
    }

    /// Returns the life that contains the archive's end, if the log lacks the beginning of this life but has later
    /// blocks of it.
    fn life_at_end(
        &self,
        lives: &BTreeSet<Incarnation>,
        next: Option<Incarnation>,
    ) -> Result<Option<Life>> {
        for incarnation in lives
            .iter()
            .filter(|life| next.is_none_or(|next| **life < next))
        {
            if !self.goes_on(*incarnation)? {
                continue;
            }
            return Ok(Some(Life {
                incarnation: *incarnation,
                start: self.starts(*incarnation)?,
                before: Epoch(0),
            }));
        }
        Ok(None)
    }

    /// Returns the start of a life in each stream, by the life's first segment there. Returns the archive's end for a
    /// stream without such a segment.
    fn starts(&self, incarnation: Incarnation) -> Result<Vec<Pos>> {
        let ends = self.streams.iter().zip(&self.from.ends);
        let starts = ends.map(|(stream, end)| {
            let mut own = stream.iter().filter(|s| s.id.incarnation == incarnation);
            let virtually = own.next().map(|first| {
                let start = self.sizes.life_with(first.id.start, first.bytes);
                start.ok_or_else(|| self.odd_size(first))
            });
            virtually.unwrap_or(Ok(*end))
        });
        starts.collect()
    }

    /// Returns whether this life continues the log at the archive's end. This is so if, in some stream, a block of the
    /// life begins at this end and has a later epoch than the archive's last epoch. Blocks that an older life wrote
    /// beyond its cut do not count, because their epochs are earlier.
    fn goes_on(&self, incarnation: Incarnation) -> Result<bool> {
        for (stream, end) in self.streams.iter().zip(&self.from.ends) {
            for segment in stream.iter().filter(|s| s.id.incarnation == incarnation) {
                let block = segment.block_at(&self.uuid, *end)?;
                if block.is_some_and(|(header, _)| header.epoch > self.from.epoch) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn odd_size(&self, segment: &Segment) -> Error {
        let expected = format!(
            "a segment of {} to {} bytes",
            self.sizes.first, self.sizes.max
        );
        let found = format!("{} bytes", segment.bytes);
        let hint = "The file was cut or replaced. Restore without --log-dir.";
        Error::corrupt(segment.id.path(), segment.bytes, expected, found, hint)
    }

    /// Decides the end of a log that has no block directly after the archive's end. Either the archive has the whole
    /// log, or the log begins later and is refused.
    fn nothing_behind(&self, next: Option<&RestartRecord>) -> Result<Survivor> {
        let end = Vouched {
            epoch: self.from.epoch,
            wall_us: 0,
            ends: self.from.ends.clone(),
        };
        for (stream, end) in self.streams.iter().zip(&self.from.ends) {
            for segment in stream.iter().filter(|segment| segment.id.start > *end) {
                let block = segment.block_at(&self.uuid, segment.id.start)?;
                if block.is_some_and(|(header, _)| header.epoch > self.from.epoch) {
                    return Err(self.hole(segment.id.stream, *end, segment.id.start));
                }
            }
        }
        // The log is also refused if the next life starts behind the archive's end in a stream: the segments in between
        // are gone.
        if let Some(next) = next.filter(|_| !armed(Flaw::LaterLivesIgnored)) {
            let starts = (0u8..).map(StreamId).zip(&self.from.ends).zip(&next.cut);
            let mut behind = starts.filter(|((_, end), cut)| cut > end);
            if let Some(((stream, end), cut)) = behind.next() {
                return Err(self.hole(stream, *end, *cut));
            }
        }
        let mut history = self.begin(&Life {
            incarnation: Incarnation(1),
            start: self.from.ends.clone(),
            before: self.from.epoch,
        });
        history.vouched = end.clone();
        Ok(Survivor {
            history,
            durable: end,
            lost_to: None,
        })
    }

    /// Fails if the segments of a stream do not reach back to the archive's end.
    fn check_reach(&self, life: &Life) -> Result<()> {
        for (stream, end) in self.streams.iter().zip(&self.from.ends) {
            let later = |segment: &&Segment| segment.id.incarnation >= life.incarnation;
            let covers = |segment: &Segment| {
                let room = segment.bytes.saturating_sub(SEGMENT_HEADER_BYTES);
                segment.id.start <= *end && end.0 < segment.id.start.0 + room
            };
            let behind = stream.iter().filter(later).filter(|s| s.id.start > *end);
            let first = behind.map(|segment| segment.id.start).min();
            if let Some(first) = first
                && !stream.iter().filter(later).any(covers)
            {
                let stream = stream[0].id.stream;
                return Err(self.hole(stream, *end, first));
            }
        }
        Ok(())
    }

    fn hole(&self, stream: StreamId, end: Pos, begins: Pos) -> Error {
        Error::corrupt(
            format!("log stream {stream}"),
            end.0,
            format!(
                "the log from position {end} on, where the archive ends with epoch {}",
                self.from.epoch
            ),
            format!("a gap: the rest of the log begins at {begins}"),
            "Transactions are missing between the archive and the log. Nothing was changed. Use \
             a newer copy of the archive, or restore without --log-dir to get what it has.",
        )
    }

    fn begin(&self, life: &Life) -> History {
        let streams = u8::try_from(self.streams.len()).unwrap_or(u8::MAX);
        let mut history = History::begin(self.uuid, 0, self.scheme, streams, self.sizes);
        history.incarnation = life.incarnation;
        // This placeholder has no blocks; it makes the next life start at `life.start`. Real lives are numbered from 1.
        history.chain.push(ChainLink {
            incarnation: Incarnation(0),
            durable: life.before,
            start: life.start.clone(),
            cut: life.start.clone(),
        });
        history
    }

    fn end_life(&self, history: &mut History, durable: Epoch, cut: &[Pos]) {
        let start = history.open_start();
        if start != cut {
            history.chain.push(ChainLink {
                incarnation: history.incarnation,
                durable,
                start,
                cut: cut.to_vec(),
            });
        }
    }

    /// Decides the end of the newest life in `history`, as a restart does. Also returns the highest epoch whose loss is
    /// accepted.
    fn decide(&self, history: &History) -> Result<(Vouched, Option<Epoch>)> {
        let mut known = history.clone();
        let start = known.open_start();
        let is_within = start
            .iter()
            .zip(&self.from.ends)
            .all(|(start, end)| start <= end);
        known.vouched = match known.chain.last() {
            Some(link) if !is_within => Vouched {
                epoch: link.durable,
                wall_us: 0,
                ends: start,
            },
            _ => Vouched {
                epoch: self.from.epoch,
                wall_us: 0,
                ends: self.from.ends.clone(),
            },
        };
        let lives = known.lives();
        let parts = (0u8..).map(StreamId).zip(self.disks).zip(&self.from.ends);
        let scan = |((stream, disk), from): ((StreamId, &Arc<dyn Disk>), &Pos)| {
            scan_stream(disk.as_ref(), &lives, stream, *from, Check::InDoubt)
        };
        let scans: Vec<StreamScan> = parts.map(scan).collect::<Result<_>>()?;
        let cut = decide_cut(&known, &scans, None, self.accept_loss)?;
        let durable = Vouched {
            epoch: cut.durable,
            wall_us: cut.wall_us,
            ends: cut.cut,
        };
        Ok((durable, cut.lost_to))
    }

    /// Checks that a life without a whole restart frame starts where its predecessor is cut. The restart that began the
    /// life had the anchor and decided the cut.
    fn check_start(&self, incarnation: Incarnation, durable: &Vouched) -> Result<()> {
        for (stream, end) in self.streams.iter().zip(&durable.ends) {
            let mut own = stream.iter().filter(|s| s.id.incarnation == incarnation);
            if let Some(first) = own.next().filter(|first| first.id.start != *end) {
                return Err(Error::corrupt(
                    first.id.path(),
                    0,
                    format!(
                        "the start of life {incarnation} at {end}, where epoch {} ends",
                        durable.epoch
                    ),
                    format!("position {}", first.id.start),
                    "The first block after a restart is damaged or missing. Acknowledged \
                     transactions may be lost with it. Restore without --log-dir to get what the \
                     archive has.",
                ));
            }
        }
        Ok(())
    }
}
