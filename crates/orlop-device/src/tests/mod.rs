//! Tests of the whole engine. Random programs under any policy are in `orlop-testkit`.

mod address_space;
mod captures;
mod closed_caches;
mod drift;
mod extensions;
mod failures;
mod high_water;
#[cfg(target_os = "linux")]
mod host_pages;
mod log_uniform;
mod periods;
mod release;
mod restored;
mod stream_ends;
mod streams;
mod thread_caches;
mod ties;
mod waste;

use crate::{DeviceRequest, DeviceStats, Engine, NullDevice, Policy, TorchConf};
use orlop_core::{Device, StreamId};

const MIB: usize = 1 << 20;

/// Returns an engine over a simulated device of `mib` MiB.
fn engine(policy: Policy, mib: u64) -> Engine<NullDevice> {
    Engine::new(NullDevice::new(Device::cuda(0), mib << 20), policy)
}

/// Returns a request for `mib` MiB on a stream.
fn on(mib: usize, stream: u64) -> DeviceRequest {
    DeviceRequest::new(mib * MIB, StreamId::from_raw(stream))
}

fn torch(conf: &str) -> Policy {
    Policy::torch(&conf.parse::<TorchConf>().expect("settings of PyTorch's"))
}

fn reserved_mib(stats: DeviceStats) -> u64 {
    stats.reserved_bytes.all.current >> 20
}
