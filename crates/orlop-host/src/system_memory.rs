//! The memory available to the process, and how much of it is free: the machine's, or that of its control
//! group if that is less.
//!
//! Inside a container `/proc/meminfo` describes the host, but exceeding the group's limit ends the process.
//! Groups nest, and each ancestor may set the effective limit. A group's usage includes the page cache of its
//! files; the kernel reclaims inactive pages of it before it ends a process, so they count as free.

use crate::DeviceMemory;

/// Returns the bytes of memory that this process may use, or `None` if unknown.
#[must_use]
pub fn total() -> Option<u64> {
    now().map(|memory| memory.total)
}

/// Returns the bytes of memory that this process may use, and how many of them are free now.
#[must_use]
pub fn now() -> Option<DeviceMemory> {
    imp::now()
}

#[cfg(target_os = "linux")]
mod imp {
    use super::DeviceMemory;
    use std::fs;
    use std::path::{Path, PathBuf};

    const ROOT: &str = "/sys/fs/cgroup";

    /// The file names of a control group, by version.
    #[derive(Debug, PartialEq, Eq)]
    pub(super) struct GroupFiles {
        limit: &'static str,
        used: &'static str,
        /// The field of `memory.stat` with the bytes of inactive page cache.
        inactive: &'static str,
    }

    pub(super) const V2: GroupFiles =
        GroupFiles { limit: "memory.max", used: "memory.current", inactive: "inactive_file" };
    pub(super) const V1: GroupFiles = GroupFiles {
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        inactive: "total_inactive_file",
    };

    pub(super) fn now() -> Option<DeviceMemory> {
        let machine = machine(&fs::read_to_string("/proc/meminfo").ok()?)?;
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let read = |path: PathBuf| fs::read_to_string(path).ok();
        Some(
            folders(&groups)
                .iter()
                .fold(machine, |memory, (folder, files)| limit_to_group(memory, folder, files, &read)),
        )
    }

    /// Returns what `/proc/meminfo` reports. Kernels older than 3.14 do not report available memory.
    pub(super) fn machine(meminfo: &str) -> Option<DeviceMemory> {
        let total = field(meminfo, "MemTotal:")?;
        let free = field(meminfo, "MemAvailable:").or_else(|| field(meminfo, "MemFree:"))?;
        Some(DeviceMemory { total, free: free.min(total) })
    }

    /// Returns a field of `/proc/meminfo` in bytes.
    fn field(meminfo: &str, name: &str) -> Option<u64> {
        let rest = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        let mut words = rest.split_whitespace();
        let (count, unit) = (words.next()?.parse::<u64>().ok()?, words.next()?);
        if unit == "kB" { count.checked_mul(1024) } else { None }
    }

    /// Limits `memory` to what a control group leaves.
    pub(super) fn limit_to_group(
        memory: DeviceMemory,
        folder: &Path,
        files: &GroupFiles,
        read: &impl Fn(PathBuf) -> Option<String>,
    ) -> DeviceMemory {
        let figure = |name| read(folder.join(name)).and_then(|text| bytes(&text));
        let Some(limit) = figure(files.limit) else { return memory };
        let total = memory.total.min(limit);
        // A limit without a usage does not say how much is free.
        let Some(used) = figure(files.used) else {
            return DeviceMemory { total, free: memory.free.min(total) };
        };
        let stat = read(folder.join("memory.stat")).unwrap_or_default();
        let inactive = stat.lines().find_map(|line| line.strip_prefix(files.inactive)?.trim().parse().ok());
        let left = limit.saturating_sub(used.saturating_sub(inactive.unwrap_or(0)));
        DeviceMemory { total, free: memory.free.min(left).min(total) }
    }

    /// Parses a file's number; `None` for `max`. Version 1 writes a huge number for no limit; the machine's
    /// own memory is then less.
    pub(super) fn bytes(text: &str) -> Option<u64> {
        text.trim().parse().ok().filter(|&bytes| bytes > 0)
    }

    /// Returns the folders of the process's control groups and of all their ancestors.
    pub(super) fn folders(groups: &str) -> Vec<(PathBuf, GroupFiles)> {
        let mut folders = Vec::new();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let (root, files) = if controllers.is_empty() {
                (Path::new(ROOT).to_path_buf(), V2)
            } else if controllers.split(',').any(|name| name == "memory") {
                (Path::new(ROOT).join("memory"), V1)
            } else {
                continue;
            };
            let group = Path::new(path.trim_start_matches('/'));
            // In a container the path may be the host's and not exist here; the root is then the group.
            folders.extend(group.ancestors().map(|ancestor| (root.join(ancestor), GroupFiles { ..files })));
        }
        folders
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    pub(super) fn now() -> Option<super::DeviceMemory> {
        None
    }
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use super::imp::{V1, V2};
    use super::*;
    use std::path::{Path, PathBuf};

    const GIB: u64 = 1 << 30;

    #[test]
    fn reads_what_the_kernel_writes() {
        let whole = imp::machine("MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable: 1024 kB\n");
        assert_eq!(whole, Some(DeviceMemory { total: 16 << 20, free: 1 << 20 }));
        let old = imp::machine("MemTotal: 16384 kB\nMemFree: 1 kB\n");
        assert_eq!(old, Some(DeviceMemory { total: 16 << 20, free: 1 << 10 }));
        for text in
            ["MemFree: 1 kB\n", "MemTotal: many kB\nMemFree: 1 kB", "MemTotal: 1 kB", "MemTotal:\n", ""]
        {
            assert_eq!(imp::machine(text), None, "{text}");
        }
        assert_eq!(
            (imp::bytes("1073741824\n"), imp::bytes("max\n"), imp::bytes("0")),
            (Some(GIB), None, None)
        );
    }

    #[test]
    fn looks_at_every_ancestor() {
        let paths = |text| imp::folders(text).into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        let of = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(paths("0::/a/b\n"), of(&["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup/"]));
        assert_eq!(paths("0::/\n"), of(&["/sys/fs/cgroup"]));
        assert_eq!(
            paths("5:cpu,cpuacct:/x\n4:memory:/x\n"),
            of(&["/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/memory/"])
        );
        assert!(paths("nonsense").is_empty());
        assert!(imp::folders("0::/a").iter().all(|(_, files)| *files == V2));
        assert!(imp::folders("4:memory:/x").iter().all(|(_, files)| *files == V1));
    }

    /// Reads files by name, in any folder.
    fn files(list: &'static [(&'static str, &'static str)]) -> impl Fn(PathBuf) -> Option<String> {
        move |path| {
            let known = list.iter().find(|(name, _)| path.ends_with(name));
            known.map(|(_, text)| (*text).to_owned())
        }
    }

    #[test]
    fn a_group_limits_the_memory() {
        let machine = DeviceMemory { total: 16 * GIB, free: 8 * GIB };
        let within = |version, list| imp::limit_to_group(machine, Path::new("/g"), version, &files(list));
        let limited = within(
            &V2,
            &[
                ("memory.max", "4294967296\n"),
                ("memory.current", "3221225472\n"),
                ("memory.stat", "anon 7\ninactive_file 1073741824\nslab 3"),
            ],
        );
        assert_eq!(limited, DeviceMemory { total: 4 * GIB, free: 2 * GIB });
        let first = within(
            &V1,
            &[
                ("memory.limit_in_bytes", "4294967296"),
                ("memory.usage_in_bytes", "3221225472"),
                ("memory.stat", "inactive_file 5\ntotal_inactive_file 1073741824"),
            ],
        );
        assert_eq!(first, limited);
        // The machine has less free than the group allows.
        let wide = within(&V2, &[("memory.max", "34359738368"), ("memory.current", "1")]);
        assert_eq!(wide, machine);
        assert_eq!(within(&V2, &[("memory.max", "max\n"), ("memory.current", "1")]), machine);
        let silent = within(&V2, &[("memory.max", "1073741824")]);
        assert_eq!(silent, DeviceMemory { total: GIB, free: GIB });
        // Over its limit, just before the kernel acts.
        let over = within(&V2, &[("memory.max", "1073741824"), ("memory.current", "2147483648")]);
        assert_eq!(over, DeviceMemory { total: GIB, free: 0 });
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(now().is_some_and(|memory| memory.total > 1 << 20 && memory.free <= memory.total));
        assert_eq!(total(), now().map(|memory| memory.total));
    }
}
