//! `perdura dump page` for a database with a tree.

use anyhow::{Result, bail};
use perdura::Error;
use perdura_base::Pid;
use perdura_base::num::to_u64;
use perdura_device::{Access, AlignedBuf};
use perdura_page::tree_page::{Kind, Node};
use perdura_recovery::sections::tree::TREE_DIR;
use serde::Serialize;

use crate::exit::Usage;
use crate::offline::Offline;
use crate::output::{self, bytes};

/// The maximum number of bytes that the verb shows of each key or value.
const SHOWN_BYTES: usize = 64;

#[derive(Serialize)]
struct Shown {
    page: u32,
    offset: u64,
    is_whole: bool,
    kind: &'static str,
    level: u8,
    table: u32,
    plsn: u64,
    dlsn: u64,
    /// The low fence: the lowest key that the page may contain.
    low: String,
    /// The high fence: all keys in the page are lower. `None`: the page is the last of its table.
    high: Option<String>,
    next_free: Option<u32>,
    rows: Vec<ShownRow>,
}

#[derive(Serialize)]
struct ShownRow {
    key: String,
    value: Option<String>,
    value_bytes: Option<usize>,
    child: Option<u32>,
}

/// Shows a page as it is on disk.
pub fn show(offline: &Offline, page_bytes: usize, pid: Pid, json: bool) -> Result<()> {
    let path = format!("{TREE_DIR}/pages");
    let file = offline.disks.data.open(&path, Access::Buffered)?;
    let offset = u64::from(pid.0) * to_u64(page_bytes);
    let mut page = AlignedBuf::zeroed(page_bytes);
    let got = file.read_at(offset, &mut page)?;
    if got < page_bytes {
        let pages = file.len()? / to_u64(page_bytes);
        bail!(Usage(format!(
            "page {pid} is not in {path}, which has {pages} pages"
        )));
    }
    let database = *offline.anchor.uuid.0.first_chunk().expect("16 bytes");
    let opened = Node::open(&page, pid, database);
    let shown = match opened {
        Ok(node) => of_node(node, offset),
        Err(_) => Shown {
            page: pid.0,
            offset,
            is_whole: false,
            kind: match page.iter().all(|byte| *byte == 0) {
                true => "never written",
                false => "damaged",
            },
            level: 0,
            table: 0,
            plsn: 0,
            dlsn: 0,
            low: String::new(),
            high: None,
            next_free: None,
            rows: Vec::new(),
        },
    };
    if json {
        output::json(&shown)?;
    } else {
        output::text(&output::shown(&describe(&shown)))?;
    }
    match opened {
        Ok(_) => Ok(()),
        Err(malformed) => bail!(Error::corrupt(
            path,
            offset + to_u64(malformed.at),
            format!("{} in page {pid}", malformed.expected),
            "something else",
            "A restart takes the page from tree/double or the log, if one of them has it. \
             `perdura verify` shows whether it does.",
        )),
    }
}

fn of_node(node: Node<'_>, offset: u64) -> Shown {
    let is_inner = node.kind() == Kind::Inner;
    let row = |at: usize| ShownRow {
        key: bytes(node.key(at), SHOWN_BYTES),
        value: (!is_inner).then(|| bytes(node.value(at), SHOWN_BYTES)),
        value_bytes: (!is_inner).then(|| node.value(at).len()),
        child: is_inner.then(|| node.child(at).0),
    };
    Shown {
        page: node.pid().0,
        offset,
        is_whole: true,
        kind: match node.kind() {
            Kind::Meta => "meta",
            Kind::Inner => "inner",
            Kind::Leaf => "leaf",
            Kind::Chain => "chain",
            Kind::Free => "free",
        },
        level: node.level(),
        table: node.table().0,
        plsn: node.plsn().0,
        dlsn: node.dlsn().0,
        low: bytes(node.low(), SHOWN_BYTES),
        high: node.high().map(|high| bytes(high, SHOWN_BYTES)),
        next_free: (node.kind() == Kind::Free)
            .then(|| node.next_free())
            .flatten()
            .map(|next| next.0),
        rows: (0..node.len()).map(row).collect(),
    }
}

fn describe(page: &Shown) -> String {
    let mut text = format!(
        "page {} of the tree, at byte {}: {}\n",
        page.page,
        page.offset,
        if page.is_whole { "whole" } else { "NOT WHOLE" }
    );
    text += &format!(
        "kind {}, level {}, table {}, plsn {}, dlsn {}\n",
        page.kind, page.level, page.table, page.plsn, page.dlsn
    );
    let high = page.high.as_deref().unwrap_or("(the end)");
    text += &format!("fences {} to {high}, {} slots\n", page.low, page.rows.len());
    if let Some(next) = page.next_free {
        text += &format!("next free page {next}\n");
    }
    for row in &page.rows {
        match (&row.value, row.child) {
            (Some(value), _) => text += &format!("  {} = {value}\n", row.key),
            (None, child) => {
                text += &format!("  {} -> page {}\n", row.key, child.unwrap_or_default());
            }
        }
    }
    text
}
