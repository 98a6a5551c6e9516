//! Changes of structure: how they are planned, logged as one record, made and redone. A change may affect pages of
//! several levels. The change has one record, so a restart finds the whole change or nothing.

use crate::contract::{Answer, Records, done};
use crate::pool::Pinned;
use crate::rebuilt::Rebuilt;
use crate::tree::{FREE_KEY, META, NEXT_KEY, Roots, Tree};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Error, Gsn, Pid, Result, TableId};
use perdura_formats::tree_record::{PageChange, Structure, TreeRecord};
use perdura_page::tree_page::{
    Full, HEADER_BYTES, Kind, Node, NodeMut, NodeSpec, format, key_bytes_max,
};
use std::collections::BTreeMap;

/// A planned change of structure. It has the changes of all pages except the meta page. The change of the meta page is
/// derived from `root`, `next` and `free`.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Pages that get wholly new contents: new, merged and freed pages.
    images: BTreeMap<Pid, Box<[u8]>>,
    edits: BTreeMap<Pid, Edit>,
    /// The table that gets a new root, and the root.
    root: Option<(TableId, Pid)>,
    /// The value of [`Roots::next`] after the change. `free` is the value of [`Roots::free`] after the change.
    next: u32,
    free: Option<Pid>,
}

#[derive(Debug, Default)]
struct Edit {
    cut: Option<Vec<u8>>,
    drops: Vec<Vec<u8>>,
    puts: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Plan {
    pub(crate) fn new(roots: &Roots) -> Self {
        Plan {
            images: BTreeMap::new(),
            edits: BTreeMap::new(),
            root: None,
            next: roots.next,
            free: roots.free,
        }
    }

    /// Returns whether no change of a page was planned.
    pub(crate) fn is_empty(&self) -> bool {
        self.images.is_empty() && self.edits.is_empty()
    }

    /// Plans that a page gets wholly new bytes.
    pub(crate) fn image(&mut self, pid: Pid, bytes: Box<[u8]>) {
        let before = self.images.insert(pid, bytes);
        assert!(before.is_none(), "page {pid} becomes one thing");
    }

    /// Plans that a table gets this root.
    pub(crate) fn root(&mut self, table: TableId, pid: Pid) {
        self.root = Some((table, pid));
    }

    /// Plans that a page loses all rows from the key `separator` on.
    pub(crate) fn cut(&mut self, pid: Pid, separator: &[u8]) {
        self.edits.entry(pid).or_default().cut = Some(separator.to_vec());
    }

    /// Plans that a key is removed from an inner page.
    pub(crate) fn drop_child(&mut self, pid: Pid, key: Vec<u8>) {
        self.edits.entry(pid).or_default().drops.push(key);
    }

    /// Plans that a child is added to an inner page. The inner page exists already or is new in this plan.
    pub(crate) fn put_child(&mut self, pid: Pid, key: &[u8], child: Pid) {
        if let Some(image) = self.images.get_mut(&pid) {
            let put = NodeMut::over(image).put_child(key, child);
            assert_eq!(put, Ok(true), "half a page has room for a child");
            return;
        }
        let puts = &mut self.edits.entry(pid).or_default().puts;
        puts.push((key.to_vec(), child.0.to_le_bytes().to_vec()));
    }

    /// Returns the record of the change, including the edit of the meta page.
    fn record(&self) -> Structure {
        let number = |pid: u32| pid.to_le_bytes().to_vec();
        let mut puts = vec![
            (NEXT_KEY.to_vec(), number(self.next)),
            (FREE_KEY.to_vec(), number(self.free.map_or(0, |pid| pid.0))),
        ];
        if let Some((table, root)) = self.root {
            puts.push((table.0.to_be_bytes().to_vec(), number(root.0)));
        }
        puts.sort();
        let meta = PageChange::Edit {
            cut: None,
            drops: Vec::new(),
            puts,
        };
        let images = self.images.iter().map(|(pid, bytes)| {
            let (front, back) = Node::over(bytes).parts();
            let image = PageChange::Image {
                front: front.to_vec(),
                back: back.to_vec(),
            };
            (*pid, image)
        });
        let edits = self.edits.iter().map(|(pid, edit)| {
            assert!(
                !self.images.contains_key(pid),
                "page {pid} becomes one thing"
            );
            let edit = PageChange::Edit {
                cut: edit.cut.clone(),
                drops: edit.drops.clone(),
                puts: edit.puts.clone(),
            };
            (*pid, edit)
        });
        let mut changes: Vec<_> = images.chain(edits).chain([(META, meta)]).collect();
        changes.sort_by_key(|(pid, _)| *pid);
        Structure { changes }
    }
}

impl Tree {
    pub(crate) fn spec(
        &self,
        kind: Kind,
        level: u8,
        table: TableId,
        pid: Pid,
    ) -> NodeSpec<'static> {
        NodeSpec {
            kind,
            level,
            pid,
            table,
            database: self.shape().database,
            low: b"",
            high: None,
        }
    }

    /// Takes an unused page for the plan: a free page, or the first page that was never used.
    pub(crate) fn take_page(&self, plan: &mut Plan) -> Result<Answer<Pid>> {
        let Some(pid) = plan.free else {
            plan.next += 1;
            return Ok(Answer::Done(Pid(plan.next - 1)));
        };
        let Some(pinned) = self.pool().pin(pid)? else {
            return Ok(Answer::NoFrame);
        };
        let page = pinned.read();
        if page.node().kind() != Kind::Free {
            return Err(self.damaged(pid, "a free page"));
        }
        plan.free = page.node().next_free();
        Ok(Answer::Done(pid))
    }

    /// Plans that a page becomes free.
    pub(crate) fn free_page(&self, plan: &mut Plan, pid: Pid) {
        let spec = self.spec(Kind::Free, 0, TableId(0), pid);
        let mut bytes = format(self.shape().page_bytes, &spec);
        NodeMut::over(&mut bytes).set_next_free(plan.free);
        plan.image(pid, bytes);
        plan.free = Some(pid);
    }

    /// Logs a change of structure and makes it. `roots` is the structure lock, which is held exclusively.
    pub(crate) fn change(
        &self,
        roots: &mut Roots,
        plan: &Plan,
        log: &dyn Records,
    ) -> Result<Answer<()>> {
        assert!(plan.next >= roots.next && plan.next > 0);
        self.pool().file().grow(plan.next)?;
        let record = TreeRecord::Structure(plan.record());
        let TreeRecord::Structure(Structure { changes }) = &record else {
            return Ok(Answer::Done(()));
        };
        let mut pages: Vec<Pinned<'_>> = Vec::with_capacity(changes.len());
        let mut adopted = Vec::new();
        for (pid, _) in changes {
            let image = plan.images.get(pid).filter(|_| pid.0 >= roots.next);
            let pinned = match image {
                Some(image) => self.pool().adopt(*pid, image),
                None => self.pool().pin(*pid)?,
            };
            let Some(pinned) = pinned else {
                drop(pages);
                for pid in adopted {
                    self.pool().forget(pid);
                }
                return Ok(Answer::NoFrame);
            };
            if image.is_some() {
                adopted.push(*pid);
            }
            pages.push(pinned);
        }
        let mut latched: Vec<_> = pages.iter().map(Pinned::write).collect();
        let mut monitor = self.pool().monitor().lock();
        let gsn = if armed(Flaw::StructureInTwoRecords) {
            in_two(changes, log)
        } else {
            log.record(&record)
        };
        for (pid, _) in changes {
            monitor.note(*pid, gsn);
        }
        drop(monitor);
        for ((pid, change), page) in changes.iter().zip(&mut latched) {
            match (change, plan.images.get(pid)) {
                (PageChange::Edit { .. }, _) => {
                    let edited = edit(&mut page.node(), change);
                    assert_eq!(edited, Ok(()), "page {pid} was planned for it");
                }
                (PageChange::Image { .. }, Some(image)) => page.replace(image),
                (PageChange::Image { .. }, None) => {}
            }
            page.node().set_dlsn(gsn);
        }
        roots.next = plan.next;
        roots.free = plan.free;
        if let Some((table, root)) = plan.root {
            roots.tables.insert(table, root);
        }
        Ok(Answer::Done(()))
    }

    /// Redoes a change of structure in the pages that lack it. Adds pages that were rebuilt from the record's images
    /// to `rebuilt`.
    ///
    /// # Errors
    /// As [`Pool::pin`](crate::pool::Pool::pin); errors of the disk if the file cannot grow.
    pub fn redo_structure(
        &self,
        gsn: Gsn,
        record: &Structure,
        rebuilt: &mut Rebuilt,
    ) -> Result<Answer<()>> {
        for (pid, change) in &record.changes {
            let pinned = done!(self.to_redo(*pid, change, gsn, rebuilt)?);
            let mut page = pinned.write();
            if page.node().node().dlsn() >= gsn {
                continue;
            }
            match change {
                PageChange::Image { front, back } => {
                    let image = self.assemble(*pid, front, back)?;
                    page.replace(&image);
                }
                PageChange::Edit { .. } => edit(&mut page.node(), change)
                    .map_err(|expected| self.damaged(*pid, expected))?,
            }
            page.node().set_dlsn(gsn);
            self.pool().monitor().lock().note(*pid, gsn);
        }
        Ok(Answer::Done(()))
    }

    /// Pins a page that a record changes. If the page on disk is not whole and the record has an image of it, makes the
    /// page from this image.
    fn to_redo(
        &self,
        pid: Pid,
        change: &PageChange,
        gsn: Gsn,
        rebuilt: &mut Rebuilt,
    ) -> Result<Answer<Pinned<'_>>> {
        let pinned = match (self.pool().pin(pid), change) {
            (Err(damage @ Error::Corrupt(_)), PageChange::Image { front, back }) => {
                rebuilt.insert(pid, gsn, damage);
                self.pool().file().grow(pid.0 + 1)?;
                self.pool().adopt(pid, &self.assemble(pid, front, back)?)
            }
            (pinned, _) => pinned?,
        };
        Ok(pinned.map_or(Answer::NoFrame, Answer::Done))
    }

    /// Makes a page from the image in a record.
    fn assemble(&self, pid: Pid, front: &[u8], back: &[u8]) -> Result<Box<[u8]>> {
        let size = self.shape().page_bytes;
        let refused = || self.damaged(pid, "the image of a page in the log");
        if front.len() + back.len() > size || front.len() < HEADER_BYTES {
            return Err(refused());
        }
        let mut bytes = vec![0; size].into_boxed_slice();
        bytes[..front.len()].copy_from_slice(front);
        bytes[size - back.len()..].copy_from_slice(back);
        NodeMut::over(&mut bytes).seal();
        Node::open(&bytes, pid, self.shape().database).map_err(|_| refused())?;
        Ok(bytes)
    }
}

/// Makes the mistake of [`Flaw::StructureInTwoRecords`]: appends two records instead of one.
fn in_two(changes: &[(Pid, PageChange)], log: &dyn Records) -> Gsn {
    let (first, second) = changes.split_at(changes.len() / 2);
    let part = |changes: &[(Pid, PageChange)]| {
        let changes = changes.to_vec();
        log.record(&TreeRecord::Structure(Structure { changes }))
    };
    part(second);
    part(first)
}

/// Changes a page as a record says. Fails if the page is too old or too new for the record, which a restart may find
/// even though the page is whole. The error describes the page that the record expects.
fn edit(node: &mut NodeMut<'_>, change: &PageChange) -> Result<(), &'static str> {
    let PageChange::Edit { cut, drops, puts } = change else {
        return Ok(());
    };
    if let Some(cut) = cut {
        if !node.node().covers(cut) || cut[..] == *node.node().low() {
            return Err("a page that holds the key at which the log cuts it");
        }
        node.cut_at(cut);
    }
    for key in drops {
        node.remove(key);
    }
    for (key, value) in puts {
        if !node.node().covers(key) || key.len() > key_bytes_max(node.node().bytes().len()) {
            return Err("a page that holds the key which the log puts into it");
        }
        let put = match (node.node().kind(), value.first_chunk()) {
            (Kind::Inner, Some(child)) => node.put_child(key, Pid(u32::from_le_bytes(*child))),
            (Kind::Meta | Kind::Leaf, _) if node.node().has_room_for(key, value) => {
                node.put(key, value)
            }
            _ => Err(Full),
        };
        put.map_err(|Full| "a page with room for what the log puts into it")?;
    }
    Ok(())
}
