//! Changes of structure: a table is made, or pages are split. Each is one record of the log, whatever number of levels it
//! takes part in, so that a restart finds all of it or nothing.

use crate::contract::{Answer, Log, done};
use crate::pool::Pinned;
use crate::tree::{META, NEXT_KEY, Roots, Tree};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Error, Gsn, Pid, Result, TableId};
use perdura_page::tree_page::{Kind, Node, NodeMut, NodeSpec, format, separator_between};
use perdura_page::tree_record::{PageChange, Structure, TreeRecord};
use std::collections::BTreeMap;

/// The changes of pages that a change of structure makes.
#[derive(Debug, Default)]
struct Plan {
    /// New pages.
    images: BTreeMap<Pid, Box<[u8]>>,
    edits: BTreeMap<Pid, Edit>,
    /// A table has this root.
    root: Option<(TableId, Pid)>,
    /// The first page that is not used then.
    next: u32,
}

#[derive(Debug, Default)]
struct Edit {
    cut: Option<Vec<u8>>,
    puts: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Plan {
    fn new(roots: &Roots) -> Self {
        Plan {
            next: roots.next,
            ..Plan::default()
        }
    }

    fn new_page(&mut self) -> Pid {
        let pid = Pid(self.next);
        self.next += 1;
        pid
    }

    /// A child is put into a page that exists or is new.
    fn put_child(&mut self, pid: Pid, key: &[u8], child: Pid) {
        if let Some(image) = self.images.get_mut(&pid) {
            let put = NodeMut::over(image).put_child(key, child);
            assert_eq!(put, Ok(true), "half a page has room for a child");
            return;
        }
        let puts = &mut self.edits.entry(pid).or_default().puts;
        puts.push((key.to_vec(), child.0.to_le_bytes().to_vec()));
    }

    /// The record, and the edit of the meta page in it.
    fn record(mut self) -> Structure {
        let mut puts = vec![(NEXT_KEY.to_vec(), self.next.to_le_bytes().to_vec())];
        if let Some((table, root)) = self.root {
            let key = table.0.to_be_bytes().to_vec();
            puts.push((key, root.0.to_le_bytes().to_vec()));
        }
        self.edits.insert(META, Edit { cut: None, puts });
        let images = self.images.iter().map(|(pid, bytes)| {
            let (front, back) = Node::over(bytes).parts();
            let image = PageChange::Image {
                front: front.to_vec(),
                back: back.to_vec(),
            };
            (*pid, image)
        });
        let edits = self.edits.into_iter().map(|(pid, edit)| {
            let Edit { cut, puts } = edit;
            (pid, PageChange::Edit { cut, puts })
        });
        let mut changes: Vec<_> = images.chain(edits).collect();
        changes.sort_by_key(|(pid, _)| *pid);
        Structure { changes }
    }
}

impl Tree {
    /// Makes a table without rows.
    ///
    /// # Errors
    /// `Usage` if there is one of that number, or no more can be named; the disk's, if the file cannot grow.
    pub fn make_table(&self, table: TableId, log: &dyn Log) -> Result<Answer<()>> {
        let mut roots = self.roots.write();
        if roots.tables.contains_key(&table) {
            return Err(Error::Usage(format!("there is a table {table}")));
        }
        let Some(meta) = self.pool.pin(META)? else {
            return Ok(Answer::NoFrame);
        };
        if !meta.read().node().has_room_for(&[0; 4], &[0; 4]) {
            return Err(Error::Usage(String::from(
                "the tree has no room for another table",
            )));
        }
        let mut plan = Plan::new(&roots);
        let pid = plan.new_page();
        plan.root = Some((table, pid));
        let leaf = self.spec(Kind::Leaf, 0, (table, pid));
        plan.images
            .insert(pid, format(self.shape().page_bytes, &leaf));
        drop(meta);
        self.change(&mut roots, plan, log)
    }

    fn spec(&self, kind: Kind, level: u8, (table, pid): (TableId, Pid)) -> NodeSpec<'static> {
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

    /// Splits the leaf of a key that is to be put, and what leads to it where that is full.
    pub(crate) fn split(&self, table: TableId, key: &[u8], log: &dyn Log) -> Result<Answer<()>> {
        let mut roots = self.roots.write();
        let path = done!(self.path(&roots, table, key, 0)?);
        let mut plan = Plan::new(&roots);
        // What the level below has split off: its first key, and its page.
        let mut new: Option<(Vec<u8>, Pid)> = None;
        for (pid, pinned) in path.iter().rev() {
            let page = pinned.read();
            let node = page.node();
            let separator = match &new {
                None => leaf_separator(node, key),
                Some((below, child)) => {
                    // As for a leaf's row: a key, and four bytes of a child instead of a length and a value.
                    if node.room() >= below.len() + 8 {
                        plan.put_child(*pid, below, *child);
                        new = None;
                        break;
                    }
                    node.key(node.middle()).to_vec()
                }
            };
            let right = plan.new_page();
            let mut copy = page.bytes().to_vec();
            let image = NodeMut::over(&mut copy).right_of(&separator, right);
            plan.images.insert(right, image);
            plan.edits.entry(*pid).or_default().cut = Some(separator.clone());
            if let Some((below, child)) = new {
                let to = if below < separator { *pid } else { right };
                plan.put_child(to, &below, child);
            }
            new = Some((separator, right));
        }
        if let (Some((separator, right)), Some((old, pinned))) = (new, path.first()) {
            let level = pinned.read().node().level() + 1;
            let root = plan.new_page();
            let spec = self.spec(Kind::Inner, level, (table, root));
            let page = format(self.shape().page_bytes, &spec);
            plan.images.insert(root, page);
            plan.put_child(root, b"", *old);
            plan.put_child(root, &separator, right);
            plan.root = Some((table, root));
        }
        drop(path);
        self.change(&mut roots, plan, log)
    }

    /// Logs a change of structure and makes it. `roots` is the structure lock, held exclusively.
    fn change(&self, roots: &mut Roots, plan: Plan, log: &dyn Log) -> Result<Answer<()>> {
        self.pool.file().grow(plan.next)?;
        let (root, next) = (plan.root, plan.next);
        assert!(next > roots.next, "a change of structure takes a page");
        let images = plan.images.clone();
        let record = plan.record();
        let mut pages: Vec<(Pid, Pinned<'_>)> = Vec::with_capacity(record.changes.len());
        let mut adopted = Vec::with_capacity(images.len());
        for (pid, _) in &record.changes {
            let pinned = match images.get(pid) {
                Some(image) => self.pool.adopt(*pid, image),
                None => self.pool.pin(*pid)?,
            };
            let Some(pinned) = pinned else {
                drop(pages);
                for pid in adopted {
                    self.pool.forget(pid);
                }
                return Ok(Answer::NoFrame);
            };
            if images.contains_key(pid) {
                adopted.push(*pid);
            }
            pages.push((*pid, pinned));
        }
        let record = TreeRecord::Structure(record);
        let mut latched: Vec<_> = pages.iter().map(|(_, pinned)| pinned.write()).collect();
        let mut monitor = self.pool.monitor().lock();
        let gsn = if armed(Flaw::StructureInTwoRecords) {
            in_two(&record, log)
        } else {
            log.record(&record)
        };
        for (pid, _) in &pages {
            monitor.note(*pid, gsn);
        }
        drop(monitor);
        if let TreeRecord::Structure(record) = &record {
            for ((_, change), page) in record.changes.iter().zip(&mut latched) {
                let mut node = page.node();
                if let PageChange::Edit { cut, puts } = change {
                    edit(&mut node, cut.as_deref(), puts);
                }
                node.set_dlsn(gsn);
            }
        }
        assert_eq!(adopted.len(), images.len(), "each new page was new");
        roots.next = next;
        if let Some((table, root)) = root {
            roots.tables.insert(table, root);
        }
        Ok(Answer::Done(()))
    }

    /// Redoes a change of structure where it is missing.
    ///
    /// # Errors
    /// As [`Pool::pin`](crate::pool::Pool::pin); the disk's, if the file cannot grow.
    pub fn redo_structure(&self, gsn: Gsn, record: &Structure) -> Result<Answer<()>> {
        for (pid, change) in &record.changes {
            let pinned = match (self.pool.pin(*pid), change) {
                (Ok(Some(pinned)), _) => pinned,
                (Ok(None), _) => return Ok(Answer::NoFrame),
                (Err(Error::Corrupt(_)), PageChange::Image { front, back }) => {
                    // It was never written, or not durably.
                    self.pool.file().grow(pid.0 + 1)?;
                    let image = self.assemble(*pid, front, back)?;
                    let Some(pinned) = self.pool.adopt(*pid, &image) else {
                        return Ok(Answer::NoFrame);
                    };
                    pinned
                }
                (Err(error), _) => return Err(error),
            };
            let mut page = pinned.write();
            let mut node = page.node();
            if node.node().dlsn() >= gsn {
                continue;
            }
            match change {
                PageChange::Image { front, back } => {
                    let image = self.assemble(*pid, front, back)?;
                    page.replace(&image);
                }
                PageChange::Edit { cut, puts } => edit(&mut node, cut.as_deref(), puts),
            }
            page.node().set_dlsn(gsn);
            self.pool.monitor().lock().note(*pid, gsn);
        }
        Ok(Answer::Done(()))
    }

    /// The page of an image.
    fn assemble(&self, pid: Pid, front: &[u8], back: &[u8]) -> Result<Box<[u8]>> {
        let size = self.shape().page_bytes;
        let refused = || crate::tree::damaged(pid, "the image of a page in the log");
        if front.len() + back.len() > size {
            return Err(refused());
        }
        let mut bytes = vec![0; size].into_boxed_slice();
        bytes[..front.len()].copy_from_slice(front);
        bytes[size - back.len()..].copy_from_slice(back);
        if front.len() < perdura_page::tree_page::HEADER_BYTES {
            return Err(refused());
        }
        NodeMut::over(&mut bytes).seal();
        Node::open(&bytes, pid, self.shape().database).map_err(|_| refused())?;
        Ok(bytes)
    }
}

/// The mistake of [`Flaw::StructureInTwoRecords`].
fn in_two(record: &TreeRecord, log: &dyn Log) -> Gsn {
    let TreeRecord::Structure(whole) = record else {
        return log.record(record);
    };
    let (first, second) = whole.changes.split_at(whole.changes.len() / 2);
    let part = |changes: &[(Pid, PageChange)]| {
        let changes = changes.to_vec();
        log.record(&TreeRecord::Structure(Structure { changes }))
    };
    part(second);
    part(first)
}

fn edit(node: &mut NodeMut<'_>, cut: Option<&[u8]>, puts: &[(Vec<u8>, Vec<u8>)]) {
    if let Some(cut) = cut {
        node.cut_at(cut);
    }
    for (key, value) in puts {
        let put = match node.node().kind() {
            Kind::Inner => {
                let child = value.first_chunk().map(|child| u32::from_le_bytes(*child));
                node.put_child(key, Pid(child.expect("four bytes")))
            }
            Kind::Meta | Kind::Leaf | Kind::Chain | Kind::Free => node.put(key, value),
        };
        assert!(put.is_ok(), "what was put had room when it was logged");
    }
}

/// Where a leaf is parted that has no room for a key. One that is filled in ascending order stays full.
fn leaf_separator(node: Node<'_>, key: &[u8]) -> Vec<u8> {
    let last = node.key(node.len() - 1);
    if last < key {
        return separator_between(last, key).to_vec();
    }
    let middle = node.middle();
    separator_between(node.key(middle - 1), node.key(middle)).to_vec()
}
