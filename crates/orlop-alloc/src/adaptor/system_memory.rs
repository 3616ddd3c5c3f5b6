//! How much memory the process may have: the machine's, or its control group's where that is less.
//!
//! Inside a container `MemTotal` is the host's; what ends the process is the group's limit. Groups nest, and
//! each on the way up can be the one that limits.

/// Bytes of memory for this process. `None` where nobody can tell.
pub(crate) fn total() -> Option<u64> {
    imp::total()
}

#[cfg(target_os = "linux")]
mod imp {
    use std::fs;
    use std::path::{Path, PathBuf};

    const ROOT: &str = "/sys/fs/cgroup";

    pub(super) fn total() -> Option<u64> {
        let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_total(&text))?;
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let limits =
            limit_files(&groups).into_iter().filter_map(|file| limit(&fs::read_to_string(file).ok()?));
        Some(limits.fold(machine, u64::min))
    }

    /// `MemTotal` in bytes.
    pub(super) fn mem_total(meminfo: &str) -> Option<u64> {
        let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let mut words = rest.split_whitespace();
        let (count, unit) = (words.next()?.parse::<u64>().ok()?, words.next()?);
        if unit == "kB" { count.checked_mul(1024) } else { None }
    }

    /// A limit file's figure; `None` for `max`. Version 1 writes a huge number for no limit, which the
    /// machine's own memory undercuts.
    pub(super) fn limit(text: &str) -> Option<u64> {
        text.trim().parse().ok().filter(|&bytes| bytes > 0)
    }

    /// The limit files of the process's groups and of all groups around them.
    pub(super) fn limit_files(groups: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let (root, file) = if controllers.is_empty() {
                (Path::new(ROOT).to_path_buf(), "memory.max")
            } else if controllers.split(',').any(|name| name == "memory") {
                (Path::new(ROOT).join("memory"), "memory.limit_in_bytes")
            } else {
                continue;
            };
            let group = Path::new(path.trim_start_matches('/'));
            // In a container the path may be the host's and not exist here; the root then is the group.
            files.extend(group.ancestors().map(|ancestor| root.join(ancestor).join(file)));
        }
        files
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    pub(super) fn total() -> Option<u64> {
        None
    }
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn reads_what_the_kernel_writes() {
        assert_eq!(imp::mem_total("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(imp::mem_total("MemFree: 1 kB\n"), None);
        assert_eq!(imp::mem_total("MemTotal: many kB\n"), None);
        assert_eq!(
            (imp::limit("1073741824\n"), imp::limit("max\n"), imp::limit("0")),
            (Some(1 << 30), None, None)
        );
    }

    #[test]
    fn looks_at_every_group_on_the_way_up() {
        let paths = |text| imp::limit_files(text);
        let of = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(
            paths("0::/a/b\n"),
            of(&[
                "/sys/fs/cgroup/a/b/memory.max",
                "/sys/fs/cgroup/a/memory.max",
                "/sys/fs/cgroup/memory.max"
            ])
        );
        assert_eq!(paths("0::/\n"), of(&["/sys/fs/cgroup/memory.max"]));
        assert_eq!(
            paths("5:cpu,cpuacct:/x\n4:memory:/x\n"),
            of(&[
                "/sys/fs/cgroup/memory/x/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes"
            ])
        );
        assert!(paths("nonsense").is_empty());
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(total().is_some_and(|bytes| bytes > 1 << 20));
    }
}
