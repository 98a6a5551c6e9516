//! The model's restart. Every method of redo runs on a copy. Then one method runs on the disk itself, with page writes
//! and crashes during redo.

use super::world::{Body, LIMITS, Mistake, Op, Page, Pages, ROOT, Split, World, Write, lookup};
use fastrand::Rng;
use perdura_base::{Gsn, Pid};
use perdura_formats::tree_record::{EndCheckpoint, TreeRecord, Writes};
use perdura_tree::analysis::{AriesAnalysis, Detail, LogicalAnalysis, SqlAnalysis};
use perdura_tree::dirty_pages::DirtyPages;
use perdura_tree::monitor::Monitor;
use std::collections::BTreeMap;

/// Counts of events, summed over all runs.
#[derive(Debug, Default)]
pub struct Counts {
    /// Operations that a method skipped because of its table of dirty pages.
    pub skipped: u64,
    pub redone: u64,
    /// Restarts that crashed.
    pub interrupted: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Log0,
    Log1(Detail),
    Sql1,
    Aries,
}

const METHODS: [Method; 6] = [
    Method::Log0,
    Method::Log1(Detail::Standard),
    Method::Log1(Detail::Numbers),
    Method::Log1(Detail::Reduced),
    Method::Sql1,
    Method::Aries,
];

impl Method {
    /// Returns whether the method finds an operation's page by the page number in the log.
    fn goes_by_page(self) -> bool {
        matches!(self, Method::Sql1 | Method::Aries)
    }
}

/// An operation, a split or a record of the tree in the log.
enum Event<'a> {
    Op(&'a Op),
    Split(&'a Split),
    Record(TreeRecord),
}

/// An event for an analysis by page numbers.
enum Met<'a> {
    Update(Pid, Gsn),
    Writes(&'a Writes),
    Checkpoint(&'a EndCheckpoint),
}

impl World {
    /// Returns log entries in ascending order of their numbers. `from` has the first position for each stream.
    fn events(&self, from: &[usize]) -> Vec<(Gsn, Event<'_>)> {
        let mut events = Vec::new();
        for (stream, from) in self.streams.iter().zip(from) {
            for frame in &stream.frames[(*from).min(stream.frames.len())..] {
                match frame {
                    Body::Ops(ops) => {
                        events.extend(ops.iter().map(|op| (op.gsn, Event::Op(op))));
                    }
                    Body::Split(split) => events.push((split.gsn, Event::Split(split))),
                    Body::Tree(bytes) => {
                        let (gsn, record) = TreeRecord::decode(bytes).expect("a record");
                        events.push((gsn, Event::Record(record)));
                    }
                }
            }
        }
        events.sort_by_key(|(gsn, _)| *gsn);
        events
    }

    /// Returns the entries of stream 0 from the redo start on.
    fn records(&self) -> Vec<(Gsn, Event<'_>)> {
        let mut from: Vec<usize> = self.streams.iter().map(|s| s.frames.len()).collect();
        from[0] = self.anchor.mark;
        self.events(&from)
    }

    /// Returns the method's table of dirty pages. `None`: the method has none.
    fn table(&self, method: Method) -> Option<DirtyPages> {
        let rssp = self.anchor.rssp;
        match method {
            Method::Log0 => None,
            Method::Log1(detail) => {
                let mut analysis = LogicalAnalysis::new(detail, rssp);
                for (_, event) in self.records() {
                    if let Event::Record(TreeRecord::Delta(delta)) = event {
                        analysis.delta(&delta);
                    }
                }
                Some(analysis.finish())
            }
            Method::Sql1 => {
                let mut analysis = SqlAnalysis::new();
                self.updates(|met| match met {
                    Met::Update(pid, gsn) => analysis.update(pid, gsn),
                    Met::Writes(writes) => analysis.writes(writes),
                    Met::Checkpoint(_) => {}
                });
                Some(analysis.finish())
            }
            Method::Aries => {
                let mut analysis = AriesAnalysis::new();
                self.updates(|met| match met {
                    Met::Update(pid, gsn) => analysis.update(pid, gsn),
                    Met::Checkpoint(end) => analysis.checkpoint(end),
                    Met::Writes(_) => {}
                });
                Some(analysis.finish())
            }
        }
    }

    /// Calls `meet` with each event that the analysis of SQL1 or ARIES uses. Omits the redo start and the events before
    /// it. The events come in ascending order of their numbers.
    fn updates(&self, mut meet: impl FnMut(Met<'_>)) {
        for (gsn, event) in self.events(&self.anchor.begin) {
            match event {
                _ if gsn <= self.anchor.rssp => {}
                Event::Op(op) => meet(Met::Update(op.pid, gsn)),
                Event::Split(split) => {
                    for pid in [split.left, split.right, ROOT] {
                        meet(Met::Update(pid, gsn));
                    }
                }
                Event::Record(TreeRecord::Writes(writes)) => meet(Met::Writes(&writes)),
                Event::Record(TreeRecord::EndCheckpoint(end)) => meet(Met::Checkpoint(&end)),
                Event::Record(_) => {}
            }
        }
    }

    /// Returns the number that the first note of the next life gets.
    fn next_note(&self) -> u64 {
        let ends = self.records().into_iter().map(|(_, event)| match event {
            Event::Record(TreeRecord::Delta(delta)) => {
                delta.first_note + u64::try_from(delta.dirty.len()).expect("a count")
            }
            _ => 0,
        });
        ends.max().unwrap_or(0)
    }

    /// Returns the rows that the log describes.
    fn told(&self) -> BTreeMap<u8, u32> {
        let mut rows = BTreeMap::new();
        for (_, event) in self.events(&vec![0; self.streams.len()]) {
            if let Event::Op(op) = event {
                rows.insert(op.key, op.value);
            }
        }
        rows
    }

    /// Redoes the log by each method on a copy of the disk. Then restarts by one method on the disk itself; this
    /// restart may crash a few times.
    pub fn restart(&mut self, counts: &mut Counts) -> Result<(), String> {
        let mut rng = self.rng.fork();
        for method in METHODS {
            let mut redo = Redo::new(method, self.disk.clone(), None);
            self.redo(&mut redo, (&mut rng, None), counts)?;
        }
        if !self.makes(Mistake::PagesNotDurable) {
            self.safe = self.disk.clone();
        }
        self.unsynced.clear();
        loop {
            let method = METHODS[rng.usize(..METHODS.len())];
            let monitor = Monitor::new(LIMITS, self.next_note(), self.tells);
            let mut redo = Redo::new(method, self.disk.clone(), Some(monitor));
            let stop = (rng.u8(..4) == 0).then(|| rng.usize(..30));
            let is_done = self.redo(&mut redo, (&mut rng, stop), counts)?;
            for (pid, page) in std::mem::take(&mut redo.written) {
                self.disk.insert(pid, page.clone());
                self.safe.insert(pid, page);
            }
            if is_done {
                self.begin_life(redo);
                return Ok(());
            }
            counts.interrupted += 1;
        }
    }

    fn begin_life(&mut self, redo: Redo) {
        self.epoch += 1 + self.rng.u64(0..=2);
        self.eosl = self.gsn;
        self.memory = redo.pages;
        self.monitor = redo.monitor.expect("a monitor");
        self.monitor.end_restart();
        if self.makes(Mistake::RestartNotNoted) {
            drop(self.monitor.cut(self.eosl));
        }
    }

    /// Redoes all operations that the method does not skip. Returns false if a crash interrupted the redo.
    fn redo(
        &self,
        redo: &mut Redo,
        (rng, stop): (&mut Rng, Option<usize>),
        counts: &mut Counts,
    ) -> Result<bool, String> {
        let method = redo.method;
        for (_, event) in self.records() {
            if let Event::Split(split) = event {
                redo.split(split, self.makes(Mistake::OneLsn));
            }
        }
        let rssp = self.anchor.rssp;
        for (gsn, event) in self.events(&vec![0; self.streams.len()]) {
            if let Event::Op(op) = event
                && gsn <= rssp
                && redo.page_of(op.key)?.plsn < gsn
            {
                return Err(format!("the checkpoint of {rssp} has not written {gsn}"));
            }
        }
        let mut table = self.table(method);
        let events = self.events(&self.anchor.begin).into_iter();
        let ops = events.filter_map(|(gsn, event)| match event {
            Event::Op(op) if gsn > rssp => Some(op),
            Event::Op(_) | Event::Split(_) | Event::Record(_) => None,
        });
        for (at, op) in ops.enumerate() {
            if stop == Some(at) {
                return Ok(false);
            }
            if redo.monitor.is_some() {
                redo.write_sometimes(rng, self.gsn);
            }
            let pid = if method.goes_by_page() {
                op.pid
            } else {
                lookup(&redo.pages, op.key)
            };
            if let Some(table) = &mut table {
                if table.skips(pid, op.gsn).is_some() {
                    counts.skipped += 1;
                    if redo.page_of(op.key)?.plsn < op.gsn {
                        return Err(format!("{method:?} skips {}, which is lost", op.gsn));
                    }
                    continue;
                }
                let known = method.goes_by_page() || op.gsn > table.knows();
                if !known && !table.prefetch().contains(&pid) {
                    return Err(format!("{method:?} fetches {pid} and never said so"));
                }
            }
            let page = redo.pages.get_mut(&pid).ok_or("no such page")?;
            if let Some(table) = &mut table {
                table.raise(pid, page.plsn);
            }
            let is_here = (page.low..page.high).contains(&op.key);
            if !is_here && !self.makes(Mistake::NoFences) || op.gsn <= page.plsn {
                continue;
            }
            page.rows.insert(op.key, op.value);
            page.plsn = op.gsn;
            redo.note(pid, op.gsn);
            counts.redone += 1;
        }
        redo.complete(self.gsn);
        let told = self.told();
        let state = redo.state()?;
        if state == told {
            Ok(true)
        } else {
            Err(format!("{method:?}: {state:?} is not {told:?}"))
        }
    }
}

/// A redo in progress.
struct Redo {
    method: Method,
    pages: Pages,
    /// The monitor that notes pages as the redo makes them dirty. `None`: the redo runs on a copy.
    monitor: Option<Monitor>,
    under_way: Option<Write>,
    /// The pages that the redo has written.
    written: Vec<(Pid, Page)>,
}

impl Redo {
    fn new(method: Method, pages: Pages, monitor: Option<Monitor>) -> Self {
        Redo {
            method,
            pages,
            monitor,
            under_way: None,
            written: Vec::new(),
        }
    }

    fn note(&mut self, pid: Pid, gsn: Gsn) {
        if let Some(monitor) = &mut self.monitor {
            monitor.note(pid, gsn);
        }
    }

    fn page_of(&self, key: u8) -> Result<&Page, String> {
        let pid = lookup(&self.pages, key);
        self.pages.get(&pid).ok_or(format!("no page {pid}"))
    }

    fn split(&mut self, split: &Split, one_lsn: bool) {
        let gsn = split.gsn;
        let lacks = |pages: &Pages, pid| pages.get(&pid).is_none_or(|page| page.dlsn < gsn);
        if lacks(&self.pages, split.right) {
            self.pages.insert(split.right, split.image.clone());
            self.note(split.right, gsn);
        }
        if lacks(&self.pages, split.left)
            && let Some(left) = self.pages.get_mut(&split.left)
        {
            left.rows.split_off(&split.separator);
            left.high = left.high.min(split.separator);
            left.dlsn = gsn;
            if one_lsn {
                left.plsn = left.plsn.max(gsn);
            }
            self.note(split.left, gsn);
        }
        if lacks(&self.pages, ROOT)
            && let Some(root) = self.pages.get_mut(&ROOT)
        {
            root.rows.insert(split.separator, split.right.0);
            root.dlsn = gsn;
            self.note(ROOT, gsn);
        }
    }

    /// Begins or ends the write of a page, or does nothing. `eosl` is the newest number, because the whole log of
    /// earlier lives is stable.
    fn write_sometimes(&mut self, rng: &mut Rng, eosl: Gsn) {
        if rng.bool() {
            return;
        }
        if self.under_way.is_some() {
            self.complete(eosl);
            return;
        }
        let Some(monitor) = &self.monitor else { return };
        let mut dirty: Vec<_> = monitor.dirty_pages().collect();
        dirty.sort_unstable_by_key(|(pid, _)| *pid);
        if dirty.is_empty() {
            return;
        }
        let (pid, copied) = dirty[rng.usize(..dirty.len())];
        if monitor.may_write(pid, eosl) {
            let page = self.pages[&pid].clone();
            self.under_way = Some(Write { pid, page, copied });
        }
    }

    fn complete(&mut self, eosl: Gsn) {
        if let Some(Write { pid, page, copied }) = self.under_way.take()
            && let Some(monitor) = &mut self.monitor
        {
            self.written.push((pid, page));
            monitor.note_written(pid, copied, eosl);
        }
    }

    /// Returns the rows of all leaves that the root names.
    fn state(&self) -> Result<BTreeMap<u8, u32>, String> {
        let mut rows = BTreeMap::new();
        for child in self.pages[&ROOT].rows.values() {
            let page = self.pages.get(&Pid(*child));
            rows.extend(&page.ok_or(format!("no page {child}"))?.rows);
        }
        Ok(rows)
    }
}
