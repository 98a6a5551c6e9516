//! `reproduce` on real nodes, tested through the command: it starts the program as two nodes, and stops them.

use perdura_workloads::figures::memory_disk::real_nodes;
use serde_json::Value;

use crate::mounts::cannot_run;
use crate::support::{arg, ended};

/// Returns the mount points of figures, also of runs that were killed.
fn mounts() -> Vec<String> {
    let all = std::fs::read_to_string("/proc/mounts").unwrap();
    let of_figures = all.lines().filter(|line| line.contains("perdura-figures"));
    of_figures.map(str::to_owned).collect()
}

#[test]
fn tables_on_real_nodes_are_measured_and_leave_nothing_behind() {
    let (dir, before) = (tempfile::tempdir().unwrap(), mounts());
    for name in real_nodes::NAMES {
        let out = dir.path().join(name);
        let (code, text) = ended(&["reproduce", name, "--scale", "tiny", "--out", arg(&out)]);
        if code == 2 {
            return cannot_run("figures on real nodes", "root and /dev/fuse", &text);
        }
        // At this scale a claim may fail.
        assert!(code <= 1, "{text}");
        let file = std::fs::read_to_string(out.join(format!("{name}.json"))).unwrap();
        let figure: Value = serde_json::from_str(&file).unwrap();
        assert!(figure["claims"].as_array().unwrap().len() >= 3, "{file}");
        assert!(!figure["rows"].as_array().unwrap().is_empty(), "{file}");
    }
    assert_eq!(mounts(), before, "the disk is unmounted");
}
