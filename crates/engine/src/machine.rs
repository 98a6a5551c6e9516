//! The memory that the machine and the control groups of this process allow.
//!
//! The kernel kills a process at the memory limit of the control group or of a parent group. In version 2 of control
//! groups that limit is in `memory.max`. At the softer limit `memory.high` the kernel slows the process down until it
//! nearly stops. In version 1 the limit is in `memory.limit_in_bytes`. `/proc/self/cgroup` names the process's groups.
//! `/proc/self/mountinfo` names the groups' mount directories.

use std::fs;
use std::path::{Component, Path, PathBuf};

use perdura_heap::Ceiling;

/// Returns the share of the memory that a database takes by default: three quarters.
const fn share_of(bytes: u64) -> u64 {
    bytes / 4 * 3
}

/// A bound on the memory of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Limit {
    /// Bytes of memory.
    memory: u64,
    /// Bytes of swap that the process may use in addition to `memory`. `None`: at this limit the kernel slows the
    /// process down instead of killing it.
    swap: Option<u64>,
    /// The file that sets the limit.
    file: PathBuf,
}

/// The bounds on the memory of this process, as read from files.
#[derive(Debug)]
pub(crate) struct Machine(Vec<Limit>);

impl Machine {
    /// Reads the bounds of this process.
    pub fn read() -> Machine {
        Machine::read_below(Path::new("/"))
    }

    /// Reads the bounds from `/proc` and `/sys` below a root directory. Tests give a root other
    /// than `/`.
    fn read_below(root: &Path) -> Machine {
        let file = Path::new("/proc/meminfo");
        let info = text(root, file);
        let swap = kibibytes(&info, "SwapTotal:").unwrap_or(0);
        let physical = kibibytes(&info, "MemTotal:").map(|memory| Limit {
            memory,
            swap: Some(swap),
            file: file.to_owned(),
        });
        let mut limits: Vec<Limit> = physical.into_iter().collect();
        let groups = text(root, Path::new("/proc/self/cgroup"));
        let mounts = text(root, Path::new("/proc/self/mountinfo"));
        for mount in mounts.lines().filter_map(Mount::parse) {
            let Some(group) = mount.group_of(&groups) else {
                continue;
            };
            for dir in mount.dirs(&group) {
                limits.extend(mount.limits(root, &dir, swap));
            }
        }
        Machine(limits)
    }

    /// Returns three quarters of the memory that the tightest bound allows.
    pub fn default_memory_limit(&self) -> u64 {
        let least = self.0.iter().map(|limit| limit.memory).min();
        least.map_or(u64::MAX, share_of)
    }

    /// Returns the memory size, swap included, at which the kernel kills this process. `None`: no limit
    /// makes the kernel kill the process.
    pub fn ceiling(&self) -> Option<Ceiling> {
        let deadly = self.0.iter().filter_map(|limit| {
            let bytes = limit.memory.saturating_add(limit.swap?);
            Some((bytes, limit.file.display().to_string()))
        });
        let (bytes, set_by) = deadly.min_by_key(|(bytes, _)| *bytes)?;
        Some(Ceiling { bytes, set_by })
    }

    /// Returns a complaint if the chosen memory limit is above the [`ceiling`](Self::ceiling), where the kernel kills
    /// the process.
    pub fn complaint(&self, chosen: u64) -> Option<String> {
        let ceiling = self.ceiling().filter(|ceiling| ceiling.bytes < chosen)?;
        Some(format!(
            "maxmemory is {}, but the kernel kills this process at {} bytes ({}). Set maxmemory \
             to {} or less, or raise that limit",
            match chosen {
                u64::MAX => "off".to_owned(),
                bytes => format!("{bytes} bytes"),
            },
            ceiling.bytes,
            ceiling.set_by,
            share_of(ceiling.bytes)
        ))
    }
}

/// The version of a hierarchy of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A mounted hierarchy of control groups that may limit memory.
#[derive(Debug)]
struct Mount {
    version: Version,
    /// The control group that appears as the root of the mount.
    root: PathBuf,
    at: PathBuf,
}

impl Mount {
    /// Parses a line of `mountinfo`: `id parent device root mountpoint options [tags] - type source options`.
    fn parse(line: &str) -> Option<Mount> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, at) = (unescaped(place.next()?), unescaped(place.next()?));
        let mut kind = kind.split(' ');
        let version = match kind.next()? {
            "cgroup2" => Version::Two,
            "cgroup" if kind.nth(1)?.split(',').any(|option| option == "memory") => Version::One,
            _ => return None,
        };
        Some(Mount { version, root, at })
    }

    /// Returns the path of this process's group in the hierarchy. `groups` is the text of
    /// `/proc/self/cgroup`.
    fn group_of(&self, groups: &str) -> Option<PathBuf> {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let is_this = match self.version {
                Version::Two => number == "0" && controllers.is_empty(),
                Version::One => controllers.split(',').any(|name| name == "memory"),
            };
            is_this.then(|| PathBuf::from(path))
        })
    }

    /// Returns the directories of a group and its parent groups, up to the mount's root. In a container the process's
    /// group may be outside the mount. Then the result is only the mount's root.
    fn dirs(&self, group: &Path) -> Vec<PathBuf> {
        let inside = group.strip_prefix(&self.root).unwrap_or(Path::new(""));
        let is_plain = |part| matches!(part, Component::Normal(_));
        let inside = match inside.components().all(is_plain) {
            true => inside,
            false => Path::new(""),
        };
        inside.ancestors().map(|part| self.at.join(part)).collect()
    }

    /// Returns the limits that a directory of the hierarchy sets.
    fn limits(&self, root: &Path, dir: &Path, machine_swap: u64) -> Vec<Limit> {
        let number = |name: &str| text(root, &dir.join(name)).trim().parse::<u64>().ok();
        let limit = |name: &str, swap: &dyn Fn(u64) -> Option<u64>| {
            let memory = number(name)?;
            Some(Limit {
                memory,
                swap: swap(memory),
                file: dir.join(name),
            })
        };
        let swap = |allowed: Option<u64>| Some(machine_swap.min(allowed.unwrap_or(u64::MAX)));
        let limits = match self.version {
            Version::Two => [
                limit("memory.max", &|_| swap(number("memory.swap.max"))),
                limit("memory.high", &|_| None),
            ],
            Version::One => [
                limit("memory.limit_in_bytes", &|memory| {
                    // `memsw` limits memory and swap together.
                    let both = number("memory.memsw.limit_in_bytes");
                    swap(both.map(|both| both.saturating_sub(memory)))
                }),
                None,
            ],
        };
        limits.into_iter().flatten().collect()
    }
}

/// Returns the text of a file below `root`; empty if it cannot be read.
fn text(root: &Path, file: &Path) -> String {
    let below = file.strip_prefix("/").unwrap_or(file);
    fs::read_to_string(root.join(below)).unwrap_or_default()
}

fn kibibytes(info: &str, name: &str) -> Option<u64> {
    let line = info.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(number.saturating_mul(1024))
}

/// Undoes the octal escapes that the kernel writes into paths: `\040` is a space.
fn unescaped(path: &str) -> PathBuf {
    let mut parts = path.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) => {
                plain.push(char::from(code));
                plain.push_str(&part[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    PathBuf::from(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const V2: &str =
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    /// A tree of files in place of `/proc` and `/sys`, on a machine with 8 GiB of memory.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(mounts: &str, groups: &str) -> Tree {
            let tree = Tree(tempfile::tempdir().unwrap());
            tree.swap(0);
            tree.file("proc/self/mountinfo", mounts);
            tree.file("proc/self/cgroup", groups);
            tree
        }

        fn swap(&self, bytes: u64) {
            let (memory, swap) = (8 * GIB / 1024, bytes / 1024);
            let info = format!("MemTotal:  {memory} kB\nMemFree: 1 kB\nSwapTotal:  {swap} kB\n");
            self.file("proc/meminfo", &info);
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn machine(&self) -> Machine {
            Machine::read_below(self.0.path())
        }

        fn limit(&self) -> u64 {
            self.machine().default_memory_limit()
        }
    }

    #[test]
    fn the_limit_of_a_unit_below_the_root_counts_in_version_2() {
        let tree = Tree::new(V2, "0::/system.slice/perdura.service\n");
        assert_eq!(tree.limit(), 6 * GIB, "no group has a limit");
        let unit = "sys/fs/cgroup/system.slice/perdura.service";
        tree.file(&format!("{unit}/memory.max"), "max\n");
        assert_eq!(tree.limit(), 6 * GIB);
        tree.file(&format!("{unit}/memory.max"), "209715200\n");
        assert_eq!(tree.limit(), 150 * MIB);
        let ceiling = tree.machine().ceiling().unwrap();
        assert_eq!(ceiling.bytes, 200 * MIB);
        assert_eq!(ceiling.set_by, format!("/{unit}/memory.max"));
    }

    #[test]
    fn the_limit_of_a_group_above_counts_if_it_is_less() {
        let tree = Tree::new(V2, "0::/a/b/c\n");
        tree.file("sys/fs/cgroup/a/b/c/memory.max", "4294967296\n");
        tree.file("sys/fs/cgroup/a/memory.max", "1073741824\n");
        assert_eq!(tree.limit(), 768 * MIB);
        tree.file("sys/fs/cgroup/a/b/memory.high", "536870912\n");
        assert_eq!(
            tree.limit(),
            384 * MIB,
            "memory.high slows the process down"
        );
        let ceiling = tree.machine().ceiling().unwrap();
        assert_eq!(ceiling.bytes, GIB, "memory.high ends no process");
    }

    #[test]
    fn the_limit_of_a_group_below_the_root_counts_in_version_1() {
        let tree = Tree::new(V1, "4:memory:/docker/77\n1:cpu:/other\n0::/else\n");
        let group = "sys/fs/cgroup/memory/docker/77/memory.limit_in_bytes";
        tree.file(group, "9223372036854771712\n");
        tree.file("sys/fs/cgroup/cpu/other/memory.limit_in_bytes", "4096\n");
        assert_eq!(
            tree.limit(),
            6 * GIB,
            "unlimited, and the cpu group limits none"
        );
        tree.file(group, "419430400\n");
        assert_eq!(tree.limit(), 300 * MIB);
        tree.file(
            "sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
            "209715200\n",
        );
        assert_eq!(tree.limit(), 150 * MIB);
        tree.file("sys/fs/cgroup/unified/else/memory.max", "104857600\n");
        assert_eq!(tree.limit(), 75 * MIB, "of two hierarchies the less counts");
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root_of_the_mount() {
        let mounts = "30 23 0:26 /docker/77 /sys/fs/cgroup\\040x ro - cgroup2 cgroup2 rw\n";
        for group in [
            "0::/docker/77\n",
            "0::/\n",
            "0::/../other\n",
            "0::/elsewhere\n",
        ] {
            let tree = Tree::new(mounts, group);
            tree.file("sys/fs/cgroup x/memory.max", "209715200\n");
            assert_eq!(tree.limit(), 150 * MIB, "{group}");
        }
        let tree = Tree::new(mounts, "0::/docker/77/inner\n");
        tree.file("sys/fs/cgroup x/inner/memory.max", "104857600\n");
        assert_eq!(tree.limit(), 75 * MIB);
    }

    #[test]
    fn swap_keeps_the_kernel_from_ending_the_process() {
        let tree = Tree::new(V2, "0::/a\n");
        tree.file("sys/fs/cgroup/a/memory.max", "1073741824\n");
        tree.swap(2 * GIB);
        let ceiling = || tree.machine().ceiling().unwrap().bytes;
        assert_eq!(ceiling(), 3 * GIB);
        tree.file("sys/fs/cgroup/a/memory.swap.max", "1073741824\n");
        assert_eq!(ceiling(), 2 * GIB);
        tree.file("sys/fs/cgroup/a/memory.swap.max", "0\n");
        assert_eq!(ceiling(), GIB);
        assert_eq!(tree.limit(), 768 * MIB, "swap is no memory to plan with");
        let complaint = tree.machine().complaint(GIB + 1).unwrap();
        assert!(complaint.contains("memory.max"), "{complaint}");
        assert_eq!(tree.machine().complaint(GIB), None);
    }

    #[test]
    fn files_that_are_missing_or_odd_set_no_limit() {
        let tree = Tree::new("odd\n1 2 3 - cgroup2\n x - y", "0\nx:memory\n::\n");
        assert_eq!(tree.limit(), 6 * GIB);
        let nothing = tempfile::tempdir().unwrap();
        let machine = Machine::read_below(nothing.path());
        assert_eq!(machine.default_memory_limit(), u64::MAX);
        assert_eq!(machine.ceiling(), None);
    }
}
