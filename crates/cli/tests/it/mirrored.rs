//! A server and nodes run as processes. The tests kill and stop these processes. After a restart, every write that the
//! nodes acknowledged must be there, or the start must report the loss. Receipts must always agree with the data.
//!
//! The long form: PERDURA_MIRROR_ROUNDS=200 cargo test -p perdura-cli --test it mirrored

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::node_processes::{GOES_ON, Node, World, await_mirror, resumes};
use crate::support::{Client, PERDURA, Reply, Server, arg, ended, number_from_env, signal};

/// Returns whether a data directory has the write that a receipt names.
fn is_kept(data: &Path, token: &str) -> bool {
    let checked = Command::new(PERDURA)
        .args(["receipt", "check", "--data", arg(data), token])
        .output();
    let code = checked.unwrap().status.code().unwrap();
    assert!(code == 0 || code == 3, "{token}: exit {code}");
    code == 0
}

#[test]
fn what_was_acknowledged_in_memory_survives_every_single_failure() {
    let mut world = World::new();
    let (rounds, mut slowest) = (number_from_env("PERDURA_MIRROR_ROUNDS", 10), Duration::ZERO);
    for round in 0..rounds {
        let server = world.serve();
        world.check(&server);
        let mut client = server.connect().unwrap();
        world.write(&mut client, Duration::from_millis(100));
        let node = world.random.usize(..2);
        match round % 5 {
            0 => server.kill(),
            1 => {
                // The server is first stopped by SIGSTOP, and then killed.
                signal(server.pid(), Signal::STOP);
                server.kill();
            }
            2 => {
                world.nodes[node].kill();
                let longest = world.write(&mut client, GOES_ON);
                assert!(longest < resumes(), "writes paused for {longest:?}");
                slowest = slowest.max(longest);
                world.nodes[node].again();
                await_mirror(&server);
                world.write(&mut client, Duration::from_millis(50));
                server.kill();
            }
            3 => {
                signal(world.nodes[node].child.id(), Signal::STOP);
                let longest = world.write(&mut client, GOES_ON);
                assert!(longest < resumes(), "writes paused for {longest:?}");
                slowest = slowest.max(longest);
                signal(world.nodes[node].child.id(), Signal::CONT);
                await_mirror(&server);
                server.kill();
            }
            _ => {
                server.kill();
                world.nodes[node].again();
            }
        }
    }
    let server = world.serve();
    world.check(&server);
    assert!(world.acked.len() > 200, "{} writes", world.acked.len());
    server.stop();
    let alone = Server::start(&world.data, &[]);
    world.check(&alone);
    alone.kill();
    println!(
        "{rounds} rounds, {} writes acknowledged, 0 lost, longest pause {slowest:?}",
        world.acked.len()
    );
}

#[test]
fn what_both_nodes_and_the_writer_lost_is_named_and_receipts_agree() {
    let mut world = World::new();
    let rounds = number_from_env("PERDURA_MIRROR_ROUNDS", 10).div_ceil(4);
    let (mut refusals, mut acknowledged, mut lost) = (0, 0, 0);
    for _ in 0..rounds {
        let server = world.serve();
        let mut client = server.connect().unwrap();
        world.write(&mut client, Duration::from_millis(80));
        server.kill();
        world.nodes.iter_mut().for_each(Node::again);
        let Some(said) = world.refusal() else {
            // On busy cores, the server may have taken a node for failed before all three processes were killed. Then
            // the disk has everything.
            let server = world.serve();
            world.check(&server);
            server.stop();
            continue;
        };
        assert!(
            said.contains("it was restarted and its memory is empty"),
            "{said}"
        );
        let flags = world.flags(&["--accept-loss"]);
        let server = Server::start(&world.data, &flags);
        server.await_line("is kept up to epoch", &[]);
        let mut client = server.connect().unwrap();
        let acked = std::mem::take(&mut world.acked);
        let is_there = |client: &mut Client, key: u64| {
            client.ask(&["EXISTS", &format!("k{key}")]).unwrap() == Reply::Number(1)
        };
        let kept = acked
            .iter()
            .take_while(|(key, _)| is_there(&mut client, *key))
            .count();
        assert!(
            kept > 0 || acked.is_empty(),
            "all of {} are lost",
            acked.len()
        );
        refusals += 1;
        acknowledged += acked.len();
        lost += acked.len() - kept;
        // The loop checks the receipts of the last kept writes and of the first lost writes.
        let near = kept.saturating_sub(4)..acked.len().min(kept + 4);
        for (at, (key, token)) in acked.iter().enumerate().take(near.end).skip(near.start) {
            assert_eq!(is_there(&mut client, *key), at < kept, "k{key} of {kept}");
            assert_eq!(is_kept(&world.data, token), at < kept, "k{key}: {token}");
        }
        server.stop();
    }
    println!(
        "{rounds} rounds, {refusals} starts refused, {acknowledged} writes acknowledged in those, {lost} lost and named"
    );
}

#[test]
fn verbs_that_read_the_disks_say_that_nodes_may_hold_the_end_and_call_it_no_damage() {
    let mut world = World::new();
    let server = world.serve();
    let mut client = server.connect().unwrap();
    world.write(&mut client, Duration::from_millis(100));
    server.kill();
    let data = arg(&world.data);
    let verbs: [&[&str]; 5] = [
        &["verify", "--strict"],
        &["verify", "--json"],
        &["dump", "log", "--blocks"],
        &["digest"],
        &["restart", "--dry-run"],
    ];
    for verb in verbs {
        let (code, said) = ended(&[verb, &["--data", data]].concat());
        assert_eq!(code, 0, "{verb:?}: {said}");
        assert!(
            said.contains("in the memory of the log's nodes")
                && said.contains("This is not damage"),
            "{verb:?}: {said}"
        );
        assert!(!said.contains("DAMAGED"), "{verb:?}: {said}");
    }
    let (code, said) = ended(&["restart", "--data", data]);
    assert!(
        code == 2 && said.contains("--log-nodes"),
        "a restart for good: {code}: {said}"
    );
    let server = world.serve();
    world.check(&server);
    server.stop();
    let (code, said) = ended(&["verify", "--strict", "--data", data]);
    assert!(
        code == 0 && !said.contains("memory of the log's nodes"),
        "{code}: {said}"
    );
}

#[test]
fn a_loss_is_accepted_of_no_database_that_is_new_or_was_ended_cleanly() {
    let world = World::new();
    let with_nodes = world.flags(&["--accept-loss"]);
    let refused = |flags: &[&str]| {
        let (status, said) = Server::spawn(&world.data, flags).wait();
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.contains("nothing is lost"), "{said}");
    };
    for flags in [&["--accept-loss"][..], &with_nodes] {
        refused(flags);
        assert!(!world.data.join("anchor").exists(), "Nothing was made");
    }
    world.serve().stop();
    for flags in [&["--accept-loss"][..], &with_nodes] {
        refused(flags);
    }
}

/// A restore of a mirrored database exited 0 without the writes that only its nodes had.
#[test]
fn a_restore_of_a_mirrored_database_says_that_nodes_may_have_newer_writes() {
    let mut world = World::new();
    let archive = world.dir.path().join("archive");
    let server = Server::start(&world.data, &world.flags(&["--archive", arg(&archive)]));
    await_mirror(&server);
    let mut client = server.connect().unwrap();
    world.write(&mut client, Duration::from_millis(2500));
    server.kill();
    let to = world.dir.path().join("restored");
    let restored = |more: &[&str]| {
        let args = ["restore", "--from", arg(&archive), "--to", arg(&to)];
        ended(&[&args[..], more].concat())
    };
    let (code, said) = restored(&[]);
    assert_eq!(code, 3, "{said}");
    assert!(
        said.contains("--accept-loss") && said.contains("--log-nodes"),
        "{said}"
    );
    assert!(!to.exists(), "nothing was begun");
    let (code, said) = restored(&["--accept-loss"]);
    assert_eq!(code, 0, "{said}");
    std::fs::remove_dir_all(&to).unwrap();
    assert_eq!(restored(&["--at", "end-1s"]).0, 0);
}
