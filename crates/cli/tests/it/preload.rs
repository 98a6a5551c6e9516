//! C libraries (`shim/`) that change the effect of a program's system calls. Each library is preloaded into the
//! program. A library is compiled when a test first needs it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::support::arg;

/// Compiles `shim/NAME.c` at the first call. Returns the library's path for LD_PRELOAD.
pub fn library(name: &'static str) -> PathBuf {
    static MADE: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/shim");
    let source = folder.join(name).with_extension("c");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let library = library.with_extension("so");
    let mut all = MADE.lock().unwrap();
    if all.insert(name) {
        let made = Command::new("cc")
            .args([
                "-shared",
                "-fPIC",
                "-Wall",
                "-o",
                arg(&library),
                arg(&source),
            ])
            .arg("-ldl")
            .status()
            .expect("a C compiler, which the linker of Rust needs too");
        assert!(made.success(), "{made}");
    }
    library
}
