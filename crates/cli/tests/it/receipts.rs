//! Tests of receipts: the results of `perdura receipt check` before a restart, after it, and several lives later.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use perdura_base::{Epoch, Error, Incarnation};
use perdura_device::FileDisk;
use perdura_recovery::{AcceptedLoss, Anchor, AnchorCell, open_anchor};
use serde_json::Value;

use crate::support::{Client, PERDURA, Reply, Server, arg, ended, perdura};

/// Settings that make the server write the log once a second. A write that does not wait for the log may stay in memory
/// for a second.
const SLOW: [&str; 2] = ["--flush-every", "1000"];

/// A write and its receipt.
#[derive(Debug, Clone)]
struct Written {
    key: String,
    token: String,
    epoch: u64,
    rung: String,
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(Some(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    }
}

fn receipt(client: &mut Client, key: &str) -> Written {
    let Reply::Array(fields) = client.ask(&["CLIENT", "RECEIPT"]).unwrap() else {
        panic!("no receipt");
    };
    let [
        name,
        Reply::Number(life),
        _,
        Reply::Number(epoch),
        _,
        rung,
        _,
        token,
    ] = &fields[..]
    else {
        panic!("{fields:?}");
    };
    assert_eq!(text(name), "incarnation");
    let (rung, token) = (text(rung), text(token));
    assert!(
        token.ends_with(&format!("-{life}-{epoch}-{rung}")),
        "{token}"
    );
    Written {
        key: key.to_owned(),
        token,
        epoch: u64::try_from(*epoch).unwrap(),
        rung,
    }
}

fn write(client: &mut Client, key: &str) -> Written {
    let reply = client.ask(&["SET", key, "value"]).unwrap();
    assert_eq!(reply, Reply::Status("OK".into()));
    receipt(client, key)
}

/// Runs `perdura receipt check`. Returns the verb's exit code, and the verdict on each write.
fn check(data: &Path, writes: &[Written]) -> (i32, Vec<String>) {
    let tokens = writes.iter().map(|it| it.token.as_str());
    let args: Vec<&str> = ["receipt", "check", "--json", "--data", arg(data)]
        .into_iter()
        .chain(tokens)
        .collect();
    let output = perdura(&args);
    let json = serde_json::from_slice(&output.stdout);
    let json: Value = json.unwrap_or_else(|_| panic!("{output:?}"));
    let fates = json["receipts"].as_array().unwrap().iter();
    let fates = fates.map(|it| it["fate"].as_str().unwrap().to_owned());
    (output.status.code().unwrap(), fates.collect())
}

/// Returns for each write "kept" if a client of the server sees it, otherwise "lost".
fn there(server: &Server, writes: &[Written]) -> Vec<String> {
    let fate = |it: &Written| match server.ask(&["EXISTS", &it.key]) {
        Reply::Number(1) => "kept".to_owned(),
        _ => "lost".to_owned(),
    };
    writes.iter().map(fate).collect()
}

#[test]
fn a_receipt_is_judged_before_the_restart_as_after_it_and_as_the_data_say() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    // A flush between the last receipt and the kill would keep the last write. So there are up to five rounds.
    for round in 0..5 {
        let server = Server::start(&data, &SLOW);
        let mut client = server.connect().unwrap();
        let safe = write(&mut client, &format!("{round} safe"));
        assert_eq!(safe.rung, "disk");
        client.ask(&["CLIENT", "DURABILITY", "mem"]).unwrap();
        let mut writes = vec![safe];
        for number in 0..3 {
            writes.push(write(&mut client, &format!("{round} {number}")));
        }
        let reached = client.ask(&["WAITDUR", "disk", "0"]).unwrap();
        assert_eq!(reached, Reply::Number(1));
        assert_eq!(receipt(&mut client, "").rung, "disk");
        // The log has just been written, so the next write waits in memory for up to a second.
        writes.push(write(&mut client, &format!("{round} last")));
        server.kill();
        let before = check(&data, &writes);
        assert_eq!(before.1[..4], ["kept"; 4], "{before:?}");
        let server = Server::start(&data, &SLOW);
        assert_eq!(there(&server, &writes), before.1, "{writes:?}");
        assert_eq!(check(&data, &writes), before, "decided once and for all");
        server.kill();
        if before.1[4] == "lost" {
            assert_eq!(before.0, 3);
            return;
        }
        assert_eq!(before.0, 0);
    }
    panic!("nothing is ever lost");
}

/// A receipt may belong to the newest life of a running database. `receipt check` then reports "undecided", unless the
/// anchor shows that the receipt's epoch is durable.
#[test]
fn a_running_database_leaves_open_what_its_anchor_does_not_vouch_for() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let server = Server::start(&data, &SLOW);
    let mut client = server.connect().unwrap();
    client.ask(&["CLIENT", "DURABILITY", "mem"]).unwrap();
    let written = write(&mut client, "key");
    let (code, fates) = check(&data, std::slice::from_ref(&written));
    assert!(
        (code, fates[0].as_str()) == (1, "undecided") || (code, fates[0].as_str()) == (0, "kept"),
        "{code} {fates:?}"
    );
    let mut parts: Vec<&str> = written.token.split('-').collect();
    (parts[2], parts[3]) = ("999999999", "mem");
    let far = parts.join("-");
    let (code, said) = ended(&["receipt", "check", "--data", arg(&data), &far]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.starts_with("undecided") && said.contains("is still running"),
        "{said}"
    );
    // A checkpoint begins only after earlier epochs are durable, and the anchor then vouches for them.
    server.ask(&["SAVE"]);
    server.stop();
    let (code, said) = ended(&["receipt", "check", "--data", arg(&data), &written.token]);
    assert_eq!((code, said.starts_with("kept ")), (0, true), "{said}");
    assert_eq!(
        ended(&["receipt", "check", "--data", arg(&data), &far]).0,
        3
    );
}

#[test]
fn receipts_come_from_stdin_too_and_what_is_none_is_named_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let server = Server::start(&data, &[]);
    let written = write(&mut server.connect().unwrap(), "key");
    server.stop();
    let ask = |lines: &str| {
        let mut child = Command::new(PERDURA)
            .args(["receipt", "check", "--data", arg(&data), "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(lines.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    };
    let token = &written.token;
    let (code, said) = ask(&format!("{token}\n\n  {token}\n"));
    assert_eq!(
        (code, said.matches("kept ").count()),
        (Some(0), 2),
        "{said}"
    );
    let (code, said) = ask(&format!("{token}\nnonsense\n"));
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("stdin:2: 'nonsense' is not a receipt"),
        "{said}"
    );
    let strange = format!("ffffffff{}", &token[8..]);
    let (code, said) = ask(&strange);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("other "), "{said}");
    let missing = dir.path().join("missing");
    let (code, said) = ended(&["receipt", "check", "--data", arg(&missing), token]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("there is no database"), "{said}");
}

#[test]
fn nothing_is_kept_in_a_database_that_a_restart_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let server = Server::start(&data, &[]);
    let written = write(&mut server.connect().unwrap(), "key");
    server.kill();
    for file in std::fs::read_dir(data.join("log")).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let (code, said) = ended(&["receipt", "check", "--data", arg(&data), &written.token]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.starts_with("undecided") && said.contains("a restart refuses the database"),
        "{said}"
    );
}

/// The log of an old life is removed when both checkpoint images come from later lives. Afterwards, the anchor's chain
/// of closed lives no longer has the old life's link.
#[test]
fn a_life_whose_log_is_gone_is_judged_by_the_losses_that_were_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let server = Server::start(&data, &[]);
    let mut client = server.connect().unwrap();
    let mut writes: Vec<Written> = (0..3)
        .map(|n| write(&mut client, &format!("{n}")))
        .collect();
    let mut mem = writes[2].clone();
    mem.token = mem.token.replace("-disk", "-mem");
    writes.push(mem);
    server.kill();
    // While a life runs, the anchor keeps the link of the life before it.
    for _ in 0..2 {
        let server = Server::start(&data, &[]);
        assert_eq!(check(&data, &writes), (0, vec!["kept".to_owned(); 4]));
        for key in ["a", "b"] {
            server.ask(&["SET", key, "value"]);
            server.ask(&["SAVE"]);
        }
        server.stop();
    }
    let kept = ["kept", "kept", "kept", "undecided"].map(str::to_owned);
    assert_eq!(check(&data, &writes), (1, kept.to_vec()));
    // A takeover that closes a life with a loss writes an entry like this one.
    let loss = AcceptedLoss {
        incarnation: Incarnation(1),
        durable: Epoch(writes[1].epoch),
        acked: Epoch(writes[2].epoch),
        wall_us: 1_000_000,
    };
    let disk = FileDisk::at(&data);
    let (file, anchor, _) = open_anchor(&disk).unwrap().unwrap();
    assert_eq!(anchor.link_of(Incarnation(1)), None, "its link is gone");
    let cell = AnchorCell::new(file, anchor);
    let accept = |anchor: &mut Anchor| anchor.accept_loss(loss).unwrap();
    cell.update(accept).map_err(Error::from).unwrap();
    let fates = ["kept", "kept", "lost", "lost"].map(str::to_owned);
    assert_eq!(check(&data, &writes), (3, fates.to_vec()));
    let lost = format!(
        "epochs {} to {} had been acknowledged",
        loss.durable.0 + 1,
        loss.acked
    );
    for verb in [&["dump", "anchor"][..], &["verify"]] {
        let (code, said) = ended(&[verb, &["--data", arg(&data)]].concat());
        assert_eq!(code, 0, "{said}");
        assert!(said.contains(&lost), "{said}");
    }
    // Every later life must keep the entry.
    for _ in 0..2 {
        let server = Server::start(&data, &[]);
        server.ask(&["SET", "c", "value"]);
        server.ask(&["SAVE"]);
        server.kill();
    }
    assert_eq!(check(&data, &writes), (3, fates.to_vec()));
}
