//! The nodes: two `perdura logd` processes of this machine, or two that the caller names.

use std::io::{BufRead, BufReader};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use perdura::Nodes;
use perdura::mirror::{Key, MirrorOptions, NumberedFiles, Patience, Register};
use perdura_device::FileDisk;
use perdura_logd::{TcpNet, draw_nonce};

/// The time within which a node must say its address, and within which it must answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// The pause between a takeover's checks for replies.
const LOOK_EVERY: Duration = Duration::from_micros(100);
/// The arguments of a node. The system chooses its port.
const NODE: [&str; 3] = ["logd", "--listen", "127.0.0.1:0"];

/// The origin of the nodes.
#[derive(Debug, Clone)]
pub enum NodesFrom {
    /// Processes of this program, which the experiment starts and stops.
    Program(PathBuf),
    /// Two addresses, at which nodes listen already.
    Addresses(Vec<String>),
}

impl NodesFrom {
    /// Fails if a named node does not answer.
    ///
    /// # Errors
    /// The address of that node.
    pub fn check(&self) -> Result<()> {
        let NodesFrom::Addresses(addresses) = self else {
            return Ok(());
        };
        ensure!(
            addresses.len() == 2,
            "--nodes has two addresses, for example 10.0.0.2:7379,10.0.0.3:7379"
        );
        addresses.iter().try_for_each(|address| answers(address))
    }
}

/// Fails if nothing listens at an address.
fn answers(address: &str) -> Result<()> {
    let said = || {
        format!(
            "the node {address} does not answer: start it with `perdura logd --listen {address}`"
        )
    };
    let mut places = address.to_socket_addrs().with_context(said)?;
    let place = places.next().with_context(said)?;
    TcpStream::connect_timeout(&place, ANSWERS_WITHIN).with_context(said)?;
    Ok(())
}

/// Two nodes. Nodes that were started here end when this value is dropped.
pub struct LogNodes {
    /// The addresses of the nodes.
    pub addresses: Vec<String>,
    children: Vec<NodeProcess>,
}

/// A process that is ended when this value is dropped.
struct NodeProcess(Child);

impl Drop for NodeProcess {
    fn drop(&mut self) {
        // The process may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl LogNodes {
    /// Starts or finds two nodes.
    ///
    /// # Errors
    /// A node that does not start, or does not answer.
    pub fn start(from: &NodesFrom) -> Result<LogNodes> {
        from.check()?;
        let program = match from {
            NodesFrom::Addresses(addresses) => {
                return Ok(LogNodes {
                    addresses: addresses.clone(),
                    children: Vec::new(),
                });
            }
            NodesFrom::Program(program) => program,
        };
        let mut nodes = LogNodes {
            addresses: Vec::new(),
            children: Vec::new(),
        };
        for _ in 0..2 {
            let (child, lines) = spawn(program)?;
            nodes.children.push(child);
            nodes.addresses.push(address(&lines)?);
        }
        nodes.addresses.iter().try_for_each(|node| answers(node))?;
        Ok(nodes)
    }

    /// Returns the process ids of the nodes that were started here.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.children.iter().map(|child| child.0.id()).collect()
    }

    /// Returns the nodes in the form that a database takes. `view` is the folder of the view.
    ///
    /// # Errors
    /// Errors of the folder and of the addresses.
    pub fn connect(&self, view: &Path) -> Result<Nodes> {
        std::fs::create_dir_all(view).with_context(|| format!("making {}", view.display()))?;
        let [first, second] = &self.addresses[..] else {
            bail!("a mirror has two nodes");
        };
        let group = [first.clone(), second.clone()];
        let disk = FileDisk::shared(view)?;
        let token = random();
        Ok(Nodes {
            options: MirrorOptions {
                one_machine: true,
                ..MirrorOptions::new(vec![group], Key::none())
            },
            net: Arc::new(TcpNet::new(&self.addresses, None)?),
            register: Arc::new(move |uuid| {
                let files = NumberedFiles::new(Arc::clone(&disk), uuid, token);
                Ok(Box::new(files) as Box<dyn Register>)
            }),
            random: Arc::new(random),
            patience: Patience::default(),
            pass: Arc::new(|| std::thread::sleep(LOOK_EVERY)),
        })
    }
}

fn random() -> u64 {
    let nonce = draw_nonce().expect("the system gives random numbers");
    u64::from_le_bytes(*nonce.first_chunk().expect("a nonce has 32 bytes"))
}

/// Starts a node. Returns the process, and the lines of its log.
fn spawn(program: &Path) -> Result<(NodeProcess, Receiver<String>)> {
    let child = Command::new(program)
        .args(NODE)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.with_context(|| format!("starting {} logd", program.display()))?;
    let log = child.stderr.take().context("the log of a node")?;
    let (sender, lines) = channel();
    let read = move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            // The thread reads the log to its end, so that the node never waits for a reader.
            drop(sender.send(line));
        }
    };
    let child = NodeProcess(child);
    std::thread::Builder::new()
        .name("node log".into())
        .spawn(read)?;
    Ok((child, lines))
}

/// Returns the address that a node names in its log.
fn address(lines: &Receiver<String>) -> Result<String> {
    let mut said = Vec::new();
    while let Ok(line) = lines.recv_timeout(ANSWERS_WITHIN) {
        if let Some(address) = address_in(&line) {
            return Ok(address);
        }
        said.push(line);
    }
    bail!("a node did not start: {}", said.join("; "));
}

/// Returns the loopback address with a port in a line of a node's log.
fn address_in(line: &str) -> Option<String> {
    const HOST: &str = "127.0.0.1:";
    let (_, after) = line.split_once(HOST)?;
    let digits = after.find(|c: char| !c.is_ascii_digit());
    let port = &after[..digits.unwrap_or(after.len())];
    (!port.is_empty()).then(|| format!("{HOST}{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_in_the_first_line_of_the_log() {
        let line = "INFO Node 7f of machine 3 (by x) on 127.0.0.1:40123, @sock: up to 64 rings";
        assert_eq!(address_in(line).as_deref(), Some("127.0.0.1:40123"));
        assert_eq!(address_in("on 127.0.0.1:"), None);
        assert_eq!(address_in("nothing"), None);
    }

    #[test]
    fn a_node_that_does_not_answer_is_named() {
        let closed = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().to_string()
        };
        let from = NodesFrom::Addresses(vec![closed.clone(), closed.clone()]);
        let said = from.check().unwrap_err().to_string();
        assert!(
            said.contains(&closed) && said.contains("perdura logd"),
            "{said}"
        );
        let one = NodesFrom::Addresses(vec![closed]);
        assert!(
            one.check()
                .unwrap_err()
                .to_string()
                .contains("two addresses")
        );
    }

    #[test]
    fn a_program_that_is_no_node_is_reported() {
        let from = NodesFrom::Program("/bin/true".into());
        let Err(why) = LogNodes::start(&from) else {
            panic!("it says no address");
        };
        assert!(why.to_string().contains("did not start"), "{why}");
        let missing = NodesFrom::Program("/no/such/program".into());
        let Err(why) = LogNodes::start(&missing) else {
            panic!("there is no program");
        };
        assert!(why.to_string().contains("/no/such/program"), "{why}");
    }
}
