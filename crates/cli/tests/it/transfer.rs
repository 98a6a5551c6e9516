//! `perdura import` and `perdura export`, between Perdura and a real Redis.
//!
//! Without a redis-server, the tests that need one report its absence and pass.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{Client, Reply, Server, arg, ended, free_port, perdura, request};

/// A real Redis, which is ended when this value is dropped.
pub struct Redis {
    child: Child,
    pub port: u16,
    dir: tempfile::TempDir,
}

impl Redis {
    pub fn start() -> Redis {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", ""])
            .args(["--enable-debug-command", "yes", "--dir", arg(dir.path())])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server; scripts/install-test-deps.sh installs it");
        let redis = Redis { child, port, dir };
        while redis.try_ask(&["PING"]).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        redis
    }

    fn try_ask(&self, words: &[&str]) -> std::io::Result<Reply> {
        Client::connect(self.port)?.ask(words)
    }

    pub fn ask(&self, words: &[&str]) -> Reply {
        self.try_ask(words).unwrap()
    }

    /// Returns a digest of all databases' contents.
    fn digest(&self) -> String {
        match self.ask(&["DEBUG", "DIGEST"]) {
            Reply::Status(digest) => digest,
            other => panic!("{other:?}"),
        }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Saves the server's data. Returns the path of the dump file.
    pub fn dump_file(&self) -> PathBuf {
        assert_eq!(self.ask(&["SAVE"]), Reply::Status("OK".into()));
        self.dir.path().join("dump.rdb")
    }

    /// Loads commands by `redis-cli --pipe`.
    pub fn pipe(&self, commands: &[u8]) {
        let mut child = Command::new("redis-cli")
            .args(["-p", &self.port.to_string(), "--pipe"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(commands).unwrap();
        let said = child.wait_with_output().unwrap().stdout;
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("errors: 0"), "{said}");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns commands that create keys of all types and encodings in two databases.
fn everything() -> Vec<u8> {
    let mut out = Vec::new();
    for db in ["0", "3"] {
        // Both databases get the same keys.
        let mut rng = fastrand::Rng::with_seed(11);
        let mut bytes = |longest: usize| -> Vec<u8> {
            let len = rng.usize(..longest);
            std::iter::repeat_with(|| rng.u8(..)).take(len).collect()
        };
        out.extend(request(&[b"SELECT", db.as_bytes()]));
        for n in 0..400usize {
            let key = format!("key {n}").into_bytes();
            // The last keys are large.
            let len = if n < 390 { 1 + n % 50 } else { 1500 };
            let mut words = match n % 6 {
                0 => vec![b"SET".to_vec(), key.clone(), bytes(200)],
                1 => vec![b"SET".to_vec(), key.clone(), n.to_string().into_bytes()],
                2 => vec![b"RPUSH".to_vec(), key.clone()],
                3 => vec![b"SADD".to_vec(), key.clone()],
                4 => vec![b"HSET".to_vec(), key.clone()],
                _ => vec![b"ZADD".to_vec(), key.clone()],
            };
            for at in 0..len {
                let number = (at * 37).to_string().into_bytes();
                let mut odd = bytes(40);
                odd.extend_from_slice(&number);
                match n % 6 {
                    0 | 1 => {}
                    2 => words.push(odd),
                    3 => words.push(if n % 4 == 1 { number } else { odd }),
                    4 => words.extend([odd, number]),
                    _ => {
                        let score = match at % 5 {
                            0 => "-inf".to_owned(),
                            1 => "1e300".to_owned(),
                            2 => "0.1".to_owned(),
                            _ => format!("{}", f64::from(u32::try_from(at).unwrap()) / 7.0),
                        };
                        words.extend([score.into_bytes(), odd]);
                    }
                }
            }
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            out.extend(request(&words));
            if n % 3 == 0 {
                let at = (4_000_000_000_000 + n).to_string();
                out.extend(request(&[b"PEXPIREAT", &key, at.as_bytes()]));
            }
        }
        out.extend(request(&[b"SET", b"", b"the empty key"]));
        out.extend(request(&[b"SET", b"long", &[b'x'; 300_000]]));
        let item = vec![b'y'; 70_000];
        let items = std::iter::repeat_n(item.as_slice(), 9);
        let heavy: Vec<&[u8]> = [&b"RPUSH"[..], b"heavy"].into_iter().chain(items).collect();
        out.extend(request(&heavy));
    }
    out
}

/// The option for the segment size of imports. The servers in these tests use the same size.
const SEGMENT: [&str; 2] = ["--segment-size", "1MiB"];

/// Runs `import` of a dump file into a stopped database.
pub fn import_file(file: &Path, data: &Path) -> (i32, String) {
    let import = ["import", "rdb", arg(file), "--data", arg(data)];
    ended(&[&import[..], &SEGMENT].concat())
}

/// Runs the command, which must succeed. Returns the command's stdout.
pub fn done(args: &[&str]) -> Vec<u8> {
    let output = perdura(args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    output.stdout
}

fn comes_back_equal(source: &Redis, data: &Path) {
    let second = Redis::start();
    second.pipe(&done(&["export", "--data", arg(data)]));
    assert_eq!(second.digest(), source.digest());
}

#[test]
fn what_is_imported_from_a_redis_and_exported_again_is_the_same() {
    let redis = Redis::start();
    redis.pipe(&everything());
    let dir = tempfile::tempdir().unwrap();

    let by_file = dir.path().join("by-file");
    let file = redis.dump_file();
    let said = done(&["import", "rdb", arg(&file), "--data", arg(&by_file)]);
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("806 keys"), "{said}");
    comes_back_equal(&redis, &by_file);

    let by_scan = dir.path().join("by-scan");
    let report = done(&[
        "import",
        "--from",
        &redis.url(),
        "--data",
        arg(&by_scan),
        "--json",
    ]);
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["written"]["keys"], report["counted"], "{report}");
    assert_eq!(report["counted"]["zset"], 132, "{report}");
    comes_back_equal(&redis, &by_scan);
    let (code, text) = ended(&["verify", "--data", arg(&by_scan)]);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn keys_that_are_there_already_are_replaced_or_kept_only_if_one_says_so() {
    let (source, target) = (Redis::start(), Redis::start());
    source.pipe(&everything());
    let old = ["key 2", "key 6", "heavy", "mine"];
    old.iter()
        .for_each(|key| drop(target.ask(&["SADD", key, "old"])));
    let (from, to) = (source.url(), target.url());
    let import = ["import", "--from", &from, "--to", &to, "--db", "0"];
    let (code, text) = ended(&import);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("4 keys already") && text.contains("--keep"),
        "{text}"
    );

    let kept = [&import[..], &["--keep", "--json"]].concat();
    let report: serde_json::Value = serde_json::from_slice(&done(&kept)).unwrap();
    assert_eq!(report["written"]["kept"], 3, "{report}");
    assert_eq!(
        target.ask(&["SMEMBERS", "heavy"]),
        Reply::Array(vec![Reply::Bulk(Some(b"old".to_vec()))])
    );
    assert_eq!(
        target.ask(&["DBSIZE"]),
        Reply::Number(404),
        "and no unfinished key"
    );

    done(&[&import[..], &["--replace"]].concat());
    assert_eq!(target.ask(&["DEL", "mine"]), Reply::Number(1));
    assert_eq!(
        source.ask(&["FLUSHDB"]),
        Reply::Status("OK".into()),
        "only database 3 is left"
    );
    let back = [
        "import",
        "--from",
        &to,
        "--to",
        &from,
        "--db",
        "0:3",
        "--replace",
    ];
    done(&back);
    done(&[
        "import", "--from", &from, "--to", &from, "--db", "3:0", "--keep",
    ]);
    let third = Redis::start();
    third.pipe(&everything());
    assert_eq!(source.digest(), third.digest());
}

/// Returns a dump file with a module's value and with a string.
fn with_a_module() -> Vec<u8> {
    let mut bytes = b"REDIS0003\x07\x03mod".to_vec();
    bytes.extend_from_slice(&[0x81, 1, 2, 3, 4, 5, 6, 7, 8, 2, 5, 0]);
    bytes.extend_from_slice(b"\x00\x08greeting\x05hello\xff");
    bytes
}

#[test]
fn what_cannot_be_taken_along_is_named_and_the_rest_comes() {
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (dir.path().join("dump.rdb"), dir.path().join("db"));
    std::fs::write(&file, with_a_module()).unwrap();
    let (code, text) = import_file(&file, &data);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("'mod': a value of a module"), "{text}");
    let server = Server::start(&data, &[]);
    assert_eq!(
        server.ask(&["GET", "greeting"]),
        Reply::Bulk(Some(b"hello".to_vec()))
    );
}

#[test]
fn a_dump_that_is_damaged_stops_the_import_which_says_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cut.rdb");
    let data = dir.path().join("db");
    std::fs::write(&file, b"REDIS0010\x00\x01a\x01b\x00\x03cut\x09x").unwrap();
    let (code, text) = import_file(&file, &data);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("1 of them are complete at the target") && text.contains("key 'cut'"),
        "{text}"
    );
    let server = Server::start(&data, &[]);
    assert_eq!(server.ask(&["GET", "a"]), Reply::Bulk(Some(b"b".to_vec())));
}

#[test]
fn an_import_says_what_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let bad: [&[&str]; 5] = [
        &["import"],
        &["import", "rdb", "x.rdb"],
        &["import", "--from", "http://db", "--data", arg(&data)],
        &[
            "import",
            "--from",
            "redis://db",
            "--data",
            "a",
            "--to",
            "redis://b",
        ],
        &["export"],
    ];
    for args in bad {
        let (code, text) = ended(args);
        assert_eq!(code, 2, "{args:?}: {text}");
    }
    let (code, text) = ended(&["export", "--data", arg(&data)]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("no database"), "{text}");
    assert!(!data.exists());
    let (code, text) = ended(&[
        "import",
        "--from",
        "redis://127.0.0.1:1",
        "--data",
        arg(&data),
    ]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("127.0.0.1:1"), "{text}");
}

#[test]
fn a_password_in_the_environment_is_not_for_a_database_of_our_own() {
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (dir.path().join("one.rdb"), dir.path().join("db"));
    std::fs::write(&file, b"REDIS0003\x00\x01a\x01b\xff").unwrap();
    let import = ["import", "rdb", arg(&file), "--data", arg(&data)];
    let export = ["export", "--data", arg(&data)];
    for args in [&[&import[..], &SEGMENT].concat()[..], &export] {
        let output = Command::new(env!("CARGO_BIN_EXE_perdura"))
            .args(args)
            .env("REDISCLI_AUTH", "secret")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
    }
}

#[test]
fn a_large_key_of_which_a_piece_is_refused_does_not_come_at_all() {
    let redis = Redis::start();
    let mut commands = Vec::new();
    for n in 0..3000u32 {
        let field = n.to_string().into_bytes();
        commands.extend(request(&[b"HSET", b"broken", &field, b"v"]));
        commands.extend(request(&[b"HSET", b"whole", &field, b"v"]));
    }
    commands.extend(request(&[b"HSET", b"broken", b"long", &vec![b'v'; 70_000]]));
    redis.pipe(&commands);
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("db"), &["--max-value-size", "64KiB"]);
    let to = format!("redis://127.0.0.1:{}", server.port());
    let (code, text) = ended(&["import", "--from", &redis.url(), "--to", &to]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("'broken'"), "{text}");
    assert_eq!(server.ask(&["HLEN", "whole"]), Reply::Number(3000));
    assert_eq!(server.ask(&["DBSIZE"]), Reply::Number(1));
}

#[test]
fn estimated_counts_and_places_of_a_server_are_what_they_were() {
    let redis = Redis::start();
    redis.ask(&["PFADD", "visitors", "a", "b"]);
    redis.ask(&["GEOADD", "towns", "13.361389", "38.115556", "Palermo"]);
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("db"), &[]);
    let to = format!("redis://127.0.0.1:{}", server.port());
    let (code, text) = ended(&["import", "--from", &redis.url(), "--to", &to]);
    assert_eq!(code, 0, "{text}");
    let ask: [&[&str]; 4] = [
        &["GET", "visitors"],
        &["PFCOUNT", "visitors"],
        &["GEOPOS", "towns", "Palermo"],
        &["ZSCORE", "towns", "Palermo"],
    ];
    for words in ask {
        assert_eq!(server.ask(words), redis.ask(words), "{words:?}");
    }
}
