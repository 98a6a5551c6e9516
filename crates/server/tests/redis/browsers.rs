//! Tests that the server closes the connection of a client that does not speak RESP.

use super::client::{Running, local, start, start_with};
use perdura_server::ServerOptions;

/// Requests of other protocols, each followed by a command. The server must recognize every one of these requests.
const REQUESTS: &[&[u8]] = &[
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1:6379\r\n\r\nSET stolen 1\r\n",
    b"GET /?a HTTP/1.0\r\n\r\nSET stolen 1\r\n",
    b"DELETE /key HTTP/1.1\nSET stolen 1\r\n",
    b"FLUSHALL / HTTP/1.1\r\nSET stolen 1\r\n",
    b"\r\nPUT / HTTP/1.1\r\nSET stolen 1\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nSET stolen 1\r\n",
    b"post\r\nSET stolen 1\r\n",
    b"hOST: here\r\nSET stolen 1\r\n",
    b"*1\r\n$4\r\nPOST\r\n*3\r\n$3\r\nSET\r\n$6\r\nstolen\r\n$1\r\n1\r\n",
    b"*2\r\n$5\r\nHost:\r\n$1\r\nx\r\n*3\r\n$3\r\nSET\r\n$6\r\nstolen\r\n$1\r\n1\r\n",
    b"\x16\x03\x01\x00\x20\x01\x00\nSET stolen 1\r\n",
    b"\x00\x01\x00\x08\nSET stolen 1\r\n",
    b"GET a\x00b\nSET stolen 1\r\n",
];

/// Sends each request over a new connection after `dialog`. Checks that the server closes the connection without
/// an answer.
fn each_is_closed(running: &Running, dialog: &[(&str, &str)], password: Option<&str>) {
    let mut watcher = running.connect();
    if let Some(password) = password {
        watcher.expect(&[(&format!("AUTH {password}"), "+OK")]);
    }
    for (done, request) in (1..).zip(REQUESTS) {
        let mut client = running.connect();
        client.expect(dialog);
        client.write(request);
        assert_eq!(client.read(), "closed", "{}", request.escape_ascii());
        assert_eq!(watcher.figure("foreign_protocol_connections"), done);
    }
    watcher.expect(&[("GET stolen", "nil"), ("CONFIG RESETSTAT", "+OK")]);
}

#[test]
fn a_request_of_another_protocol_closes_the_connection_and_nothing_behind_it_runs() {
    let running = start();
    each_is_closed(&running, &[("SET kept 1", "+OK")], None);
    each_is_closed(&running, &[("MULTI", "+OK")], None);
    running.connect().expect(&[("GET kept", "\"1\"")]);
    let running = start_with(ServerOptions {
        requirepass: Some(String::from("secret")),
        ..local()
    });
    each_is_closed(&running, &[], Some("secret"));
    each_is_closed(&running, &[("AUTH secret", "+OK")], Some("secret"));
}

#[test]
fn get_and_keys_that_look_like_http_stay_what_they_are() {
    let running = start();
    let mut client = running.connect();
    client.write(b"SET key value\r\nGET key\r\nGET HTTP/1.1\r\nSET key \"HTTP/1.1\"\r\n");
    for reply in ["+OK", "\"value\"", "nil", "+OK"] {
        assert_eq!(client.read(), reply);
    }
    client.expect(&[
        ("GET key", "\"HTTP/1.1\""),
        ("SET / HTTP/1.1", "+OK"),
        ("GET /", "\"HTTP/1.1\""),
        ("SET POST Host:", "+OK"),
        ("GET POST", "\"Host:\""),
    ]);
    assert_eq!(client.call(&[b"SET", b"a\0b", b"\x16"]), "+OK");
    assert_eq!(client.call(&[b"GET", b"a\0b"]), "\"\u{16}\"");
}
