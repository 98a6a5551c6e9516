//! A server that has no free file descriptors. Clients must never take the descriptors that the log needs. The server
//! must retry system calls that were refused.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::io_faults::Faulty;
use crate::support::{Client, Reply, Server};

const EMFILE: i32 = 24;

fn ok() -> Reply {
    Reply::Status("OK".into())
}

/// Writes `mebibytes` MiB of values. Each MiB fills a segment.
fn write(client: &mut Client, mebibytes: usize) {
    let value = "v".repeat(64 << 10);
    for number in 0..mebibytes * 16 {
        let key = format!("key{}", number % 64);
        assert_eq!(
            client.ask(&["SET", &key, &value]).unwrap(),
            ok(),
            "{number}"
        );
    }
}

fn maxclients(client: &mut Client) -> usize {
    let Reply::Array(pair) = client.ask(&["CONFIG", "GET", "maxclients"]).unwrap() else {
        panic!("a name and a value")
    };
    let Some(Reply::Bulk(Some(value))) = pair.last() else {
        panic!("{pair:?}")
    };
    String::from_utf8_lossy(value).parse().unwrap()
}

/// Regression: a thousand idle clients made every write fail, and clients that connected and disconnected ended the
/// server.
#[test]
fn clients_leave_the_log_its_descriptors_however_few_there_are() {
    for limit in [256, 1024] {
        let dir = tempfile::tempdir().unwrap();
        let limits = format!("{limit}:{limit}");
        let server = Server::start_limited(&limits, &dir.path().join("db"), &[]);
        let mut writer = server.connect().unwrap();
        let most = maxclients(&mut writer);
        assert!((limit / 2..limit).contains(&most), "{most} of {limit}");
        assert!(
            server.said().contains("maxclients is lowered"),
            "{}",
            server.said()
        );
        let address = ("127.0.0.1", server.port());
        let idle: Vec<_> = (0..limit).map(|_| TcpStream::connect(address)).collect();
        write(&mut writer, 6);
        assert_eq!(writer.ask(&["SAVE"]).unwrap(), ok(), "{}", server.said());
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(1) {
            drop(TcpStream::connect(address));
        }
        write(&mut writer, 6);
        drop(idle);
        assert_eq!(writer.ask(&["SAVE"]).unwrap(), ok(), "{}", server.said());
        let said = server.said();
        assert!(
            !said.contains("Delayed") && !said.contains("Cannot accept"),
            "{said}"
        );
        server.stop();
    }
}

#[test]
fn the_limit_is_raised_as_far_as_it_goes_and_maxclients_no_further() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_limited("64:2048", &dir.path().join("db"), &[]);
    let mut client = server.connect().unwrap();
    let most = maxclients(&mut client);
    assert!((1500..2048).contains(&most), "{most}");
    let refused = client.ask(&["CONFIG", "SET", "maxclients", "1000000"]);
    let text = format!(
        "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able to \
         handle the specified number of clients, try with {most}"
    );
    assert_eq!(refused.unwrap(), Reply::Error(text));
    assert_eq!(
        client.ask(&["CONFIG", "SET", "maxclients", "100"]).unwrap(),
        ok()
    );
    server.stop();
}

#[test]
fn without_descriptors_writes_wait_and_resume_and_nothing_stops() {
    let faulty = Faulty::new();
    let server = faulty.start(&[("open", "/log/", EMFILE)], &[]);
    let mut client = server.connect().unwrap();
    write(&mut client, 2);
    faulty.strike();
    let value = "v".repeat(64 << 10);
    let begin = Instant::now();
    let refused = loop {
        match client.ask(&["SET", "key", &value]).unwrap() {
            Reply::Error(text) => break text,
            written => assert_eq!(written, ok()),
        }
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "{}",
            server.said()
        );
    };
    assert!(refused.starts_with("MISCONF "), "{refused}");
    assert!(!refused.contains("no space is left"), "{refused}");
    faulty.relent();
    let begin = Instant::now();
    while client.ask(&["SET", "key", &value]).unwrap() != ok() {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "{}",
            server.said()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    write(&mut client, 3);
    server.stop();
}

#[test]
fn clients_without_a_password_give_way_to_those_who_have_it() {
    let dir = tempfile::tempdir().unwrap();
    let few = ["--maxclients-unauthenticated", "4", "--maxclients", "8"];
    let server = Server::start(&dir.path().join("db"), &few);
    let mut owner = server.connect().unwrap();
    assert_eq!(
        owner
            .ask(&["CONFIG", "SET", "requirepass", "secret"])
            .unwrap(),
        ok()
    );
    let mut silent: Vec<Client> = (0..4).map(|_| server.connect().unwrap()).collect();
    for client in &mut silent {
        assert!(
            matches!(client.ask(&["PING"]), Ok(Reply::Error(text)) if text.starts_with("NOAUTH"))
        );
    }
    std::thread::sleep(Duration::from_millis(1200));
    let known: Vec<Client> = (0..7)
        .map(|_| {
            let mut client = server.connect().unwrap();
            assert_eq!(client.ask(&["AUTH", "secret"]).unwrap(), ok());
            client
        })
        .collect();
    assert_eq!(known.len(), 7);
    for client in &mut silent {
        client.set_patience(Duration::from_secs(10));
        assert!(client.ask(&["PING"]).is_err(), "each gave its place");
    }
    let mut late = server.connect().unwrap();
    let refused = late.reply();
    assert!(
        matches!(&refused, Ok(Reply::Error(text)) if text.contains("max number of clients")),
        "{refused:?}"
    );
    assert_eq!(owner.ask(&["PING"]).unwrap(), Reply::Status("PONG".into()));
    server.kill();
}
