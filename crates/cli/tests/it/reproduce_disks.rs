//! `reproduce` on real disks, tested through the command: refusals before anything is measured, and a run. Also the
//! refusals of the script that makes throttled disks.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::mounts::{Kind, Mounted, cannot_run, format};
use crate::support::{arg, ended};

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../scripts/throttled-disks.sh"
);

/// Runs `reproduce` of a figure at tiny scale, with `out` as the folder of the files.
fn reproduce(figure: &str, out: &Path, disks: &[&str]) -> (i32, String) {
    let args = ["reproduce", figure, "--scale", "tiny", "--out", arg(out)];
    ended(&[&args[..], disks].concat())
}

/// Asserts that a run is refused with this message, and that nothing was measured.
fn refused(figure: &str, disks: &[&str], message: &str) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let (code, text) = reproduce(figure, &out, disks);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains(message), "{text}");
    assert!(
        !text.contains(" s  "),
        "progress before the refusal: {text}"
    );
    assert!(!out.exists(), "a refused run writes no files");
}

#[test]
fn directories_that_cannot_be_used_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (good, missing) = (dir.path(), dir.path().join("missing"));
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    refused(
        "000-fig5",
        &["--log-dir", arg(&missing)],
        "missing: No such file or directory (os error 2); make the directory",
    );
    refused(
        "000-fig6",
        &["--log-dir", arg(good), "--log-dir", arg(&file)],
        "file is not a directory; name a directory on the disk",
    );
    refused(
        "000-fig9",
        &["--log-dir", arg(good), "--image-dir", "/proc"],
        "--image-dir /proc is not writable",
    );
}

#[test]
fn figures_without_disks_and_too_few_disks_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = arg(dir.path());
    let log = ["--log-dir", at];
    refused("000-fig7", &log, "are for the figures 000-fig5, 000-fig6");
    refused("001-fig3", &log, "are for the figures 000-fig5, 000-fig6");
    refused(
        "000-fig6",
        &["--image-dir", at],
        "--image-dir needs --log-dir",
    );
    let pair = ["--log-dir", at, "--image-dir", at];
    refused("000-fig8", &pair, "needs 2 or 4 disks of each kind");
}

#[test]
fn a_disk_without_space_is_refused_with_need_and_free_space() {
    let dir = tempfile::tempdir().unwrap();
    let (file, at) = (dir.path().join("disk"), dir.path().join("mount"));
    let mounted = format(&file, Kind::Ext4, 16).and_then(|()| Mounted::new(&file, &at));
    let Err(why) = mounted.map(|mounted| {
        let log = ["--log-dir", arg(&at)];
        refused("000-fig5", &log, "MB are free; name directories on larger");
        for figure in ["002-fig2a", "003-table2"] {
            let data = ["--data", arg(&at)];
            refused(figure, &data, "MB are free; name directories on larger");
        }
        let out = at.join("out");
        let (code, text) = reproduce("003-table2", &out, &[]);
        assert_eq!(code, 2, "{text}");
        assert!(
            text.contains("--out ") && text.contains("are needed"),
            "{text}"
        );
        let (code, text) = reproduce("002-fig3", &out, &[]);
        assert!(code < 2, "its files are in memory: {text}");
        mounted.unmount().unwrap();
    }) else {
        return;
    };
    cannot_run("small disks", "root and loop devices", &why);
}

#[test]
fn real_disks_are_judged_beside_the_models() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    for disk in [&one, &two] {
        std::fs::create_dir(disk).unwrap();
    }
    let out = dir.path().join("out");
    let disks = ["--log-dir", arg(&one), "--log-dir", arg(&two)];
    // At tiny scale, claims may fail.
    let (code, text) = reproduce("000-fig6", &out, &disks);
    assert!(code <= 1, "{text}");
    assert!(
        text.contains("are on one device: they share its rate"),
        "{text}"
    );
    let figure = std::fs::read_to_string(out.join("000-fig6.json")).unwrap();
    let figure: Value = serde_json::from_str(&figure).unwrap();
    let has = |list: &Value, part: &str| {
        let list = list.as_array().unwrap();
        list.iter().any(|line| line.to_string().contains(part))
    };
    assert!(has(
        &figure["setting"],
        "real disks: 2 log disk(s), images in memory"
    ));
    for claim in [
        "real disks: least PL2P / DL1P log time at equal disks",
        "real / modelled at 29 MB/s: log time of DL1P",
        "least PL2P / DL1P log time at equal disks, 29 MB/s",
    ] {
        assert!(has(&figure["claims"], claim), "{claim}: {text}");
    }
    assert!(has(&figure["rows"], "\"DL1P\",2,\"real\""), "{text}");
    for disk in [one, two] {
        let left = std::fs::read_dir(disk).unwrap().count();
        assert_eq!(left, 0, "the run removes its directories");
    }
}

/// Runs the script, after shell commands that take something away from its machine. Returns its error output.
fn script_without(taken: &str, args: &str) -> Result<String, String> {
    let line = format!("{taken} && exec bash {SCRIPT} {args}");
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &line])
        .output();
    let output = output.map_err(|e| format!("unshare: {e}"))?;
    assert!(!output.status.success(), "the script is refused: {taken}");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn throttled_disks_name_what_the_machine_lacks() {
    let root = rustix::process::geteuid().is_root();
    if !root {
        return cannot_run("throttled disks", "root", "this user is another one");
    }
    let dir = tempfile::tempdir().unwrap();
    let args = format!("2 29 {}/disks", arg(dir.path()));
    let cgroups =
        "for at in $(awk '$3 ~ /^cgroup/ { print $2 }' /proc/mounts); do umount -l $at; done";
    for (taken, message) in [
        (cgroups, "no cgroup throttles disks here"),
        ("mount -t tmpfs none /dev", "there is no /dev/loop-control"),
    ] {
        let said = script_without(taken, &args).unwrap();
        assert!(said.contains(message), "{said}");
    }
    assert!(!dir.path().join("disks").exists(), "nothing is left behind");
}

#[test]
fn throttled_disks_check_their_arguments() {
    let said = |args: &[&str]| {
        let output = Command::new("bash").arg(SCRIPT).args(args).output();
        let output = output.unwrap();
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said(&["0", "29", "/nowhere"]).contains("COUNT is 0; give a number"));
    assert!(said(&["2", "fast", "/nowhere"]).contains("RATE_MB is fast; give the rate"));
    assert!(said(&["--remove", "/nowhere"]).contains("there are no disks to remove"));
    assert!(said(&[]).contains("makes COUNT disks of RATE_MB MB/s"));
}
