//! The methods that make the log's writes durable (the setting `log-io`), tested through the command. INFO and the
//! messages at the start report the method in use. Some tests make the kernel refuse the system calls of a method:
//! `shim/refuse.c` installs a filter, as a container does.

use std::path::Path;

use crate::preload::library;
use crate::support::{Reply, Server, arg};

const EPERM: i32 = 1;
const ENOMEM: i32 = 12;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;

/// Starts a server and makes the kernel refuse some of the server's system calls. Does not wait until the server is
/// ready.
fn refused(data: &Path, refusals: &[(&str, i32)], extra: &[&str]) -> Server {
    let mut variables = vec![("LD_PRELOAD", arg(&library("refuse")).to_owned())];
    for (what, error) in refusals {
        variables.push((what, error.to_string()));
    }
    Server::spawn_with(data, extra, &variables)
}

fn set(server: &Server, key: &str) {
    assert_eq!(server.ask(&["SET", key, "1"]), Reply::Status("OK".into()));
}

fn check_kept(server: &Server, keys: &[&str]) {
    for key in keys {
        let kept = server.ask(&["GET", key]);
        assert_eq!(kept, Reply::Bulk(Some(b"1".to_vec())), "{key}");
    }
}

#[test]
fn info_and_the_starts_lines_say_how_each_log_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (data, logs) = (
        dir.path().join("data"),
        ["log0", "log1"].map(|l| dir.path().join(l)),
    );
    let places = ["--log-dir", arg(&logs[0]), "--log-dir", arg(&logs[1])];
    let extra = [&["--streams", "2", "--partitions", "8"], &places[..]].concat();
    let server = Server::start(&data, &extra);
    set(&server, "a");
    for stream in 0..2 {
        let part = |part: &str| server.log_field(&format!("log_io_{stream}_{part}"));
        assert!(["ring", "dsync", "sync"].contains(&part("way").as_str()));
        assert!(part("write_us").parse::<u64>().unwrap() > 0);
        part("cost_us").parse::<u64>().unwrap();
        let cache = part("write_cache");
        assert!(["write-back", "write-through", "unknown"].contains(&cache.as_str()));
        assert!(["yes", "no", "unknown"].contains(&part("fua").as_str()));
        let (way, fua) = (part("way"), part("fua"));
        let said = server.said();
        let line = format!("Log stream {stream}: writes become durable by {way} (");
        let line = said.lines().find(|said| said.contains(&line));
        let line = line.unwrap_or_else(|| panic!("{said}"));
        let end = format!("; the disk's cache: {cache}, FUA: {fua}");
        assert!(line.ends_with(&end), "{line}");
    }
    // The reply shows that the write is durable. So at most one write is in flight: a beacon, which the log writes by
    // itself.
    assert!(server.log_field("log_in_flight").parse::<u64>().unwrap() <= 1);
    server.stop();

    let server = Server::start(&data, &[&["--log-io", "sync"], &extra[..]].concat());
    check_kept(&server, &["a"]);
    for stream in 0..2 {
        let part = |part: &str| server.log_field(&format!("log_io_{stream}_{part}"));
        assert_eq!([part("way"), part("write_us")], ["sync", ""]);
    }
    let line = "writes become durable by sync, as log-io says; the disk's cache: ";
    assert!(server.said().contains(line), "{}", server.said());
    server.stop();
}

#[test]
fn where_rings_are_refused_auto_takes_another_way_and_says_why() {
    for (what, error, why) in [
        ("REFUSE_RINGS", EPERM, "Operation not permitted"),
        ("REFUSE_RINGS", ENOSYS, "Function not implemented"),
        ("REFUSE_RINGS", ENOMEM, "Cannot allocate memory"),
        ("REFUSE_REGISTER", EPERM, "Operation not permitted"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut server = refused(dir.path(), &[(what, error)], &[]);
        server.await_ready();
        set(&server, "kept");
        let way = server.log_field("log_io_0_way");
        assert!(["dsync", "sync"].contains(&way.as_str()), "{way}");
        let said = server.said();
        let line = format!("Log: writes become durable by {way} (");
        let line = said.lines().find(|said| said.contains(&line));
        let line = line.unwrap_or_else(|| panic!("{said}"));
        assert!(
            line.contains("ring is not possible: ") && line.contains(why),
            "{line}"
        );
        server.kill();

        let mut server = refused(dir.path(), &[(what, error)], &["--log-io", "sync"]);
        server.await_ready();
        check_kept(&server, &["kept"]);
        set(&server, "more");
        server.kill();

        let server = refused(dir.path(), &[(what, error)], &["--log-io", "ring"]);
        let (status, said) = server.wait();
        assert_eq!(status.code(), Some(2), "{said}");
        let told = ["log-io is ring", why, "Set log-io to auto or sync"];
        assert!(told.iter().all(|part| said.contains(part)), "{said}");

        // Nothing may be missing once the kernel allows the calls again.
        let server = Server::start(dir.path(), &[]);
        check_kept(&server, &["kept", "more"]);
        server.stop();
    }
}

#[test]
fn where_rwf_dsync_is_refused_too_the_log_is_written_and_synced() {
    let dir = tempfile::tempdir().unwrap();
    let both = [("REFUSE_RINGS", EPERM), ("REFUSE_DSYNC", EOPNOTSUPP)];
    let mut server = refused(dir.path(), &both, &[]);
    server.await_ready();
    set(&server, "kept");
    assert_eq!(server.log_field("log_io_0_way"), "sync");
    let said = server.said();
    assert!(said.contains("dsync is not possible: write "), "{said}");
    assert!(said.contains("Operation not supported"), "{said}");
    server.kill();
    let server = Server::start(dir.path(), &[]);
    check_kept(&server, &["kept"]);
    server.stop();
}
