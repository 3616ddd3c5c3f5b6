//! Streams that are destroyed, that cannot be recorded, and that do not wait for each other.

use crate::machine::{MEMORY, Machine, last_error, pointer};
use cudarc::driver::result::stream;
use cudarc::driver::sys::{CUstream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED};
use orlop_cuda::DeviceStream;
use orlop_cudasim_control::KernelRun;
use orlop_torch::{
    orlop_torch_configure, orlop_torch_free, orlop_torch_malloc, orlop_torch_record_stream,
    orlop_torch_retire_stream, orlop_torch_trim,
};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output};

const BYTES: usize = 20 << 20;

/// Set in processes that a test starts for itself.
const IS_CHILD: &str = "ORLOP_TEST_IS_CHILD";
const NO_CPP_RUNTIME: i32 = 77;

/// Allocates a block and writes it.
fn used_block(machine: &Machine, raw: CUstream) -> usize {
    let bytes = isize::try_from(BYTES).unwrap();
    // SAFETY: the stream is retired before it is destroyed.
    let block = unsafe { orlop_torch_malloc(bytes, machine.number, raw.cast()) }.addr();
    let write = KernelRun::new("write").writes(block, BYTES);
    machine.driver.run_kernel(raw.addr() as u64, write).unwrap();
    block
}

fn free(machine: &Machine, block: usize, raw: CUstream) {
    // SAFETY: only this stream uses the block.
    unsafe { orlop_torch_free(pointer(block), 0, machine.number, raw.cast()) };
}

#[test]
fn a_retired_stream_is_destroyed_and_its_memory_reused() {
    let machine = Machine::new(13);
    let raw = machine.create_raw_stream();
    let (freed, kept) = (used_block(&machine, raw), used_block(&machine, raw));
    free(&machine, freed, raw);
    assert_eq!(orlop_torch_retire_stream(machine.number, raw.cast()), 0);
    // SAFETY: it is used no more.
    unsafe { stream::destroy(raw) }.unwrap();

    let other = machine.device.create_stream().unwrap();
    let blocks: Vec<usize> =
        std::iter::repeat_with(|| machine.malloc(BYTES, &other)).take_while(|&block| block != 0).collect();
    assert_eq!(blocks.len(), MEMORY / BYTES - 1, "all memory but that of the block that is kept");
    free(&machine, kept, raw);
    assert_ne!(machine.malloc(BYTES, &other), 0, "the block was freed after its stream");
    for block in blocks {
        machine.free(block, &other);
    }
    orlop_torch_trim(machine.number);
    assert_eq!(machine.stat("allocation.all.current"), 1);
    assert_eq!(machine.stat("orlop.num_failed_calls"), 0);
    assert_eq!(machine.driver.races(), []);
    assert_eq!(orlop_torch_retire_stream(machine.number, raw.cast()), 0, "it is unknown");
    assert_eq!(orlop_torch_retire_stream(machine.number, std::ptr::null_mut()), 0, "the default stream");
}

#[test]
fn a_stream_that_captures_is_not_retired() {
    let machine = Machine::new(14);
    let raw = machine.create_raw_stream();
    let block = used_block(&machine, raw);
    free(&machine, block, raw);
    // SAFETY: the stream exists.
    unsafe { stream::begin_capture(raw, CU_STREAM_CAPTURE_MODE_RELAXED) }.unwrap();
    assert_eq!(orlop_torch_retire_stream(machine.number, raw.cast()), -1);
    assert!(last_error().contains("captur"), "{}", last_error());
    // SAFETY: as above. An invalid capture is an error.
    let graph = unsafe { stream::end_capture(raw) }.unwrap();
    // SAFETY: the graph is used no more.
    unsafe { cudarc::driver::result::graph::destroy(graph) }.unwrap();
    assert_eq!(orlop_torch_retire_stream(machine.number, raw.cast()), 0);
    // SAFETY: it is used no more.
    unsafe { stream::destroy(raw) }.unwrap();
}

/// In a process of its own: nothing catches what the library throws.
#[test]
fn a_stream_that_cannot_be_recorded_is_an_exception() {
    let name = "streams::a_stream_that_cannot_be_recorded_is_an_exception";
    let Some(child) = in_child(name, record_in_vain) else { return };
    if child.status.code() == Some(NO_CPP_RUNTIME) {
        eprintln!("skipped: no libstdc++");
        return;
    }
    let text = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.signal(), Some(libc::SIGABRT), "{:?} {text}", child.status);
    assert!(text.contains("unknown blocks are ignored") && text.contains("exception"), "{text}");
}

/// Records streams that cannot be: of no block, which is ignored, and then of a block.
fn record_in_vain() {
    // SAFETY: the name is a string.
    if unsafe { libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) }.is_null() {
        std::process::exit(NO_CPP_RUNTIME);
    }
    let machine = Machine::new(15);
    let block = used_block(&machine, machine.create_raw_stream());
    let per_thread = pointer(2);
    // SAFETY: the stream is refused.
    unsafe { orlop_torch_record_stream(pointer(block + 1), per_thread) };
    eprintln!("unknown blocks are ignored");
    // SAFETY: as above. The frames up to here have nothing that must be dropped.
    unsafe { orlop_torch_record_stream(pointer(block), per_thread) };
}

/// In a process of its own: settings are those of a process.
#[test]
fn streams_that_are_apart_do_not_wait_for_each_other() {
    let name = "streams::streams_that_are_apart_do_not_wait_for_each_other";
    let Some(child) = in_child(name, use_streams_apart) else { return };
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
}

/// Frees blocks of a stream, and then those that another one used too, of which others could have the memory.
fn use_streams_apart() {
    // SAFETY: it ends with a zero.
    assert_eq!(unsafe { orlop_torch_configure(c"orlop:streams=apart".as_ptr(), 0) }, 0);
    let machine = Machine::new(15);
    let streams: Vec<DeviceStream> = (0..4).map(|_| machine.device.create_stream().unwrap()).collect();
    // Each waited for the default stream.
    let waits = || (machine.driver.calls("cuStreamWaitEvent"), machine.driver.counts().waits);
    let waits_before = waits();
    for stream in &streams {
        let block = machine.malloc(2 * BYTES, stream);
        machine.write(stream, block, 2 * BYTES);
        machine.free(block, stream);
    }
    for round in 0..8 {
        for (place, stream) in streams.iter().enumerate() {
            let blocks = [machine.malloc(BYTES, stream), machine.malloc(1 << 10, stream)];
            let other = &streams[(place + 1) % streams.len()];
            for block in blocks {
                assert_ne!(block, 0, "round {round}");
                machine.write(stream, block, 1 << 10);
                machine.record(block, other);
                machine.free(block, stream);
            }
        }
    }
    assert_eq!(waits(), waits_before);
    assert_eq!(machine.stat("num_alloc_retries"), 0, "memory was not short");
}

/// Runs a test in a process of its own, in which `act` is called. There it returns `None`.
fn in_child(name: &str, act: fn()) -> Option<Output> {
    if std::env::var_os(IS_CHILD).is_some() {
        act();
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    Some(command.args(["--exact", name, "--nocapture"]).env(IS_CHILD, "1").output().unwrap())
}
