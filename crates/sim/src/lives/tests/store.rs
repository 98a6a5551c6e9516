//! The toy's engine. It has rows in memory, and one log file and one image on the modelled disk.
//!
//! The log is a sequence of 32-byte records. An epoch counts only if an end record follows the epoch's records. The end
//! record also names the epoch that was durable when the record was written. So a restart can distinguish damage to
//! durable records from a torn tail.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_base::error::Result;
use perdura_base::{Error, StreamId};
use perdura_device::{Access, Disk, File};
use perdura_recovery::CheckpointProgress;
use perdura_wal::FlushProgress;

use crate::content::scramble;
use crate::machine::Engine;

/// Rows by key. No row has the value 0, because 0 in a log record means that the row is removed.
pub(super) type Rows = BTreeMap<u64, u64>;

/// A bug that a test can plant in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bug {
    /// Data counts as durable when it is written, before it is synced.
    AcknowledgedBeforeSync,
    /// A restart replays the records of an epoch that has no end record.
    HalfEpochReplayed,
    /// A checkpoint replaces the old image before the log is durable up to the new image's epoch.
    ImageAheadOfLog,
}

impl Bug {
    pub(super) const ALL: [Bug; 3] = [
        Bug::AcknowledgedBeforeSync,
        Bug::HalfEpochReplayed,
        Bug::ImageAheadOfLog,
    ];
}

const RECORD_BYTES: usize = 32;
/// The key of a record that ends an epoch.
const END: u64 = u64::MAX;

/// A change of a row, or the end of an epoch. A row's value 0 means that the row is removed. The value of an epoch's
/// end is the durable epoch.
#[derive(Debug, Clone, Copy)]
struct Record {
    epoch: u64,
    key: u64,
    value: u64,
}

impl Record {
    fn sum(self) -> u64 {
        scramble(scramble(scramble(self.epoch) ^ self.key) ^ self.value)
    }

    fn encode(self) -> impl Iterator<Item = u8> {
        let words = [self.epoch, self.key, self.value, self.sum()];
        words.into_iter().flat_map(u64::to_le_bytes)
    }

    fn decode(bytes: &[u8]) -> Option<Record> {
        let words = words(bytes);
        let &[epoch, key, value, sum] = words.as_slice() else {
            return None;
        };
        let record = Record { epoch, key, value };
        (epoch > 0 && record.sum() == sum).then_some(record)
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.as_chunks().0.iter();
    words.map(|word| u64::from_le_bytes(*word)).collect()
}

fn apply(rows: &mut Rows, record: Record) {
    match record.value {
        0 => drop(rows.remove(&record.key)),
        value => drop(rows.insert(record.key, value)),
    }
}

/// An image that a checkpoint is writing.
struct Sketch {
    epoch: u64,
    rows: Rows,
    written: bool,
}

struct Inner {
    rows: Rows,
    /// The id of the open epoch.
    epoch: u64,
    written: u64,
    durable: u64,
    /// The durable epoch that the last written end record names.
    named: u64,
    evidence: u64,
    /// The records that are not yet written. The records of the open epoch come last.
    waiting: Vec<Record>,
    log_bytes: u64,
    failed: bool,
    sketch: Option<Sketch>,
}

/// The toy's engine.
pub(super) struct Store {
    disk: Arc<dyn Disk>,
    log: Arc<dyn File>,
    bug: Option<Bug>,
    inner: RefCell<Inner>,
}

fn damaged(file: &str, at: usize, found: &str) -> Error {
    let at = u64::try_from(at).unwrap_or(u64::MAX);
    Error::corrupt(file, at, "what was written", found, "Epochs are lost.")
}

fn read_whole(file: &dyn File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(0)];
    let got = file.read_at(0, &mut bytes)?;
    bytes.truncate(got);
    Ok(bytes)
}

fn open_if_there(disk: &dyn Disk, path: &str) -> Result<Option<Arc<dyn File>>> {
    match disk.open(path, Access::Buffered) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the epoch and the rows of the image if its checksum is right. Without an image, returns epoch 0 and no
/// rows.
fn load_image(disk: &dyn Disk) -> Result<(u64, Rows)> {
    let Some(file) = open_if_there(disk, "image")? else {
        return Ok((0, Rows::new()));
    };
    let words = words(&read_whole(&*file)?);
    let [epoch, pairs @ .., sum] = words.as_slice() else {
        return Err(damaged("image", 0, "too few bytes"));
    };
    if words[..words.len() - 1]
        .iter()
        .fold(0, |sum, word| scramble(sum ^ word))
        != *sum
    {
        return Err(damaged("image", 0, "another sum"));
    }
    let rows = pairs.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    Ok((*epoch, rows))
}

impl Store {
    /// Opens the store, or creates one.
    pub(super) fn open(disk: Arc<dyn Disk>, bug: Option<Bug>) -> Result<Store> {
        let (image_epoch, mut rows) = load_image(&*disk)?;
        let log = match open_if_there(&*disk, "log")? {
            Some(log) => log,
            None => disk.create("log", Access::Buffered)?,
        };
        disk.sync_dir("")?;
        let bytes = read_whole(&*log)?;
        let found: Vec<Option<Record>> = bytes.chunks(RECORD_BYTES).map(Record::decode).collect();
        let whole: Vec<Record> = found.iter().copied().map_while(|record| record).collect();
        let ended = whole.iter().rposition(|record| record.key == END);
        let kept = ended.map_or(0, |at| at + 1);
        let durable = ended.map_or(0, |at| whole[at].epoch);
        let behind = found[whole.len()..].iter().flatten();
        let named = behind.filter(|record| record.key == END);
        let named = named.map(|end| end.value).max().unwrap_or(0);
        if named.max(image_epoch) > durable {
            return Err(damaged("log", whole.len() * RECORD_BYTES, "no record"));
        }
        let replayed = match bug {
            Some(Bug::HalfEpochReplayed) => &whole[..],
            _ => &whole[..kept],
        };
        let newer = |record: &&Record| record.key != END && record.epoch > image_epoch;
        for record in replayed.iter().filter(newer) {
            apply(&mut rows, *record);
        }
        // The last records may belong to an epoch without an end. They would count once a later epoch reuses its id, so
        // this function cuts them off.
        let log_bytes = u64::try_from(kept * RECORD_BYTES).unwrap_or(u64::MAX);
        log.set_len(log_bytes)?;
        log.sync()?;
        let epoch = durable.max(1);
        let store = Store {
            disk,
            log,
            bug,
            inner: RefCell::new(Inner {
                rows,
                epoch,
                written: durable,
                named: durable,
                evidence: 0,
                durable,
                waiting: Vec::new(),
                log_bytes,
                failed: false,
                sketch: None,
            }),
        };
        // This second end of the last epoch proves that the first end was durable.
        store.close_epoch();
        store.write()?;
        store.sync()?;
        Ok(store)
    }

    /// Returns all committed rows, durable or not.
    pub(super) fn rows(&self) -> Rows {
        self.inner.borrow().rows.clone()
    }

    /// Changes rows in one transaction. Returns its epoch.
    pub(super) fn transact(&self, changes: &[(u64, u64)]) -> Result<u64> {
        let mut inner = self.inner.borrow_mut();
        if inner.failed {
            return Err(Error::Stopped("the toy's log".to_owned()));
        }
        let epoch = inner.epoch;
        for (key, value) in changes.iter().copied() {
            let record = Record { epoch, key, value };
            apply(&mut inner.rows, record);
            inner.waiting.push(record);
        }
        Ok(epoch)
    }

    /// Writes all closed epochs. Returns false if no epoch is closed.
    fn write(&self) -> Result<bool> {
        let mut inner = self.inner.borrow_mut();
        let Some(last) = inner.waiting.iter().rposition(|record| record.key == END) else {
            return Ok(false);
        };
        let end = inner.waiting[last].epoch;
        let bytes: Vec<u8> = inner
            .waiting
            .drain(..=last)
            .flat_map(Record::encode)
            .collect();
        let done = self.log.write_at(inner.log_bytes, &bytes);
        inner.failed |= done.is_err();
        done?;
        inner.log_bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        inner.written = end;
        inner.named = inner.durable;
        if self.bug == Some(Bug::AcknowledgedBeforeSync) {
            inner.durable = end;
        }
        Ok(true)
    }

    fn sync(&self) -> Result<()> {
        let mut inner = self.inner.borrow_mut();
        let done = self.log.sync();
        inner.failed |= done.is_err();
        done?;
        inner.durable = inner.written;
        inner.evidence = inner.named;
        Ok(())
    }

    fn write_image(&self, sketch: &Sketch) -> Result<u64> {
        match self.disk.remove("image.new") {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        let file = self.disk.create("image.new", Access::Buffered)?;
        let mut words = vec![sketch.epoch];
        words.extend(sketch.rows.iter().flat_map(|(key, value)| [*key, *value]));
        words.push(words.iter().fold(0, |sum, word| scramble(sum ^ word)));
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        file.write_at(0, &bytes)?;
        file.sync()?;
        Ok(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
    }

    fn step_sketch(&self, sketch: &mut Sketch) -> Result<CheckpointProgress> {
        let early = self.bug == Some(Bug::ImageAheadOfLog);
        if self.durable() < sketch.epoch && !early {
            return Ok(CheckpointProgress::Waiting);
        }
        if !sketch.written {
            let bytes = self.write_image(sketch)?;
            sketch.written = true;
            return Ok(CheckpointProgress::Working(bytes));
        }
        self.disk.rename("image.new", "image")?;
        self.disk.sync_dir("")?;
        Ok(CheckpointProgress::Done)
    }
}

impl Engine for Store {
    /// The epoch of a transaction.
    type Promise = u64;

    fn due(&self, promise: &u64) -> Option<u64> {
        (*promise <= self.durable()).then_some(*promise)
    }

    fn durable(&self) -> u64 {
        self.inner.borrow().durable
    }

    fn evidence(&self) -> u64 {
        self.inner.borrow().evidence
    }

    fn has_failed(&self) -> bool {
        self.inner.borrow().failed
    }

    fn is_idle(&self) -> bool {
        let inner = self.inner.borrow();
        inner.waiting.is_empty() && inner.durable == inner.written
    }

    fn prepare_segment(&self, _: StreamId) -> Result<()> {
        Ok(())
    }

    fn close_epoch(&self) {
        let mut inner = self.inner.borrow_mut();
        let (epoch, value) = (inner.epoch, inner.durable);
        let key = END;
        inner.waiting.push(Record { epoch, key, value });
        inner.epoch += 1;
    }

    fn flush_step(&self, _: StreamId) -> Result<FlushProgress> {
        if self.has_failed() {
            return Err(Error::Stopped("the toy's log".to_owned()));
        }
        if self.write()? {
            return Ok(FlushProgress::Wrote);
        }
        if self.inner.borrow().durable == self.inner.borrow().written {
            return Ok(FlushProgress::Idle);
        }
        self.sync()?;
        Ok(FlushProgress::Synced)
    }

    fn vouch(&self) -> Result<bool> {
        Ok(false)
    }

    fn checkpoint_begin(&self) -> Result<()> {
        if self.checkpoint_is_running() {
            return Ok(());
        }
        self.close_epoch();
        let mut inner = self.inner.borrow_mut();
        inner.sketch = Some(Sketch {
            epoch: inner.epoch - 1,
            rows: inner.rows.clone(),
            written: false,
        });
        Ok(())
    }

    fn checkpoint_step(&self) -> Result<CheckpointProgress> {
        let taken = self.inner.borrow_mut().sketch.take();
        let Some(mut sketch) = taken else {
            return Ok(CheckpointProgress::Idle);
        };
        let progress = self.step_sketch(&mut sketch)?;
        if progress != CheckpointProgress::Done {
            self.inner.borrow_mut().sketch = Some(sketch);
        }
        Ok(progress)
    }

    fn checkpoint_is_running(&self) -> bool {
        self.inner.borrow().sketch.is_some()
    }
}
