//! Repeated `kill -9` under load.

use std::path::PathBuf;
use std::time::Duration;

use crate::clients::Clients;
use crate::support::{Server, arg, ended, number_from_env};

#[test]
fn nothing_acknowledged_is_lost_by_kill_9_and_nothing_appears_from_nowhere() {
    kill(&[], 1, number_from_env("PERDURA_KILL_ROUNDS", 10));
}

#[test]
fn nothing_is_lost_by_kill_9_where_a_thread_waits_for_the_log() {
    let sync = ["--log-io", "sync"];
    kill(&sync, 1, number_from_env("PERDURA_KILL_SYNC_ROUNDS", 4));
}

#[test]
fn nothing_is_lost_by_kill_9_where_threads_write_to_three_image_disks() {
    kill(&[], 3, number_from_env("PERDURA_KILL_DISKS_ROUNDS", 6));
}

#[test]
fn nothing_is_lost_by_kill_9_where_each_client_has_another_loop() {
    let loops = ["--loops", "4"];
    kill(&loops, 1, number_from_env("PERDURA_KILL_LOOPS_ROUNDS", 8));
}

#[test]
fn nothing_is_lost_by_kill_9_where_partitions_are_loaded_on_demand() {
    let on_demand = ["--on-demand", "always"];
    kill(
        &on_demand,
        1,
        number_from_env("PERDURA_KILL_DEMAND_ROUNDS", 8),
    );
}

/// Kills a server with these settings and `disks` image disks again and again while clients write.
fn kill(settings: &[&str], disks: usize, rounds: u64) {
    let seed = number_from_env("PERDURA_KILL_SEED", 1);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    // Checkpoints are frequent, so that most kills happen during a checkpoint.
    let mut extra = vec!["--checkpoint-log-size", "1MiB", "--partitions", "16"];
    extra.extend(settings);
    let images: Vec<PathBuf> = (0..disks)
        .map(|disk| dir.path().join(format!("images-{disk}")))
        .collect();
    let images: Vec<&str> = images
        .iter()
        .flat_map(|image| ["--image-dir", arg(image)])
        .collect();
    extra.extend(&images);
    let mut clients = Clients::new(4, seed);
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6b69_6c6c);
    for round in 0..rounds {
        if rng.u8(..3) == 0 {
            // This server is killed during its restart.
            let server = Server::spawn(&data, &extra);
            std::thread::sleep(Duration::from_millis(rng.u64(..40)));
            server.kill();
        }
        let server = Server::start(&data, &extra);
        if let Err(wrong) = clients.check(&server) {
            panic!("round {round} of seed {seed} (PERDURA_KILL_SEED): {wrong}");
        }
        if rng.bool() {
            server.ask(&["BGSAVE"]);
        }
        clients.work(server, Duration::from_millis(500), Server::kill);
    }
    let server = Server::start(&data, &extra);
    if let Err(wrong) = clients.check(&server) {
        panic!("the last round of seed {seed} (PERDURA_KILL_SEED): {wrong}");
    }
    let way = server.log_field("log_io_0_way");
    server.kill();
    let (code, text) = ended(&[&["verify", "--data", arg(&data)], &images[..]].concat());
    assert_eq!(code, 0, "{text}");
    println!(
        "{rounds} kills, log written by {way}: {} requests acknowledged, {} left in doubt, none lost",
        clients.acknowledged, clients.doubtful
    );
    assert!(
        clients.acknowledged > rounds * 10,
        "the clients hardly worked"
    );
}
