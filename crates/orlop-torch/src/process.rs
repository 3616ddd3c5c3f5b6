//! The allocators of the process, and what a fork makes of them.
//!
//! They are never destroyed: tensors are freed until the process ends, when the driver may have ended before.

use crate::error::TorchError;
use crate::heap::DeviceHeap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, OnceLock, PoisonError};

/// More devices than a machine has.
const MAX_DEVICES: usize = 64;

static HEAPS: [OnceLock<DeviceHeap>; MAX_DEVICES] = [const { OnceLock::new() }; MAX_DEVICES];
static OPENING: Mutex<()> = Mutex::new(());
static LAST_ERROR: Mutex<String> = Mutex::new(String::new());
static FORKED: AtomicBool = AtomicBool::new(false);

/// Returns the heap of a device, which is opened if it is the first use.
pub(crate) fn heap(device: i32) -> Result<&'static DeviceHeap, TorchError> {
    if is_forked() {
        return Err(TorchError::Forked);
    }
    let place = usize::try_from(device).ok().filter(|&place| place < MAX_DEVICES);
    let place = place.ok_or(TorchError::NoSuchDevice(device))?;
    if let Some(heap) = HEAPS[place].get() {
        return Ok(heap);
    }
    let opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    watch_forks();
    if HEAPS[place].get().is_none() {
        let ordinal = u16::try_from(place).map_err(|_| TorchError::NoSuchDevice(device))?;
        let opened = DeviceHeap::open(ordinal)?;
        // Only this thread opens heaps.
        let _first = HEAPS[place].set(opened);
    }
    drop(opening);
    HEAPS[place].get().ok_or(TorchError::NoSuchDevice(device))
}

/// Returns the heaps of the devices in use.
pub(crate) fn open_heaps() -> impl Iterator<Item = &'static DeviceHeap> {
    HEAPS.iter().filter(|_| !is_forked()).filter_map(OnceLock::get)
}

/// Returns `true` in a child of the process that uses the devices.
pub(crate) fn is_forked() -> bool {
    // Relaxed: set in a child before its only thread runs anything else.
    FORKED.load(Ordering::Relaxed)
}

fn watch_forks() {
    extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        // SAFETY: the handler only stores a flag. The library is never unloaded: its thread-locals have
        // destructors.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Keeps the text of an error, for [`last_error`].
pub(crate) fn keep_error(text: &str) {
    // In a child the lock may be held by a thread that does not exist there.
    if !is_forked() {
        text.clone_into(&mut LAST_ERROR.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Returns the text of the last error of the process.
pub(crate) fn last_error() -> String {
    if is_forked() {
        return TorchError::Forked.to_string();
    }
    LAST_ERROR.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
