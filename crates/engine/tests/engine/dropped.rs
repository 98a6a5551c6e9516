//! Dropping tables: removing data at once, keeping data for a restart, and removing the table from the catalog.

use std::path::Path;

use perdura::{Builder, Db, Error, LogForm, Result, Table, ValueForm, procedure, table};

table! {
    /// A stock of something.
    pub struct Stock in "stocks", addressing = key, order = ordered {
        key(id: u64), left: i64, name: String; index by_left(left: i64)
    }
}

table! {
    /// A second table. `take` computes its sums from the stocks.
    pub struct Total in "totals", addressing = key { key(id: u64), sum: i64 }
}

table! {
    /// A page-addressed table.
    pub struct Memo in "memos", addressing = page { key(id: u64), text: String }
}

procedure! {
    /// Takes from a stock and adds to a total. The new total depends on the stock's row.
    pub fn take(cx, id: u64, amount: i64) -> i64, on [Stock(id), Total(id)] {
        let mut stock = cx.get::<Stock>(id)?.ok_or("no such stock")?;
        stock.left -= amount;
        cx.update(&stock)?;
        let sum = amount * stock.left;
        match cx.get::<Total>(id)? {
            Some(total) => cx.update(&Total { id, sum: total.sum + sum })?,
            None => cx.insert(&Total { id, sum })?,
        }
        Ok(stock.left)
    }
}

const STOCKS: u64 = 12;

fn builder(path: &Path, log: LogForm) -> Builder {
    Db::builder(path)
        .options(|options| options.partitions = 4)
        .table::<Stock>()
        .table::<Total>()
        .table::<Memo>()
        .procedure(take)
        .log(log)
        .value_form(ValueForm::Columns)
}

fn fill(db: &Db) -> Result<()> {
    db.write(|tx| {
        for id in 0..STOCKS {
            let name = format!("stock {id}");
            tx.insert(&Stock {
                id,
                left: 100,
                name,
            })?;
        }
        Ok(())
    })
}

fn work(db: &Db, calls: u64) {
    for i in 0..calls {
        let amount = i64::try_from(i % 9).unwrap();
        db.call(take, (i * 5 % STOCKS, amount)).unwrap();
    }
}

fn totals(db: &Db) -> Vec<(u64, i64)> {
    let mut totals = Vec::new();
    let snapshot = db.snapshot().unwrap();
    snapshot
        .each::<Total>(|total| totals.push((total.id, total.sum)))
        .unwrap();
    totals.sort_unstable();
    totals
}

fn stocks(db: &Db) -> u64 {
    db.read(|tx| tx.count::<Stock>()).unwrap()
}

/// Some logged commands ran before the drop of their table. They may use rows that only the image has, or rows that
/// earlier commands made. After the drop, a different table gets the name.
#[test]
fn commands_before_the_drop_of_their_table_are_played_with_its_rows() {
    for log in [LogForm::Command, LogForm::Value] {
        for checkpoint in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let db = builder(dir.path(), log).open().unwrap();
            fill(&db).unwrap();
            work(&db, 40);
            if checkpoint {
                db.checkpoint().unwrap();
            }
            work(&db, 40);
            assert!(db.drop_table(Stock::NAME).unwrap());
            assert!(!db.drop_table(Stock::NAME).unwrap(), "it is gone");
            let before = totals(&db);
            db.abandon();

            // The restart makes a new table with the same name, and new commands fill it.
            let db = builder(dir.path(), log).open().unwrap();
            assert_eq!(totals(&db), before, "{log:?} {checkpoint}");
            assert_eq!(stocks(&db), 0, "the new table has nothing of the old one");
            fill(&db).unwrap();
            work(&db, 30);
            let (again, digest) = (totals(&db), db.digest().unwrap());
            db.abandon();

            let db = builder(dir.path(), log).open().unwrap();
            assert_eq!(totals(&db), again, "{log:?} {checkpoint}");
            assert_eq!(stocks(&db), STOCKS);
            assert_eq!(db.digest().unwrap(), digest);
        }
    }
}

#[test]
fn a_verb_on_a_dropped_table_fails_and_a_snapshot_from_before_shows_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder(dir.path(), LogForm::Command).open().unwrap();
    fill(&db).unwrap();
    let snapshot = db.snapshot().unwrap();
    assert!(db.drop_table(Stock::NAME).unwrap());
    let refused = db.call(take, (1, 1)).unwrap_err().to_string();
    assert!(refused.contains("it was dropped"), "{refused}");
    let refused = fill(&db).unwrap_err();
    assert!(matches!(refused, Error::Usage(_)), "{refused}");
    let mut seen = 0;
    snapshot.each::<Stock>(|_| seen += 1).unwrap();
    assert_eq!(seen, STOCKS);
    let later = db.snapshot().unwrap();
    assert!(later.each::<Stock>(|_| ()).is_err());
    let refused = db.drop_table("db0").unwrap_err().to_string();
    assert!(refused.contains("Empty it instead"), "{refused}");
}

#[test]
fn the_pages_of_a_dropped_table_are_used_again_and_the_catalog_forgets_it() {
    let dir = tempfile::tempdir().unwrap();
    let open = || builder(dir.path(), LogForm::Value).open().unwrap();
    let db = open();
    let catalog = |db: &Db| {
        let rows: Result<u32> = db.read(|tx| {
            let mut rows = 0;
            for id in 0..4 {
                tx.bytes().view(perdura::PartitionId(id), |part| {
                    part.for_each(perdura::TableId(0), |row| {
                        rows += u32::from(row.key().starts_with(b"d"));
                    });
                })?;
            }
            Ok(rows)
        });
        rows.unwrap()
    };
    fill(&db).unwrap();
    let name = "n".repeat(2000);
    for id in 100..400 {
        let (left, name) = (1, name.clone());
        db.write(|tx| {
            tx.insert(&Stock {
                id,
                left,
                name: name.clone(),
            })
        })
        .unwrap();
    }
    let full = db.stats().memory.pages;
    assert!(db.drop_table(Stock::NAME).unwrap());
    assert_eq!(catalog(&db), 1);
    db.checkpoint().unwrap();
    db.checkpoint().unwrap();
    let begin = std::time::Instant::now();
    while catalog(&db) > 0 {
        assert!(begin.elapsed().as_secs() < 30, "both images have the drop");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    db.close().unwrap();
    let db = open();
    fill(&db).unwrap();
    assert_eq!(stocks(&db), STOCKS);
    assert!(db.stats().memory.pages <= full, "pages are used again");
    db.abandon();
    assert_eq!(stocks(&open()), STOCKS);
}

#[test]
fn page_addressed_tables_and_maps_go_with_their_rows() {
    let dir = tempfile::tempdir().unwrap();
    let open = || builder(dir.path(), LogForm::Command).open().unwrap();
    let db = open();
    let events = db.map("events").unwrap();
    events.put(b"a", b"1").unwrap();
    db.write(|tx| {
        tx.insert(&Memo {
            id: 1,
            text: "a".into(),
        })
    })
    .unwrap();
    assert!(db.drop_table(Memo::NAME).unwrap());
    assert!(db.drop_map("events").unwrap());
    assert!(!db.drop_map("events").unwrap());
    assert_eq!(events.get(b"a").unwrap(), None);
    assert!(events.put(b"a", b"2").is_err());
    let again = db.map("events").unwrap();
    again.put(b"b", b"3").unwrap();
    drop((events, again));
    db.abandon();
    let db = open();
    let events = db.map("events").unwrap();
    assert_eq!(events.get(b"a").unwrap(), None);
    assert_eq!(events.get(b"b").unwrap().as_deref(), Some(&b"3"[..]));
    assert_eq!(db.read(|tx| tx.count::<Memo>()).unwrap(), 0);
}
