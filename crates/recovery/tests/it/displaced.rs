//! A test that replaces a database directory while the database opens.

use std::sync::Arc;

use perdura_device::{Disk, FileDisk};
use perdura_recovery::{RestartMode, restart};

use crate::made;

/// Found in review: the identities of the directories were read only when the life began. If a new directory had
/// replaced the old one during the restart, the life read the new directory's identity. It then wrote acknowledged
/// transactions into files of the old directory, which had lost their names.
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
