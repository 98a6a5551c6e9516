//! A test of a directory that is replaced while the database opens.

use std::sync::Arc;

use perdura_device::{Disk, FileDisk};
use perdura_recovery::{RestartMode, restart};

use crate::made;

/// Found in review: a life noted its directories only when it began. So if another directory replaced the old one
/// during the restart, the life noted the new directory. Transactions that it acknowledged went into files without
/// names.
#[test]
fn a_directory_that_is_replaced_during_the_restart_is_missed() {
    let dir = tempfile::tempdir().unwrap();
    let (data, aside) = (dir.path().join("db"), dir.path().join("aside"));
    let disk = FileDisk::shared(&data).unwrap();
    made::make(&disk, 1);
    let options = made::options(&(Arc::clone(&disk) as Arc<dyn Disk>), RestartMode::Real);
    let restarted = restart(&options).unwrap().expect("it was made");
    std::fs::rename(&data, &aside).unwrap();
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .args([&aside, &data])
        .status();
    assert!(copied.unwrap().success());
    let life = made::life(restarted, &options);
    let missed = life.check_files().unwrap_err();
    assert!(missed.is_fenced(), "{missed}");
}
