use super::*;
use crate::testbed::Testbed;
use std::io::{Read, Write};

/// An HTTP server, and the thread that gives it figures.
struct Served {
    http: Http,
    _answers: JoinHandle<()>,
}

fn serve_with(hosts: &[&str], password: Option<&str>) -> Served {
    let testbed = Testbed::new();
    let control = testbed.control();
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let address = "127.0.0.1:0".parse().expect("an address");
    let http = Http::start(address, Guard::new(&hosts, password), control).expect("a free port");
    let answers = thread::spawn(move || {
        while let Ok(message) = testbed.messages.recv() {
            match message {
                Message::Figures(sender) => drop(sender.send(Fields::default())),
                Message::Stop { .. } => return,
                _ => {}
            }
        }
    });
    Served {
        http,
        _answers: answers,
    }
}

impl Served {
    fn connect(&self) -> std::net::TcpStream {
        let stream = std::net::TcpStream::connect(self.http.address()).expect("it listens");
        let timeout = Some(Duration::from_secs(20));
        stream.set_read_timeout(timeout).expect("a timeout");
        stream
    }

    /// Requests `target` with these header lines, and returns the status of the answer.
    fn status(&self, target: &str, headers: &str) -> String {
        let mut stream = self.connect();
        let port = self.http.address().port().to_string();
        let headers = headers.replace("PORT", &port);
        let request = format!("GET {target} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        String::from_utf8_lossy(answer.get(9..12).unwrap_or_default()).into_owned()
    }
}

#[test]
fn a_request_must_name_the_address_it_has_come_to() {
    let served = serve_with(&["db.example.org", "other:80", "[fd00::1]"], None);
    for (headers, status) in [
        ("Host: 127.0.0.1:PORT\r\n", "200"),
        ("Host: LocalHost:PORT\r\n", "200"),
        ("Host: localhost:1234\r\n", "200"),
        ("Host: [::1]:PORT\r\n", "200"),
        ("Host: DB.example.org:PORT\r\n", "200"),
        ("Host: db.example.org\r\n", "200"),
        ("Host: other:80\r\n", "200"),
        ("Host: [FD00::1]:9\r\n", "200"),
        ("Host: other:PORT\r\n", "403"),
        ("Host: evil.example:PORT\r\n", "403"),
        ("Host: localhost.evil.example:PORT\r\n", "403"),
        ("Host: 10.0.0.1:PORT\r\n", "403"),
        ("Host: a@127.0.0.1:PORT\r\n", "400"),
        ("Host: 127.0.0.1:x\r\n", "400"),
        ("Host: \r\n", "400"),
        ("", "400"),
        ("Host: 127.0.0.1:PORT\r\nHost: 127.0.0.1:PORT\r\n", "400"),
        ("Host: 127.0.0.1:PORT\r\nHost: evil.example\r\n", "400"),
    ] {
        for target in ["/metrics", "/", "/status.json"] {
            assert_eq!(served.status(target, headers), status, "{target} {headers}");
        }
    }
    let absolute = format!("http://{}/metrics", served.http.address());
    for target in [absolute.as_str(), "http://evil.example/metrics"] {
        assert_eq!(served.status(target, "Host: 127.0.0.1:PORT\r\n"), "400");
    }
}

#[test]
fn a_page_of_another_site_may_not_ask() {
    let served = serve_with(&["db.example.org"], None);
    let own = "Host: 127.0.0.1:PORT\r\n";
    for (origin, status) in [
        ("Origin: http://127.0.0.1:PORT\r\n", "200"),
        ("Origin: http://127.0.0.1:1\r\n", "403"),
        ("Origin: http://localhost:PORT\r\n", "403"),
        ("Origin: http://evil.example\r\n", "403"),
        ("Origin: null\r\n", "403"),
        (
            "Origin: http://127.0.0.1:PORT\r\nOrigin: http://evil.example\r\n",
            "403",
        ),
    ] {
        let headers = format!("{own}{origin}");
        assert_eq!(served.status("/metrics", &headers), status, "{origin}");
    }
    let proxied = "Host: db.example.org\r\nOrigin: https://db.example.org\r\n";
    assert_eq!(served.status("/metrics", proxied), "200");
}

#[test]
fn a_password_is_asked_for_if_there_is_one() {
    let served = serve_with(&[], Some("geheim:1"));
    for (credentials, status) in [
        ("Basic YW55OmdlaGVpbTox", "200"),
        ("basic OmdlaGVpbTox", "200"),
        ("Bearer geheim:1", "200"),
        ("Bearer geheim:2", "401"),
        ("Basic !!!!", "401"),
        ("Digest geheim:1", "401"),
    ] {
        let headers = format!("Host: localhost:PORT\r\nAuthorization: {credentials}\r\n");
        assert_eq!(served.status("/metrics", &headers), status, "{credentials}");
    }
    assert_eq!(served.status("/metrics", "Host: localhost:PORT\r\n"), "401");
    let foreign = "Host: evil.example\r\nAuthorization: Bearer geheim:1\r\n";
    assert_eq!(served.status("/metrics", foreign), "403");
}

#[test]
fn slow_and_silent_readers_do_not_delay_a_scrape() {
    let served = serve_with(&[], None);
    let ask = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // Clients that hold a connection in one of three ways: they send nothing, or half a head, or do
    // not read their answers.
    let held: Vec<_> = (0..CONNECTIONS_MAX * 3)
        .map(|number| {
            let mut stream = served.connect();
            let said = match number % 3 {
                0 => String::new(),
                1 => String::from(&ask[..20]),
                _ => ask.repeat(200),
            };
            // This connection may have been closed already to admit a newer one.
            let _ = stream.write_all(said.as_bytes());
            stream
        })
        .collect();
    let begin = Instant::now();
    for _ in 0..10 {
        assert_eq!(served.status("/metrics", "Host: localhost\r\n"), "200");
    }
    assert!(begin.elapsed() < HEAD_SECONDS_MAX, "{:?}", begin.elapsed());
    drop(held);
}
