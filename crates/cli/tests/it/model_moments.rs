//! Restores of random moments. One client writes all types of values and notes the epoch of each write. Its server is
//! killed and started again, backups of every kind are made, and an agent merges. Then random moments are restored, and
//! each must equal the model at that moment.
//!
//! `PERDURA_MOMENTS=1000 PERDURA_MOMENT_OPS=2000` gives the long form.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use perdura_base::moment::moment;

use crate::clients::apply;
use crate::contents;
use crate::kill_archive::{done, wait_until};
use crate::model::Model;
use crate::requests::{Mix, Op};
use crate::support::{Client, PERDURA, Reply, Server, arg, ended, number_from_env, request};

/// The number of lives of the database.
const LIVES: u64 = 4;
/// The number of moments that a run lists.
const LISTED: u64 = 1000;

/// An acknowledged operation.
struct Done {
    epoch: u64,
    /// The time after the acknowledgement, microseconds since 1970.
    at_us: u64,
    op: Op,
}

/// The acknowledged operations of the client.
struct History {
    rng: fastrand::Rng,
    ops: Vec<Done>,
    model: Model,
}

/// An archive and its database.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_micros()).unwrap()
}

/// Returns the epoch of the connection's last write. 0: it has written nothing.
fn epoch_of(client: &mut Client) -> u64 {
    client.send(&request(&[b"CLIENT", b"RECEIPT"])).unwrap();
    let fields = match client.reply().unwrap() {
        Reply::Array(fields) => fields,
        // The connection has written nothing yet.
        _ => return 0,
    };
    let Reply::Number(epoch) = fields[3] else {
        panic!("{fields:?}");
    };
    u64::try_from(epoch).unwrap()
}

impl History {
    /// Sends operations one after another, and notes each with its epoch.
    fn work(&mut self, server: &Server, count: u64) {
        let mut client = server.connect().unwrap();
        for _ in 0..count {
            let op = Op::draw(&mut self.rng, 0, Mix::All);
            let mut bytes = Vec::new();
            op.put(&mut bytes);
            client.send(&bytes).unwrap();
            let reply = op.answer(&mut client).unwrap();
            if let Some(expected) = apply(&op, &mut self.model) {
                assert_eq!(reply, expected, "{op:?}");
            }
            // An operation that changed nothing has the epoch of an earlier one.
            let before = self.ops.last().map_or(0, |done| done.epoch);
            let epoch = epoch_of(&mut client).max(before);
            let at_us = now_us();
            self.ops.push(Done { epoch, at_us, op });
        }
    }

    /// Returns the state after the operations for which `is_there` holds.
    fn state(&self, is_there: impl Fn(&Done) -> bool) -> Model {
        let mut model = Model::default();
        for done in self.ops.iter().take_while(|done| is_there(done)) {
            apply(&done.op, &mut model);
        }
        model
    }
}

/// Returns the value of the counter that the operations increment.
fn shared(server: &Server) -> u64 {
    match server.ask(&["GET", "shared"]) {
        Reply::Bulk(Some(text)) => String::from_utf8(text).unwrap().parse().unwrap(),
        _ => 0,
    }
}

/// Restores a moment and compares it with the model. Returns the restored epoch, or `None` if the archive does not have
/// the moment.
fn check(place: &Place, at: &str, history: &History) -> Option<u64> {
    let (archive, to) = (place.at("archive"), place.at("restored"));
    drop(std::fs::remove_dir_all(&to));
    let words = ["restore", "--json", "--from", arg(&archive), "--to"];
    let (code, said) = ended(&[&words[..], &[arg(&to), "--at", at]].concat());
    if code == 2 {
        return None;
    }
    assert_eq!(code, 0, "--at {at}: {said}");
    let told: serde_json::Value = serde_json::from_str(&said).unwrap();
    let epoch = told["epoch"].as_u64().unwrap();
    let expected = history.state(|done| done.epoch <= epoch);
    let server = Server::start(&to, &[]);
    let found = contents::read(&mut server.connect().unwrap(), 0).unwrap();
    for (key, entry) in &expected.keys {
        assert_eq!(
            found.get(key),
            Some(entry),
            "--at {at}: key {key:?}, {said}"
        );
    }
    assert_eq!(found.len(), expected.keys.len(), "--at {at}: more keys");
    assert_eq!(shared(&server), expected.shared, "--at {at}: the counter");
    server.kill();
    Some(epoch)
}

fn agent(archive: &Path) -> Child {
    let mut command = Command::new(PERDURA);
    command.args([
        "archive",
        "agent",
        "--virtual-every",
        "2s",
        "--archive",
        arg(archive),
    ]);
    command.stderr(Stdio::null()).spawn().unwrap()
}

/// Lets the client work in one life of the database, and makes backups.
fn live(place: &Place, history: &mut History, life: u64, count: u64) {
    let (data, archive) = (place.at("data"), place.at("archive"));
    let merges = if life == 1 { "no" } else { "yes" };
    let more = [
        "--archive",
        arg(&archive),
        "--checkpoint-log-size",
        "1mb",
        "--archive-merge",
        merges,
    ];
    let server = Server::start(&data, &more);
    wait_until(&server, "restorable", |restorable| {
        restorable.starts_with("yes")
    });
    let agent = (life == 1).then(|| agent(&archive));
    history.work(&server, count / 2);
    let address = format!("127.0.0.1:{}", server.port());
    done(&["backup", "create", "--server", &address]);
    history.work(&server, count / 2);
    match life % 2 {
        0 => server.kill(),
        _ => server.stop(),
    }
    if let Some(mut agent) = agent {
        agent.kill().unwrap();
        agent.wait().unwrap();
    }
    if life == 2 {
        let words = ["backup", "create", "--data", arg(&data)];
        done(&[&words[..], &["--archive", arg(&archive)]].concat());
    }
}

#[test]
fn random_moments_of_several_lives_equal_the_model() {
    let seed = number_from_env("PERDURA_KILL_SEED", 1);
    let moments = number_from_env("PERDURA_MOMENTS", 20);
    let count = number_from_env("PERDURA_MOMENT_OPS", 200);
    let place = Place {
        dir: tempfile::tempdir().unwrap(),
    };
    let mut history = History {
        rng: fastrand::Rng::with_seed(seed),
        ops: Vec::new(),
        model: Model::default(),
    };
    for life in 0..LIVES {
        live(&place, &mut history, life, count);
    }
    let archive = place.at("archive");
    done(&["backup", "virtual", "--archive", arg(&archive)]);
    let mut rng = fastrand::Rng::with_seed(seed ^ 43);
    let mut restored = [0; 2];
    let epochs = history.ops.last().map_or(0, |done| done.epoch);
    for nth in 0..moments {
        let is_pruned = nth >= moments * 3 / 4;
        if nth == moments * 3 / 4 {
            let words = ["archive", "prune", "--archive", arg(&archive)];
            done(&[&words[..], &["--moments", "all 1s, 1s 1d"]].concat());
            done(&["archive", "merge", "--archive", arg(&archive)]);
        }
        let done = &history.ops[rng.usize(..history.ops.len())];
        let has = match rng.u8(..4) {
            0 => {
                let found = check(&place, &moment(done.at_us), &history);
                let at = history.ops.iter().take_while(|one| one.at_us <= done.at_us);
                let last = at.last().map_or(0, |one| one.epoch);
                // A run lists a thousand of its moments, so a time may lead to an earlier one of them.
                let is_exact = epochs < LISTED && !is_pruned;
                let later = |epoch| {
                    history
                        .ops
                        .iter()
                        .any(|one| last < one.epoch && one.epoch <= epoch)
                };
                let is_right = |epoch| !later(epoch) && (last <= epoch || !is_exact);
                assert!(found.is_none_or(is_right), "{found:?} for {last}");
                found.is_some()
            }
            _ => {
                let found = check(&place, &done.epoch.to_string(), &history);
                assert!(found.is_none_or(|epoch| epoch == done.epoch), "{found:?}");
                found.is_some()
            }
        };
        assert!(has || is_pruned, "moment {nth} is not in the archive");
        restored[usize::from(is_pruned)] += u64::from(has);
    }
    assert_eq!(
        restored[0],
        moments * 3 / 4,
        "each moment before the pruning"
    );
    done(&["archive", "verify", "--archive", arg(&archive)]);
    println!(
        "{} of {moments} moments restored",
        restored[0] + restored[1]
    );
}
