//! The built library, as a file: its name and what it exports.

#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::path::PathBuf;

/// Reads the library that was built with this test.
fn library() -> Vec<u8> {
    let program = std::env::current_exe().expect("this program");
    let path: PathBuf = program.with_file_name("liborlop_cudasim.so");
    std::fs::read(path).expect("cargo builds the library beside the test")
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> usize {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(&bytes[at..at + N]);
    usize::try_from(u64::from_le_bytes(wide)).expect("64-bit offsets")
}

fn text(bytes: &[u8], at: usize) -> String {
    let end = bytes[at..].iter().position(|&byte| byte == 0).expect("a terminator");
    String::from_utf8_lossy(&bytes[at..at + end]).into_owned()
}

/// A section of an ELF file: type, offset, size, linked section.
fn sections(bytes: &[u8]) -> Vec<(usize, usize, usize, usize)> {
    let (table, size, count) = (number::<8>(bytes, 40), number::<2>(bytes, 58), number::<2>(bytes, 60));
    let places = (0..count).map(|index| table + index * size);
    let read = |at| {
        let (kind, offset) = (number::<4>(bytes, at + 4), number::<8>(bytes, at + 24));
        (kind, offset, number::<8>(bytes, at + 32), number::<4>(bytes, at + 40))
    };
    places.map(read).collect()
}

/// Returns the name that the dynamic loader knows the library by.
fn soname(bytes: &[u8]) -> String {
    const DYNAMIC: usize = 6;
    const SONAME: usize = 14;
    let sections = sections(bytes);
    let &(_, offset, size, strings) =
        sections.iter().find(|section| section.0 == DYNAMIC).expect("a dynamic section");
    let entries = (offset..offset + size).step_by(16);
    let name =
        entries.filter(|&at| number::<8>(bytes, at) == SONAME).map(|at| number::<8>(bytes, at + 8)).next();
    text(bytes, sections[strings].1 + name.expect("a name"))
}

/// Returns the defined functions of the dynamic symbol table.
fn exports(bytes: &[u8]) -> BTreeSet<String> {
    const SYMBOLS: usize = 11;
    let sections = sections(bytes);
    let &(_, offset, size, strings) =
        sections.iter().find(|section| section.0 == SYMBOLS).expect("a symbol table");
    let entries = (offset..offset + size).step_by(24);
    let defined = entries.filter(|&at| number::<2>(bytes, at + 6) != 0);
    defined.map(|at| text(bytes, sections[strings].1 + number::<4>(bytes, at))).collect()
}

#[test]
fn the_loader_knows_it_as_the_driver() {
    assert_eq!(soname(&library()), "libcuda.so");
}

#[test]
fn it_exports_the_driver_s_functions_and_its_own_and_nothing_else() {
    let exports = exports(&library());
    let groups = ["cu", "orlopsim_"];
    let other: Vec<&String> =
        exports.iter().filter(|name| !groups.iter().any(|group| name.starts_with(group))).collect();
    assert_eq!(other, Vec::<&String>::new());
    for name in [
        "cuInit",
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuMemMap",
        "cuStreamCreate",
        "cuEventRecord",
        "cuLaunchKernel",
        "cuGraphLaunch",
        "cuGetProcAddress_v2",
        "orlopsim_reset",
    ] {
        assert!(exports.contains(name), "{name}");
    }
    assert!(exports.len() > 150, "{}", exports.len());
}
