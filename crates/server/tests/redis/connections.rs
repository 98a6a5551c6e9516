use super::client::{Client, Running, local, small, start, start_gated, start_with};
use perdura_server::{ServeError, Server, ServerOptions};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use tempfile::TempDir;

fn with_password() -> Running {
    start_with(ServerOptions {
        requirepass: Some(String::from("secret")),
        ..local()
    })
}

const NOAUTH: &str = "-NOAUTH Authentication required.";
const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

#[test]
fn strangers_get_nothing_before_auth() {
    let running = with_password();
    let mut client = running.connect();
    client.expect(&[
        ("GET k", NOAUTH),
        ("PING", NOAUTH),
        ("INFO", NOAUTH),
        ("SHUTDOWN", NOAUTH),
        ("AUTH wrong", WRONGPASS),
        ("AUTH other secret", WRONGPASS),
        ("AUTH a b c", "-ERR syntax error"),
        ("HELLO 3 AUTH default wrong", WRONGPASS),
    ]);
    assert!(
        client
            .send("HELLO 3")
            .starts_with("-NOAUTH HELLO must be called")
    );
    client.expect(&[
        ("AUTH secret", "+OK"),
        ("PING", "+PONG"),
        ("RESET", "+RESET"),
    ]);
    client.expect(&[
        ("PING", NOAUTH),
        ("AUTH default secret", "+OK"),
        ("PING", "+PONG"),
    ]);
    let mut client = running.connect();
    let hello = client.send("HELLO 3 AUTH default secret SETNAME me");
    assert!(hello.starts_with("{\"server\": \"redis\", \"version\": \"7.0.15\", \"proto\": :3"));
    client.expect(&[("CLIENT GETNAME", "\"me\"")]);
    let mut client = running.connect();
    client.write(b"*11\r\n");
    assert_eq!(
        client.read(),
        "-ERR Protocol error: unauthenticated multibulk length"
    );
    let mut client = running.connect();
    client.write(b"*2\r\n$3\r\nGET\r\n$16385\r\n");
    assert_eq!(
        client.read(),
        "-ERR Protocol error: unauthenticated bulk length"
    );
    assert_eq!(client.read(), "closed");
}

#[test]
fn auth_without_a_password_says_so() {
    let running = start();
    let mut client = running.connect();
    assert!(
        client
            .send("AUTH x")
            .starts_with("-ERR AUTH <password> called without any password")
    );
    client.expect(&[("AUTH default x", "+OK"), ("AUTH other x", WRONGPASS)]);
}

#[test]
fn hello_switches_the_protocol_both_ways() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[("GET k", "nil")]);
    let hello = client.send("HELLO");
    assert!(hello.starts_with("[\"server\", \"redis\""), "{hello}");
    assert!(client.send("HELLO 3").starts_with("{\"server\": \"redis\""));
    client.write(b"GET k\r\nCONFIG GET save\r\n");
    client.expect(&[("ECHO sync", "nil")]);
    assert_eq!(client.read(), "{\"save\": \"\"}");
    assert_eq!(client.read(), "\"sync\"");
    assert!(client.send("CLIENT INFO").starts_with("\"txt:id="));
    assert!(client.send("HELLO 2").starts_with("[\"server\""));
    client.expect(&[
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        (
            "HELLO x",
            "-ERR Protocol version is not an integer or out of range",
        ),
        ("HELLO 3 FOO", "-ERR Syntax error in HELLO option 'FOO'"),
        ("HELLO 3 SETNAME a\nb", CLIENT_NAME),
    ]);
}

const CLIENT_NAME: &str =
    "-ERR Client names cannot contain spaces, newlines or special characters.";

#[test]
fn clients_have_names_ids_and_levels() {
    let running = start();
    let (mut client, mut other) = (running.connect(), running.connect());
    client.expect(&[
        ("CLIENT GETNAME", "nil"),
        ("CLIENT SETNAME me", "+OK"),
        ("CLIENT GETNAME", "\"me\""),
        ("CLIENT SETNAME a\nb", CLIENT_NAME),
        ("CLIENT SETINFO LIB-NAME test", "+OK"),
        ("CLIENT SETINFO FOO test", "-ERR Unrecognized option 'FOO'"),
        ("CLIENT NO-EVICT ON", "+OK"),
        ("CLIENT DURABILITY", "\"disk\""),
        ("CLIENT DURABILITY mem", "+OK"),
        ("CLIENT DURABILITY", "\"mem\""),
        (
            "CLIENT DURABILITY none",
            "-ERR the durability is mem, mirror or disk",
        ),
        ("CLIENT DURABILITY MIRROR", "+OK"),
        ("CLIENT DURABILITY", "\"mirror\""),
        ("CLIENT DURABILITY mem", "+OK"),
        ("SET k v", "+OK"),
        ("GET k", "\"v\""),
        (
            "CLIENT FOO",
            "-ERR unknown subcommand 'FOO'. Try CLIENT HELP.",
        ),
        (
            "CLIENT ID x",
            "-ERR wrong number of arguments for 'client|id' command",
        ),
    ]);
    let id = &client.send("CLIENT ID")[1..];
    let list = other.send("CLIENT LIST");
    let line = list
        .lines()
        .find(|line| line.contains(&format!("id={id} ")));
    let line = line.expect("the other client");
    assert!(
        line.contains(" name=me ") && line.contains(" lib-name=test "),
        "{line}"
    );
    assert!(
        line.contains(" durability=mem") && line.contains(" cmd=client|id "),
        "{line}"
    );
}

#[test]
fn inline_requests_and_pipelines_work() {
    let running = start();
    let mut client = running.connect();
    client.write(b"SET k \"a b\"\r\n\r\nGET k\nPING\r\nQUIT\r\nPING\r\n");
    let replies: Vec<String> = (0..5).map(|_| client.read()).collect();
    assert_eq!(replies, ["+OK", "\"a b\"", "+PONG", "+OK", "closed"]);
}

#[test]
fn a_half_closed_client_still_gets_its_replies() {
    let running = start();
    let mut client = running.connect();
    for i in 0..1000 {
        client.push(&[b"SET", format!("k{i}").as_bytes(), b"v"]);
    }
    client
        .socket()
        .shutdown(Shutdown::Write)
        .expect("half a close");
    for _ in 0..1000 {
        assert_eq!(client.read(), "+OK");
    }
    assert_eq!(client.read(), "closed");
}

#[test]
fn a_unix_socket_is_served_and_removed() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("perdura.sock");
    let stale = std::os::unix::net::UnixListener::bind(&path).expect("a stale socket");
    drop(stale);
    let running = start_with(ServerOptions {
        unix_socket: Some(path.clone()),
        ..local()
    });
    let mut client = Client::new(UnixStream::connect(&path).expect("a connection"));
    client.expect(&[("SET k v", "+OK"), ("GET k", "\"v\"")]);
    assert!(client.send("CLIENT INFO").contains(" flags=U "));
    let options = ServerOptions {
        unix_socket: Some(path.clone()),
        ..local()
    };
    let error = Server::start(options, small(&dir.path().join("other")));
    assert!(
        matches!(error, Err(ServeError::Bind { .. })),
        "a living socket is respected"
    );
    running.server.stop().expect("a clean end");
    assert!(!path.exists());
}

#[test]
fn a_taken_port_and_a_foreign_address_are_start_errors() {
    let running = start();
    let taken = running.server.local_addr().expect("an address");
    let dir = TempDir::new().expect("a directory");
    for (address, text) in [
        (taken, "cannot listen on"),
        ("0.0.0.0:0".parse().expect("any"), "requirepass"),
    ] {
        let options = ServerOptions {
            listen: vec![address],
            ..local()
        };
        let error = Server::start(options, small(dir.path())).expect_err("refused");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn clients_are_told_that_the_database_is_loading() {
    let (go, gate) = channel();
    let running = start_gated(gate, Some("secret"));
    let mut client = running.connect();
    client.expect(&[("PING", NOAUTH), ("AUTH secret", "+OK")]);
    for line in ["PING", "GET k", "SET k v", "DBSIZE", "FLUSHALL", "BGSAVE"] {
        let reply = client.send(line);
        assert!(
            reply.starts_with("-LOADING Perdura is loading the dataset in memory: "),
            "{reply}"
        );
        assert!(reply.contains("% done, "), "{reply}");
    }
    let info = client.send("INFO persistence");
    assert!(
        info.contains("loading:1") && info.contains("loading_eta_seconds:"),
        "{info}"
    );
    assert!(client.send("INFO").contains("# Server"));
    client.expect(&[
        ("CONFIG GET save", "[\"save\", \"\"]"),
        ("COMMAND DOCS nothing", "[]"),
    ]);
    go.send(()).expect("the gate");
    running.wait_until_loaded(Some("secret"));
    client.expect(&[("SET k v", "+OK")]);
}

#[test]
fn a_database_that_does_not_open_ends_the_server() {
    let dir = TempDir::new().expect("a directory");
    let open = |_| Err(perdura_base::Error::Usage(String::from("no such thing")));
    let server = Server::start_with(local(), 1 << 20, open).expect("bound");
    let error = server.join().expect_err("not opened");
    assert_eq!(error.to_string(), "no such thing");
    drop(dir);
}
