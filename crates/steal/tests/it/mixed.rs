//! One database with tables in memory and a tree, as seen by a program that embeds the engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use perdura::catalog::CatalogRows;
use perdura::digest::digest;
use perdura::{Core, CoreOptions, Db, Env, Options, Progress, create_with_tree};
use perdura_base::TableId;
use perdura_device::{FileDisk, ManualClock, OverlayDisk};
use perdura_recovery::restart::NewTree;
use perdura_recovery::tree::TreeMeans;
use perdura_recovery::{
    Disks, Level, METHODS, Methods, Player, RestartMode, RestartOptions, Schedule, read_anchor,
    restart,
};
use perdura_steal::{KeyTxns, Keyed, KeyedOptions, Route, StealEnv, Write};
use perdura_wal::Scheme;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

const TABLES: [TableId; 2] = [TableId(1), TableId(2)];

/// Returns options with few pages in memory, so that some pages are written before the crash.
fn options() -> CoreOptions {
    CoreOptions {
        partitions: 4,
        chunk_pages: 2,
        segment_bytes: 1 << 20,
        tables: &["db0"],
        tree: TreeMeans::of_frames(24),
        ..CoreOptions::default()
    }
}

fn env(data: &Path) -> Env {
    let disk = FileDisk::shared(data).expect("a directory");
    Env {
        disks: Disks::on_one(disk, 1),
        clock: Arc::new(ManualClock::at(1)),
        seed: 7,
        nodes: None,
        accept_loss: false,
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// Writes a row of the tree in a transaction that must not meet a conflict.
fn put(core: &Core, txns: &KeyTxns, txn: &mut perdura_steal::KeyTxn, key: &[u8], value: &[u8]) {
    loop {
        match txns.write(txn, TABLES[0], key, Some(value)) {
            Ok(Write::Done(_)) => return,
            Ok(Write::Taken) => panic!("key {key:?} belongs to another transaction"),
            Err(perdura::Error::LogFull(_)) => core.flush_all().expect("no disk fails"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Creates a database and leaves it in the state after a crash. It has rows in memory and in the tree. One transaction
/// was open during a checkpoint. Returns the rows that the tree must have.
fn crashed(data: &Path) -> Rows {
    let made = (0..300).map(|number| (key(number * 2), vec![7; 40]));
    let mut rows: Rows = made.clone().collect();
    let tree = NewTree {
        scheme: Scheme::Logical,
        page_bytes: 512,
        tables: &TABLES,
        rows: &mut made.into_iter(),
        percent: 90,
    };
    create_with_tree(&env(data), &options(), tree).expect("a new database");
    let core = Core::open(env(data), options(), Arc::default()).expect("it opens");
    let txns = KeyTxns::over(&core, Route::Scattered).expect("a tree");
    let mut loser = txns.begin();
    for number in 0..60 {
        put(
            &core,
            &txns,
            &mut loser,
            &key(number * 10 + 1),
            b"never committed",
        );
    }
    for round in 0..3u8 {
        for number in 0..50u32 {
            let db0 = core.table("db0").expect("it was opened with it");
            let (key_of, value) = (key(number), [round; 100]);
            let set = core.transact(&core.all_partitions(), |tx| {
                tx.put(db0, &key_of, &value, None)
            });
            let ((), _durable_when_flushed) = set.expect("no limit");
            let mut txn = txns.begin();
            put(&core, &txns, &mut txn, &key(number * 4), &value);
            rows.insert(key(number * 4), value.to_vec());
            let _durable_when_flushed = txns.commit(txn);
        }
        if round < 2 {
            core.checkpoint_now().expect("no disk fails");
        }
    }
    core.flush_all().expect("no disk fails");
    std::mem::forget(loser);
    rows
}

/// Restarts over an overlay, which leaves the files unchanged. Returns the digest of the restarted database.
fn digest_by(data: &Path, methods: Methods, level: Level) -> u64 {
    let Env { disks, clock, .. } = env(data);
    let scratch = FileDisk::at(data);
    let overlay = OverlayDisk::new(Arc::clone(&disks.data), &scratch, "").expect("a scratch file");
    let disks = Disks {
        data: Arc::new(overlay),
        ..disks
    };
    let options = RestartOptions {
        mode: RestartMode::Dry,
        catalog: Arc::new(CatalogRows::default()),
        tree: TreeMeans::of_frames(24),
        ..RestartOptions::of_records(disks, clock, Schedule::new(level, 2), methods)
    };
    let restarted = restart(&options).expect("a restart").expect("a database");
    assert!(
        restarted
            .report
            .tree
            .as_ref()
            .is_some_and(|tree| tree.losers == 1)
    );
    digest(&restarted.data()).expect("sound rows")
}

#[test]
fn a_database_with_tables_and_a_tree_opens_reads_verifies_and_exports() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let rows = crashed(&data);
    let anchor = read_anchor(env(&data).disks.data.as_ref()).expect("it reads");
    let anchor = anchor.expect("a database");
    assert_eq!(anchor.scheme, Scheme::Differential);
    assert_eq!(anchor.tree.expect("a tree").scheme, Scheme::Logical);
    let of_tree = |method: &&perdura_recovery::Method| {
        matches!(method.player, Player::Tree(_)) && method.schemes.contains(&Scheme::Logical)
    };
    let mut found = Vec::new();
    for method in METHODS.iter().filter(of_tree) {
        for level in Level::ALL {
            let names = format!("differential,{}", method.name);
            let methods = Methods::by_names(&names).expect("one of each owner");
            found.push(digest_by(&data, methods, level));
        }
    }
    found.push(digest_by(&data, Methods::default(), Level::Four));

    let open = || {
        let options = Options {
            segment_bytes: 1 << 20,
            tree: TreeMeans::of_frames(24),
            ..Options::new(&data)
        };
        Db::open_with_progress(options, Arc::new(Progress::default())).expect("it opens")
    };
    let db = open();
    let report = db.report();
    assert_eq!(report.records.undone, 60, "the open transaction is undone");
    let readers: Vec<_> = report.log_reads.iter().map(|by| by.owner).collect();
    assert_eq!(readers, ["pages", "tree"], "no ordered frame is declared");
    assert!(
        report
            .log_reads
            .iter()
            .all(|by| by.reads > 0 && by.bytes > 0)
    );
    assert!(report.to_string().contains("reads: pages "), "{report}");
    assert_eq!(db.trees().expect("it reads"), ["tree/1", "tree/2"]);
    let tree = db.tree("tree/1").expect("it reads");
    let tree = tree.expect("it was listed");
    assert_eq!(tree.get(&key(0)).expect("it reads"), Some(vec![2; 100]));
    assert_eq!(tree.get(&key(1)).expect("it reads"), None, "undone");
    let read: Rows = tree.range(b"").map(|row| row.expect("it reads")).collect();
    assert_eq!(read, rows);
    let from = tree
        .range(&key(400))
        .next()
        .expect("a row")
        .expect("it reads");
    assert_eq!(from.0, key(400));
    let verified = db.verify().expect("nothing is damaged");
    assert!(verified.problems.is_empty());
    let digest = db.digest().expect("sound rows");
    let mut exported = Vec::new();
    db.export(&mut |table, content| {
        exported.push((table, content.key.into_owned()));
        Ok(())
    })
    .expect("sound rows");
    let of = |table: TableId| exported.iter().filter(|(of, _)| *of == table).count();
    assert_eq!((of(TABLES[0]), of(TABLES[1])), (rows.len(), 0));
    assert_eq!(of(db.database(0)), 50);
    assert_eq!(
        found,
        vec![digest; found.len()],
        "one digest by all methods"
    );
    drop(tree);
    db.close().expect("no disk fails");
    let db = open();
    assert_eq!(db.digest().expect("sound rows"), digest);
    assert_eq!(db.report().records.undone, 0, "nothing is undone twice");
    db.close().expect("no disk fails");

    // `Keyed`, which is made for databases with only a tree, can open this database too. It ignores the catalog.
    let Env {
        disks, clock, seed, ..
    } = env(&data);
    let opened = Keyed::open(
        StealEnv { disks, clock, seed },
        KeyedOptions::new(Scheme::Logical, 24),
    );
    let keyed = opened.expect("it opens").expect("a database");
    let rows_of = keyed.txns().contents().expect("it reads").rows;
    assert_eq!(rows_of, u64::try_from(rows.len()).expect("few rows"));
}
