//! Checks that a tree filled in bulk equals a tree written row by row. Afterwards the two trees must work alike.

use perdura_base::{Gsn, TableId};
use perdura_device::{Access, Disk, MemDisk};
use perdura_tree::bulk::{NewRow, fill};
use perdura_tree::contract::Answer;
use perdura_tree::file::{PageFile, Shape};
use perdura_tree::monitor::{Limits, Monitor, Tells};
use perdura_tree::tree::Tree;

const TABLE: TableId = TableId(3);

fn shape(page_bytes: usize) -> Shape {
    Shape {
        page_bytes,
        database: *b"database",
    }
}

fn filled(rows: &[NewRow], page_bytes: usize, percent: usize) -> Result<Tree, perdura_base::Error> {
    let disk = MemDisk::new();
    disk.make_dir("tree")?;
    let shape = shape(page_bytes);
    Tree::make(&disk, "tree", shape)?;
    let file = PageFile::open(&disk, "tree", shape, Access::Buffered)?;
    fill(
        &file,
        shape,
        &[TABLE, TableId(9)],
        &mut rows.iter().cloned(),
        percent,
    )?;
    let mut monitor = Monitor::new(Limits::default(), 0, Tells::Deltas);
    monitor.end_restart();
    let tree = Tree::new(file, shape, 64, monitor);
    assert_eq!(tree.find_tables()?, Answer::Done(()));
    Ok(tree)
}

fn row(number: u32, len: usize) -> NewRow {
    (number.to_be_bytes().to_vec(), vec![7; len])
}

#[test]
fn what_was_filled_in_is_read_and_scanned() {
    for (count, page_bytes, percent) in [
        (0, 512, 70),
        (1, 512, 100),
        (7, 512, 70),
        (3000, 512, 70),
        (40_000, 4096, 90),
    ] {
        let rows: Vec<NewRow> = (0..count).map(|n| row(2 * n, 20)).collect();
        let tree = filled(&rows, page_bytes, percent).expect("rows that ascend");
        let (mut from, mut found) = (Some(Vec::new()), Vec::new());
        while let Some(at) = from {
            let next = tree.scan(TABLE, &at, |key, value| {
                found.push((key.to_vec(), value.to_vec()))
            });
            let Ok(Answer::Done(next)) = next else {
                panic!("a scan: {next:?}");
            };
            from = next;
        }
        assert_eq!(found, rows, "{count} in pages of {page_bytes}");
        for (key, value) in rows.iter().step_by(97) {
            assert_eq!(
                tree.read(TABLE, key).expect("a read"),
                Answer::Done(Some(value.clone()))
            );
        }
        assert_eq!(
            tree.read(TABLE, &[9; 4]).expect("a read"),
            Answer::Done(None)
        );
        assert_eq!(
            tree.read(TableId(9), b"a").expect("a read"),
            Answer::Done(None)
        );
        let counts = tree.pool().counts();
        assert_eq!(counts.writes, 0);
        assert_eq!(
            tree.pool().monitor().lock().cut(Gsn(0)),
            None,
            "nothing was noted"
        );
    }
}

#[test]
fn rows_that_do_not_ascend_or_are_too_long_are_refused() {
    let refused = |rows: &[NewRow]| filled(rows, 512, 70).expect_err("refused").to_string();
    assert!(refused(&[row(2, 1), row(2, 1)]).contains("ascend"));
    assert!(refused(&[row(2, 1), row(1, 1)]).contains("ascend"));
    assert!(refused(&[row(1, 400)]).contains("too long"));
}
