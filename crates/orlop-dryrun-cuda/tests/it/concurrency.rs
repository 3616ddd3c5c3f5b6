//! Forked processes, and calls of threads that hold the loader's lock.

use super::process::Process;
use super::{is_dry, run_dry, settings};
use orlop_dryrun::elf::StandIn;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// Returns what `cudaMalloc` returns in a forked process.
fn forked() -> i32 {
    // SAFETY: the child makes one call of the library under test and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = Process::new().allocate(4096).err().unwrap_or(0);
        // SAFETY: it ends the process.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: it writes one number.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "{status}");
    libc::WEXITSTATUS(status)
}

#[test]
fn a_forked_process_cannot_use_what_its_parent_initialized() {
    if !is_dry() {
        run_dry("concurrency::a_forked_process_cannot_use_what_its_parent_initialized", &settings());
        return;
    }
    let process = Process::new();
    let name = c"kernel".as_ptr().expose_provenance();
    process.call4("__cudaRegisterFunction", 0, 0x100, 0x100, name);
    assert_eq!(forked(), 0, "kernels are registered, and CUDA is not initialized");
    let is_used = process.call1("orlop_dry_run_swap_use", 0);
    process.memory();
    assert_eq!((is_used, process.call1("orlop_dry_run_swap_use", 0)), (0, 1));
    assert_eq!(forked(), 0, "what the recording called does not count");
    process.memory();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Relaxed) {
                process.call4("__cudaRegisterFunction", 0, 0x200, 0x200, name);
            }
        });
        let codes = [(); 50].map(|()| forked());
        is_done.store(true, Relaxed);
        assert_eq!(codes, [3; 50]);
    });
    assert!(process.allocate(4096).is_ok());
}

/// Returns a library that calls `cudaFree` while it is loaded.
fn library_with_an_initializer() -> Vec<u8> {
    const INITIALIZER: u64 = 12;
    const SYMBOLS: u64 = 6;
    let library = StandIn::new("initializer.so").functions("cudaFree", ["initialize".to_owned()]);
    let mut bytes = library.to_bytes();
    let number =
        |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let start = usize::try_from(number(&bytes, 64 + 2 * 56 + 8)).expect("an offset");
    let entry =
        |bytes: &[u8], tag| (start..).step_by(16).find(|&at| number(bytes, at) == tag).expect("an entry");
    let symbols = usize::try_from(number(&bytes, entry(&bytes, SYMBOLS) + 8)).expect("an offset");
    // The third symbol is the function.
    let function = number(&bytes, symbols + 2 * 24 + 8);
    let end = entry(&bytes, 0);
    bytes[end..end + 8].copy_from_slice(&INITIALIZER.to_le_bytes());
    bytes[end + 8..end + 16].copy_from_slice(&function.to_le_bytes());
    bytes
}

#[test]
fn the_loader_and_the_machine_do_not_wait_for_each_other() {
    if !is_dry() {
        run_dry("concurrency::the_loader_and_the_machine_do_not_wait_for_each_other", &settings());
        return;
    }
    let folder = tempfile::tempdir().expect("folders can be made");
    let path = folder.path().join("initializer.so");
    fs::write(&path, library_with_an_initializer()).expect("files can be written");
    let path = CString::new(path.as_os_str().as_bytes()).expect("a path");
    let process = Process::new();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut function = 0_usize;
            let (name, function) = (c"cuMemCreate".as_ptr(), (&raw mut function).expose_provenance());
            let mut found = 0_i32;
            let found = (&raw mut found).expose_provenance();
            while !is_done.load(Relaxed) {
                let name = name.expose_provenance();
                assert_eq!(process.call4("cudaGetDriverEntryPoint", name, function, 0, found), 0);
            }
        });
        for _ in 0..2000 {
            // SAFETY: loading the library frees an address that is not allocated, which is refused.
            let opened = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
            assert!(!opened.is_null());
            // SAFETY: it was opened, and nothing of it is used.
            assert_eq!(unsafe { libc::dlclose(opened) }, 0);
        }
        is_done.store(true, Relaxed);
    });
    assert_eq!(process.call0("cudaGetLastError"), 1, "the library was initialized");
}
