//! Long loops of tensors that are created, copied, used by two streams, and simply dropped: what a step
//! costs, and that nothing grows.
//!
//! `cargo xtask cuda drift` sets `ORLOP_CUDA_STEPS` to a million.

use crate::machine::{Machine, setting};
use orlop_alloc::{Allocator, AllocatorRef, Usage};
use orlop_context::{AllocatorConfig, Context};
use orlop_core::{Device, MemoryKind};
use orlop_cuda::{DeviceStream, caching_allocator, install};
use orlop_cudasim_control::SimulationConfig;
use orlop_tensor::{Tensor, TensorOptions};
use std::collections::BTreeMap;
use std::time::Duration;

const ELEMENTS: usize = 256;

/// Steps until nothing is new any more.
const WARM_UP: u64 = 500;

struct Loop {
    context: Context,
    gpu: Device,
    streams: [DeviceStream; 2],
    allocators: [AllocatorRef; 2],
    machine: Machine,
}

/// What may not grow.
#[derive(Debug, PartialEq, Eq)]
struct Footprint {
    /// Of device memory, and of pinned memory.
    reserved: [u64; 2],
    regions: [u64; 2],
    metadata: [u64; 2],
    /// Of the driver.
    allocations: usize,
    events: u64,
}

impl Loop {
    fn new() -> Self {
        // The device is faster than the host: otherwise work piles up, in a loop that never waits.
        let config = SimulationConfig::new().poison(false).operation_time(Duration::from_nanos(100));
        let machine = Machine::new(&config);
        let gpu = machine.device.device();
        let context = Context::with(Device::CPU, AllocatorConfig::new());
        install(&context, &machine.device).unwrap();
        let device = caching_allocator(&machine.device).unwrap().into_ref().erase();
        context.register(gpu, MemoryKind::Default, device.clone()).unwrap();
        let pinned = context.allocator(Device::CPU, MemoryKind::HostPinned).unwrap().clone();
        let streams = [(); 2].map(|()| machine.device.create_stream().unwrap());
        Self { context, gpu, streams, allocators: [device, pinned], machine }
    }

    /// A batch is copied to the device by one stream, and used by the other. The host waits for nothing.
    fn two_streams(&self, step: u64) {
        let [copies, compute] = &self.streams;
        let pinned = TensorOptions::new().kind(MemoryKind::HostPinned);
        let host = Tensor::full([ELEMENTS], step as f32, pinned).unwrap();
        let input = self.context.on_stream(self.gpu, copies.id(), || host.to_device(self.gpu)).unwrap();
        drop(host);
        let result = self.context.on_stream(self.gpu, compute.id(), || input.duplicate()).unwrap();
        drop(input);
        drop(result);
    }

    fn one_stream(&self, step: u64) {
        self.context.on_stream(self.gpu, self.streams[0].id(), || {
            let options = TensorOptions::new().device(self.gpu);
            let made = Tensor::full([ELEMENTS], step as f32, options).unwrap();
            let copy = made.duplicate().unwrap();
            drop(made);
            drop(copy);
        });
    }

    fn run(&self, steps: std::ops::Range<u64>, step: impl Fn(&Self, u64)) {
        self.context.scope(|| steps.for_each(|number| step(self, number)));
    }

    /// Returns the calls of the driver in some steps, which must not wait.
    fn calls(&self, steps: std::ops::Range<u64>, step: impl Fn(&Self, u64)) -> BTreeMap<String, u64> {
        let waits = self.machine.counts().waits;
        drop(self.machine.take_calls());
        self.run(steps, step);
        assert_eq!(self.machine.counts().waits, waits, "the host waits");
        self.machine.take_calls()
    }

    fn footprint(&self) -> Footprint {
        let of = |figure: fn(&Usage) -> u64| self.allocators.each_ref().map(|of| figure(&of.usage()));
        Footprint {
            reserved: of(|usage| usage.reserved),
            regions: of(|usage| usage.regions),
            metadata: of(|usage| usage.metadata),
            allocations: self.machine.live_allocations().len(),
            events: self.machine.counts().events,
        }
    }
}

/// Calls that take or give back memory, create or destroy events, or wait on the host.
fn is_costly(name: &str) -> bool {
    let parts = ["Alloc", "Free", "Create", "Destroy", "Map", "Unmap", "Release", "Reserve", "Synchronize"];
    parts.iter().any(|part| name.contains(part))
}

fn costly(calls: &BTreeMap<String, u64>) -> Vec<&String> {
    calls.keys().filter(|name| is_costly(name)).collect()
}

#[test]
fn dropped_tensors_of_one_stream_call_only_the_copies() {
    let program = Loop::new();
    program.run(0..WARM_UP, Loop::one_stream);
    let calls = program.calls(0..1000, Loop::one_stream);
    assert_eq!(costly(&calls), [""; 0], "{calls:?}");
    assert!(!calls.keys().any(|name| name.starts_with("cuEvent")), "{calls:?}");
    assert_eq!(calls["cuMemcpyDtoDAsync_v2"], 1000, "{calls:?}");
}

#[test]
fn long_loops_of_two_streams_do_not_grow() {
    const EACH: u64 = 1000;
    let steps = setting("ORLOP_CUDA_STEPS", 4000);
    let program = Loop::new();
    program.run(0..WARM_UP, Loop::two_streams);
    let before = program.footprint();
    for from in (0..steps).step_by(EACH as usize) {
        let calls = program.calls(from..from + EACH, Loop::two_streams);
        assert_eq!(costly(&calls), [""; 0], "from step {from}: {calls:?}");
        // From the host to one stream, to the other, and the memory back to the first.
        let of = |name: &str| calls.get(name).copied().unwrap_or(0);
        assert!(of("cuEventRecord") <= 3 * EACH, "{calls:?}");
        // Of pinned memory, for the input, and for the result.
        assert!(of("cuEventQuery") <= 3 * EACH, "{calls:?}");
        assert_eq!(program.footprint(), before, "from step {from}");
        if from == 0 {
            println!("{EACH} steps: {calls:?}");
        }
    }
    assert_eq!(program.machine.races(), []);
    println!("{steps} steps: {:?}", program.footprint());
}
