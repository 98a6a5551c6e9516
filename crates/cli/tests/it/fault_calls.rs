//! Tests of a server with a faulty system call. The call fails, alone or with all later calls. Or a write writes only
//! its first half, or the process is killed before the call. A case consists of a class of calls, a fault and a number
//! n: the n-th call of this class has the fault. Each case runs a session: the server starts, gets writes, takes a
//! checkpoint, fills an archive and ends.
//!
//! The server with the fault must continue, or end with a message and an exit code. It must not panic or hang.
//! Afterwards a server without faults must have all acknowledged writes, and `verify` must find no problem.
//!
//! Writes through an `io_uring` ring are not system calls. In `sectors.rs`, a file system under a loop device causes
//! the faults of a ring.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::fault_classes::CLASSES;
use crate::support::{Client, Reply, Server, arg, ended, number_from_env, request};
use crate::syscalls::{Act, Plan, Supervisor};

/// The time that the test waits for a reply before it checks the server on a second connection.
const SHORT: Duration = Duration::from_secs(2);
/// The time without an answer after which a server counts as hanging.
const HANG: Duration = Duration::from_secs(30);

/// A session with one fault.
#[derive(Debug, Clone, Copy)]
struct Case {
    class: usize,
    act: Act,
    nth: u64,
    /// True if the session begins with the database of a server that was killed.
    old: bool,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (class, begins) = (&CLASSES[self.class], if self.old { "old" } else { "new" });
        write!(
            f,
            "{} {:?} at {} of a {begins} database",
            class.name, self.act, self.nth
        )
    }
}

/// The values that clients expect.
#[derive(Clone, Default)]
struct Ledger {
    acknowledged: BTreeMap<String, String>,
    /// For each key, the values from requests that failed or had no reply. The key may have one of these values instead
    /// of the acknowledged value.
    doubtful: BTreeMap<String, Vec<String>>,
}

impl Ledger {
    /// Sets keys in one request. Returns false if the server should get no more requests.
    fn set(&mut self, client: &mut Client, keys: &[(String, String)]) -> bool {
        let mut words = vec![b"MSET".to_vec()];
        for (key, value) in keys {
            words.extend([key.clone().into_bytes(), value.clone().into_bytes()]);
        }
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let reply = client.send(&request(&words)).and_then(|()| client.reply());
        let is_done = matches!(&reply, Ok(Reply::Status(text)) if text == "OK");
        for (key, value) in keys {
            if is_done {
                self.acknowledged.insert(key.clone(), value.clone());
                self.doubtful.remove(key);
            } else {
                let others = self.doubtful.entry(key.clone()).or_default();
                others.push(value.clone());
            }
        }
        reply.is_ok()
    }

    fn check(&self, server: &Server) -> Result<(), String> {
        let mut client = server.connect().unwrap();
        for key in self.acknowledged.keys().chain(self.doubtful.keys()) {
            let found = match client.ask(&["GET", key]) {
                Ok(Reply::Bulk(found)) => found.map(|found| String::from_utf8(found).unwrap()),
                other => return Err(format!("GET {key} answers {other:?}")),
            };
            let others = self.doubtful.get(key);
            let is_other = found
                .as_ref()
                .is_some_and(|found| others.is_some_and(|others| others.contains(found)));
            if found.as_ref() != self.acknowledged.get(key) && !is_other {
                let brief = |text: Option<&String>| text.map(|text| format!("{:.20}", text));
                let (want, have) = (brief(self.acknowledged.get(key)), brief(found.as_ref()));
                return Err(format!("{key} is {have:?}; acknowledged was {want:?}"));
            }
        }
        Ok(())
    }
}

/// The database and the servers of one case.
struct Bench {
    dir: tempfile::TempDir,
    /// The database of a killed server: the directory, and the values expected there.
    old: (PathBuf, Ledger),
}

fn extra<'a>(archive: &'a Path, log_io: &'a str) -> Vec<&'a str> {
    vec![
        "--log-io",
        log_io,
        "--partitions",
        "16",
        "--archive",
        arg(archive),
    ]
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("old");
        let mut ledger = Ledger::default();
        let archive = folder.join("archive");
        let server = Server::start(&folder.join("db"), &extra(&archive, "auto"));
        let mut client = server.connect().unwrap();
        for part in 0..3 {
            writes(&mut client, &mut ledger, part);
            client.ask(&["SAVE"]).unwrap();
        }
        writes(&mut client, &mut ledger, 3);
        server.kill();
        let old = (folder, ledger);
        Bench { dir, old }
    }

    /// Prepares the folder of a case. Returns the folder, and the values expected in its database.
    fn prepared(&self, old: bool) -> (PathBuf, Ledger) {
        let folder = self.dir.path().join("case");
        let _ = std::fs::remove_dir_all(&folder);
        if !old {
            std::fs::create_dir(&folder).unwrap();
            return (folder, Ledger::default());
        }
        let copied = std::process::Command::new("cp")
            .args(["-r", "--sparse=always", arg(&self.old.0), arg(&folder)])
            .status()
            .unwrap();
        assert!(copied.success());
        (folder, self.old.1.clone())
    }

    /// Runs sessions without a fault. Returns how many calls of each class occur with a new and with an old database.
    fn counts(&self) -> [(bool, Vec<u64>); 2] {
        let calls: Vec<i64> = CLASSES
            .iter()
            .flat_map(|class| class.calls)
            .copied()
            .collect();
        [false, true].map(|old| {
            let case = Case {
                class: 0,
                act: Act::Count,
                nth: 0,
                old,
            };
            let plan = Plan {
                calls: calls.clone(),
                path: String::new(),
                nth: 0,
                act: Act::Count,
            };
            let counted = self.session(plan, &case);
            (
                old,
                counted.unwrap_or_else(|wrong| panic!("no fault: {wrong}")),
            )
        })
    }

    /// Runs each case. Returns how many faults were met, and a line for each failed case.
    fn run(&self, cases: &[Case]) -> (usize, Vec<String>) {
        let (mut struck, mut failures) = (0, Vec::new());
        for case in cases {
            let plan = Plan {
                calls: CLASSES[case.class].calls.to_vec(),
                path: String::new(),
                nth: case.nth,
                act: case.act,
            };
            match self.session(plan, case) {
                Ok(seen) => struck += usize::from(seen[case.class] >= case.nth),
                Err(wrong) => failures.push(format!("{case}: {wrong}")),
            }
        }
        (struck, failures)
    }

    /// Runs a session with a fault. Returns how many calls of each class occurred.
    fn session(&self, plan: Plan, case: &Case) -> Result<Vec<u64>, String> {
        let (folder, mut ledger) = self.prepared(case.old);
        let (data, archive) = (folder.join("db"), folder.join("archive"));
        let log_io = CLASSES[case.class].log_io;
        let supervisor = Supervisor::start(
            &folder,
            Plan {
                path: arg(&data).to_owned(),
                ..plan
            },
        );
        let server = Server::spawn_with(&data, &extra(&archive, log_io), &supervisor.variables);
        let (code, said) = ended_session(server, &mut ledger)?;
        let seen = CLASSES
            .iter()
            .map(|class| supervisor.seen(class.calls))
            .collect();
        drop(supervisor);
        judge_end(case, code, &said)?;

        let server = Server::start(&data, &extra(&archive, log_io));
        let checked = ledger.check(&server);
        server.stop();
        checked.map_err(|wrong| format!("{wrong}\nthe faulty server said:\n{said}"))?;
        match ended(&["verify", "--data", arg(&data)]) {
            (0, _) => Ok(seen),
            (code, text) => Err(format!("verify ends with {code}: {text}")),
        }
    }
}

/// Sets several small keys, a key of several pages, and two keys in one request.
fn writes(client: &mut Client, ledger: &mut Ledger, part: u32) -> bool {
    (0..8).all(|number| {
        let (key, value) = (format!("key{number}"), format!("{part}.{number}"));
        let keys = match number {
            3 => vec![(key, format!("{value}:{}", "x".repeat(60_000)))],
            6 => vec![(key.clone(), value.clone()), (format!("{key}b"), value)],
            _ => vec![(key, value)],
        };
        ledger.set(client, &keys)
    })
}

/// Waits until the server answers, and returns a connection. Returns `None` if the server has ended.
fn ready(server: &mut Server) -> Result<Option<Client>, String> {
    let begin = Instant::now();
    while !server.has_ended() {
        if let Ok(mut client) = server.connect() {
            client.set_patience(SHORT);
            match client.ask(&["PING"]) {
                Ok(Reply::Status(text)) if text == "PONG" => return Ok(Some(client)),
                _ => {}
            }
        }
        if begin.elapsed() > HANG {
            return Err(format!("it answers no PING: {}", server.said()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(None)
}

/// Sends the session's requests to a server, and ends the server. Returns the server's exit code and messages. If a
/// signal ended the server, the code is the negative signal number.
fn ended_session(mut server: Server, ledger: &mut Ledger) -> Result<(i32, String), String> {
    let mut part = 4;
    // After a request without a reply the session continues on a new connection.
    let mut left = 4;
    while left > 0 {
        let Some(mut client) = ready(&mut server)? else {
            break;
        };
        left -= 1;
        let went = writes(&mut client, ledger, part)
            && client.ask(&["SAVE"]).is_ok()
            && writes(&mut client, ledger, part + 1);
        part += 2;
        if went {
            break;
        }
    }
    if let Some(mut client) = ready(&mut server)? {
        // The archive gets its first run within a second. Ending the server before that is a valid case, too.
        let _ = client.ask(&["SHUTDOWN"]);
    }
    let begin = Instant::now();
    while !server.has_ended() {
        // A server that cannot save refuses SHUTDOWN and continues.
        if begin.elapsed() > SHORT && ready(&mut server)?.is_some() {
            let said = server.said();
            server.kill();
            return Ok((0, said));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let (status, said) = server.wait();
    let code = status.code().or(status.signal().map(|signal| -signal));
    Ok((code.unwrap(), said))
}

fn judge_end(case: &Case, code: i32, said: &str) -> Result<(), String> {
    let killed = -libc::SIGKILL;
    let expected = match case.act {
        Act::Kill => [0, killed].contains(&code),
        _ => (0..=4).contains(&code),
    };
    if !expected || said.contains("panicked") {
        return Err(format!("it ends with {code}: {said}"));
    }
    if code > 0 && said.trim().is_empty() {
        return Err(format!("it ends with {code} and says nothing"));
    }
    Ok(())
}

/// Returns all cases. Successive cases come from the classes in turn. The seed determines the order of the cases of one
/// class.
fn cases(counts: &[(bool, Vec<u64>)], rng: &mut fastrand::Rng) -> Vec<Case> {
    let mut by_class: Vec<Vec<Case>> = (0..CLASSES.len())
        .map(|class| {
            let mut cases = Vec::new();
            for (old, counts) in counts {
                for nth in 1..=counts[class] {
                    let acts = CLASSES[class].acts.iter();
                    cases.extend(acts.map(|act| Case {
                        class,
                        act: *act,
                        nth,
                        old: *old,
                    }));
                }
            }
            rng.shuffle(&mut cases);
            cases
        })
        .collect();
    let longest = by_class.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest)
        .flat_map(|_| by_class.iter_mut().filter_map(Vec::pop).collect::<Vec<_>>())
        .collect()
}

#[test]
fn a_system_call_that_fails_loses_nothing_and_neither_hangs_nor_panics() {
    let most = usize::try_from(number_from_env("PERDURA_FAULT_CASES", 12)).unwrap();
    let seed = number_from_env("PERDURA_FAULT_SEED", 1);
    let bench = Bench::new();
    let mut rng = fastrand::Rng::with_seed(seed);
    let cases = cases(&bench.counts(), &mut rng);
    let run = cases.len().min(most);
    let (struck, failures) = bench.run(&cases[..run]);
    println!(
        "{run} of {} faults of seed {seed}: {struck} were met, {} failed",
        cases.len(),
        failures.len()
    );
    assert!(
        failures.is_empty(),
        "PERDURA_FAULT_SEED={seed}:\n{}",
        failures.join("\n")
    );
    assert!(struck * 2 > run, "only {struck} of {run} faults were met");
}

/// A restart hung for ever if the thread that reads an image disk could not be started. The loop that starts these
/// threads held the lock of the schedule's state, and the report of the failure takes the same lock.
#[test]
fn a_thread_that_cannot_be_started_hangs_no_start() {
    let bench = Bench::new();
    let class = CLASSES.iter().position(|class| class.name == "thread");
    let class = class.expect("a class of threads");
    let [_, (old, counts)] = bench.counts();
    let cases: Vec<Case> = (1..=counts[class])
        .map(|nth| Case {
            class,
            act: Act::Fail(libc::EAGAIN),
            nth,
            old,
        })
        .collect();
    let (struck, failures) = bench.run(&cases);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let most = cases.len();
    assert!(struck * 2 > most, "only {struck} of {most} faults were met");
}
