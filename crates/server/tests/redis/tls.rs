//! Tests of TLS, with certificates that the tests make.

use super::client::{Client, Running, encode, local, start_with};
use perdura_server::{ServeError, Server, ServerOptions, TlsAuthClients};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

type Secure = Client<StreamOwned<ClientConnection, TcpStream>>;

/// A directory with the certificates of a root, of the server `localhost` and of a client.
struct Papers {
    dir: TempDir,
}

impl Papers {
    fn new() -> Self {
        let papers = Papers {
            dir: TempDir::new().expect("a directory"),
        };
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        named(&mut params, "root");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"))
            .expect("a root");
        papers.write("root.pem", &root.pem());
        for (name, subject) in [("server", "localhost"), ("client", "someone")] {
            let key = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::new(vec![String::from(subject)]).expect("a name");
            named(&mut params, subject);
            let certificate = params.signed_by(&key, &root).expect("a certificate");
            papers.write(&format!("{name}.pem"), &certificate.pem());
            papers.write(&format!("{name}.key"), &key.serialize_pem());
        }
        papers
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("a file");
    }

    fn options(&self, clients: TlsAuthClients) -> ServerOptions {
        ServerOptions {
            tls_listen: local().listen,
            tls_cert_file: Some(self.path("server.pem")),
            tls_key_file: Some(self.path("server.key")),
            tls_ca_cert_file: Some(self.path("root.pem")),
            tls_auth_clients: clients,
            ..local()
        }
    }

    fn client(&self, shown: bool) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for certificate in chain(&self.path("root.pem")) {
            roots.add(certificate).expect("a root");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        Arc::new(if shown {
            let key = PrivateKeyDer::from_pem_file(self.path("client.key")).expect("a key");
            builder
                .with_client_auth_cert(chain(&self.path("client.pem")), key)
                .expect("a certificate")
        } else {
            builder.with_no_client_auth()
        })
    }

    fn connect(&self, running: &Running, shown: bool) -> Secure {
        let socket = dial(running);
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(self.client(shown), name).expect("a session");
        Client::new(StreamOwned::new(session, socket))
    }
}

/// Gives a certificate its own name. Certificates with equal names would be treated as self-signed.
fn named(params: &mut CertificateParams, name: &str) {
    params.distinguished_name.push(DnType::CommonName, name);
}

fn chain(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path)
        .expect("a file")
        .collect::<Result<_, _>>()
        .expect("certificates")
}

fn dial(running: &Running) -> TcpStream {
    let socket = TcpStream::connect(running.server.tls_addr().expect("an address"));
    let socket = socket.expect("a connection");
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a timeout");
    socket
}

#[test]
fn commands_values_and_pipelines_pass_through_tls_whole() {
    let papers = Papers::new();
    let running = start_with(papers.options(TlsAuthClients::No));
    let mut client = papers.connect(&running, false);
    assert_eq!(client.send("PING"), "+PONG");
    let value: Vec<u8> = (0..900_000u32)
        .map(|i| b'a' + i.to_le_bytes()[1] % 26)
        .collect();
    assert_eq!(client.call(&[b"SET", b"big", &value]), "+OK");
    let whole = format!("\"{}\"", String::from_utf8_lossy(&value));
    // The replies exceed the buffers of the sockets and wait, because the client does not read.
    for _ in 0..20 {
        client.push(&[b"GET", b"big"]);
    }
    std::thread::sleep(Duration::from_millis(100));
    for _ in 0..20 {
        assert!(client.read() == whole, "a reply came through changed");
    }
    let many = encode(&[b"INCR", b"n"]).repeat(10_000);
    client.write(&many);
    for n in 1..=10_000 {
        assert_eq!(client.read(), format!(":{n}"));
    }
    assert_eq!(running.connect().send("GET n"), "\"10000\"");
    assert_eq!(client.send("QUIT"), "+OK");
    assert_eq!(client.read(), "closed");
}

#[test]
fn a_half_closed_peer_gets_what_it_asked_for_and_a_farewell() {
    let papers = Papers::new();
    let running = start_with(papers.options(TlsAuthClients::No));
    let mut client = papers.connect(&running, false);
    client.push(&[b"SET", b"k", b"v"]);
    client.push(&[b"GET", b"k"]);
    client.socket().conn.send_close_notify();
    client.socket().flush_all();
    client
        .socket()
        .sock
        .shutdown(Shutdown::Write)
        .expect("a shutdown");
    assert_eq!(client.read(), "+OK");
    assert_eq!(client.read(), "\"v\"");
    let mut rest = Vec::new();
    let end = client.socket().read_to_end(&mut rest);
    assert_eq!(end.expect("an end that is not a cut"), 0);
}

trait FlushAll {
    fn flush_all(&mut self);
}

impl FlushAll for StreamOwned<ClientConnection, TcpStream> {
    fn flush_all(&mut self) {
        while self.conn.wants_write() {
            self.conn.write_tls(&mut self.sock).expect("a write");
        }
    }
}

#[test]
fn who_speaks_no_tls_or_breaks_it_is_closed_and_nobody_else_notices() {
    let papers = Papers::new();
    let running = start_with(papers.options(TlsAuthClients::No));
    let mut good = papers.connect(&running, false);
    assert_eq!(good.send("PING"), "+PONG");
    let hello = {
        let name = ServerName::try_from("localhost").expect("a name");
        let mut session = ClientConnection::new(papers.client(false), name).expect("a session");
        let mut bytes = Vec::new();
        session.write_tls(&mut bytes).expect("a vector");
        bytes
    };
    let mut inputs = vec![
        b"*1\r\n$4\r\nPING\r\n".to_vec(),
        vec![0x16, 3, 1, 0xff, 0xff],
        // This record begins a hello that claims a length of 16 MB.
        [
            &[0x16, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..],
            &[0; 16_379],
        ]
        .concat(),
        [&hello[..], &hello[..]].concat(),
    ];
    for at in (0..hello.len()).step_by(7) {
        let mut broken = hello.clone();
        broken[at] ^= 0x55;
        inputs.push(broken);
    }
    for input in inputs {
        let mut socket = dial(&running);
        // The server may close the connection before it has read all input.
        let _ = std::io::Write::write_all(&mut socket, &input);
        let _ = socket.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        assert!(
            !answer.starts_with(b"+"),
            "a stranger was answered in the clear"
        );
    }
    assert_eq!(good.send("PING"), "+PONG");
    let mut alone = papers.connect(&running, false);
    assert_eq!(alone.send("PING"), "+PONG");
}

#[test]
fn clients_show_certificates_where_they_must() {
    let papers = Papers::new();
    let running = start_with(papers.options(TlsAuthClients::Yes));
    assert_eq!(papers.connect(&running, true).send("PING"), "+PONG");
    let mut bare = papers.connect(&running, false);
    bare.push(&[b"PING"]);
    assert_eq!(bare.read(), "closed");
    // The server treats a certificate of another root like a missing one.
    let others = Papers::new();
    for name in ["client.pem", "client.key"] {
        std::fs::copy(others.path(name), papers.path(name)).expect("a copy");
    }
    let mut forged = papers.connect(&running, true);
    forged.push(&[b"PING"]);
    assert_eq!(forged.read(), "closed");
    let running = start_with(papers.options(TlsAuthClients::Optional));
    assert_eq!(papers.connect(&running, false).send("PING"), "+PONG");
    let mut forged = papers.connect(&running, true);
    forged.push(&[b"PING"]);
    assert_eq!(forged.read(), "closed");
}

#[test]
fn files_that_are_no_certificates_are_named() {
    let papers = Papers::new();
    let start = |options: ServerOptions| {
        let db = super::client::small(&papers.path("data"));
        match Server::start(options, db) {
            Err(error @ ServeError::Tls(_)) => error.to_string(),
            other => panic!("it started or failed otherwise: {other:?}"),
        }
    };
    let good = papers.options(TlsAuthClients::No);
    let broken = ServerOptions {
        tls_cert_file: Some(papers.path("server.key")),
        ..good.clone()
    };
    assert!(start(broken).contains("server.key"));
    let missing = ServerOptions {
        tls_key_file: Some(papers.path("nowhere.key")),
        ..good.clone()
    };
    assert!(start(missing).contains("nowhere.key"));
    let mixed = ServerOptions {
        tls_key_file: Some(papers.path("client.key")),
        ..good.clone()
    };
    assert!(start(mixed).contains("client.key"));
    let rootless = ServerOptions {
        tls_ca_cert_file: None,
        tls_auth_clients: TlsAuthClients::Yes,
        ..good
    };
    assert!(start(rootless).contains("tls-ca-cert-file"));
}

#[test]
fn redis_cli_speaks_tls_with_it() {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        eprintln!("redis-cli is not installed; skipped");
        return;
    }
    let papers = Papers::new();
    let running = start_with(papers.options(TlsAuthClients::Yes));
    let port = running
        .server
        .tls_addr()
        .expect("an address")
        .port()
        .to_string();
    let file = |name: &str| papers.path(name).display().to_string();
    let said = Command::new("redis-cli")
        .args([
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "--tls",
            "--sni",
            "localhost",
        ])
        .args(["--cacert", &file("root.pem")])
        .args(["--cert", &file("client.pem"), "--key", &file("client.key")])
        .args(["-3", "SET", "k", "v"])
        .output()
        .expect("redis-cli");
    let said =
        String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.trim(), "OK");
}
