//! Tables over a pool of pages. Each table is a B+-tree.
//!
//! An operation holds the *structure lock* shared, from the start of its descent at the root until the operation ends.
//! A change of structure holds the lock exclusively. So no other thread uses a page while it is split. This costs
//! little, because splits are rare.

use crate::contract::{Answer, Log, Operation, Records, done};
use crate::file::{PageFile, Shape};
use crate::monitor::{Monitor, Tells};
use crate::pool::{Pinned, Pool};
use parking_lot::RwLock;
use perdura_base::{Error, Gsn, Pid, Result, TableId};
use perdura_device::Disk;
use perdura_formats::tree_record::{EndCheckpoint, TreeRecord};
use perdura_page::tree_page::{
    Kind, Node, NodeMut, NodeSpec, cell_bytes, cell_bytes_max, format, key_bytes_max,
};
use std::collections::BTreeMap;

/// The meta page, which names the tables and the unused pages.
pub(crate) const META: Pid = Pid(0);
/// The key of the meta page's row for the first page that was never used.
pub(crate) const NEXT_KEY: &[u8] = b"";
/// The key of the meta page's row for the first free page.
pub(crate) const FREE_KEY: &[u8] = b"\0";

/// The contents of the meta page: the roots of the tables, the free pages, and the first page that was never used.
#[derive(Debug, Default)]
pub(crate) struct Roots {
    pub tables: BTreeMap<TableId, Pid>,
    pub next: u32,
    /// The first page of the list of free pages. `None`: no page is free.
    pub free: Option<Pid>,
}

/// The value of a row. `None`: the row does not exist.
pub type Value = Option<Vec<u8>>;

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The row before the write.
    pub before: Value,
    /// True if the leaf is now so empty that the caller should call [`Tree::merge`].
    pub is_sparse: bool,
}

/// Tables in pages.
#[derive(Debug)]
pub struct Tree {
    pub(crate) pool: Pool,
    pub(crate) roots: RwLock<Roots>,
    shape: Shape,
}

impl Tree {
    /// Creates the files of a tree without tables, in an existing directory.
    ///
    /// # Errors
    /// As [`PageFile::create`].
    pub fn make(disk: &dyn Disk, dir: &str, shape: Shape) -> Result<()> {
        let file = PageFile::create(disk, dir, shape, 1)?;
        let spec = NodeSpec {
            kind: Kind::Meta,
            level: 0,
            pid: META,
            table: TableId(0),
            database: shape.database,
            low: b"",
            high: None,
        };
        let mut bytes = format(shape.page_bytes, &spec);
        let mut page = NodeMut::over(&mut bytes);
        for (key, number) in [(NEXT_KEY, 1u32), (FREE_KEY, 0)] {
            let put = page.put(key, &number.to_le_bytes());
            assert_eq!(put, Ok(true));
        }
        page.seal();
        file.write(&[(META, &bytes)])
    }

    /// Makes a tree over files that a restart has repaired. The tree's pool has room for `pages` pages. The restart
    /// must then redo the changes of structure and call [`find_tables`](Self::find_tables).
    #[must_use]
    pub fn new(file: PageFile, shape: Shape, pages: usize, monitor: Monitor) -> Tree {
        Tree {
            pool: Pool::new(file, pages, monitor),
            roots: RwLock::default(),
            shape,
        }
    }

    /// Returns the tables in ascending order.
    #[must_use]
    pub fn tables(&self) -> Vec<TableId> {
        self.roots.read().tables.keys().copied().collect()
    }

    /// Returns the pool of the tree's pages.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Reads the roots of the tables, after all changes of structure have been redone.
    ///
    /// # Errors
    /// As [`Pool::pin`]; corruption, if the file ends before the last page that was used.
    pub fn find_tables(&self) -> Result<Answer<()>> {
        let Some(pinned) = self.pool.pin(META)? else {
            return Ok(Answer::NoFrame);
        };
        let page = pinned.read();
        let node = page.node();
        let mut roots = Roots::default();
        for at in 0..node.len() {
            let (key, value) = (node.key(at), node.value(at).first_chunk());
            let number = value.map(|value| u32::from_le_bytes(*value));
            let number = number.ok_or_else(|| self.damaged(META, "a page's number"))?;
            match key.first_chunk() {
                Some(table) => {
                    let table = TableId(u32::from_be_bytes(*table));
                    roots.tables.insert(table, Pid(number));
                }
                None if key == NEXT_KEY => roots.next = number,
                None => roots.free = (number != 0).then_some(Pid(number)),
            }
        }
        self.pool.file().check_len(roots.next)?;
        *self.roots.write() = roots;
        Ok(Answer::Done(()))
    }

    /// Returns the leaf of a key.
    pub(crate) fn leaf<'t>(
        &'t self,
        roots: &Roots,
        table: TableId,
        key: &[u8],
    ) -> Result<Answer<Pinned<'t>>> {
        let path = done!(self.path(roots, table, key, 0)?);
        let leaf = path.into_iter().next_back().map(|(_, pinned)| pinned);
        leaf.map(Answer::Done)
            .ok_or_else(|| self.damaged(META, "a root"))
    }

    /// Returns the pages on the way to a key, from the root down to `level`. Returns nothing if the root is below
    /// `level`.
    pub(crate) fn path<'t>(
        &'t self,
        roots: &Roots,
        table: TableId,
        key: &[u8],
        level: u8,
    ) -> Result<Answer<Vec<(Pid, Pinned<'t>)>>> {
        let root = roots.tables.get(&table);
        let mut pid = *root.ok_or_else(|| Error::Usage(format!("there is no table {table}")))?;
        let mut path = Vec::new();
        let mut below: Option<u8> = None;
        loop {
            let Some(pinned) = self.pool.pin(pid)? else {
                return Ok(Answer::NoFrame);
            };
            let page = pinned.read();
            let node = page.node();
            let is_node = matches!(node.kind(), Kind::Inner | Kind::Leaf);
            let fits = below.is_none_or(|below| node.level() + 1 == below);
            if !is_node || !fits || node.table() != table || !node.covers(key) {
                return Err(self.damaged(pid, "the page of this table that holds the key"));
            }
            if node.level() < level {
                return Ok(Answer::Done(path));
            }
            let (at, next) = (node.level(), pid);
            below = Some(at);
            if at > 0 {
                pid = node.child_of(key);
            }
            drop(page);
            path.push((next, pinned));
            if at == level {
                return Ok(Answer::Done(path));
            }
        }
    }

    /// Reads a row.
    ///
    /// # Errors
    /// `Usage` if the table does not exist; as [`Pool::pin`].
    pub fn read(&self, table: TableId, key: &[u8]) -> Result<Answer<Value>> {
        let roots = self.roots.read();
        let leaf = done!(self.leaf(&roots, table, key)?);
        let page = leaf.read();
        Ok(Answer::Done(value_in(page.node(), key)))
    }

    /// Finds the leaf of the key `from`. Calls `row` with the key and value of each row from `from` to the end of this
    /// leaf. Returns the key at which the next leaf begins. `None`: this is the table's last leaf.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn scan(
        &self,
        table: TableId,
        from: &[u8],
        mut row: impl FnMut(&[u8], &[u8]),
    ) -> Result<Answer<Value>> {
        let roots = self.roots.read();
        let leaf = done!(self.leaf(&roots, table, from)?);
        let page = leaf.read();
        let node = page.node();
        for at in node.find(from).unwrap_or_else(|at| at)..node.len() {
            row(node.key(at), node.value(at));
        }
        Ok(Answer::Done(node.high().map(<[u8]>::to_vec)))
    }

    /// Puts a row, or removes it if `value` is `None`, and logs the operation.
    ///
    /// # Errors
    /// `Usage` for an unknown table, or for a key or row above the limit; errors of the disk if the file cannot grow;
    /// as [`Pool::pin`]. After an error nothing has changed.
    pub fn apply(
        &self,
        table: TableId,
        key: &[u8],
        value: Option<&[u8]>,
        log: &dyn Log,
    ) -> Result<Answer<Applied>> {
        self.check_row(key, value)?;
        loop {
            let roots = self.roots.read();
            let leaf = done!(self.leaf(&roots, table, key)?);
            let mut page = leaf.write();
            let mut node = page.node();
            let pid = node.node().pid();
            let before = value_in(node.node(), key);
            if value.is_some_and(|value| !node.node().has_room_for(key, value)) {
                drop((page, leaf, roots));
                done!(self.split(table, key, log)?);
                continue;
            }
            if before.as_deref() == value {
                let is_sparse = false;
                return Ok(Answer::Done(Applied { before, is_sparse }));
            }
            let operation = Operation {
                table,
                key,
                before: before.as_deref(),
                after: value,
                pid,
            };
            let mut monitor = self.pool.monitor().lock();
            let gsn = log.operation(&operation);
            monitor.note(pid, gsn);
            drop(monitor);
            put(&mut node, key, value);
            node.set_plsn(gsn);
            let is_sparse = value.is_none() && node.node().is_sparse();
            return Ok(Answer::Done(Applied { before, is_sparse }));
        }
    }

    fn check_row(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let size = self.shape.page_bytes;
        let (key_max, row_max) = (key_bytes_max(size), cell_bytes_max(size));
        if key.len() > key_max {
            let bytes = key.len();
            return Err(Error::Usage(format!(
                "a key has {bytes} bytes; the most is {key_max}"
            )));
        }
        let bytes = cell_bytes(key, value.unwrap_or(b""));
        if bytes > row_max {
            return Err(Error::Usage(format!(
                "a row has {bytes} bytes; the most is {row_max}"
            )));
        }
        Ok(())
    }

    /// Appends the monitor's notes to the log as a Δ and its BW, if a Δ is due. `eosl` is the end of the stable log,
    /// and must have been read before the call.
    pub fn cut_notes(&self, eosl: Gsn, log: &dyn Records) {
        self.cut_notes_if(Monitor::is_due, eosl, log);
    }

    /// Appends the monitor's notes to the log, even if no Δ is due. All operations that were logged before this call
    /// then come before the last Δ.
    pub fn cut_notes_now(&self, eosl: Gsn, log: &dyn Records) {
        self.cut_notes_if(|_| true, eosl, log);
    }

    fn cut_notes_if(&self, is_due: fn(&Monitor) -> bool, eosl: Gsn, log: &dyn Records) {
        let mut monitor = self.pool.monitor().lock();
        if !is_due(&monitor) {
            return;
        }
        let tells = monitor.tells();
        if let Some((delta, writes)) = monitor.cut(eosl) {
            if tells != Tells::Writes {
                log.record(&TreeRecord::Delta(delta));
            }
            if let Some(writes) = writes {
                log.record(&TreeRecord::Writes(writes));
            }
        }
    }

    /// Begins a checkpoint (RSSP). Appends the redo start to the log and returns its number. When the checkpoint has
    /// ended, redo begins at this number. The redo start counts as a change of the meta page, so the checkpoint writes
    /// the meta page with this number. So a restart detects a file of pages that is older than the redo start.
    ///
    /// # Errors
    /// As [`Pool::pin`].
    pub fn begin_checkpoint(&self, log: &dyn Records) -> Result<Answer<Gsn>> {
        let Some(pinned) = self.pool.pin(META)? else {
            return Ok(Answer::NoFrame);
        };
        // While this lock is held, no change of structure is in progress. So the meta page has all changes of structure
        // with lower numbers.
        let _structure = self.roots.write();
        let mut page = pinned.write();
        let mut monitor = self.pool.monitor().lock();
        let rssp = monitor.begin_checkpoint(|| log.record(&TreeRecord::RedoStart));
        monitor.owe(META);
        drop(monitor);
        assert!(page.node().node().dlsn() < rssp, "numbers ascend");
        page.node().set_dlsn(rssp);
        Ok(Answer::Done(rssp))
    }

    /// Ends the running checkpoint, if all pages that it must write are durable. Returns the number and the content of
    /// the checkpoint's end record. `None`: the checkpoint cannot end yet, or none is running.
    pub fn end_checkpoint(&self, log: &dyn Records) -> Option<(Gsn, EndCheckpoint)> {
        let mut monitor = self.pool.monitor().lock();
        let end = monitor.end_checkpoint()?;
        let gsn = log.record(&TreeRecord::EndCheckpoint(end.clone()));
        Some((gsn, end))
    }

    /// Cancels the running checkpoint, if there is one.
    pub fn cancel_checkpoint(&self) {
        self.pool.monitor().lock().cancel_checkpoint();
    }

    /// Returns the error for a page that is whole but does not match the description `expected`.
    pub(crate) fn damaged(&self, pid: Pid, expected: &str) -> Error {
        self.pool.file().damaged(pid, 0, expected)
    }

    /// Returns the shape of the tree's file.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }
}

fn value_in(node: Node<'_>, key: &[u8]) -> Value {
    let at = node.find(key).ok()?;
    Some(node.value(at).to_vec())
}

/// Puts a row into a leaf that has room for it. Removes the row if `value` is `None`.
pub(crate) fn put(node: &mut NodeMut<'_>, key: &[u8], value: Option<&[u8]>) {
    match value {
        Some(value) => {
            let put = node.put(key, value);
            assert!(put.is_ok(), "there is room for the row");
        }
        None => {
            node.remove(key);
        }
    }
}
