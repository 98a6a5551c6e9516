//! Settings out of range.

use std::fmt::Debug;
use std::sync::Arc;

use perdura::{Core, CoreOptions, Error, LogForm, Options, Progress, TypedOptions, ValueForm};
use perdura_device::SimDisk;
use perdura_recovery::read_anchor;
use perdura_txn::executor::ExecutorOptions;

use crate::core_steps::{env, small};

/// Found in review: a database with zero pages in a chunk was made, and then its anchor could not be read.
#[test]
fn chunks_of_no_page_and_odd_sizes_are_refused_by_name_and_leave_nothing_behind() {
    let odd = [
        (
            "chunk",
            CoreOptions {
                chunk_pages: 0,
                ..small()
            },
        ),
        (
            "partitions",
            CoreOptions {
                partitions: 3,
                ..small()
            },
        ),
        (
            "segment",
            CoreOptions {
                segment_bytes: 4096,
                ..small()
            },
        ),
        (
            "block",
            CoreOptions {
                block_bytes_max: 5000,
                ..small()
            },
        ),
        (
            "block",
            CoreOptions {
                block_bytes_max: 8 << 20,
                ..small()
            },
        ),
    ];
    for (what, options) in odd {
        let disk = SimDisk::new(1);
        let opened = Core::open(env(&disk, 1), options, Arc::new(Progress::default()));
        let refused = opened.map(drop);
        assert!(
            matches!(&refused, Err(Error::Usage(text)) if text.contains(what)),
            "{what}: {refused:?}"
        );
        assert!(read_anchor(disk.life().as_ref()).unwrap().is_none());
    }
}

/// Returns the names of the fields that a struct's debug form shows.
fn fields(settings: &impl Debug) -> Vec<String> {
    let shown = format!("{settings:#?}");
    let own = shown.lines().filter_map(|line| line.strip_prefix("    "));
    let named = own.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let names = named.filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// There must be no settings for experiments. Experiments open a database with a `Yardstick` instead.
#[test]
fn the_settings_are_these_and_no_experiment_is_among_them() {
    let typed = "schemas procedures replayed accept log form strict";
    assert_eq!(fields(&TypedOptions::default()).join(" "), typed);
    let core = "partitions chunk_pages segment_bytes segment_bytes_first block_bytes_max queue_bytes_max lanes \
                value_bytes_max memory_limit memory_ceiling memory_fault checkpoint_log_bytes \
                consistent_checkpoints snapshot_mode kept_bound schedule on_demand tree methods orphans tables typed archived";
    assert_eq!(fields(&CoreOptions::default()).join(" "), core);
    let all = "data log_dirs image_dirs archive archive_backlog archive_merge first_backup archive_retention \
               archive_selects streams partitions segment_bytes checkpoint_log_bytes checkpoint_seconds_max \
               memory_limit value_bytes_max restart_level on_demand restart_methods threads tree log_io durability \
               snapshot_mode flush_every lock_wait typed node_settings nodes";
    assert_eq!(fields(&Options::new("data")).join(" "), all);
    let executor = ExecutorOptions {
        value_bytes_max: 1,
        value_form: ValueForm::default(),
    };
    assert_eq!(executor.value_bytes_max, 1, "it has these two fields");
    match LogForm::default() {
        LogForm::Value | LogForm::Command => {}
    }
}
