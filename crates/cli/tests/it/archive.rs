//! A server archives its log and is killed. The tests restore its database from the archive alone.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Client, Server, arg, ended};

fn digest(data: &Path) -> String {
    let (code, text) = ended(&["digest", "--data", arg(data)]);
    assert_eq!(code, 0, "{text}");
    text
}

fn done(args: &[&str]) -> String {
    let (code, text) = ended(args);
    assert_eq!(code, 0, "{args:?}: {text}");
    text
}

/// Writes some keys, and waits until the archive holds the log up to the last write.
fn write(server: &Server, archive: &Path, round: u32) {
    let mut client = Client::connect(server.port()).unwrap();
    for key in 0..300 {
        let (key, value) = (format!("key {key}"), format!("{round} {key}").repeat(20));
        client.ask(&["SET", &key, &value]).unwrap();
    }
    client.ask(&["DEL", &format!("key {round}")]).unwrap();
    let held = || {
        let (code, text) = ended(&["archive", "status", "--archive", arg(archive), "--json"]);
        let to = text.split("\"to_epoch\": ").nth(1).unwrap_or("0");
        let digits: String = to.chars().take_while(char::is_ascii_digit).collect();
        (code == 0).then(|| digits.parse::<u64>().unwrap_or(0))
    };
    let until = Instant::now() + Duration::from_secs(30);
    let mut before = held();
    loop {
        std::thread::sleep(Duration::from_millis(1500));
        let now = held();
        if now.is_some() && now == before {
            return;
        }
        assert!(Instant::now() < until, "the archive follows the log");
        before = now;
    }
}

#[test]
fn a_lost_disk_is_restored_from_the_archive_to_the_last_write_and_to_an_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (data, archive) = (at("data"), at("archive"));
    let server = Server::start(&data, &[]);
    let mut client = Client::connect(server.port()).unwrap();
    client.ask(&["RPUSH", "list", "a", "b", "c"]).unwrap();
    server.kill();

    let backup = [
        "backup",
        "create",
        "--data",
        arg(&data),
        "--archive",
        arg(&archive),
    ];
    done(&backup);
    let listed = done(&["backup", "list", "--archive", arg(&archive)]);
    assert_eq!(listed.lines().count(), 1, "{listed}");
    let first = digest(&data);

    let server = Server::start(&data, &["--archive", arg(&archive)]);
    write(&server, &archive, 1);
    server.kill();
    let second = digest(&data);
    assert_ne!(first, second);

    let from = ["restore", "--from", arg(&archive), "--to"];
    let told = done(&[&from[..], &[arg(&at("last")), "--json"]].concat());
    assert!(told.contains("\"records_applied\": "), "{told}");
    assert_eq!(digest(&at("last")), second);
    let replay = ["--method", "replay", "--buffer-pages", "2", "--json"];
    let told = done(&[&from[..], &[arg(&at("replayed"))], &replay[..]].concat());
    assert!(told.contains("\"replay_page_reads\": "), "{told}");
    assert_eq!(digest(&at("replayed")), second);
    let to = at("none");
    let poor = [&from[..], &[arg(&to)], &replay[..2]].concat();
    assert_ne!(ended(&poor).0, 0, "a replay needs a pool");
    // The last epoch of the backup. All later writes are in runs.
    let epoch = listed.split("up to epoch ").nth(1).unwrap();
    let epoch = epoch.split(',').next().unwrap();
    done(&[&from[..], &[arg(&at("first")), "--at", epoch]].concat());
    assert_eq!(digest(&at("first")), first);

    // A moment can also be named by a time, here the one that the restore printed, or by an age before the end.
    let time = told.split("\"time\": \"").nth(1).unwrap();
    let time = time.split('"').next().unwrap();
    done(&[&from[..], &[arg(&at("timed")), "--at", time]].concat());
    done(&[&from[..], &[arg(&at("spanned")), "--at", "end-0s"]].concat());
    assert_eq!(digest(&at("timed")), second);
    assert_eq!(digest(&at("spanned")), second);
    for out_of_range in ["2001-01-01 00:00:00", "9000d"] {
        let (code, refused) = ended(&[&from[..], &[arg(&at("no")), "--at", out_of_range]].concat());
        assert_eq!(code, 2, "{refused}");
        assert!(refused.contains("Its moments are from"), "{refused}");
    }
    let (code, no_moment) = ended(&[&from[..], &[arg(&at("no")), "--at", "noon"]].concat());
    assert_eq!(code, 2, "{no_moment}");
    assert!(no_moment.contains("'noon' is not a moment"), "{no_moment}");

    let made = done(&["backup", "virtual", "--archive", arg(&archive)]);
    assert!(made.contains("the state of epoch"), "{made}");
    let (code, twice) = ended(&["backup", "virtual", "--archive", arg(&archive)]);
    assert!(code != 0 && twice.contains("already"), "{twice}");
    let listed = done(&["backup", "list", "--archive", arg(&archive)]);
    assert!(
        listed.contains("sweep of checkpoint") && listed.contains("a cut, up to"),
        "{listed}"
    );
    assert!(listed.contains("serves epochs "), "{listed}");
    let told = done(&[&from[..], &[arg(&at("virtual")), "--json"]].concat());
    assert!(told.contains("\"records_applied\": 0,"), "{told}");
    assert_eq!(digest(&at("virtual")), second);

    let server = Server::start(&at("last"), &[]);
    let mut client = Client::connect(server.port()).unwrap();
    client.ask(&["SET", "life", "goes on"]).unwrap();
    server.kill();
    done(&["verify", "--data", arg(&at("last")), "--strict"]);

    let (code, refused) = ended(&[&from[..], &[arg(&at("last"))]].concat());
    assert_eq!(code, 2, "{refused}");
    assert!(refused.contains("is not empty"), "{refused}");
    let (code, beyond) = ended(&[&from[..], &[arg(&at("no")), "--at", "999999999"]].concat());
    assert_eq!(code, 2, "{beyond}");
    assert!(beyond.contains("but only those of"), "{beyond}");
    done(&["archive", "verify", "--archive", arg(&archive)]);
    let runs = archive.join(
        std::fs::read_dir(&archive)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .file_name(),
    );
    let run = std::fs::read_dir(runs.join("runs"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut bytes = std::fs::read(&run).unwrap();
    bytes[200] ^= 1;
    std::fs::write(&run, bytes).unwrap();
    let (code, found) = ended(&["archive", "verify", "--archive", arg(&archive)]);
    assert_eq!(code, 3, "{found}");
    assert!(found.contains("run-"), "{found}");
}

#[test]
fn an_archive_from_the_first_write_on_is_restored_although_its_backups_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (data, archive) = (at("data"), at("archive"));
    let server = Server::start(&data, &["--archive", arg(&archive)]);
    write(&server, &archive, 1);
    write(&server, &archive, 2);
    server.kill();
    let live = digest(&data);
    let database = std::fs::read_dir(&archive).unwrap().next().unwrap();
    let backups = database.unwrap().path().join("backups");
    for file in std::fs::read_dir(backups).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let to = at("restored");
    done(&["restore", "--from", arg(&archive), "--to", arg(&to)]);
    assert_eq!(digest(&to), live);
}

#[test]
fn with_the_data_disk_alone_lost_the_log_that_is_left_completes_the_archive() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (data, log, archive) = (at("data"), at("log"), at("archive"));
    let on_disks = ["--data", arg(&data), "--log-dir", arg(&log)];
    let first = Server::start(&data, &["--log-dir", arg(&log)]);
    first.kill();
    let create = [
        &["backup", "create"][..],
        &on_disks,
        &["--archive", arg(&archive)],
    ]
    .concat();
    done(&create);
    for round in 0..2 {
        let more = ["--log-dir", arg(&log), "--archive", arg(&archive)];
        let server = Server::start(&data, &more);
        let mut client = Client::connect(server.port()).unwrap();
        for key in 0..500 {
            let value = format!("{round} {key}");
            client.ask(&["SET", &format!("key {key}"), &value]).unwrap();
        }
        server.kill();
    }
    let (code, live) = ended(&[&["digest"][..], &on_disks].concat());
    assert_eq!(code, 0, "{live}");
    std::fs::remove_dir_all(&data).unwrap();

    let from = ["restore", "--from", arg(&archive), "--to"];
    let more = ["--log-dir", arg(&log), "--json"];
    let told = done(&[&from[..], &[arg(&data)], &more].concat());
    assert!(told.contains("\"runs\": "), "{told}");
    assert_eq!(digest(&data), live);
    let left: Vec<_> = std::fs::read_dir(data.join("image-b")).unwrap().collect();
    assert!(left.len() <= 1, "{left:?}");

    // Both log directories are wrong: one has no log, and one has the log of another database. Neither attempt leaves
    // anything behind.
    let other = at("other");
    Server::start(&at("data 2"), &["--log-dir", arg(&other)]).kill();
    for (wrong, why) in [
        (&archive, "no such directory"),
        (&other, "belongs to database"),
    ] {
        let (code, refused) =
            ended(&[&from[..], &[arg(&at("no"))], &["--log-dir", arg(wrong)]].concat());
        assert_eq!(code, 3, "{refused}");
        assert!(refused.contains(why), "{refused}");
        assert!(!at("no").exists());
    }
    Server::start(&data, &[]).kill();
}
