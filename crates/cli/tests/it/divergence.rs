//! Tests of `restart --accept-divergence`. The replay of logged calls gives new results, because the `perdura` command
//! and the calling program have different code for the procedure.

use std::path::Path;

use perdura::{Db, LogForm, procedure};
use perdura_workloads::voter::schema::{AreaCodeState, Contestant, Vote, VotesByPhone};

use crate::support::{arg, ended, perdura};

procedure! {
    /// Counts each vote differently from the procedure of `perdura bench voter`. The two procedures have equal names
    /// and argument types.
    pub fn vote(cx, phone: u64, contestant: u8, votes_per_phone: u8) -> u8, on [VotesByPhone(phone)] {
        let count = votes_per_phone.min(contestant);
        cx.insert(&VotesByPhone { phone, count: count + 2 })?;
        Ok(0)
    }
}

/// Creates a database that crashes after three calls of this procedure.
fn crashed(dir: &Path) {
    let db = Db::builder(dir)
        .options(|options| options.partitions = 2)
        .table::<Contestant>()
        .table::<AreaCodeState>()
        .table::<Vote>()
        .table::<VotesByPhone>()
        .procedure(vote)
        .log(LogForm::Command);
    let db = db.open().unwrap();
    for phone in [1, 2, 3] {
        db.call(vote, (phone, 1, 2)).unwrap();
    }
    db.abandon();
}

#[test]
fn a_restart_that_differs_goes_on_with_the_flag_and_needs_it_once() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path());
    let data = arg(dir.path());
    let (code, text) = ended(&["restart", "--data", data]);
    assert_eq!(code, 2, "{text}");
    for part in ["vote(u64,u8,u8)", "--accept-divergence"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }

    // The procedure in this command finds no contestant and changes nothing.
    let accept = ["restart", "--accept-divergence", "--data", data];
    let dry = perdura(&[&accept[..], &["--dry-run", "--json"]].concat());
    let report: serde_json::Value = serde_json::from_slice(&dry.stdout).unwrap();
    let found = &report["divergences"];
    assert_eq!(found["count"], 4, "{report}");
    let listed = found["listed"].as_array().unwrap();
    let count = |what: &str| listed.iter().filter(|one| one["differs"] == what).count();
    assert_eq!((count("body"), count("effects")), (1, 3), "{report}");
    assert_eq!(listed[3]["procedure"], "vote(u64,u8,u8)");
    assert!(report.to_string().contains("A dry run changes nothing"));
    assert!(dry.stderr.is_empty());

    let (code, text) = ended(&["restart", "--data", data]);
    assert_eq!(code, 2, "the dry run changed nothing: {text}");

    let output = perdura(&accept);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    let is_of_vote =
        |line: &&str| line.starts_with("differs   procedure vote(u64,u8,u8), version ");
    assert!(lines.iter().all(is_of_vote), "{said}");
    let digest_line = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("digest"));
        line.unwrap().to_owned()
    };
    let after = digest_line(&String::from_utf8_lossy(&output.stdout));

    let images = perdura(&["dump", "checkpoint", "--json", "--data", data]);
    let images: serde_json::Value = serde_json::from_slice(&images.stdout).unwrap();
    let consistent = |image: &&serde_json::Value| image["consistent"] == true;
    let newest = images.as_array().unwrap().iter().find(consistent).unwrap();
    let numbers = newest["pseq"].as_array().unwrap();
    assert_eq!(numbers.len(), 2, "{newest}");
    let calls: u64 = numbers.iter().filter_map(|number| number.as_u64()).sum();
    assert!(calls >= 3, "{newest}");
    let (_, text) = ended(&["dump", "checkpoint", "--data", data]);
    assert!(text.contains("consistent; by partition ["), "{text}");

    let (code, text) = ended(&["restart", "--data", data]);
    assert_eq!((code, digest_line(&text)), (0, after), "{text}");
    let db = Db::builder(dir.path())
        .table::<VotesByPhone>()
        .procedure(vote)
        .log(LogForm::Command);
    let db = db.open().unwrap();
    assert_eq!(db.read(|tx| tx.count::<VotesByPhone>()).unwrap(), 0);
}
