//! The simulated machine of all tests. The library's allocators are those of the process, so that the driver
//! is not started anew: each test has a device of its own.

use cudarc::driver::result::stream::StreamKind;
use cudarc::driver::sys::CUstream;
use orlop_cuda::{CudaDevice, DeviceStream};
use orlop_cudasim_control::{KernelRun, SimulatedDriver, SimulationConfig};
use orlop_torch::{
    orlop_torch_free, orlop_torch_last_error, orlop_torch_malloc, orlop_torch_record_stream,
    orlop_torch_segment_malloc, orlop_torch_stats,
};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The memory of a device.
pub(crate) const MEMORY: usize = 512 << 20;

const DEVICES: usize = 21;

/// One test at a time: the races and the last error are those of all devices.
static TURN: Mutex<()> = Mutex::new(());
static DRIVER: OnceLock<SimulatedDriver> = OnceLock::new();

/// A device of the simulated machine, for one test.
pub(crate) struct Machine {
    pub(crate) driver: SimulatedDriver,
    pub(crate) device: CudaDevice,
    pub(crate) number: c_int,
    _turn: MutexGuard<'static, ()>,
}

impl Machine {
    pub(crate) fn new(number: c_int) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = *DRIVER.get_or_init(|| {
            let driver = SimulatedDriver::load().unwrap();
            let config = SimulationConfig::new().devices([MEMORY as u64; DEVICES]);
            driver.reset(&config.seed(11).poison(false)).unwrap();
            driver
        });
        let device = CudaDevice::new(u16::try_from(number).unwrap()).unwrap();
        let _of_other_tests = driver.take_races();
        Self { driver, device, number, _turn: turn }
    }

    pub(crate) fn malloc(&self, bytes: usize, stream: &DeviceStream) -> usize {
        let bytes = isize::try_from(bytes).unwrap();
        // SAFETY: streams of a test exist until its end.
        unsafe { orlop_torch_malloc(bytes, self.number, handle(stream)) }.addr()
    }

    pub(crate) fn segment(&self, bytes: usize, stream: *mut c_void) -> usize {
        let bytes = isize::try_from(bytes).unwrap();
        // SAFETY: as for `malloc`.
        unsafe { orlop_torch_segment_malloc(bytes, self.number, stream) }.addr()
    }

    /// Creates a stream that the test destroys.
    pub(crate) fn create_raw_stream(&self) -> CUstream {
        self.device.context().bind_to_thread().unwrap();
        cudarc::driver::result::stream::create(StreamKind::NonBlocking).unwrap()
    }

    pub(crate) fn free(&self, address: usize, stream: &DeviceStream) {
        // SAFETY: tests record the streams that use a block, or check for races.
        unsafe { orlop_torch_free(pointer(address), 0, self.number, handle(stream)) };
    }

    pub(crate) fn record(&self, address: usize, stream: &DeviceStream) {
        // SAFETY: as for `malloc`.
        unsafe { orlop_torch_record_stream(pointer(address), handle(stream)) };
    }

    /// Runs a kernel that writes a block.
    pub(crate) fn write(&self, stream: &DeviceStream, address: usize, bytes: usize) {
        let run = KernelRun::new("write").writes(address, bytes);
        self.driver.run_kernel(handle(stream).addr() as u64, run).unwrap();
    }

    /// Returns a statistic.
    pub(crate) fn stat(&self, key: &str) -> u64 {
        // SAFETY: the text has this capacity.
        let json = text(|text, capacity| unsafe { orlop_torch_stats(self.number, text, capacity) });
        let stats: serde_json::Value = serde_json::from_str(&json).unwrap();
        stats[key].as_u64().unwrap_or_else(|| panic!("{key} in {json}"))
    }
}

pub(crate) fn handle(stream: &DeviceStream) -> *mut c_void {
    stream.cudarc().cu_stream().cast()
}

pub(crate) fn pointer(address: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address)
}

pub(crate) fn last_error() -> String {
    // SAFETY: the text has this capacity.
    text(|text, capacity| unsafe { orlop_torch_last_error(text, capacity) })
}

/// Returns what a function writes, which is asked for its length first.
pub(crate) fn text(write: impl Fn(*mut c_char, usize) -> usize) -> String {
    let mut bytes = vec![0_u8; write(std::ptr::null_mut(), 0)];
    assert_eq!(write(bytes.as_mut_ptr().cast(), bytes.len()), bytes.len());
    String::from_utf8(bytes).unwrap()
}
