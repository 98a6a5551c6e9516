//! Tests of the metrics and the status page, by plain HTTP requests and in a browser.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Reply, Server, free_port};

/// Returns the whole answer to a GET. The connection stays open, as with a browser, so the length in the header
/// determines where the answer ends.
pub fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let begin = head.len();
        assert!(stream.read_line(&mut head).unwrap() > 0, "{head}");
        let line = head[begin..].to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

fn start(dir: &Path) -> (Server, u16) {
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    (Server::start(dir, &["--metrics-listen", &listen]), port)
}

fn metric(page: &str, name: &str) -> f64 {
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("no {name}: {page}"));
    value.parse().unwrap()
}

#[test]
fn metrics_are_the_counters_of_info() {
    let dir = tempfile::tempdir().unwrap();
    let (server, port) = start(dir.path());
    let mut client = server.connect().unwrap();
    for i in 0..50 {
        let key = format!("key {i}");
        assert_eq!(
            client.ask(&["SET", &key, "value"]).unwrap(),
            Reply::Status("OK".into())
        );
    }
    std::thread::sleep(Duration::from_millis(150));
    let page = get(port, "/metrics");
    assert!(page.starts_with("HTTP/1.1 200 OK"), "{page}");
    assert!(page.contains("text/plain; version=0.0.4"), "{page}");
    assert!(metric(&page, "perdura_commands_total") >= 50.0);
    assert!((metric(&page, "perdura_clients") - 1.0).abs() < 0.1);
    assert!((metric(&page, "perdura_keys{db=\"db0\"}") - 50.0).abs() < 0.1);
    assert!(metric(&page, "perdura_log_syncs_total") >= 1.0);
    assert!(metric(&page, "perdura_memory_resident_bytes") > 1e6);
    for line in page.lines().filter(|line| line.starts_with("perdura_")) {
        let (_, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    let json = get(port, "/status.json");
    assert!(json.contains("\"stage\":\"serving\""), "{json}");
    assert!(json.contains("\"alarms\":[]"), "{json}");
    assert!(get(port, "/nothing").starts_with("HTTP/1.1 404"));
    assert!(get(port, "/").contains("Content-Security-Policy".to_lowercase().as_str()));
}

#[test]
fn slow_and_many_readers_of_metrics_do_not_hold_up_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let (server, port) = start(dir.path());
    let idle: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
            stream
        })
        .collect();
    let begin = Instant::now();
    for _ in 0..20 {
        server.ask(&["SET", "a", "b"]);
    }
    assert!(get(port, "/metrics").contains("perdura_commands_total"));
    assert!(begin.elapsed() < Duration::from_secs(5));
    drop(idle);
    server.stop();
}

/// A browser. It is ended when this value is dropped.
pub struct Browser {
    child: Child,
    port: u16,
    _home: tempfile::TempDir,
}

/// Returns the path of this machine's browser, if there is one.
pub fn chromium() -> Option<PathBuf> {
    let places = std::env::split_paths(&std::env::var_os("PATH")?).collect::<Vec<_>>();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    places
        .iter()
        .flat_map(|place| names.map(|name| place.join(name)))
        .find(|path| path.is_file())
}

impl Browser {
    /// Opens a page.
    pub fn open(program: &Path, url: &str) -> Browser {
        let home = tempfile::tempdir().unwrap();
        let port = free_port();
        let child = Command::new(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
            ])
            .arg(format!("--remote-debugging-port={port}"))
            .arg(format!("--user-data-dir={}", home.path().display()))
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Browser {
            child,
            port,
            _home: home,
        }
    }

    /// Returns the debugging address of the browser's page. Waits until the page exists.
    fn page(&self, url: &str) -> String {
        let begin = Instant::now();
        loop {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                let text = get(self.port, "/json/list");
                let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                let pages: Vec<serde_json::Value> = serde_json::from_str(body).unwrap_or_default();
                let page = pages.iter().find(|page| page["url"].as_str() == Some(url));
                if let Some(address) = page.and_then(|p| p["webSocketDebuggerUrl"].as_str()) {
                    return address.to_owned();
                }
            }
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "the browser shows no page"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the text of an element of the page.
fn text_of(page: &mut tungstenite::WebSocket<impl Read + Write>, id: &str) -> String {
    let script = format!("document.getElementById('{id}').textContent");
    let ask = serde_json::json!({
        "id": 1,
        "method": "Runtime.evaluate",
        "params": { "expression": script },
    });
    page.send(tungstenite::Message::text(ask.to_string()))
        .unwrap();
    loop {
        let answer = page.read().unwrap();
        let answer: serde_json::Value =
            serde_json::from_str(answer.to_text().unwrap()).unwrap_or_default();
        if answer["id"] == 1 {
            let value = &answer["result"]["result"]["value"];
            return value.as_str().unwrap_or("").to_owned();
        }
    }
}

fn number(text: &str) -> u64 {
    text.replace(',', "").parse().unwrap_or(0)
}

#[test]
fn a_browser_shows_figures_that_move() {
    let program = chromium().expect("chromium; scripts/install-test-deps.sh installs it");
    let dir = tempfile::tempdir().unwrap();
    let (server, port) = start(dir.path());
    let url = format!("http://127.0.0.1:{port}/");
    let browser = Browser::open(&program, &url);
    let address = browser.page(&url);
    let stream = TcpStream::connect(("127.0.0.1", browser.port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let (mut page, _) = tungstenite::client(address.as_str(), stream).unwrap();
    let mut client = server.connect().unwrap();
    let mut await_text = |id: &str, sound: &dyn Fn(&str) -> bool| {
        let begin = Instant::now();
        loop {
            client.ask(&["INCR", "counter"]).unwrap();
            let text = text_of(&mut page, id);
            if sound(&text) {
                return text;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "{id} shows {text}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    await_text("stage", &|text| text == "serving");
    let first = number(&await_text("commands", &|text| number(text) > 0));
    await_text("commands", &|text| number(text) > first + 5);
    await_text("throughput", &|text| number(text) > 0);
    await_text("keys", &|text| text == "1");
    await_text("durable", &|text| number(text) > 1);
    await_text("memory", &|text| text.contains("iB"));
    server.kill();
    let begin = Instant::now();
    while text_of(&mut page, "stage") != "gone" {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "the page shows a server that is gone"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
