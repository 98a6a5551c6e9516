//! Fills a new tree. The pages of tables are written once each, in the order of their page numbers. Inner pages come
//! after the pages that they lead to. Nothing is logged, so a tree must be filled before it is used.

use crate::file::{PageFile, Shape};
use crate::tree::{FREE_KEY, META, NEXT_KEY};
use perdura_base::{Error, Pid, Result, TableId};
use perdura_page::tree_page::{
    Kind, NodeMut, NodeSpec, cell_bytes, cell_bytes_max, format, key_bytes_max,
};

/// The number of bytes gathered for one write.
const WRITE_BYTES: usize = 1 << 20;

/// A row for a new tree: key and value.
pub type NewRow = (Vec<u8>, Vec<u8>);

/// A writer of a table's new pages. The writer gathers pages and writes many at once.
struct Layer<'f> {
    file: &'f PageFile,
    shape: Shape,
    table: TableId,
    next: u32,
    /// The gathered pages, which are not yet written. The first gathered page is page `begin`.
    bytes: Vec<u8>,
    begin: u32,
}

/// A reference to a page: the page's low fence and its number.
type Child = (Vec<u8>, Pid);

impl Layer<'_> {
    fn spec<'a>(
        &self,
        kind: Kind,
        level: u8,
        low: &'a [u8],
        high: Option<&'a [u8]>,
    ) -> NodeSpec<'a> {
        NodeSpec {
            kind,
            level,
            pid: Pid(self.next),
            table: self.table,
            database: self.shape.database,
            low,
            high,
        }
    }

    /// Adds the next page. Returns its number.
    fn lay(&mut self, page: &mut [u8]) -> Result<Pid> {
        NodeMut::over(page).seal();
        self.bytes.extend_from_slice(page);
        let pid = Pid(self.next);
        let next = self.next.checked_add(1);
        self.next =
            next.ok_or_else(|| Error::Usage(String::from("a tree has less than 2^32 pages")))?;
        if self.bytes.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(pid)
    }

    fn flush(&mut self) -> Result<()> {
        if !self.bytes.is_empty() {
            self.file.grow(self.next)?;
            self.file.lay(Pid(self.begin), &self.bytes)?;
        }
        self.bytes.clear();
        self.begin = self.next;
        Ok(())
    }

    /// Adds the leaves, each filled to `percent` percent.
    fn leaves(
        &mut self,
        rows: &mut dyn Iterator<Item = NewRow>,
        percent: usize,
    ) -> Result<Vec<Child>> {
        let size = self.shape.page_bytes;
        let fill = size * percent / 100;
        let mut rows = rows.peekable();
        let mut children: Vec<Child> = Vec::new();
        loop {
            let low = match (&children[..], rows.peek()) {
                ([], _) => Vec::new(),
                (_, Some((key, _))) => key.clone(),
                (_, None) => return Ok(children),
            };
            let mut draft = format(size, &self.spec(Kind::Leaf, 0, &low, None));
            let mut node = NodeMut::over(&mut draft);
            let mut taken: Vec<NewRow> = Vec::new();
            while let Some((key, value)) = rows.peek() {
                check(size, taken.last().map(|(last, _)| &last[..]), key, value)?;
                let is_full =
                    !taken.is_empty() && node.node().used() + cell_bytes(key, value) > fill;
                if is_full || node.put(key, value) != Ok(true) {
                    break;
                }
                taken.extend(rows.next());
            }
            let high = rows.peek().map(|(key, _)| &key[..]);
            let mut page = format(size, &self.spec(Kind::Leaf, 0, &low, high));
            let mut node = NodeMut::over(&mut page);
            for (key, value) in &taken {
                let put = node.put(key, value);
                assert_eq!(put, Ok(true), "a page keeps room for its high fence");
            }
            let pid = self.lay(&mut page)?;
            children.push((low, pid));
        }
    }

    /// Adds a level of inner pages that lead to the pages `below`. There must be more than one page below.
    fn above(&mut self, level: u8, below: &[Child]) -> Result<Vec<Child>> {
        let size = self.shape.page_bytes;
        let mut children: Vec<Child> = Vec::new();
        let mut rest = below;
        while let Some((low, _)) = rest.first() {
            let mut draft = format(size, &self.spec(Kind::Inner, level, low, None));
            let mut node = NodeMut::over(&mut draft);
            let fits = |(key, child): &&Child| node.put_child(key, *child) == Ok(true);
            let mut count = rest.iter().take_while(fits).count();
            // An inner page must have at least two children. So if one child would remain, this page leaves two.
            if rest.len() - count == 1 {
                count -= 1;
            }
            let (taken, left) = rest.split_at(count);
            let high = left.first().map(|(key, _)| &key[..]);
            let mut page = format(size, &self.spec(Kind::Inner, level, low, high));
            let mut node = NodeMut::over(&mut page);
            for (key, child) in taken {
                let put = node.put_child(key, *child);
                assert_eq!(put, Ok(true), "a page keeps room for its high fence");
            }
            let pid = self.lay(&mut page)?;
            children.push((low.clone(), pid));
            rest = left;
        }
        Ok(children)
    }
}

impl Layer<'_> {
    /// Adds all pages of a table. Returns the root.
    fn table(&mut self, rows: &mut dyn Iterator<Item = NewRow>, percent: usize) -> Result<Pid> {
        let mut children = self.leaves(rows, percent)?;
        for level in 1.. {
            if children.len() == 1 {
                break;
            }
            children = self.above(level, &children)?;
        }
        Ok(children[0].1)
    }
}

/// Fails if the row's key does not follow the key `last`. Also fails if the key or the row is too long for a page.
fn check(size: usize, last: Option<&[u8]>, key: &[u8], value: &[u8]) -> Result<()> {
    let (key_max, row_max) = (key_bytes_max(size), cell_bytes_max(size));
    if last.is_some_and(|last| last >= key) {
        return Err(Error::Usage(format!(
            "rows that fill a tree ascend; key {} does not",
            key.escape_ascii()
        )));
    }
    if key.len() > key_max || cell_bytes(key, value) > row_max {
        return Err(Error::Usage(format!(
            "a key of {} bytes with a value of {} is too long for pages of {size} bytes",
            key.len(),
            value.len()
        )));
    }
    Ok(())
}

/// Adds tables to a tree that was just [made](crate::tree::Tree::make). The first table gets the rows in ascending
/// order of keys. Its leaves are filled to `percent` percent. The other tables are empty.
///
/// # Errors
/// `Usage` if the rows do not ascend, a row is too long, or the tree lacks room for the tables; errors of the disk.
///
/// # Panics
/// If a table is named twice.
pub fn fill(
    file: &PageFile,
    shape: Shape,
    tables: &[TableId],
    rows: &mut dyn Iterator<Item = NewRow>,
    percent: usize,
) -> Result<()> {
    assert!((1..=100).contains(&percent), "leaves are filled in part");
    let mut layer = Layer {
        file,
        shape,
        table: TableId(0),
        next: META.0 + 1,
        bytes: Vec::new(),
        begin: META.0 + 1,
    };
    let spec = NodeSpec {
        pid: META,
        ..layer.spec(Kind::Meta, 0, b"", None)
    };
    let mut meta = format(shape.page_bytes, &spec);
    let mut roots = NodeMut::over(&mut meta);
    for key in [NEXT_KEY, FREE_KEY] {
        let put = roots.put(key, &0u32.to_le_bytes());
        assert_eq!(put, Ok(true));
    }
    let mut none = std::iter::empty();
    for (number, table) in tables.iter().enumerate() {
        layer.table = *table;
        let root = match number {
            0 => layer.table(rows, percent)?,
            _ => layer.table(&mut none, percent)?,
        };
        match roots.put(&table.0.to_be_bytes(), &root.0.to_le_bytes()) {
            Ok(is_new) => assert!(is_new, "table {table} is named once"),
            Err(_) => {
                let text = format!("a tree has no room for {} tables", tables.len());
                return Err(Error::Usage(text));
            }
        }
    }
    layer.flush()?;
    file.sync()?;
    let put = roots.put(NEXT_KEY, &layer.next.to_le_bytes());
    assert_eq!(put, Ok(false), "it has its row");
    roots.seal();
    file.write(&[(META, &meta)])
}
