//! The devices of the process: those in use, and how the use of the others ended.
//!
//! Memory of one device can name streams and events of another, which may be closed first. Closing waits for
//! that work. From then on it counts as complete; if the wait fails, it never does, and memory that it may
//! use is kept.

use super::DeviceState;
use crate::error::CudaError;
use orlop_core::Device;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The key of a device that is not published: it has no events.
pub(super) const UNPUBLISHED: u16 = 0;

/// A device that is in use or being closed, or one that is closed and of which more is known than that its
/// work is complete.
struct KnownDevice {
    ordinal: u16,
    key: u16,
    state: Weak<DeviceState>,
    phase: DevicePhase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DevicePhase {
    /// In use; or closed by another thread, which has not noted it yet.
    Open,
    /// A thread waits for the work.
    Closing,
    Finished,
    /// The wait for the work failed.
    Unfinished,
}

/// A device by its ordinal or by the key of its events.
pub(super) enum DeviceUse {
    Open(Arc<DeviceState>),
    /// Another thread waits for the work of the device.
    Closing,
    /// The device is closed and its work complete.
    Finished,
    /// The device is closed, and its work may still run.
    Unfinished,
}

impl KnownDevice {
    fn found(&self) -> DeviceUse {
        match (self.state.upgrade(), self.phase) {
            (Some(state), _) => DeviceUse::Open(state),
            (None, DevicePhase::Open | DevicePhase::Closing) => DeviceUse::Closing,
            (None, DevicePhase::Finished) => DeviceUse::Finished,
            (None, DevicePhase::Unfinished) => DeviceUse::Unfinished,
        }
    }
}

struct KnownDevices {
    devices: Vec<KnownDevice>,
    last_key: u16,
}

static DEVICES: Mutex<KnownDevices> = Mutex::new(KnownDevices { devices: Vec::new(), last_key: UNPUBLISHED });

fn known() -> MutexGuard<'static, KnownDevices> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the latest use of the device with this ordinal: its default stream is that of earlier uses too.
/// `None` if the process has never used it.
pub(super) fn by_ordinal(ordinal: u16) -> Option<DeviceUse> {
    let known = known();
    known.devices.iter().rfind(|known| known.ordinal == ordinal).map(KnownDevice::found)
}

/// Returns the device that is in use with this ordinal.
pub(crate) fn in_use(ordinal: u16) -> Option<Arc<DeviceState>> {
    known().devices.iter().filter(|known| known.ordinal == ordinal).find_map(|known| known.state.upgrade())
}

/// Returns the use of the device whose events have this key.
pub(super) fn by_key(key: u16) -> DeviceUse {
    let known = known();
    known.devices.iter().find(|known| known.key == key).map_or(DeviceUse::Finished, KnownDevice::found)
}

/// Makes a device known. If it is in use through the same context, returns the state that is.
///
/// # Errors
///
/// [`CudaError::OtherContext`].
pub(super) fn publish(mut state: DeviceState) -> Result<Arc<DeviceState>, CudaError> {
    let mut known = known();
    let of_ordinal = known.devices.iter().filter(|known| known.ordinal == state.ordinal);
    if let Some(used) = of_ordinal.clone().find_map(|known| known.state.upgrade()) {
        // A state that is dropped locks the list.
        drop(known);
        return if used.context.cu_ctx() == state.context.cu_ctx() {
            Ok(used)
        } else {
            Err(CudaError::OtherContext { device: Device::cuda(state.ordinal) })
        };
    }
    let ordinal = state.ordinal;
    known.devices.retain(|known| known.ordinal != ordinal || known.phase != DevicePhase::Finished);
    let Some(key) = known.next_key() else {
        drop(known);
        return Err(CudaError::OutOfMemory { call: "keys of devices" });
    };
    state.key = key;
    let state = Arc::new(state);
    let phase = DevicePhase::Open;
    known.devices.push(KnownDevice { ordinal, key, state: Arc::downgrade(&state), phase });
    Ok(state)
}

/// Notes that this thread waits for the work of a device, which is being closed.
pub(super) fn begin_closing(key: u16) {
    known().set_phase(key, DevicePhase::Closing);
}

/// Notes that a device is closed.
pub(super) fn end_closing(key: u16, is_finished: bool) {
    let phase = if is_finished { DevicePhase::Finished } else { DevicePhase::Unfinished };
    known().set_phase(key, phase);
}

impl KnownDevices {
    fn set_phase(&mut self, key: u16, phase: DevicePhase) {
        if let Some(known) = self.devices.iter_mut().find(|known| known.key == key) {
            known.phase = phase;
        }
    }

    /// Returns a key that no known device has. After 65,535 devices the keys start anew.
    fn next_key(&mut self) -> Option<u16> {
        for _ in 0..u16::MAX {
            self.last_key = self.last_key.checked_add(1).unwrap_or(UNPUBLISHED + 1);
            if self.devices.iter().all(|known| known.key != self.last_key) {
                return Some(self.last_key);
            }
        }
        None
    }
}
