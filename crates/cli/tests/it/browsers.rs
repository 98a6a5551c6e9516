//! A real browser loads a web page that tries to delete the server's data. This takes seconds, so the test runs only if
//! `PERDURA_BROWSER` is set. Other tests replay recorded requests of browsers in every run.
//!
//! ```text
//! PERDURA_BROWSER=1 cargo test -p perdura-cli --test it browsers
//! ```

use crate::status::{Browser, chromium};
use crate::support::{Reply, Server};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// The hostile page. `PORT` is replaced by the server's port. The page requests `/done` when it has tried everything.
const PAGE: &str = r#"<!doctype html><meta charset="utf-8"><body><script>
const at = 'http://127.0.0.1:PORT/';
const body = '*1\r\n$8\r\nFLUSHALL\r\nSET stolen yes\r\n';
const pause = ms => new Promise(done => setTimeout(done, ms));
async function attempt(options) {
  try { await fetch(at, { mode: 'no-cors', ...options }); } catch (refused) {}
}
async function go() {
  const data = new FormData();
  data.append('f', new Blob(['\r\n' + body]), 'b.txt');
  await attempt({ method: 'POST', body });
  await attempt({ method: 'POST', body: data });
  await attempt({ method: 'PUT', mode: 'cors', body });
  navigator.sendBeacon(at, body);
  try { new WebSocket('ws://127.0.0.1:PORT/'); } catch (refused) {}
  for (const type of ['text/plain', 'multipart/form-data']) {
    const frame = document.createElement('iframe');
    frame.name = type;
    const form = Object.assign(document.createElement('form'),
      { method: 'POST', action: at, enctype: type, target: type });
    const field = document.createElement('textarea');
    field.name = 'x';
    field.value = '\n' + body;
    form.append(field);
    document.body.append(frame, form);
    form.submit();
    await pause(300);
  }
  await fetch('/done');
}
go();
</script>"#;

/// Serves the page to every connection. Sends a message to `done` when the page has requested `/done`.
fn serve_page(listener: &TcpListener, page: &str, done: &Sender<()>) {
    for stream in listener.incoming().flatten() {
        answer(stream, page, done);
    }
}

fn answer(stream: TcpStream, page: &str, done: &Sender<()>) {
    let mut stream = BufReader::new(stream);
    let (mut head, mut line) = (String::new(), String::from("-"));
    while !line.trim().is_empty() {
        line.clear();
        if stream.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        head += &line;
    }
    let page = match head.split(' ').nth(1) {
        Some("/") => page,
        Some("/done") => {
            let _ = done.send(());
            ""
        }
        _ => "",
    };
    let length = page.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{page}"
    );
    let _ = stream.get_mut().write_all(answer.as_bytes());
}

#[test]
fn a_web_page_in_a_real_browser_cannot_change_a_default_server() {
    if std::env::var_os("PERDURA_BROWSER").is_none() {
        return;
    }
    let program = chromium().expect("chromium; scripts/install-test-deps.sh installs it");
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    assert_eq!(
        server.ask(&["SET", "kept", "1"]),
        Reply::Status("OK".into())
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let page = PAGE.replace("PORT", &server.port().to_string());
    let (done, is_done) = channel();
    std::thread::spawn(move || serve_page(&listener, &page, &done));
    let browser = Browser::open(&program, &url);
    is_done
        .recv_timeout(Duration::from_secs(60))
        .expect("the page has tried everything");
    drop(browser);
    let Reply::Bulk(Some(info)) = server.ask(&["INFO", "stats"]) else {
        panic!("no figures");
    };
    let info = String::from_utf8_lossy(&info).into_owned();
    let closed = info
        .lines()
        .find_map(|line| line.strip_prefix("foreign_protocol_connections:"))
        .and_then(|count| count.trim().parse::<u32>().ok());
    assert!(closed.is_some_and(|count| count >= 5), "{info}");
    assert_eq!(
        server.ask(&["GET", "kept"]),
        Reply::Bulk(Some(b"1".to_vec()))
    );
    assert_eq!(server.ask(&["EXISTS", "stolen"]), Reply::Number(0));
    server.stop();
}
