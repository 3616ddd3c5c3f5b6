//! The devices of an oracle, which do the same.

use orlop_testkit::kv::{HostKvDevice, KvDevice, KvLaunch};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

/// What keeps the devices usable on this thread.
#[cfg(target_os = "linux")]
pub(super) type Turn = Option<std::rc::Rc<orlop_cudasim_control::ExclusiveDriver>>;
#[cfg(not(target_os = "linux"))]
pub(super) type Turn = ();

/// A handle to the devices of an oracle.
#[derive(Debug, Clone)]
pub(super) struct Devices(Arc<Mutex<Vec<Box<dyn KvDevice>>>>);

impl Devices {
    fn new(devices: Vec<Box<dyn KvDevice>>) -> Self {
        Self(Arc::new(Mutex::new(devices)))
    }

    /// Creates a device in host memory.
    pub(super) fn host(_: u64) -> (Self, Turn) {
        (Self::new(vec![Box::new(HostKvDevice::default())]), Turn::default())
    }

    /// Creates a device in host memory, and one of the simulated driver with this number of slots.
    #[cfg(target_os = "linux")]
    pub(super) fn all(slots: u64) -> (Self, Turn) {
        let turn = crate::simulated::turn();
        let gpu = crate::simulated::SimulatedGpu::new(slots);
        (Self::new(vec![Box::new(HostKvDevice::default()), Box::new(gpu)]), Some(turn))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn all(slots: u64) -> (Self, Turn) {
        Self::host(slots)
    }

    /// Lets every device do something, and returns the result, which must be the same.
    fn each<R: PartialEq + Debug>(&self, run: impl Fn(&mut dyn KvDevice) -> R) -> R {
        let mut devices = self.0.lock().unwrap();
        let results: Vec<R> = devices.iter_mut().map(|device| run(device.as_mut())).collect();
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{results:?}");
        results.into_iter().next().unwrap()
    }

    pub(super) fn launch(&self, launch: &KvLaunch) {
        self.each(|device| device.launch(launch.clone()));
    }

    pub(super) fn settle(&self) -> Option<u64> {
        self.each(|device| device.settle())
    }

    pub(super) fn write(&self, stamps: &[(u64, u64)]) {
        self.each(|device| device.write(stamps));
    }

    pub(super) fn read(&self, slots: &[u64]) -> Vec<u64> {
        self.each(|device| device.read(slots))
    }
}
