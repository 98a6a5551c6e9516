//! Helpers that create and mount file systems on loop devices.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::arg;

/// Runs a program and waits for its end. Returns the program's output on stdout, or an error with the output on stderr.
pub fn command(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}", said.trim()))
}

/// The file systems of the power-cut tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ext4,
    Xfs,
}

/// Creates a file of `mib` MiB that contains an empty file system.
pub fn format(file: &Path, kind: Kind, mib: u64) -> Result<(), String> {
    let image = std::fs::File::create(file).map_err(|error| error.to_string())?;
    let sized = image.set_len(mib << 20);
    sized.map_err(|error| error.to_string())?;
    let made = match kind {
        Kind::Ext4 => command("mkfs.ext4", &["-q", "-F", arg(file)]),
        Kind::Xfs => command("mkfs.xfs", &["-q", "-f", arg(file)]),
    };
    made.map(drop)
}

/// A mounted file system. The file system's disk is a file. The file system is unmounted when this value is dropped.
pub struct Mounted<'a> {
    file: &'a Path,
    at: &'a Path,
}

impl<'a> Mounted<'a> {
    pub fn new(file: &'a Path, at: &'a Path) -> Result<Mounted<'a>, String> {
        std::fs::create_dir(at).map_err(|error| error.to_string())?;
        let mounted = Mounted { file, at };
        mounted.mount()?;
        Ok(mounted)
    }

    pub fn mount(&self) -> Result<(), String> {
        let args = ["-o", "loop", arg(self.file), arg(self.at)];
        command("mount", &args).map(drop)
    }

    /// Unmounts the file system, and waits until its loop device is gone.
    pub fn unmount(&self) -> Result<(), String> {
        // The kernel may still be finishing operations of a server that was killed.
        let mut last = Ok(());
        for _ in 0..500 {
            last = command("umount", &[arg(self.at)]).map(drop);
            if last.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        last?;
        for _ in 0..500 {
            if command("losetup", &["-j", arg(self.file)])?
                .trim()
                .is_empty()
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("the loop device stays".to_owned())
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.at).output();
    }
}

/// Reports that a test cannot run on this machine. Fails if these tests are required.
pub fn cannot_run(what: &str, needs: &str, why: &str) {
    let required = std::env::var_os("PERDURA_REQUIRE_POWERCUT").is_some();
    assert!(!required, "{what} cannot be tested here: {why}");
    eprintln!("NOT TESTED: {what} need {needs} here: {why}");
}
