//! Allocators by name, and a device in a context.

use crate::machine::Machine;
use orlop_alloc::{Access, Allocator, Error, Request};
use orlop_context::registry::Registry;
use orlop_context::{AllocatorConfig, Context};
use orlop_core::{Device, MemoryKind, StreamId};
use orlop_cuda::{CudaDevice, install, register};
use orlop_cudasim_control::SimulationConfig;
use orlop_tensor::Tensor;
use orlop_testkit::child;

const NAMES: [&str; 6] =
    ["cuda", "cuda-torch", "cuda-managed", "cuda-stream-ordered", "cuda-direct", "cuda-pinned"];

#[test]
fn allocators_have_names() {
    let machine = Machine::new(&SimulationConfig::new().devices([1 << 28, 1 << 28]));
    let devices = [0, 1].map(|ordinal| CudaDevice::new(ordinal).unwrap());
    let registry = Registry::new();
    assert_eq!(register(&registry), Ok(2));
    assert_eq!(registry.registered().len(), 2 * NAMES.len());
    let config = AllocatorConfig::new();
    for name in NAMES {
        for ordinal in [0, 1] {
            let name = format!("{name}:{ordinal}");
            let allocator = registry.make(&name, &config).unwrap_or_else(|error| panic!("{name}: {error}"));
            let is_pinned = name.starts_with("cuda-pinned");
            let device = if is_pinned { Device::CPU } else { Device::cuda(ordinal) };
            assert_eq!(allocator.device(), device, "{name}");
            let block = allocator.allocate(&Request::new(70_000).zeroed()).unwrap();
            assert_eq!(block.access(), if is_pinned { Access::Host } else { Access::Device }, "{name}");
            assert_eq!(block.stream(), StreamId::default_of(device), "{name}");
            let (pinned, used) = (machine.counts().pinned, machine.used_memory(usize::from(ordinal)));
            assert!(if is_pinned { pinned > 0 } else { used >= 70_000 }, "{name}");
            drop(block);
            drop(allocator);
            // The driver's pools keep freed memory until a wait.
            devices.iter().for_each(|device| device.context().synchronize().unwrap());
            let left = (machine.used_memory(0), machine.used_memory(1), machine.counts().pinned);
            assert_eq!(left, (0, 0, 0), "{name}");
        }
    }
    assert!(registry.make("cuda:2", &config).is_err());
}

#[test]
fn a_limit_is_followed_or_refused() {
    let _machine = Machine::new(&SimulationConfig::new().memory(1 << 28));
    let registry = Registry::new();
    register(&registry).unwrap();
    let config = AllocatorConfig::new().limit(64 << 20);
    for name in ["cuda:0", "cuda-torch:0", "cuda-managed:0"] {
        let allocator = registry.make(name, &config).unwrap();
        assert!(allocator.allocate(&Request::new(60 << 20)).is_ok(), "{name}");
        let refused = allocator.allocate(&Request::new(70 << 20)).unwrap_err();
        assert!(refused.is_out_of_memory(), "{name}: {refused}");
    }
    for name in ["cuda-stream-ordered:0", "cuda-direct:0", "cuda-pinned:0"] {
        assert!(registry.make(name, &config).is_err(), "{name} has no limit to follow");
    }
}

/// The variables of devices reach the allocators that are created by name.
#[test]
fn the_environment_is_followed_by_names() {
    const TEST: &str = "contexts::the_environment_is_followed_by_names";
    if !child::plays("named devices") {
        let variables = [("ORLOP_DEVICE_LIMIT", "25%"), ("ORLOP_DEVICE_PREALLOCATE", "32MiB")];
        child::run(TEST, "named devices", &variables);
        return;
    }
    let machine = Machine::new(&SimulationConfig::new().memory(1 << 28));
    let registry = Registry::new();
    register(&registry).unwrap();
    for name in ["cuda:0", "cuda-torch:0", "cuda-managed:0"] {
        let allocator = registry.allocator(name, None).unwrap();
        assert!(allocator.stats().usage.reserved >= 32 << 20, "{name}");
        assert!(machine.used_memory(0) >= 32 << 20, "{name}");
        let refused = allocator.allocate(&Request::new(70 << 20)).unwrap_err();
        assert!(refused.is_out_of_memory(), "{name}: {refused}");
        // A limit of the configuration takes the place of the environment's.
        let limited = registry.make(name, &AllocatorConfig::new().limit(80 << 20)).unwrap();
        assert!(limited.allocate(&Request::new(70 << 20)).is_ok(), "{name}");
        allocator.trim(0);
    }
}

#[test]
fn a_tensor_lives_on_the_device_of_a_context() {
    let machine = Machine::new(&SimulationConfig::new());
    let context = Context::new();
    install(&context, &machine.device).unwrap();
    let gpu = machine.device.device();
    assert_eq!(context.stream(gpu), machine.device.default_stream());
    let stream = machine.device.create_stream().unwrap();
    context.scope(|| {
        let values: Vec<f32> = (0_u16..5000).map(f32::from).collect();
        let host = Tensor::from_slice(&values).unwrap();
        let far = context.on_stream(gpu, stream.id(), || host.to_device(gpu)).unwrap();
        assert_eq!(far.device(), gpu);
        assert!(machine.used_memory(0) > 0);
        // Another stream: it is ordered after the copy.
        let again = context.on_stream(gpu, machine.device.default_stream(), || far.duplicate()).unwrap();
        drop(far);
        assert_eq!(again.to_device(Device::CPU).unwrap().to_vec::<f32>().unwrap(), values);
    });
    let pinned = context.allocate(Device::CPU, &Request::new(5000).kind(MemoryKind::HostPinned)).unwrap();
    assert!(machine.counts().pinned > 0);
    drop(pinned);
    assert_eq!(machine.races(), []);
    let driver = *machine;
    drop((stream, context));
    let Machine { device, driver: turn } = machine;
    drop(device);
    assert_eq!((driver.used_memory(0), driver.counts().pinned), (0, 0));
    assert_eq!((driver.counts().streams, driver.counts().events), (0, 0));
    drop(turn);
}

#[test]
fn a_context_without_the_device_says_so() {
    let machine = Machine::new(&SimulationConfig::new().devices([1 << 28, 1 << 28]));
    let context = Context::new();
    install(&context, &machine.device).unwrap();
    let other = CudaDevice::new(1).unwrap();
    let refused: Error = context.allocate(other.device(), &Request::new(1000)).unwrap_err();
    assert!(refused.to_string().contains("cuda:1"), "{refused}");
    install(&context, &other).unwrap();
    assert_eq!(context.allocate(other.device(), &Request::new(1000)).unwrap().device(), other.device());
}

#[test]
fn a_refusal_reports_what_others_hold() {
    let _machine = Machine::new(&SimulationConfig::new().memory(256 << 20));
    let registry = Registry::new();
    register(&registry).unwrap();
    let make = |name| registry.make(name, &AllocatorConfig::new()).unwrap();
    // For the caching allocator, the driver's allocator is like another process.
    let (allocator, other) = (make("cuda:0"), make("cuda-direct:0"));
    let (_held, _own) = (
        other.allocate(&Request::new(200 << 20)).unwrap(),
        allocator.allocate(&Request::new(2 << 20)).unwrap(),
    );
    let Err(Error::OutOfMemory(report)) = allocator.allocate(&Request::new(100 << 20)) else {
        panic!("the device has less than that")
    };
    let memory = report.device_memory.unwrap();
    assert_eq!(memory.total, 256 << 20);
    assert_eq!(report.held_elsewhere(), Some(memory.total - memory.free - report.reserved));
    assert!(report.held_elsewhere().unwrap() >= 200 << 20, "{}", report.report());
    assert!(report.hint().contains("held outside of this allocator"), "{}", report.hint());
    assert!(report.report().contains("device: "), "{}", report.report());
}
