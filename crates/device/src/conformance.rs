//! Conformance tests for every implementation of [`Disk`] or [`Clock`], in any crate.
//!
//! # Panics
//! Each function panics at the first check that fails.

mod durable;

use std::sync::Arc;

use perdura_base::{Error, Result};

use crate::{Access, AlignedBuf, Clock, Disk, File, read_exact_at};

pub use durable::durable_queue;

const BOTH: [Access; 2] = [Access::Buffered, Access::Direct];

fn kind(error: &Error) -> Option<std::io::ErrorKind> {
    match error {
        Error::Io { source, .. } => Some(source.kind()),
        _ => None,
    }
}

fn all(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    read_exact_at(file, 0, &mut bytes).unwrap();
    bytes
}

fn write_new(disk: &dyn Disk, path: &str, data: &[u8]) -> Arc<dyn File> {
    let file = disk.create(path, Access::Buffered).unwrap();
    file.write_at(0, data).unwrap();
    file
}

/// Runs every check of a disk. `make` returns a new empty disk for each check.
pub fn disk(make: impl Fn() -> Arc<dyn Disk>) {
    for access in BOTH {
        bytes_read_back_as_written(&*make(), access);
    }
    lengths_grow_and_shrink(&*make());
    names_are_created_renamed_and_removed(&*make());
    a_published_name_replaces_nothing(&*make());
    open_files_outlive_their_names(&*make());
    directories_nest_and_list(&*make());
    the_lock_has_one_holder(&*make());
    what_is_there_is_locked_once(&*make());
    a_name_leads_to_the_file_that_has_it(&*make());
    paths_outside_the_root_are_refused(&*make());
}

/// Runs every check of a clock. `make` returns a new clock for each check, and `wait` lets time pass.
pub fn clock(make: impl Fn() -> Arc<dyn Clock>, wait: impl Fn(&dyn Clock)) {
    let clock = make();
    let mut last = clock.mono_ns();
    for _ in 0..1000 {
        let now = clock.mono_ns();
        assert!(now >= last, "monotone time goes back from {last} to {now}");
        last = now;
    }
    wait(clock.as_ref());
    assert!(clock.mono_ns() > last, "time passes");
}

fn bytes_read_back_as_written(disk: &dyn Disk, access: Access) {
    let file = disk.create("f", access).unwrap();
    assert!(file.path().ends_with('f'), "a file keeps its path");
    assert!(file.is_empty().unwrap());
    let mut sectors = AlignedBuf::zeroed(3 * 4096);
    for (at, byte) in sectors.iter_mut().enumerate() {
        *byte = u8::try_from(at % 251).unwrap();
    }
    file.write_at(4096, &sectors).unwrap();
    file.sync().unwrap();
    assert_eq!(file.len().unwrap(), 4 * 4096);

    let mut back = AlignedBuf::zeroed(8 * 4096);
    assert_eq!(
        file.read_at(0, &mut back).unwrap(),
        4 * 4096,
        "short only at the end"
    );
    assert!(
        back[..4096].iter().all(|&byte| byte == 0),
        "a gap reads as zeros"
    );
    assert_eq!(&back[4096..4 * 4096], &sectors[..]);
    assert_eq!(file.read_at(4 * 4096, &mut back).unwrap(), 0);
    assert_eq!(file.read_at(1 << 40, &mut back).unwrap(), 0);

    file.write_at(5000, b"odd").unwrap();
    let mut odd = [0; 3];
    read_exact_at(&*disk.open("f", access).unwrap(), 5000, &mut odd).unwrap();
    assert_eq!(&odd, b"odd");
    let beyond = read_exact_at(&*file, 4 * 4096 - 1, &mut odd).unwrap_err();
    assert!(matches!(beyond, Error::Corrupt(_)));
}

fn lengths_grow_and_shrink(disk: &dyn Disk) {
    let file = write_new(disk, "f", b"abc");
    file.allocate(10_000).unwrap();
    assert_eq!(file.len().unwrap(), 10_000);
    assert_eq!(&all(&*file)[..5], b"abc\0\0");
    file.allocate(5).unwrap();
    assert_eq!(
        file.len().unwrap(),
        10_000,
        "an allocation never makes a file shorter"
    );
    file.set_len(2).unwrap();
    file.set_len(4).unwrap();
    assert_eq!(
        all(&*file),
        b"ab\0\0",
        "what was cut off does not come back"
    );
    file.sync().unwrap();
}

fn names_are_created_renamed_and_removed(disk: &dyn Disk) {
    assert!(
        disk.open("a", Access::Buffered)
            .err()
            .unwrap()
            .is_not_found()
    );
    assert!(
        disk.create("no/a", Access::Buffered)
            .err()
            .unwrap()
            .is_not_found()
    );
    write_new(disk, "a", b"a");
    write_new(disk, "b", b"b");
    let exists = disk.create("a", Access::Buffered).err().unwrap();
    assert_eq!(kind(&exists), Some(std::io::ErrorKind::AlreadyExists));
    disk.rename("a", "b").unwrap();
    assert_eq!(disk.list("").unwrap(), ["b"]);
    assert_eq!(
        all(&*disk.open("b", Access::Buffered).unwrap()),
        b"a",
        "the target is replaced"
    );
    assert!(disk.rename("a", "c").unwrap_err().is_not_found());
    disk.remove("b").unwrap();
    assert!(disk.remove("b").unwrap_err().is_not_found());
    disk.sync_dir("").unwrap();
    assert!(disk.list("").unwrap().is_empty());
}

fn a_published_name_replaces_nothing(disk: &dyn Disk) {
    let all_of = |path: &str| all(&*disk.open(path, Access::Buffered).unwrap());
    disk.make_dir("d").unwrap();
    let file = write_new(disk, "a", b"a");
    write_new(disk, "b", b"b");
    for taken in ["b", "d", "a"] {
        let refused = disk.publish("a", taken).unwrap_err();
        assert_eq!(
            kind(&refused),
            Some(std::io::ErrorKind::AlreadyExists),
            "{taken} is replaced"
        );
        assert!(refused.to_string().contains(taken), "{refused}");
    }
    assert_eq!(disk.list("").unwrap(), ["a", "b", "d"], "all files stay");
    assert_eq!((all_of("a"), all_of("b")), (b"a".to_vec(), b"b".to_vec()));
    assert!(disk.publish("no", "c").unwrap_err().is_not_found());
    assert!(disk.publish("no", "b").unwrap_err().is_not_found());
    assert!(disk.publish("a", "no/c").unwrap_err().is_not_found());
    disk.publish("a", "d/c").unwrap();
    disk.sync_dir("d").unwrap();
    assert_eq!(disk.list("").unwrap(), ["b", "d"], "the old name is gone");
    file.write_at(1, b"new").unwrap();
    assert_eq!(all_of("d/c"), b"anew", "a file is published, not a copy");
    disk.remove("b").unwrap();
    disk.publish("d/c", "b").unwrap();
    assert_eq!(all_of("b"), b"anew", "a removed file's name is free");
}

fn open_files_outlive_their_names(disk: &dyn Disk) {
    let file = write_new(disk, "f", b"old");
    disk.rename("f", "g").unwrap();
    file.write_at(0, b"new").unwrap();
    assert_eq!(all(&*disk.open("g", Access::Buffered).unwrap()), b"new");
    assert!(file.path().ends_with('f'), "an open file keeps its path");
    disk.remove("g").unwrap();
    disk.sync_dir("").unwrap();
    file.write_at(3, b"er").unwrap();
    file.sync().unwrap();
    assert_eq!(all(&*file), b"newer");
    write_new(disk, "g", b"another");
    assert_eq!(all(&*file), b"newer");
}

fn directories_nest_and_list(disk: &dyn Disk) {
    assert!(disk.list("d").unwrap_err().is_not_found());
    assert!(disk.sync_dir("d").unwrap_err().is_not_found());
    disk.make_dir("d/e").unwrap();
    disk.make_dir("d").unwrap();
    write_new(disk, "d/y", b"");
    write_new(disk, "d/e/z", b"");
    write_new(disk, "d/a", b"");
    assert_eq!(disk.list("d").unwrap(), ["a", "e", "y"]);
    assert_eq!(disk.list("d/e").unwrap(), ["z"]);
    assert_eq!(disk.list(".").unwrap(), ["d"]);
    disk.rename("d/e/z", "d/z").unwrap();
    disk.sync_dir("d").unwrap();
    assert_eq!(disk.list("d").unwrap(), ["a", "e", "y", "z"]);
    assert!(
        disk.open("d", Access::Buffered).is_err(),
        "a directory is not a file"
    );
}

fn the_lock_has_one_holder(disk: &dyn Disk) {
    let held = disk.lock("LOCK").unwrap();
    assert!(matches!(
        disk.lock("LOCK").err(),
        Some(Error::Locked { .. })
    ));
    assert_eq!(disk.list("").unwrap(), ["LOCK"]);
    drop(held);
    disk.lock("LOCK").unwrap();
}

/// Returns whether a disk gives its files identities. Such a disk also locks files.
fn numbers_files(disk: &dyn Disk) -> bool {
    disk.identity("").unwrap().is_some()
}

fn what_is_there_is_locked_once(disk: &dyn Disk) {
    if !numbers_files(disk) {
        return;
    }
    disk.make_dir("d").unwrap();
    write_new(disk, "f", b"f");
    assert!(disk.lock_present("no").err().unwrap().is_not_found());
    assert_eq!(disk.list("").unwrap(), ["d", "f"], "nothing is made");
    for path in ["", "d", "f"] {
        let held = disk.lock_present(path).unwrap();
        assert!(held.is_some(), "{path:?} has a lock");
        let again = disk.lock_present(path).err();
        assert!(matches!(again, Some(Error::Locked { .. })), "{path:?}");
        let beside = disk.lock("LOCK");
        assert!(beside.is_ok(), "locks are of one file each");
        drop(held);
        assert!(disk.lock_present(path).unwrap().is_some(), "{path:?}");
    }
}

fn a_name_leads_to_the_file_that_has_it(disk: &dyn Disk) {
    if !numbers_files(disk) {
        return;
    }
    let id = |path: &str| disk.identity(path).unwrap();
    disk.make_dir("d").unwrap();
    let first = write_new(disk, "d/f", b"1");
    let second = write_new(disk, "g", b"2");
    let of = |file: &Arc<dyn File>| file.identity().unwrap();
    assert!(of(&first).is_some(), "files are numbered");
    assert_ne!(of(&first), of(&second));
    assert_eq!((id("d/f"), id("g")), (of(&first), of(&second)));
    assert_eq!(
        (id(""), id("d")),
        (id(""), id("d")),
        "a directory keeps its number"
    );
    assert!(id("") != id("d") && id("d") != id("g"));
    let again = disk.open("d/f", Access::Direct).unwrap();
    assert_eq!(of(&again), of(&first));
    disk.rename("g", "d/f").unwrap();
    assert_eq!(id("d/f"), of(&second), "the name leads to another file");
    assert_ne!(
        of(&first),
        of(&second),
        "a file without a name keeps its number"
    );
    assert!(disk.identity("g").unwrap_err().is_not_found());
    disk.remove("d/f").unwrap();
    assert!(disk.identity("d/f").unwrap_err().is_not_found());
    assert!(disk.identity("no/f").unwrap_err().is_not_found());
}

fn paths_outside_the_root_are_refused(disk: &dyn Disk) {
    fn usage<T>(result: Result<T>) -> bool {
        matches!(result.err(), Some(Error::Usage(_)))
    }
    for bad in ["../f", "/f", "d/../../f"] {
        for access in BOTH {
            assert!(usage(disk.create(bad, access)));
            assert!(usage(disk.open(bad, access)));
        }
        assert!(usage(disk.list(bad)));
        assert!(usage(disk.make_dir(bad)));
        assert!(usage(disk.rename(bad, "g")));
        assert!(usage(disk.rename("g", bad)));
        assert!(usage(disk.publish(bad, "g")));
        assert!(usage(disk.publish("g", bad)));
        assert!(usage(disk.remove(bad)));
        assert!(usage(disk.sync_dir(bad)));
        assert!(usage(disk.lock(bad)));
        if numbers_files(disk) {
            assert!(usage(disk.lock_present(bad)));
            assert!(usage(disk.identity(bad)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        FileDisk, LogIo, LogWay, ManualClock, MemDisk, ModelDisk, ReadDir, ReadFile, ReadOnly,
        SimDisk, SystemClock,
    };

    /// Returns a function that makes disks, each in a new directory.
    fn directories(log_io: LogIo) -> impl Fn() -> Arc<dyn Disk> {
        let dir = tempfile::tempdir().unwrap();
        let next = std::cell::Cell::new(0);
        move || {
            next.set(next.get() + 1);
            let root = dir.path().join(next.get().to_string());
            Arc::new(FileDisk::new(&root).unwrap().with_log_io(log_io))
        }
    }

    fn modelled() -> Arc<dyn Disk> {
        let clock = Arc::new(SystemClock::new());
        let inner = Arc::new(MemDisk::new());
        Arc::new(ModelDisk::new(inner, 1000, 10, clock, std::thread::sleep))
    }

    #[test]
    fn real_files_conform() {
        disk(directories(LogIo::Auto));
    }

    #[test]
    fn the_disks_of_databases_number_their_files() {
        let make = directories(LogIo::Auto);
        let disks = [
            make(),
            modelled(),
            SimDisk::new(1),
            Arc::new(MemDisk::new()),
        ];
        assert!(disks.iter().all(|disk| numbers_files(disk.as_ref())));
    }

    #[test]
    fn queues_of_threads_that_wait_conform() {
        durable_queue(directories(LogIo::Sync));
        durable_queue(directories(LogIo::Auto));
    }

    #[test]
    fn rings_conform() {
        let make = directories(LogIo::Ring);
        if let Err(why) = make().durable_queue().map(drop) {
            let required = std::env::var_os("PERDURA_REQUIRE_RING").is_some();
            assert!(!required, "no ring works here: {why}");
            eprintln!("NOT TESTED: {why}");
            return;
        }
        durable_queue(&make);
        let disk = make();
        drop(disk.durable_queue().unwrap());
        assert_eq!(disk.log_way().map(|found| found.way), Some(LogWay::Ring));
    }

    /// If the lock file is removed, another process could make a new lock file and lock it. The lock of the directory
    /// prevents that.
    #[test]
    fn a_removed_lock_file_leaves_the_directory_locked() {
        let make = directories(LogIo::Auto);
        let disk = make();
        let held = (disk.lock("LOCK").unwrap(), disk.lock_present("").unwrap());
        disk.remove("LOCK").unwrap();
        assert!(disk.lock("LOCK").is_ok(), "the new file is another one");
        let refused = disk.lock_present("").err();
        assert!(matches!(refused, Some(Error::Locked { .. })));
        drop(held);
        assert!(disk.lock_present("").unwrap().is_some());
    }

    #[test]
    fn memory_conforms() {
        disk(|| Arc::new(MemDisk::new()));
        durable_queue(|| Arc::new(MemDisk::new()));
    }

    #[test]
    fn a_modelled_disk_conforms() {
        disk(modelled);
        durable_queue(modelled);
    }

    #[test]
    fn the_simulated_disk_conforms() {
        disk(|| SimDisk::new(1));
        for seed in 0..50 {
            durable_queue(|| SimDisk::new(seed));
        }
    }

    /// A read-only disk that has the names `a` and `b`.
    struct View(MemDisk);

    impl ReadDir for View {
        type File = ViewFile;

        fn open(&self, path: &str, access: Access) -> Result<ViewFile> {
            self.0.open(path, access).map(ViewFile)
        }

        fn list(&self, dir: &str) -> Result<Vec<String>> {
            self.0.list(dir)
        }

        fn lock(&self, path: &str) -> Result<Box<dyn std::any::Any + Send + Sync>> {
            self.0.lock(path)
        }

        fn name(&self) -> String {
            self.0.name()
        }
    }

    struct ViewFile(Arc<dyn File>);

    impl ReadFile for ViewFile {
        fn len(&self) -> Result<u64> {
            self.0.len()
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
            self.0.read_at(offset, buf)
        }

        fn path(&self) -> &str {
            self.0.path()
        }

        fn is_direct(&self) -> bool {
            self.0.is_direct()
        }
    }

    #[test]
    fn a_read_only_view_publishes_nothing() {
        let disk = MemDisk::new();
        write_new(&disk, "a", b"a");
        write_new(&disk, "b", b"b");
        let view = ReadOnly(View(disk));
        for to in ["b", "c"] {
            let refused = view.publish("a", to).unwrap_err();
            assert_eq!(
                kind(&refused),
                Some(std::io::ErrorKind::ReadOnlyFilesystem),
                "{refused}"
            );
        }
        assert_eq!(view.list("").unwrap(), ["a", "b"]);
        assert_eq!(all(&*view.open("a", Access::Buffered).unwrap()), b"a");
    }

    #[test]
    fn clocks_conform() {
        let nap = std::time::Duration::from_millis(2);
        clock(|| Arc::new(SystemClock::new()), |_| std::thread::sleep(nap));
        let manual = Arc::new(ManualClock::at(7));
        clock(|| manual.clone(), |_| manual.advance_us(1));
    }
}
