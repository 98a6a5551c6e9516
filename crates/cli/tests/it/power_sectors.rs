//! Power cuts below real file systems: ext4 and XFS on a simulated disk (`sectors.rs`). At a power cut, this disk loses
//! a random part of its unflushed sectors. In a second test, every write to the disk fails after some time.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clients::Clients;
use crate::mounts::{Kind, Mounted, cannot_run, format};
use crate::sectors::{Cut, Disk};
use crate::support::{Reply, Server, arg, ended, number_from_env};

const EXTRA: [&str; 4] = ["--checkpoint-log-size", "1MiB", "--partitions", "16"];

/// The files and directories of a test.
struct Places {
    /// The file with the flushed sectors of the simulated disk.
    flushed: PathBuf,
    fuse: PathBuf,
    mount: PathBuf,
}

impl Places {
    fn new(dir: &Path) -> Places {
        Places {
            flushed: dir.join("flushed"),
            fuse: dir.join("fuse"),
            mount: dir.join("mount"),
        }
    }

    fn disk(&self, kind: Kind, seed: u64) -> Result<Disk, String> {
        // mkfs.xfs needs at least 300 MiB. The file is sparse, so it occupies less.
        format(&self.flushed, kind, 320)?;
        // XFS does not survive a torn block. If the first sector of a directory block is newer than XFS's log, XFS does
        // not replay the block and then finds a wrong checksum. So the disk for XFS has sectors of 4 KiB.
        let unit = match kind {
            Kind::Ext4 => 1,
            Kind::Xfs => 8,
        };
        Disk::make(&self.flushed, &self.fuse, unit, seed)
    }
}

/// Cuts the power while a server runs, kills the server, and mounts the disk again.
fn cut(disk: &Disk, mounted: &Mounted<'_>, server: Server) -> Cut {
    let cut = disk.cut(Duration::from_secs(3));
    server.kill();
    mounted.unmount().unwrap();
    disk.come_back();
    mounted.mount().unwrap();
    cut
}

fn lose_sectors(kind: Kind) {
    let rounds = number_from_env("PERDURA_SECTOR_ROUNDS", 2);
    let seed = number_from_env("PERDURA_POWERCUT_SEED", 1);
    let dir = tempfile::tempdir().unwrap();
    let places = Places::new(dir.path());
    let needs = "root, FUSE, loop devices, e2fsprogs and xfsprogs";
    let disk = match places.disk(kind, seed) {
        Ok(disk) => disk,
        Err(why) => return cannot_run("power cuts", needs, &why),
    };
    let file = disk.file();
    let mounted = match Mounted::new(&file, &places.mount) {
        Ok(mounted) => mounted,
        Err(why) => return cannot_run("power cuts", needs, &why),
    };
    let data = places.mount.join("db");
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x7365_6374);
    let mut clients = Clients::new(4, seed);
    let mut cuts = Cut::default();
    for round in 0..rounds {
        // A slow disk has more unflushed sectors at the power cut.
        disk.slow_down(Duration::from_millis(if rng.bool() { 20 } else { 3 }));
        if round > 0 && rng.bool() {
            // The power is cut again during the restart.
            let server = Server::spawn(&data, &EXTRA);
            std::thread::sleep(Duration::from_millis(rng.u64(..150)));
            cut(&disk, &mounted, server);
        }
        let server = Server::start(&data, &EXTRA);
        if let Err(wrong) = clients.check(&server) {
            panic!("cut {round} of seed {seed} (PERDURA_POWERCUT_SEED): {wrong}");
        }
        let mut one = Cut::default();
        clients.work(server, Duration::from_millis(800), |server| {
            one = cut(&disk, &mounted, server);
        });
        cuts.kept += one.kept;
        cuts.lost += one.lost;
    }
    let server = Server::start(&data, &EXTRA);
    if let Err(wrong) = clients.check(&server) {
        panic!("the last cut of seed {seed} (PERDURA_POWERCUT_SEED): {wrong}");
    }
    server.kill();
    let (code, text) = ended(&["verify", "--data", arg(&data)]);
    assert_eq!(code, 0, "{text}");
    println!(
        "{rounds} power cuts of a disk with {kind:?}: {} sectors lost and {} kept of those unflushed, {} flushes; \
         {} requests acknowledged, {} left in doubt, none lost",
        cuts.lost,
        cuts.kept,
        disk.flushes(),
        clients.acknowledged,
        clients.doubtful
    );
    assert!(disk.flushes() > rounds && cuts.lost + cuts.kept > 0);
}

#[test]
fn nothing_acknowledged_is_lost_with_the_unflushed_sectors_of_ext4() {
    lose_sectors(Kind::Ext4);
}

#[test]
fn nothing_acknowledged_is_lost_with_the_unflushed_sectors_of_xfs() {
    lose_sectors(Kind::Xfs);
}

#[test]
fn a_disk_that_fails_stops_the_server_with_code_4_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let places = Places::new(dir.path());
    let needs = "root, FUSE, loop devices and e2fsprogs";
    let disk = match places.disk(Kind::Ext4, 1) {
        Ok(disk) => disk,
        Err(why) => return cannot_run("power cuts", needs, &why),
    };
    let file = disk.file();
    let mounted = match Mounted::new(&file, &places.mount) {
        Ok(mounted) => mounted,
        Err(why) => return cannot_run("power cuts", needs, &why),
    };
    let data = places.mount.join("db");
    for (log_io, key) in [("auto", "first"), ("sync", "second")] {
        let server = Server::start(&data, &["--log-io", log_io]);
        let ok = Reply::Status("OK".into());
        assert_eq!(server.ask(&["SET", key, "1"]), ok);
        let way = server.log_field("log_io_0_way");
        disk.fail();
        let mut client = server.connect().unwrap();
        let refused = client.ask(&["SET", "lost", "1"]);
        let is_stopped = |text: &str| text.starts_with("ERR the database has stopped: ");
        assert!(
            matches!(&refused, Ok(Reply::Error(text)) if is_stopped(text)),
            "{way}: {refused:?}"
        );
        let (status, said) = server.wait();
        assert_eq!(status.code(), Some(4), "{way}: {said}");
        disk.cut(Duration::ZERO);
        mounted.unmount().unwrap();
        disk.come_back();
        mounted.mount().unwrap();
        let server = Server::start(&data, &[]);
        let found = server.ask(&["GET", key]);
        assert_eq!(found, Reply::Bulk(Some(b"1".to_vec())), "{way}");
        server.stop();
    }
}

#[test]
fn a_cut_keeps_what_was_flushed_and_parts_of_what_was_not() {
    let dir = tempfile::tempdir().unwrap();
    let places = Places::new(dir.path());
    let sectors = 64;
    std::fs::write(&places.flushed, vec![b'0'; 512 * sectors]).unwrap();
    let disk = match Disk::make(&places.flushed, &places.fuse, 1, 3) {
        Ok(disk) => disk,
        Err(why) => return cannot_run("power cuts", "root and FUSE", &why),
    };
    let opened = || OpenOptions::new().read(true).write(true).open(disk.file());
    let mut torn = 0;
    for _ in 0..12 {
        let file = opened().unwrap();
        file.write_all_at(&vec![b'1'; 512 * sectors], 0).unwrap();
        file.sync_data().unwrap();
        file.write_all_at(&vec![b'2'; 512 * sectors], 0).unwrap();
        file.write_all_at(&vec![b'3'; 512 * sectors / 2], 0)
            .unwrap();
        let cut = disk.cut(Duration::ZERO);
        assert_eq!(cut.kept + cut.lost, 64);
        assert!(file.sync_data().is_err() && file.write_all_at(&[b'4'; 512], 0).is_err());
        drop(file);
        disk.come_back();
        let mut found = vec![0; 512 * sectors];
        opened().unwrap().read_exact_at(&mut found, 0).unwrap();
        for (sector, bytes) in found.chunks(512).enumerate() {
            let last = if sector < sectors / 2 { b'3' } else { b'2' };
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a torn sector");
            assert!((b'1'..=last).contains(&bytes[0]), "{}", bytes[0]);
        }
        torn += u32::from((1..64).contains(&cut.kept));
    }
    assert!(torn > 2, "the cuts keep all or nothing");
}
