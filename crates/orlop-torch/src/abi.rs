//! The functions that PyTorch and the Python package call, by their addresses in the library.
//!
//! A panic ends here, as an error. A failed request of PyTorch throws a C++ exception of PyTorch's, through
//! functions with the ABI `C-unwind`, and from a frame in which nothing is left to be dropped.

use crate::cpp::{CppException, ExceptionClass, StdFunction, throw_bad_alloc};
use crate::error::TorchError;
use crate::heap::DeviceHeap;
use crate::settings::AllocatorSettings;
use crate::{pressure, process, report};
use orlop_core::ByteSize;
use std::any::Any;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// PyTorch's id of a private pool, a `std::pair` of two numbers.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolIdPair {
    /// The number of a pool that a graph made.
    pub first: u64,
    /// The number of a pool that a user made.
    pub second: u64,
}

/// Allocates `size` bytes of `device` for `stream`. Zero bytes are a null pointer.
///
/// A failed request throws `c10::OutOfMemoryError`, or `c10::Error` if it did not fail for want of memory;
/// outside of PyTorch it returns null. [`orlop_torch_last_error`] has the text.
///
/// # Safety
///
/// `stream` is a stream of the device. It exists until [`orlop_torch_retire_stream`] returned 0 for it, or
/// else until the end of the process: work is recorded in it after its blocks were freed, too.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn orlop_torch_malloc(
    size: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let Ok(bytes @ 1..) = usize::try_from(size) else { return ptr::null_mut() };
    let heap = match guarded(|| process::heap(device)) {
        Ok(heap) => heap,
        // SAFETY: nothing is left to be dropped.
        Err(error) => return unsafe { fail(exception_for(bytes, device, error)) },
    };
    // SAFETY: guaranteed by the caller.
    let mut allocated = unsafe { request(heap, bytes, stream) };
    if matches!(&allocated, Err(error) if error.is_out_of_memory()) && pressure::relieve(device, bytes) {
        // SAFETY: as above.
        allocated = unsafe { request(heap, bytes, stream) };
    }
    match allocated {
        Ok(address) => ptr::with_exposed_provenance_mut(address),
        // SAFETY: as above.
        Err(error) => unsafe { fail(exception_for(bytes, device, error)) },
    }
}

/// # Safety
///
/// That of [`orlop_torch_malloc`]. PyTorch's functions, which are called for the route, can throw.
unsafe fn request(heap: &DeviceHeap, bytes: usize, stream: *mut c_void) -> Result<usize, TorchError> {
    let route = heap.route(stream);
    // SAFETY: guaranteed by the caller.
    guarded(|| unsafe { heap.allocate(bytes, stream, route) })
}

/// Frees a block of [`orlop_torch_malloc`]. In a child process nothing is freed.
///
/// # Safety
///
/// All work with the block was given to the stream that it was requested for, to streams that were recorded,
/// or before these.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_torch_free(
    block: *mut c_void,
    _size: usize,
    device: c_int,
    _stream: *mut c_void,
) {
    if !block.is_null() && !process::is_forked() {
        note(guarded(|| process::heap(device)?.free(block.addr())));
    }
}

/// Allocates a segment of `size` bytes that PyTorch's own allocator divides; null if there is no memory,
/// which PyTorch then reports.
///
/// # Safety
///
/// As [`orlop_torch_malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_torch_segment_malloc(
    size: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let Ok(bytes @ 1..) = usize::try_from(size) else { return ptr::null_mut() };
    // SAFETY: guaranteed by the caller.
    let allocated = guarded(|| unsafe { process::heap(device)?.allocate_segment(bytes, stream) });
    note(allocated).map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
}

/// Frees a segment of [`orlop_torch_segment_malloc`], after all work of the device; while a stream captures
/// that is known to the allocator, after its capture. PyTorch names the stream of the request, which may be
/// retired meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn orlop_torch_segment_free(
    segment: *mut c_void,
    _size: usize,
    device: c_int,
    _stream: *mut c_void,
) {
    if !segment.is_null() && !process::is_forked() {
        note(guarded(|| {
            let heap = process::heap(device)?;
            heap.segments.free(&heap.device, segment.addr())
        }));
    }
}

/// Records that `stream` uses a block. PyTorch does not name the device.
///
/// A failure throws as [`orlop_torch_malloc`] does: the block could be reused while the stream uses it. An
/// unknown block is foreign memory, of which PyTorch records nothing either: [`orlop_torch_last_error`] only.
///
/// # Safety
///
/// As [`orlop_torch_malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn orlop_torch_record_stream(block: *mut c_void, stream: *mut c_void) {
    if block.is_null() {
        return;
    }
    let recorded = guarded(|| {
        for heap in process::open_heaps() {
            // SAFETY: guaranteed by the caller: a stream that uses a block is one of its device.
            if unsafe { heap.record_stream(block.addr(), stream) }? {
                return Ok(());
            }
        }
        Err(TorchError::UnknownBlock(block.addr()))
    });
    match recorded {
        Err(TorchError::UnknownBlock(_)) => _ = note(recorded),
        // SAFETY: nothing is left to be dropped.
        Err(error) => _ = unsafe { fail(exception_of(error)) },
        Ok(()) => {}
    }
}

/// Waits for the work of `stream` and forgets it, so that it can be destroyed. Blocks that it used may be
/// live. An unknown stream is ignored. The program gives the stream no work meanwhile.
///
/// Returns 0; or -1 if the stream captures or the device failed ([`orlop_torch_last_error`]): the stream must
/// not be destroyed then.
#[unsafe(no_mangle)]
pub extern "C" fn orlop_torch_retire_stream(device: c_int, stream: *mut c_void) -> c_int {
    let retired = guarded(|| process::heap(device)?.retire_stream(stream));
    if note(retired).is_some() { 0 } else { -1 }
}

/// Returns the start of the block, and writes its bytes to `size`. A block is not a part of a larger one
/// that other processes could open.
///
/// # Safety
///
/// `size` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_torch_base_alloc(block: *mut c_void, size: *mut usize) -> *mut c_void {
    let bytes = guarded(|| Ok(process::open_heaps().find_map(|heap| heap.block_bytes(block.addr()))));
    if let (Some(Some(bytes)), false) = (note(bytes), size.is_null()) {
        // SAFETY: guaranteed by the caller.
        unsafe { size.write(bytes) };
    }
    block
}

/// Sends requests to a private pool if `takes` returns `true` for their stream.
///
/// # Safety
///
/// `takes` is a `std::function<bool(cudaStream_t)>` of libstdc++, which is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_torch_begin_allocate_to_pool(
    device: c_int,
    pool: PoolIdPair,
    takes: *const StdFunction,
) {
    // SAFETY: guaranteed by the caller.
    let takes = unsafe { takes.as_ref() };
    note(guarded(|| {
        // SAFETY: as above.
        let takes = takes.map_or_else(StdFunction::empty, |takes| unsafe { takes.copy() });
        process::heap(device)?.begin_pool((pool.first, pool.second), takes)
    }));
}

/// Ends what [`orlop_torch_begin_allocate_to_pool`] began. The pool keeps its memory.
#[unsafe(no_mangle)]
pub extern "C" fn orlop_torch_end_allocate_to_pool(device: c_int, pool: PoolIdPair) {
    note(guarded(|| process::heap(device)?.end_pool((pool.first, pool.second))));
}

/// Removes a user of a private pool. The memory of a pool without users can be released.
#[unsafe(no_mangle)]
pub extern "C" fn orlop_torch_release_pool(device: c_int, pool: PoolIdPair) {
    note(guarded(|| Ok(process::heap(device)?.allocator.release_pool((pool.first, pool.second))?)));
}

/// Limits the reserved bytes of a device to a share of its memory.
#[unsafe(no_mangle)]
pub extern "C" fn orlop_torch_memory_fraction(fraction: f64, device: c_int) {
    note(guarded(|| {
        process::heap(device)?.allocator.set_memory_fraction(fraction);
        Ok(())
    }));
}

/// Releases the cached memory of all devices.
#[unsafe(no_mangle)]
pub extern "C" fn orlop_torch_empty_cache() {
    note(guarded(|| Ok(process::open_heaps().for_each(|heap| _ = heap.trim()))));
}

/// Releases the cached memory of a device, and returns its bytes.
#[unsafe(no_mangle)]
pub extern "C" fn orlop_torch_trim(device: c_int) -> u64 {
    note(guarded(|| Ok(process::heap(device)?.trim()))).unwrap_or(0)
}

/// Sets the peaks of a device's statistics to the current values.
#[unsafe(no_mangle)]
pub extern "C" fn orlop_torch_reset_peaks(device: c_int) {
    note(guarded(|| {
        process::heap(device)?.allocator.reset_peaks();
        Ok(())
    }));
}

/// Chooses the policy and a limit of reserved bytes, of which 0 is none.
///
/// Policies are `orlop`, `orlop:hold_to_peak=N`, `orlop:streams=apart`, and `torch` with PyTorch's settings
/// after a colon. Returns 0; or -1 if a setting is invalid, or a device is in use with other settings:
/// [`orlop_torch_last_error`].
///
/// # Safety
///
/// `policy` is a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_torch_configure(policy: *const c_char, limit: u64) -> c_int {
    // SAFETY: guaranteed by the caller.
    let policy = unsafe { CStr::from_ptr(policy) };
    let given = guarded(|| AllocatorSettings::parse(&policy.to_string_lossy(), limit)?.give());
    if note(given).is_some() { 0 } else { -1 }
}

/// Writes the statistics of a device as JSON. Returns the length of the text; if that is more than
/// `capacity` it is cut off. 0 is an error.
///
/// # Safety
///
/// `text` is null or has `capacity` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_torch_stats(device: c_int, text: *mut c_char, capacity: usize) -> usize {
    let json = guarded(|| Ok(report::stats_as_json(&process::heap(device)?.allocator.device_stats())));
    // SAFETY: guaranteed by the caller.
    unsafe { write_text(&note(json).unwrap_or_default(), text, capacity) }
}

/// Writes a text about the memory of a device, as [`orlop_torch_stats`] does.
///
/// # Safety
///
/// As [`orlop_torch_stats`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_torch_report(device: c_int, text: *mut c_char, capacity: usize) -> usize {
    let report = guarded(|| Ok(report::text(process::heap(device)?)));
    // SAFETY: guaranteed by the caller.
    unsafe { write_text(&note(report).unwrap_or_default(), text, capacity) }
}

/// Writes the text of the last error of the process, as [`orlop_torch_stats`] does.
///
/// # Safety
///
/// As [`orlop_torch_stats`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_torch_last_error(text: *mut c_char, capacity: usize) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { write_text(&process::last_error(), text, capacity) }
}

/// # Safety
///
/// `text` is null or has `capacity` writable bytes.
unsafe fn write_text(source: &str, text: *mut c_char, capacity: usize) -> usize {
    if !text.is_null() {
        // SAFETY: no more than the capacity is written, from a string to memory of another one.
        unsafe { ptr::copy_nonoverlapping(source.as_ptr().cast(), text, source.len().min(capacity)) };
    }
    source.len()
}

/// Calls `act`; a panic becomes an error.
pub(crate) fn guarded<T>(act: impl FnOnce() -> Result<T, TorchError>) -> Result<T, TorchError> {
    // Nothing is half-way after a panic: locks are taken over, and the engine ends panics of user code.
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(TorchError::Panicked(message_of(&*panic))))
}

fn message_of(panic: &(dyn Any + Send)) -> Box<str> {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic").into()
}

/// Keeps the text of an error.
pub(crate) fn note<T>(result: Result<T, TorchError>) -> Option<T> {
    result.inspect_err(|error| process::keep_error(&error.to_string())).ok()
}

/// Keeps the text of the error of a request, and makes PyTorch's exception of it.
fn exception_for(bytes: usize, device: c_int, error: TorchError) -> Option<CppException> {
    if !error.is_out_of_memory() {
        return exception_of(error);
    }
    let size = ByteSize(bytes as u64);
    let text = format!("CUDA out of memory. Tried to allocate {size} on GPU {device} by orlop. {error}");
    process::keep_error(&text);
    CppException::of_torch(ExceptionClass::OutOfMemory, &text)
}

/// Keeps the text of an error, and makes a `c10::Error` of it.
fn exception_of(error: TorchError) -> Option<CppException> {
    let text = format!("orlop: {error}");
    drop(error);
    process::keep_error(&text);
    CppException::of_torch(ExceptionClass::Error, &text)
}

/// Throws, or returns null where there is no C++.
///
/// # Safety
///
/// The frames up to C++ are of functions with the ABI `C-unwind`, and have nothing to drop.
unsafe fn fail(exception: Option<CppException>) -> *mut c_void {
    match exception {
        // SAFETY: made just before; otherwise guaranteed by the caller.
        Some(exception) => unsafe { exception.throw() },
        // SAFETY: guaranteed by the caller.
        None => unsafe { throw_bad_alloc() },
    }
    ptr::null_mut()
}
