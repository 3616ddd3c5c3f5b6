//! Pages of the host-pages engine count as the process's memory, and `trim` releases them to the system. In a
//! process of its own.
#![cfg(all(target_os = "linux", not(miri), not(loom)))]

use orlop_alloc::{Allocator, Request};
use orlop_device::{DeviceAllocator, HostPages, Policy};
use std::fs;

const MIB: usize = 1 << 20;

/// Returns the resident bytes of this process in shared memory files.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has this file");
    let line =
        status.lines().find_map(|line| line.strip_prefix("RssShmem:")).expect("shared resident set size");
    let kib: usize = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    kib << 10
}

/// Returns the numbers of the engine's mappings and files in this process.
fn left() -> (usize, usize) {
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux has this file");
    let files = fs::read_dir("/proc/self/fd").expect("Linux has this file");
    let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let ours = |name: &str| name.contains("memfd:orlop");
    (
        maps.lines().filter(|line| ours(line)).count(),
        links.filter(|link| ours(&link.to_string_lossy())).count(),
    )
}

#[test]
fn trimmed_memory_is_released_to_the_system() {
    let before = resident();
    let pages = HostPages::new(96 << 20).expect("Linux has files of memory");
    let allocator = DeviceAllocator::new(pages, Policy::orlop()).into_ref();
    let full = |bytes: usize, byte: u8| {
        let mut block = allocator.allocate(&Request::new(bytes)).expect("memory");
        block.bytes_mut().expect("the host's").fill(byte);
        block
    };
    let mut blocks: Vec<_> = (0..12).map(|number| full(8 * MIB, number)).collect();
    assert!(resident() >= before + 96 * MIB);
    // Every second block is freed, and the free pages are moved together.
    for number in (0..6).rev() {
        drop(blocks.remove(2 * number));
    }
    let large = full(48 * MIB, 99);
    allocator.with_engine(|engine| assert!(engine.stats().remapped_bytes >= 40 << 20, "pages moved"));
    assert!(resident() <= before + 97 * MIB, "a page that moved is one page");
    for (number, block) in (0..).zip(&blocks) {
        assert!(block.bytes().expect("the host's").iter().step_by(97).all(|&byte| byte == 2 * number + 1));
    }
    drop(large);
    assert_eq!(allocator.trim(0), 48 << 20);
    assert!(resident() <= before + 49 * MIB);
    drop(blocks);
    assert_eq!(allocator.trim(0), 48 << 20);
    assert!(resident() <= before + MIB);
    assert_eq!(left(), (0, 1), "the file, and no mapping");
    drop(allocator);
    assert_eq!(left(), (0, 0));
}
