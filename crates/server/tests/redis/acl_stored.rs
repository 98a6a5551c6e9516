//! Tests of users after ACL SAVE and LOAD, CONFIG REWRITE and a restart.

use super::client::{Client, local, small, start, start_with};
use perdura_server::{Server, ServerOptions};
use std::path::Path;

/// Returns a server over `dir` that reads the settings and users there.
fn served(dir: &Path, options: ServerOptions) -> Server {
    let server = Server::start(options, small(&dir.join("data")));
    server.expect("a server whose users are sound")
}

fn client_of(server: &Server) -> Client<std::net::TcpStream> {
    let address = server.local_addr().expect("an address");
    let stream = std::net::TcpStream::connect(address).expect("a connection");
    let limit = Some(std::time::Duration::from_secs(20));
    stream.set_read_timeout(limit).expect("a timeout");
    Client::new(stream)
}

#[test]
fn a_rule_that_a_file_cannot_hold_is_refused_when_it_is_set() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("users.acl");
    std::fs::write(&file, "user default on nopass ~* &* +@all\n").expect("a file");
    let running = start_with(ServerOptions {
        aclfile: Some(file.clone()),
        ..local()
    });
    let mut root = running.connect();
    for word in [
        &b"+get|a b"[..],
        b"+get|a\nuser eve on nopass ~* +@all",
        b"+get|a\rb",
        b"+get|a\0b",
        b"~a b",
        b"&a\nb",
        b"(+get|a)b) ~x)",
        b"(~a) +get)",
        b"(~x &a) +get)",
    ] {
        let reply = root.call(&[b"ACL", b"SETUSER", b"u", word]);
        assert!(reply.ends_with("Syntax error"), "{word:?}: {reply}");
    }
    for name in [&b""[..], b"a b", b"a\nb", b"a\0b"] {
        let reply = root.call(&[b"ACL", b"SETUSER", name, b"on"]);
        assert!(reply.starts_with("-ERR Usernames can't"), "{reply}");
    }
    root.expect(&[
        ("ACL USERS", "[\"default\"]"),
        ("ACL SETUSER u +get|a) +get|(b ~(c) ~d(", "+OK"),
        ("ACL SAVE", "+OK"),
        ("ACL LOAD", "+OK"),
        (
            "ACL LIST",
            "[\"user default on nopass ~* &* +@all\", \"user u off ~(c) ~d( resetchannels -@all +get|a) +get|(b\"]",
        ),
    ]);
    std::fs::write(&file, "user a\0b on nopass\n").expect("a file");
    let reply = root.send("ACL LOAD");
    assert!(reply.contains("zero byte"), "{reply}");
}

#[test]
fn config_rewrite_stores_the_users() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("perdura.toml");
    std::fs::write(&path, "# mine\nlisten = [\"127.0.0.1:0\"]\n").expect("a file");
    let options = || {
        let mut settings = perdura_server::settings::Settings::default();
        perdura_server::settings::file::read(&path, &mut settings).expect("sound settings");
        settings.server
    };
    let server = served(dir.path(), options());
    let mut root = client_of(&server);
    while root.send("PING").starts_with("-LOADING") {}
    root.expect(&[
        (
            "ACL SETUSER alice on >pw ~a:* %RW~* &x +@read +select|0 (+set ~b)",
            "+OK",
        ),
        ("CONFIG REWRITE", "+OK"),
    ]);
    let users = root.send("ACL LIST");
    let text = std::fs::read_to_string(&path).expect("a file");
    assert!(
        text.starts_with("# mine\nlisten") && text.contains("alice on"),
        "{text}"
    );
    server.stop().expect("an end");
    let server = served(dir.path(), options());
    let mut root = client_of(&server);
    while root.send("PING").starts_with("-LOADING") {}
    assert_eq!(root.send("ACL LIST"), users);
    root.expect(&[
        ("AUTH alice pw", "+OK"),
        (
            "AUTH alice no",
            "-WRONGPASS invalid username-password pair or user is disabled.",
        ),
    ]);
    root.expect(&[
        ("RESET", "+RESET"),
        ("CONFIG SET requirepass new", "+OK"),
        ("CONFIG REWRITE", "+OK"),
    ]);
    server.stop().expect("an end");
    // An older line of `default` does not override the new password.
    let server = served(dir.path(), options());
    let mut root = client_of(&server);
    root.expect(&[
        ("PING", "-NOAUTH Authentication required."),
        ("AUTH new", "+OK"),
        ("ACL USERS", "[\"alice\", \"default\"]"),
    ]);
    while root.send("PING").starts_with("-LOADING") {}
    root.call(&[b"ACL", b"SETUSER", b"\xff", b"on"]);
    let reply = root.send("CONFIG REWRITE");
    assert!(reply.contains("not UTF-8"), "{reply}");
    server.stop().expect("an end");
}

#[test]
fn a_server_without_a_file_says_how_users_are_stored() {
    let running = start();
    running.connect().expect(&[
        ("CONFIG REWRITE", "-ERR The server is running without a config file"),
        ("ACL SAVE", "-ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration."),
    ]);
}
